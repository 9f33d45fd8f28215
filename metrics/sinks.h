// The sinks that Lockstep has. A job's text makes them by the names "text",
// "json_lines", "tensorboard" and "prometheus"; a program can make them itself:
//
//   JsonLinesOptions options;
//   options.path = "/data/runs/7/steps";
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<MetricsSink> sink,
//                             MakeJsonLinesSink(options));
//   LOCKSTEP_RETURN_IF_ERROR(sink->Begin(steps));  // those of earlier runs
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(sink->Write(120, {{"loss", 0.25}}));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(sink->Flush());
//
// Where each rank has a sink, `rank` tells their files apart.
#ifndef LOCKSTEP_METRICS_SINKS_H_
#define LOCKSTEP_METRICS_SINKS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/records.h"

namespace lockstep {

struct TextSinkOptions {
  // The file to which lines are added, and whose folder is made if it is
  // missing. Empty: the standard output. On rank 3, ".rank0003" is added to the
  // name; on rank 0, nothing.
  std::string path;
};

// Returns a sink that writes a line for each step, such as
// "step 120: loss 0.25, accuracy 0.9".
absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTextSink(
    const TextSinkOptions& options, int64_t rank = 0);

struct JsonLinesOptions {
  // The beginning of the files' names, whose folder is made if it is missing.
  // Rank 3 writes to PATH.rank0003.jsonl, and rank 0 to PATH.rank0000.jsonl. If
  // the path ends with /, it is a folder, which has rank0003.jsonl.
  std::string path;

  // The most bytes that a rank's two files may take together: the present one,
  // and the one before it, to whose name ".old" is added. At least 65536.
  int64_t max_bytes = int64_t{1} << 26;

  // The steps whose events are written, too, if a session gives the sink the
  // records of a rank (records.h).
  StepsWithEvents events = StepsWithEvents::kSome;
};

// Returns INVALID_ARGUMENT for options with which no sink can be made.
absl::Status Validate(const JsonLinesOptions& options);

// Returns a sink that writes a line of JSON for each step; docs/formats.md
// describes them. The first line has the rank and the number of ranks.
absl::StatusOr<std::unique_ptr<MetricsSink>> MakeJsonLinesSink(
    const JsonLinesOptions& options, int64_t rank = 0, int64_t size = 1);

struct TensorboardOptions {
  // The folder of the run, which is made if it is missing. Rank 3 writes to the
  // folder "rank0003" in it, which is a run of its own.
  std::string folder;
};

// Returns INVALID_ARGUMENT for options with which no sink can be made.
absl::Status Validate(const TensorboardOptions& options);

// Returns a sink that writes event files, which TensorBoard shows.
absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTensorboardSink(
    const TensorboardOptions& options, int64_t rank = 0);

struct PrometheusOptions {
  // The file's name without its ending, whose folder is made if it is missing.
  // Rank 0 writes to PATH.prom, and rank 3 to PATH.rank0003.prom. A path may
  // already end with .prom.
  std::string path;

  // The time from one replacement of the file to the next; 0: each step
  // replaces it.
  absl::Duration every = absl::Seconds(15);
};

// Returns INVALID_ARGUMENT for options with which no sink can be made.
absl::Status Validate(const PrometheusOptions& options);

// Returns a sink that keeps the last value of each metric in a file, in
// Prometheus' text format, for the textfile collector of node_exporter;
// docs/formats.md describes it. The file is never incomplete, and stays after
// the training.
absl::StatusOr<std::unique_ptr<MetricsSink>> MakePrometheusSink(
    const PrometheusOptions& options, int64_t rank = 0);

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_SINKS_H_
