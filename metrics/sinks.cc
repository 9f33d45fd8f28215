#include "lockstep/metrics/sinks.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
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
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/sink_text.h"
#include "lockstep/metrics/tensorboard_events.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::AppendJson;
using ::lockstep::internal_metrics::AppendNumber;
using ::lockstep::internal_metrics::EventFileBegin;
using ::lockstep::internal_metrics::MetricsEvent;
using ::lockstep::internal_metrics::MetricsFile;
using ::lockstep::internal_metrics::RankSuffix;
using ::lockstep::internal_metrics::RestartEvent;
using ::lockstep::internal_metrics::TimeText;

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

// ---- Lines of JSON.

constexpr int64_t kLeastBytes = int64_t{1} << 16;

// JSON has no NaN and no infinite numbers.
void AppendJson(double value, std::string& json) {
  if (std::isfinite(value)) {
    AppendNumber(value, json);
  } else {
    json += "null";
  }
}

double SecondsSince1970() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

// Writes lines of JSON; docs/formats.md describes them.
// Thread-safety: thread-compatible.
class JsonLinesSink : public MetricsSink {
 public:
  JsonLinesSink(const JsonLinesOptions& options, int64_t rank, int64_t size)
      : path_(absl::StrCat(
            options.path,
            RankSuffix(rank).substr(absl::EndsWith(options.path, "/") ? 1 : 0),
            ".jsonl")),
        most_(options.max_bytes / 2),
        rank_(rank),
        size_(size) {}

  absl::Status Begin(int64_t steps) override {
    return Add(absl::StrFormat(R"({"after":%d,"time":%s,"rank":%d})"
                               "\n",
                               steps, TimeText(), rank_));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrCat(
        "{\"step\":", step, ",\"time\":", TimeText(), ",\"rank\":", rank_);
    for (const Metric& metric : metrics) {
      LOCKSTEP_RETURN_IF_ERROR(CheckName(metric.name));
      line += ',';
      AppendJson(metric.name, line);
      line += ':';
      AppendJson(metric.value, line);
    }
    return Add(line += "}\n");
  }

  absl::Status Flush() override {
    return file_ == nullptr ? absl::OkStatus() : file_->Flush();
  }

  // Continues the file, or begins it, with a line about this process.
  absl::Status Open() {
    const std::string line =
        absl::StrFormat(R"({"format":"lockstep metrics","version":1,"time":%s,)"
                        R"("rank":%d,"size":%d,"pid":%d})"
                        "\n",
                        TimeText(), rank_, size_, ::getpid());
    file_ = nullptr;  // this releases the lock
    LOCKSTEP_ASSIGN_OR_RETURN(auto file, OpenFile());
    if (!HasRoomFor(line, *file)) {
      LOCKSTEP_RETURN_IF_ERROR(SetAside());
      LOCKSTEP_ASSIGN_OR_RETURN(file, OpenFile());
    }
    LOCKSTEP_RETURN_IF_ERROR(file->AddLine(line));
    file_ = std::move(file);
    return absl::OkStatus();
  }

 private:
  // Every line has these fields itself.
  static absl::Status CheckName(absl::string_view name) {
    for (const absl::string_view own :
         {"", "step", "time", "rank", "after", "format"}) {
      if (name != own) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "a metric can't be called '", name,
          "' in a line of JSON, which has a meaning for this of its own"));
    }
    return absl::OkStatus();
  }

  // Returns true if the line fits, together with the end of an incomplete line
  // before it.
  bool HasRoomFor(const std::string& line, const MetricsFile& file) const {
    return file.size() + static_cast<int64_t>(line.size()) < most_;
  }

  absl::StatusOr<std::unique_ptr<MetricsFile>> OpenFile() const {
    // A process that is killed loses at most so much. With a step of a
    // millisecond, the cost of a system call is divided by ten.
    LOCKSTEP_ASSIGN_OR_RETURN(auto file,
                              MetricsFile::Open(path_, absl::Milliseconds(10)));
    LOCKSTEP_RETURN_IF_ERROR(file->Lock());
    return file;
  }

  // Renames the file, which replaces the older one.
  absl::Status SetAside() const {
    const std::string old = path_ + ".old";
    if (std::rename(path_.c_str(), old.c_str()) == 0 || errno == ENOENT) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(
        errno, absl::StrCat("can't rename ", path_, " to ", old));
  }

  absl::Status Add(const std::string& line) {
    constexpr int64_t kFirstLine = 256;  // the maximum length, in bytes
    if (static_cast<int64_t>(line.size()) + kFirstLine > most_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a line of ", line.size(), " bytes is too long for ", path_,
          ", which has room for ", most_ - kFirstLine, ": raise max_bytes"));
    }
    if (file_ == nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(Open());
    }
    if (!HasRoomFor(line, *file_)) {
      LOCKSTEP_RETURN_IF_ERROR(file_->Flush());
      LOCKSTEP_RETURN_IF_ERROR(SetAside());
      LOCKSTEP_RETURN_IF_ERROR(Open());
    }
    return file_->AddSoon(line);
  }

  const std::string path_;
  const int64_t most_;  // the maximum size of one file, in bytes
  const int64_t rank_;
  const int64_t size_;
  std::unique_ptr<MetricsFile> file_;  // null if it could not be opened
};

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

absl::Status Validate(const JsonLinesOptions& options) {
  if (options.path.empty()) {
    return absl::InvalidArgumentError(
        "path should name a folder and the beginning of the files' names, such "
        "as /data/runs/7/steps");
  }
  if (options.max_bytes < kLeastBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_bytes is ", options.max_bytes, "; accepted are ",
                     kLeastBytes, " and more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeJsonLinesSink(
    const JsonLinesOptions& options, int64_t rank, int64_t size) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
  auto sink = std::make_unique<JsonLinesSink>(options, rank, size);
  LOCKSTEP_RETURN_IF_ERROR(sink->Open());
  return sink;
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
