#include "lockstep/metrics/sinks.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
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
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/sink_text.h"
#include "lockstep/metrics/tensorboard_events.h"

namespace lockstep {
namespace {

using ::lockstep::internal_metrics::AppendNumber;
using ::lockstep::internal_metrics::EventFileBegin;
using ::lockstep::internal_metrics::MetricsEvent;
using ::lockstep::internal_metrics::MetricsFile;
using ::lockstep::internal_metrics::RankSuffix;
using ::lockstep::internal_metrics::RestartEvent;

// ---- Text.

// Writes lines such as "step 120: loss 0.25, accuracy 0.9".
// Thread-safety: thread-compatible.
class TextSink : public MetricsSink {
 public:
  explicit TextSink(std::unique_ptr<MetricsFile> file)
      : file_(std::move(file)) {}

  absl::Status Begin(int64_t steps) override {
    if (steps == 0 && file_->size() == 0) return absl::OkStatus();
    return file_->AddSoon(absl::StrCat("goes on after step ", steps, "\n"));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrCat("step ", step, ":");
    const char* separator = " ";
    for (const Metric& metric : metrics) {
      absl::StrAppend(&line, separator, absl::CHexEscape(metric.name), " ");
      // Fewer digits are easier to read.
      AppendNumber(metric.value, line, std::chars_format::general, 8);
      separator = ", ";
    }
    line += '\n';
    return file_->AddSoon(line);
  }

  absl::Status Flush() override { return file_->Flush(); }

 private:
  const std::unique_ptr<MetricsFile> file_;
};

double SecondsSince1970() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

// ---- TensorBoard.

constexpr char kEventFile[] = "events.out.tfevents.";

// Writes event files.
// Thread-safety: thread-compatible.
class TensorboardSink : public MetricsSink {
 public:
  // `goes_on` is true if earlier runs have files in the folder.
  TensorboardSink(std::unique_ptr<MetricsFile> file, bool goes_on)
      : file_(std::move(file)), goes_on_(goes_on) {}

  absl::Status Begin(int64_t steps) override {
    if (!goes_on_) return absl::OkStatus();
    return file_->AddSoon(RestartEvent(SecondsSince1970(), steps + 1));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    return file_->AddSoon(MetricsEvent(SecondsSince1970(), step, metrics));
  }

  absl::Status Flush() override { return file_->Flush(); }

 private:
  const std::unique_ptr<MetricsFile> file_;
  const bool goes_on_;
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

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTextSink(
    const TextSinkOptions& options, int64_t rank) {
  if (options.path.empty()) {
    return std::make_unique<TextSink>(MetricsFile::StandardOutput());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto file,
      MetricsFile::Open(options.path + (rank > 0 ? RankSuffix(rank) : "")));
  return std::make_unique<TextSink>(std::move(file));
}

absl::Status Validate(const TensorboardOptions& options) {
  if (!options.folder.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "folder should name the folder of the run, such as /data/runs/7");
}

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTensorboardSink(
    const TensorboardOptions& options, int64_t rank) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
  std::string folder = options.folder;
  if (rank > 0) {
    absl::StrAppend(&folder, "/", RankSuffix(rank).substr(1));
  }
  const bool goes_on = HasEventFiles(folder);
  const double now = SecondsSince1970();
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, MetricsFile::Open(absl::StrFormat(
                                           "%s/%s%.6f.lockstep.%d", folder,
                                           kEventFile, now, ::getpid())));
  LOCKSTEP_RETURN_IF_ERROR(file->Add(EventFileBegin(now)));
  return std::make_unique<TensorboardSink>(std::move(file), goes_on);
}

}  // namespace lockstep
