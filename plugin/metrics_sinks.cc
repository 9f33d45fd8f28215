// Metrics sinks by name.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/plugin/tensorboard_events.h"

namespace lockstep::internal_plugin {
namespace {

struct TextOptions {
  std::string path;
};

void BindOptions(TextOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The file to which lines are added; empty: the standard output.");
}

// A file to which a sink appends.
class SinkFile {
 public:
  static absl::StatusOr<std::unique_ptr<SinkFile>> Open(
      const std::string& path) {
    FILE* const file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("can't open ", path));
    }
    return std::make_unique<SinkFile>(path, file);
  }

  SinkFile(std::string path, FILE* file)
      : path_(std::move(path)), file_(file) {}
  ~SinkFile() {
    if (file_ != stdout) std::fclose(file_);
  }

  SinkFile(const SinkFile&) = delete;
  SinkFile& operator=(const SinkFile&) = delete;

  absl::Status Write(absl::string_view bytes) {
    return Check(std::fwrite(bytes.data(), 1, bytes.size(), file_) ==
                 bytes.size());
  }
  absl::Status Flush() { return Check(std::fflush(file_) == 0); }

 private:
  absl::Status Check(bool done) const {
    if (done) return absl::OkStatus();
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("can't write metrics to ", path_));
  }

  const std::string path_;
  FILE* const file_;
};

// "step 120: loss 0.25, accuracy 0.9".
class TextSink : public MetricsSink {
 public:
  explicit TextSink(std::unique_ptr<SinkFile> file) : file_(std::move(file)) {}

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrCat("step ", step, ":");
    const char* separator = " ";
    for (const Metric& metric : metrics) {
      absl::StrAppend(&line, separator, absl::CHexEscape(metric.name), " ",
                      Config(metric.value).ToString());
      separator = ", ";
    }
    line += '\n';
    return file_->Write(line);
  }

  absl::Status Flush() override { return file_->Flush(); }

 private:
  const std::unique_ptr<SinkFile> file_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeText(
    const PluginContext&, const TextOptions& options) {
  if (options.path.empty()) {
    return std::make_unique<TextSink>(
        std::make_unique<SinkFile>("the standard output", stdout));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, SinkFile::Open(options.path));
  return std::make_unique<TextSink>(std::move(file));
}

// ---- TensorBoard.

constexpr char kEventFile[] = "events.out.tfevents.";

struct TensorboardOptions {
  std::string folder;
};

void BindOptions(TensorboardOptions& options, OptionTable& table) {
  table.Add("folder", &options.folder,
            "The folder of the run, which is made if it is missing.");
}

class TensorboardSink : public MetricsSink {
 public:
  // `goes_on`: earlier runs have files in the folder.
  TensorboardSink(std::unique_ptr<SinkFile> file, bool goes_on)
      : file_(std::move(file)), goes_on_(goes_on) {}

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    std::string bytes;
    if (goes_on_) bytes = RestartEvent(now, step);
    goes_on_ = false;
    bytes += MetricsEvent(now, step, metrics);
    return file_->Write(bytes);
  }

  absl::Status Flush() override { return file_->Flush(); }

 private:
  const std::unique_ptr<SinkFile> file_;
  bool goes_on_;
};

bool HasEventFiles(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (absl::StartsWith(entry.path().filename().string(), kEventFile)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTensorboard(
    const PluginContext&, const TensorboardOptions& options) {
  if (options.folder.empty()) {
    return absl::InvalidArgumentError(
        "folder should name the folder of the run, such as /data/runs/7");
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("can't create ", options.folder));
  }
  const bool goes_on = HasEventFiles(options.folder);
  const absl::Time now = absl::Now();
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto file, SinkFile::Open(absl::StrCat(options.folder, "/", kEventFile,
                                             absl::ToUnixSeconds(now),
                                             ".lockstep.", ::getpid())));
  LOCKSTEP_RETURN_IF_ERROR(file->Write(
      EventFileBegin(absl::ToDoubleSeconds(now - absl::UnixEpoch()))));
  return std::make_unique<TensorboardSink>(std::move(file), goes_on);
}

}  // namespace

absl::Status RegisterMetricsSinks(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "tensorboard", "Event files, which TensorBoard draws.", MakeTensorboard));
  return registry.Add<MetricsSink>("text", "A line of text for each step.",
                                   MakeText);
}

}  // namespace lockstep::internal_plugin
