// Metrics sinks by name.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep::internal_plugin {
namespace {

struct TextOptions {
  std::string path;
};

void BindOptions(TextOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The file to which lines are added; empty: the standard output.");
}

// "step 120: loss 0.25, accuracy 0.9".
class TextSink : public MetricsSink {
 public:
  TextSink(std::string path, FILE* file)
      : path_(std::move(path)), file_(file) {}
  ~TextSink() override {
    if (file_ != stdout) std::fclose(file_);
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrCat("step ", step, ":");
    const char* separator = " ";
    for (const Metric& metric : metrics) {
      absl::StrAppend(&line, separator, absl::CHexEscape(metric.name), " ",
                      Config(metric.value).ToString());
      separator = ", ";
    }
    line += '\n';
    return Check(std::fwrite(line.data(), 1, line.size(), file_) ==
                 line.size());
  }

  absl::Status Flush() override { return Check(std::fflush(file_) == 0); }

 private:
  absl::Status Check(bool done) const {
    if (done) return absl::OkStatus();
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("can't write metrics to ", path_));
  }

  const std::string path_;
  FILE* const file_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeText(
    const PluginContext&, const TextOptions& options) {
  if (options.path.empty()) {
    return std::make_unique<TextSink>("the standard output", stdout);
  }
  FILE* const file = std::fopen(options.path.c_str(), "ae");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("can't open ", options.path));
  }
  return std::make_unique<TextSink>(options.path, file);
}

}  // namespace

absl::Status RegisterMetricsSinks(PluginRegistry& registry) {
  return registry.Add<MetricsSink>("text", "A line of text for each step.",
                                   MakeText);
}

}  // namespace lockstep::internal_plugin
