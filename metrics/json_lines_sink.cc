// This file has the sink "json_lines" of sinks.h. docs/formats.md describes
// what it writes.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/histogram.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/records.h"
#include "lockstep/metrics/sink_text.h"
#include "lockstep/metrics/sinks.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::AppendJson;
using ::lockstep::internal_metrics::AppendNumber;
using ::lockstep::internal_metrics::MetricsFile;
using ::lockstep::internal_metrics::RankSuffix;
using ::lockstep::internal_metrics::TimeText;

constexpr int64_t kLeastBytes = int64_t{1} << 16;

// JSON has no NaN and no infinite numbers.
void AppendJson(double value, std::string& json) {
  if (std::isfinite(value)) {
    AppendNumber(value, json);
  } else {
    json += "null";
  }
}

// Appends the member "NAME":"TEXT", with a comma before it.
void AppendText(absl::string_view name, absl::string_view text,
                std::string& json) {
  absl::StrAppend(&json, ",\"", name, "\":");
  AppendJson(text, json);
}

// Appends the pairs of a bucket and its count, without empty buckets.
void AppendBuckets(absl::string_view name, const Histogram& histogram,
                   std::string& json) {
  absl::StrAppend(&json, ",\"", name, "\":[");
  const absl::Span<const int64_t> counts = histogram.buckets();
  const char* separator = "[";
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    if (counts[bucket] == 0) continue;
    absl::StrAppend(&json, separator, bucket, ",", counts[bucket], "]");
    separator = ",[";
  }
  json += ']';
}

// Appends an event as an array. Times count from `before`.
void AppendEvent(const StepEvent& event, int64_t before, std::string& json) {
  json += '[';
  if (event.kind == StepEvent::Kind::kOperation) {
    AppendJson(event.group, json);
    json += ',';
    AppendJson(event.operation, json);
    json += ',';
    AppendJson(event.name, json);
    absl::StrAppend(&json, ",", event.bytes, ",");
  } else if (event.kind == StepEvent::Kind::kRead ||
             event.kind == StepEvent::Kind::kComplete) {
    absl::StrAppend(&json, event.worker, ",");
  }
  absl::StrAppend(&json, event.begin - before, ",");
  if (event.end < 0) {
    json += "null";
  } else {
    absl::StrAppend(&json, event.end - before);
  }
  if (event.kind == StepEvent::Kind::kOperation) {
    json += event.failed ? ",true" : ",false";
  } else if (event.kind == StepEvent::Kind::kRead) {
    absl::StrAppend(&json, ",", event.index, ",", event.rows);
  }
  json += ']';
}

// Tells which of several metrics with one name is the last. Its value counts,
// since an object of JSON has a name once.
// Thread-safety: thread-compatible.
class LastOf {
 public:
  // The metrics outlive this.
  explicit LastOf(absl::Span<const Metric> metrics) : metrics_(metrics) {
    // For few metrics, comparing all names is faster.
    constexpr size_t kFew = 64;
    if (metrics.size() <= kFew) return;
    for (const Metric& metric : metrics) last_[metric.name] = &metric;
  }

  bool Is(const Metric& metric) const {
    if (!last_.empty()) return last_.at(metric.name) == &metric;
    const Metric* const end = metrics_.data() + metrics_.size();
    return std::none_of(&metric + 1, end, [&](const Metric& later) {
      return later.name == metric.name;
    });
  }

 private:
  const absl::Span<const Metric> metrics_;
  std::map<absl::string_view, const Metric*> last_;
};

// Writes lines of JSON.
// Thread-safety: thread-compatible.
class JsonLinesSink : public MetricsSink, public RecordsSink {
 public:
  JsonLinesSink(const JsonLinesOptions& options, int64_t rank, int64_t size)
      : path_(absl::StrCat(
            options.path,
            RankSuffix(rank).substr(absl::EndsWith(options.path, "/") ? 1 : 0),
            ".jsonl")),
        most_(options.max_bytes / 2),
        which_(options.events),
        rank_(rank),
        size_(size) {}

  absl::Status Begin(int64_t steps) override {
    after_ = steps;
    return Add(absl::StrCat("{\"after\":", steps, OfLine(), "}\n"));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    if (!first_step_.has_value()) first_step_ = step;
    std::string line = absl::StrCat("{\"step\":", step, OfLine());
    const LastOf last(metrics);
    for (const Metric& metric : metrics) {
      LOCKSTEP_RETURN_IF_ERROR(CheckName(metric.name));
      if (!last.Is(metric)) continue;
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

  // ---- Records.

  RecordsSink* records() override { return this; }
  StepsWithEvents which() const override { return which_; }

  absl::Status BeginRun(const RunRecord& run) override {
    std::string line = absl::StrCat("{\"run\":", run.run, OfLine());
    AppendText("host", run.host, line);
    AppendText("clock", run.clock, line);
    std::string job = line;
    AppendText("job", run.job, job);
    // A text that would fill the files is left out.
    run_line_ =
        (static_cast<int64_t>(job.size()) < most_ / 4 ? job : line) + "}\n";
    return Add(run_line_);
  }

  absl::Status WriteEvents(const StepEvents& events) override {
    std::string line = absl::StrCat("{\"events\":", events.step, OfLine());
    AppendText("why", Name(events.why), line);
    AppendText("loader", events.loader, line);
    absl::StrAppend(&line, ",\"epoch\":", events.epoch,
                    ",\"number\":", events.number,
                    ",\"before\":", events.before,
                    ",\"asked\":", events.asked - events.before,
                    ",\"ended\":", events.ended - events.before,
                    ",\"ready_batches\":", events.ready_batches);
    if (events.ahead_error >= 0) {
      absl::StrAppend(&line, ",\"ahead\":", events.ahead,
                      ",\"ahead_error\":", events.ahead_error);
    }
    int64_t dropped = events.dropped;
    for (const auto& [kind, name] :
         {std::pair(StepEvent::Kind::kWait, "waits"),
          std::pair(StepEvent::Kind::kAverage, "averages"),
          std::pair(StepEvent::Kind::kOperation, "operations"),
          std::pair(StepEvent::Kind::kRead, "reads"),
          std::pair(StepEvent::Kind::kComplete, "completes")}) {
      dropped += AppendEvents(events, kind, name, line);
    }
    absl::StrAppend(&line, ",\"dropped\":", dropped,
                    ",\"dropped_steps\":", events.dropped_steps, "}\n");
    return Add(line);
  }

  absl::Status WriteTimes(int64_t step, const OperationTimes& times) override {
    std::string line = absl::StrCat("{\"times\":", step, OfLine());
    AppendText("group", times.group, line);
    AppendText("operation", times.operation, line);
    AppendText("dtype", times.dtype, line);
    absl::StrAppend(&line, ",\"count\":", times.count);
    if (times.bucket >= 0) {
      absl::StrAppend(&line, ",\"bucket\":", times.bucket);
    }
    AppendBuckets("issued", times.issued, line);
    AppendBuckets("ended", times.ended, line);
    AppendBuckets("took", times.took, line);
    return Add(line += "}\n");
  }

  absl::Status WriteSlowest(int64_t step, absl::string_view loader,
                            absl::Span<const SlowRecord> slowest) override {
    std::string line = absl::StrCat("{\"slowest\":", step, OfLine());
    AppendText("loader", loader, line);
    line += ",\"samples\":[";
    const char* separator = "[";
    for (const SlowRecord& slow : slowest) {
      absl::StrAppend(&line, separator, slow.index, ",");
      AppendJson(slow.seconds, line);
      absl::StrAppend(&line, ",", slow.timed_together, "]");
      separator = ",[";
    }
    return Add(line += "]}\n");
  }

  // Continues the file, or begins it, with a line about this process.
  absl::Status Open() {
    std::string line = absl::StrCat(
        R"({"format":"lockstep metrics","version":2)", OfLine(),
        ",\"size\":", size_, ",\"pid\":", ::getpid(), ",\"file\":", files_ + 1);
    if (first_step_.has_value()) {
      absl::StrAppend(&line, ",\"first_step\":", *first_step_);
    }
    if (after_.has_value()) absl::StrAppend(&line, ",\"after\":", *after_);
    line += "}\n" + run_line_;
    file_ = nullptr;  // this releases the lock
    LOCKSTEP_ASSIGN_OR_RETURN(auto file, OpenFile());
    if (!HasRoomFor(line, *file)) {
      LOCKSTEP_RETURN_IF_ERROR(SetAside());
      LOCKSTEP_ASSIGN_OR_RETURN(file, OpenFile());
    }
    LOCKSTEP_RETURN_IF_ERROR(file->AddLine(line));
    ++files_;
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

  // Returns the members of every line: the seconds since 1970, and the rank.
  std::string OfLine() const {
    return absl::StrCat(",\"time\":", TimeText(), ",\"rank\":", rank_);
  }

  // Appends the events of a kind, as far as a line has room. Returns how many
  // it has left out.
  int64_t AppendEvents(const StepEvents& events, StepEvent::Kind kind,
                       absl::string_view name, std::string& line) const {
    int64_t dropped = 0;
    absl::StrAppend(&line, ",\"", name, "\":[");
    bool is_first = true;
    for (const StepEvent& event : events.events) {
      if (event.kind != kind) continue;
      if (static_cast<int64_t>(line.size()) > most_ / 4) {
        ++dropped;
        continue;
      }
      if (!std::exchange(is_first, false)) line += ',';
      AppendEvent(event, events.before, line);
    }
    line += ']';
    return dropped;
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
    // The most bytes of the lines at the beginning of a file.
    const int64_t first_lines = 256 + static_cast<int64_t>(run_line_.size());
    if (static_cast<int64_t>(line.size()) + first_lines > most_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a line of ", line.size(), " bytes is too long for ", path_,
          ", which has room for ", most_ - first_lines, ": raise max_bytes"));
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
  const StepsWithEvents which_;
  const int64_t rank_;
  const int64_t size_;
  std::string run_line_;               // empty before BeginRun
  std::optional<int64_t> after_;       // of Begin
  std::optional<int64_t> first_step_;  // that this process has written
  int64_t files_ = 0;                  // that were begun or continued
  std::unique_ptr<MetricsFile> file_;  // null if it could not be opened
};

}  // namespace

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

}  // namespace lockstep
