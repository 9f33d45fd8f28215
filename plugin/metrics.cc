// Registers metrics sinks.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/sinks.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

void BindOptions(TextSinkOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The file to which lines are added; empty: the standard output. "
            "Its folder is made if it is missing. Under [rank_metrics], "
            ".rank0003 is added to the file's name on rank 3.");
}

void BindOptions(JsonLinesOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The folder and the beginning of the files' names, to which "
            ".rank0003.jsonl is added on rank 3; or a folder with / at its "
            "end. The folder is made if it is missing.");
  table.AddSize(
      "max_bytes", &options.max_bytes,
      "The most bytes that a rank's two files may take together: the present "
      "one, and the one before it, to whose name .old is added.");
  table.Add("events", &options.events,
            "The steps whose events are written, too, under [rank_metrics]: "
            "the first 100, a hundredth of the later ones and slow ones; or "
            "all; or none.",
            {{"some", StepsWithEvents::kSome},
             {"all", StepsWithEvents::kAll},
             {"none", StepsWithEvents::kNone}});
}

void BindOptions(TensorboardOptions& options, OptionTable& table) {
  table.Add("folder", &options.folder,
            "The folder of the run, which is made if it is missing. Under "
            "[rank_metrics], each rank from 1 on has a run of its own, in the "
            "folders rank0001 and so on below it.");
}

void BindOptions(PrometheusOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The file's name without its ending: rank 0 writes to it with "
            ".prom, and under [rank_metrics] rank 3 with .rank0003.prom. The "
            "folder is made if it is missing.");
  table.Add("every", &options.every,
            "The time from one replacement of the file to the next; 0s: each "
            "step replaces it.");
}

namespace internal_plugin {
namespace {

using SinkResult = absl::StatusOr<std::unique_ptr<MetricsSink>>;

SinkResult MakeText(const PluginContext& context,
                    const TextSinkOptions& options) {
  return MakeTextSink(options, context.rank);
}

SinkResult MakeJsonLines(const PluginContext& context,
                         const JsonLinesOptions& options) {
  return MakeJsonLinesSink(options, context.rank, context.world_size);
}

SinkResult MakeTensorboard(const PluginContext& context,
                           const TensorboardOptions& options) {
  return MakeTensorboardSink(options, context.rank);
}

SinkResult MakePrometheus(const PluginContext& context,
                          const PrometheusOptions& options) {
  return MakePrometheusSink(options, context.rank);
}

}  // namespace

absl::Status RegisterMetricsSinks(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "json_lines",
      "Lines of JSON, one for each step (docs/formats.md). Under "
      "[rank_metrics], each rank has a file of its own.",
      MakeJsonLines));
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "prometheus",
      "A file in Prometheus' text format, with the last value of each metric, "
      "for the textfile collector of node_exporter (docs/formats.md). Under "
      "[rank_metrics], each rank has a file of its own.",
      MakePrometheus));
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "tensorboard", "Event files, which TensorBoard shows.", MakeTensorboard));
  return registry.Add<MetricsSink>("text", "A line of text for each step.",
                                   MakeText);
}

}  // namespace internal_plugin
}  // namespace lockstep
