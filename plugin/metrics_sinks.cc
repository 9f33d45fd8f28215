// Metrics sinks by name.
#include <unistd.h>

#include <array>
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
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/metrics_file.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/plugin/tensorboard_events.h"
#include "lockstep/plugin/utf8.h"

namespace lockstep::internal_plugin {
namespace {

// Returns the shortest digits that read back as the same number: "0.1", "120".
// It takes a tenth of a microsecond, and so a sink may print some of them in
// each step.
std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text;
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

// Makes the folder of a file, and those above it.
absl::Status MakeFolders(const std::filesystem::path& folder) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("can't create ", folder.string()));
}

// ---- Text.

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
  explicit TextSink(std::unique_ptr<MetricsFile> file)
      : file_(std::move(file)) {}

  absl::Status Begin(int64_t steps) override {
    if (steps == 0) return absl::OkStatus();
    return file_->Add(absl::StrCat("goes on after step ", steps, "\n"));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrCat("step ", step, ":");
    const char* separator = " ";
    for (const Metric& metric : metrics) {
      absl::StrAppend(&line, separator, absl::CHexEscape(metric.name), " ",
                      NumberText(metric.value));
      separator = ", ";
    }
    line += '\n';
    return file_->Add(line);
  }

 private:
  const std::unique_ptr<MetricsFile> file_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeText(
    const PluginContext&, const TextOptions& options) {
  if (options.path.empty()) {
    return std::make_unique<TextSink>(MetricsFile::StandardOutput());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, MetricsFile::Open(options.path));
  LOCKSTEP_RETURN_IF_ERROR(file->EndTornLine());
  return std::make_unique<TextSink>(std::move(file));
}

// ---- Lines of JSON.

constexpr int64_t kLeastBytes = int64_t{1} << 16;

struct JsonLinesOptions {
  std::string path;
  int64_t max_bytes = int64_t{1} << 26;
};

void BindOptions(JsonLinesOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The folder, which is made if it is missing, and the beginning of "
            "the files' names, to which .rank0003.jsonl is added on rank 3.");
  table.AddSize("max_bytes", &options.max_bytes,
                "The most bytes that a rank's files take, the present one and "
                "the one before it, to whose name .old is added.");
}

// JSON has no number that is none, and none that is infinite. All readers take
// `null` and a number that is too large for them.
std::string JsonNumber(double value) {
  if (std::isnan(value)) return "null";
  if (std::isinf(value)) return value > 0 ? "1e999" : "-1e999";
  return NumberText(value);
}

std::string JsonText(absl::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&json, "\\", absl::string_view(&c, 1));
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  return json += '"';
}

double SecondsSince1970() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

// docs/formats.md has the lines.
class JsonLinesSink : public MetricsSink {
 public:
  JsonLinesSink(const JsonLinesOptions& options, int64_t rank, int64_t size)
      : path_(absl::StrCat(options.path, ".rank",
                           absl::Dec(rank, absl::kZeroPad4), ".jsonl")),
        most_(options.max_bytes / 2),
        rank_(rank),
        size_(size) {}

  absl::Status Begin(int64_t steps) override {
    return Add(absl::StrFormat(R"({"after":%d,"time":%.6f,"rank":%d})"
                               "\n",
                               steps, SecondsSince1970(), rank_));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    std::string line = absl::StrFormat(R"({"step":%d,"time":%.6f,"rank":%d)",
                                       step, SecondsSince1970(), rank_);
    for (const Metric& metric : metrics) {
      absl::StrAppend(&line, ",", JsonText(Utf8Of(metric.name)), ":",
                      JsonNumber(metric.value));
    }
    return Add(line += "}\n");
  }

  // Goes on with the file, or begins it, with a line that says whose it is.
  absl::Status Open() {
    LOCKSTEP_RETURN_IF_ERROR(
        MakeFolders(std::filesystem::path(path_).parent_path()));
    const std::string line = absl::StrFormat(
        R"({"format":"lockstep metrics","version":1,"time":%.6f,"rank":%d,)"
        R"("size":%d,"pid":%d})"
        "\n",
        SecondsSince1970(), rank_, size_, ::getpid());
    LOCKSTEP_ASSIGN_OR_RETURN(file_, MetricsFile::Open(path_));
    if (!HasRoomFor(line)) {
      LOCKSTEP_RETURN_IF_ERROR(SetAside());
      LOCKSTEP_ASSIGN_OR_RETURN(file_, MetricsFile::Open(path_));
    }
    LOCKSTEP_RETURN_IF_ERROR(file_->EndTornLine());
    return file_->Add(line);
  }

 private:
  absl::Status Add(const std::string& line) {
    if (!HasRoomFor(line)) {
      LOCKSTEP_RETURN_IF_ERROR(SetAside());
      LOCKSTEP_RETURN_IF_ERROR(Open());
    }
    if (HasRoomFor(line)) return file_->Add(line);
    return absl::InvalidArgumentError(absl::StrCat(
        "a line of ", line.size(), " bytes is too long for ", path_,
        ", which has room for ", most_, ": raise max_bytes"));
  }

  bool HasRoomFor(const std::string& line) const {
    return file_->size() + static_cast<int64_t>(line.size()) <= most_;
  }

  // The file takes the place of the one before it.
  absl::Status SetAside() const {
    const std::string old = path_ + ".old";
    if (std::rename(path_.c_str(), old.c_str()) == 0 || errno == ENOENT) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(
        errno, absl::StrCat("can't rename ", path_, " to ", old));
  }

  const std::string path_;
  const int64_t most_;  // bytes in a file
  const int64_t rank_;
  const int64_t size_;
  std::unique_ptr<MetricsFile> file_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeJsonLines(
    const PluginContext& context, const JsonLinesOptions& options) {
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
  auto sink =
      std::make_unique<JsonLinesSink>(options, context.rank, context.size);
  LOCKSTEP_RETURN_IF_ERROR(sink->Open());
  return sink;
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
  TensorboardSink(std::unique_ptr<MetricsFile> file, bool goes_on)
      : file_(std::move(file)), goes_on_(goes_on) {}

  absl::Status Begin(int64_t steps) override {
    if (!goes_on_) return absl::OkStatus();
    return file_->Add(RestartEvent(SecondsSince1970(), steps + 1));
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    return file_->Add(MetricsEvent(SecondsSince1970(), step, metrics));
  }

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

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeTensorboard(
    const PluginContext&, const TensorboardOptions& options) {
  if (options.folder.empty()) {
    return absl::InvalidArgumentError(
        "folder should name the folder of the run, such as /data/runs/7");
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeFolders(options.folder));
  const bool goes_on = HasEventFiles(options.folder);
  const double now = SecondsSince1970();
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto file,
      MetricsFile::Open(absl::StrFormat("%s/%s%.6f.lockstep.%d", options.folder,
                                        kEventFile, now, ::getpid())));
  LOCKSTEP_RETURN_IF_ERROR(file->Add(EventFileBegin(now)));
  return std::make_unique<TensorboardSink>(std::move(file), goes_on);
}

}  // namespace

absl::Status RegisterMetricsSinks(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "json_lines",
      "Lines of JSON, one for each step (docs/formats.md). Under "
      "[rank_metrics], each rank has a file of its own.",
      MakeJsonLines));
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<MetricsSink>(
      "tensorboard", "Event files, which TensorBoard draws.", MakeTensorboard));
  return registry.Add<MetricsSink>("text", "A line of text for each step.",
                                   MakeText);
}

}  // namespace lockstep::internal_plugin
