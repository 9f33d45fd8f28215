// The sink that writes a file for the textfile collector of node_exporter.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/base/write_all.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/sink_text.h"
#include "lockstep/metrics/sinks.h"

namespace lockstep {
namespace {

using ::lockstep::internal_metrics::AppendNumber;
using ::lockstep::internal_metrics::MakeFolderOf;
using ::lockstep::internal_metrics::RankSuffix;
using ::lockstep::internal_metrics::TimeText;

// A program that puts numbers into names would otherwise fill the memory, and
// Prometheus' memory as well.
constexpr size_t kMostMetrics = 10'000;

// The names of the metrics that the sink adds itself.
constexpr char kStep[] = "lockstep_step";
constexpr char kWritten[] = "lockstep_written_seconds";

// The textfile collector reads the files that have this ending.
constexpr char kEnding[] = ".prom";

// Returns Prometheus' name of a metric.
std::string PrometheusName(absl::string_view metric) {
  std::string name = absl::StrCat("lockstep_", metric);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

// Returns a description of a metric. Without one, older releases of
// node_exporter show a metric of only one of several files.
std::string HelpOf(absl::string_view metric) {
  // Such a line has \\ for a backslash, and must be UTF-8.
  return absl::StrCat(
      "The metric ",
      absl::StrReplaceAll(absl::CHexEscape(metric), {{"\\", "\\\\"}}), ".");
}

void AppendValue(double value, std::string& text) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
  } else {
    AppendNumber(value, text);
  }
}

// The files that sinks of this process write. Two sinks with one file would
// replace each other's.
// Thread-safety: thread-safe.
class Paths {
 public:
  static Paths& Get() {
    static auto* const paths = new Paths;
    return *paths;
  }

  // Returns false if the path is taken.
  bool Take(const std::string& path) {
    MutexLock lock(mutex_);
    return paths_.insert(path).second;
  }
  void GiveBack(const std::string& path) {
    MutexLock lock(mutex_);
    paths_.erase(path);
  }

 private:
  Mutex mutex_;
  std::set<std::string> paths_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safety: thread-compatible.
class PrometheusSink final : public MetricsSink {
 public:
  PrometheusSink(const PrometheusOptions& options, int64_t rank)
      : path_(absl::StrCat(absl::StripSuffix(options.path, kEnding),
                           rank > 0 ? RankSuffix(rank) : "", kEnding)),
        label_(absl::StrCat("{rank=\"", rank, "\"} ")),
        every_(options.every) {}

  ~PrometheusSink() override {
    PrometheusSink::Flush().IgnoreError();
    // A thread that is gone in a forked process may have held the mutex.
    if (has_path_ && !fork_guard_.forked()) Paths::Get().GiveBack(path_);
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckProcess());
    absl::Status status;
    for (const Metric& metric : metrics) {
      const auto known = known_.find(metric.name);
      if (known != known_.end()) {
        known->second->value = metric.value;
      } else {
        status.Update(Add(metric));
      }
    }
    step_ = step;
    has_news_ = true;
    if (SteadyNow() >= next_) status.Update(ReplaceFile());
    return status;
  }

  absl::Status Flush() override {
    if (!has_news_) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(CheckProcess());
    return ReplaceFile();
  }

  // Takes the file, makes its folder, and returns an error if no file can be
  // made there, so that a wrong path is known before the training begins.
  absl::Status TryFolder() {
    has_path_ = Paths::Get().Take(path_);
    if (!has_path_) {
      return absl::FailedPreconditionError(
          absl::StrCat("another sink writes metrics to ", path_,
                       ": give each sink, also one under [rank_metrics], a "
                       "path of its own"));
    }
    const std::string draft = DraftName();
    LOCKSTEP_RETURN_IF_ERROR(OpenDraft(draft).status());
    ::unlink(draft.c_str());
    return absl::OkStatus();
  }

 private:
  struct Gauge {
    std::string metric;  // its own name
    double value = 0;
  };

  absl::Status CheckProcess() const {
    if (!fork_guard_.forked()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("metrics go to ", path_,
                     " from the process that made the sink, and not from one "
                     "that was forked from it"));
  }

  // Adds a metric that comes for the first time.
  absl::Status Add(const Metric& metric) {
    std::string name = PrometheusName(metric.name);
    const auto same = gauges_.find(name);
    if (same != gauges_.end() || name == kStep || name == kWritten) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the metric '", absl::CHexEscape(metric.name), "' would be called ",
          name, " in ", path_, ", but so is ",
          same == gauges_.end()
              ? "one of the sink's own"
              : absl::StrCat("'", absl::CHexEscape(same->second.metric), "'"),
          ": give the metric another name"));
    }
    if (gauges_.size() >= kMostMetrics) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the metric '", absl::CHexEscape(metric.name), "' is not in ", path_,
          ", which has ", kMostMetrics,
          " metrics, the most that are accepted: use fewer names, which do "
          "not contain changing numbers"));
    }
    Gauge& gauge = gauges_[std::move(name)];
    gauge = {metric.name, metric.value};
    known_[metric.name] = &gauge;
    return absl::OkStatus();
  }

  // Appends the beginning of a metric, which its value follows.
  void AppendName(absl::string_view name, absl::string_view help,
                  std::string& text) const {
    absl::StrAppend(&text, "# HELP ", name, " ", help, "\n# TYPE ", name,
                    " gauge\n", name, label_);
  }

  // Returns the contents of the file.
  std::string Text() const {
    std::string text;
    AppendName(kStep, "The number of steps of the training.", text);
    absl::StrAppend(&text, step_, "\n");
    AppendName(kWritten,
               "The time of writing these values, in seconds since 1970.",
               text);
    absl::StrAppend(&text, TimeText(), "\n");
    for (const auto& [name, gauge] : gauges_) {
      AppendName(name, HelpOf(gauge.metric), text);
      AppendValue(gauge.value, text);
      text += '\n';
    }
    return text;
  }

  // Returns the name of the file until it is whole. Another process has
  // another name, and node_exporter ignores it.
  std::string DraftName() const {
    return absl::StrCat(path_, ".", ::getpid(), ".tmp");
  }

  absl::StatusOr<Descriptor> OpenDraft(const std::string& draft) const {
    LOCKSTEP_RETURN_IF_ERROR(MakeFolderOf(path_));
    // Everyone may read the file, unless the process's umask forbids it, since
    // node_exporter has a user of its own.
    Descriptor file(RetryOnSignal([&] {
      return ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                    0666);
    }));
    if (!file.ok()) return Failed(errno);
    return file;
  }

  absl::Status ReplaceFile() {
    // A failed attempt also waits, since the next one may fail as well.
    next_ = After(every_);
    const std::string draft = DraftName();
    LOCKSTEP_ASSIGN_OR_RETURN(Descriptor file, OpenDraft(draft));
    if (!WriteAll(file.fd(), Text()) || file.Close() != 0 ||
        std::rename(draft.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      ::unlink(draft.c_str());
      return Failed(error);
    }
    has_news_ = false;
    return absl::OkStatus();
  }

  absl::Status Failed(int error) const {
    return absl::ErrnoToStatus(error, absl::StrCat("can't write metrics to ",
                                                   path_, RemedyFor(error)));
  }

  const std::string path_;
  const std::string label_;
  const absl::Duration every_;
  const ForkGuard fork_guard_;
  std::map<std::string, Gauge> gauges_;            // by Prometheus' names
  std::unordered_map<std::string, Gauge*> known_;  // by their own names
  int64_t step_ = 0;
  bool has_path_ = false;  // no other sink of this process has it
  bool has_news_ = false;  // true if the file lacks some of the values
  SteadyTime next_;        // the time of the next replacement
};

}  // namespace

absl::Status Validate(const PrometheusOptions& options) {
  if (options.path.empty() || absl::EndsWith(options.path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("path is '", options.path,
                     "', but should name a folder and a file, such as "
                     "/var/lib/node_exporter/train"));
  }
  if (options.every < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("every is ", absl::FormatDuration(options.every),
                     "; accepted are 0s and more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MetricsSink>> MakePrometheusSink(
    const PrometheusOptions& options, int64_t rank) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
  auto sink = std::make_unique<PrometheusSink>(options, rank);
  LOCKSTEP_RETURN_IF_ERROR(sink->TryFolder());
  return sink;
}

}  // namespace lockstep
