#include "lockstep/tools/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/histogram.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/records/job_records.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/report/curves.h"
#include "lockstep/tools/report/launch_report.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/step_loss.h"

namespace lockstep {
namespace {

using ::lockstep::internal_report::HasTimes;

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// ---- Steps.

// The mean of the numbers that are known.
// Thread-safety: thread-compatible.
class Mean {
 public:
  void Add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    ++count_;
  }
  // Returns NaN if there is none.
  double value() const {
    return count_ > 0 ? sum_ / static_cast<double>(count_) : kNotKnown;
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// Sorts steps into bins.
// Thread-safety: thread-compatible.
class Bins {
 public:
  // There are `steps` steps from `first` on.
  Bins(int64_t first, int64_t steps)
      : first_(first),
        steps_(steps),
        count_(std::min<int64_t>(steps, RunReport::kMostBins)) {}

  size_t size() const { return static_cast<size_t>(count_); }
  // Steps may have any numbers, whose products do not fit into 64 bits.
  size_t Of(int64_t step) const {
    const double at = static_cast<double>(step - first_) *
                      static_cast<double>(count_) / static_cast<double>(steps_);
    return std::min(static_cast<size_t>(at), size() - 1);
  }
  int64_t FirstStep(size_t bin) const {
    const double begin =
        std::ceil(static_cast<double>(bin) * static_cast<double>(steps_) /
                  static_cast<double>(count_));
    return first_ + static_cast<int64_t>(begin);
  }

 private:
  int64_t first_, steps_, count_;
};

// Returns what the steps of each bin were like, over all ranks.
std::vector<StepBin> FillBins(const std::map<int64_t, const RankRun*>& ranks,
                              const Bins& bins) {
  struct Means {
    Mean for_data, blocked, between, own, ready;
  };
  std::vector<StepBin> filled(bins.size());
  std::vector<Means> means(bins.size());
  for (size_t i = 0; i < bins.size(); ++i) {
    filled[i].first_step = bins.FirstStep(i);
    filled[i].last_step = bins.FirstStep(i + 1) - 1;
    filled[i].slowest = kNotKnown;
    filled[i].least_ready = kNotKnown;
    filled[i].most_ready = kNotKnown;
  }
  for (const auto& [rank, run] : ranks) {
    for (const StepTimes& step : run->steps) {
      const size_t at = bins.Of(step.step);
      StepBin& bin = filled[at];
      if (HasTimes(step)) {
        means[at].for_data.Add(step.for_data);
        means[at].blocked.Add(step.blocked);
        means[at].between.Add(step.between);
        means[at].own.Add(
            std::max(step.whole - step.for_data - step.blocked, 0.0F));
        bin.slowest = std::fmax(bin.slowest, double{step.whole} + step.between);
      }
      means[at].ready.Add(step.ready_batches);
      bin.least_ready = std::fmin(bin.least_ready, step.ready_batches);
      bin.most_ready = std::fmax(bin.most_ready, step.ready_batches);
    }
  }
  for (size_t i = 0; i < bins.size(); ++i) {
    filled[i].for_data = means[i].for_data.value();
    filled[i].blocked = means[i].blocked.value();
    filled[i].between = means[i].between.value();
    filled[i].own = means[i].own.value();
    filled[i].mean_ready = means[i].ready.value();
  }
  return filled;
}

MapRow FillRow(int64_t rank, const RankRun& run, const Bins& bins) {
  std::vector<Mean> rows(bins.size());
  std::vector<double> lost(bins.size());
  std::vector<double> whole(bins.size());
  for (const StepTimes& step : run.steps) {
    const size_t at = bins.Of(step.step);
    rows[at].Add(step.rows);
    if (!HasTimes(step)) continue;
    lost[at] += double{step.for_data} + step.blocked;
    whole[at] += double{step.whole} + step.between;
  }
  MapRow row;
  row.rank = rank;
  for (size_t i = 0; i < bins.size(); ++i) {
    row.rows.push_back(static_cast<float>(rows[i].value()));
    row.lost_share.push_back(
        static_cast<float>(whole[i] > 0 ? lost[i] / whole[i] : kNotKnown));
  }
  return row;
}

// Returns the value that this share of all does not exceed, or 0.
double QuantileOf(std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(
      share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

void FillSteps(const std::map<int64_t, const RankRun*>& ranks,
               RunReport& report) {
  std::vector<float> all;
  Mean in_steps;
  Mean by_clock;
  std::optional<int64_t> first, last;
  for (const auto& [rank, run] : ranks) {
    if (run->steps.empty()) continue;
    first = std::min(first.value_or(run->steps.front().step),
                     run->steps.front().step);
    last =
        std::max(last.value_or(run->steps.back().step), run->steps.back().step);
    double rows = 0;
    double whole = 0;
    for (size_t i = 1; i < run->steps.size(); ++i) {
      const StepTimes& step = run->steps[i];
      if (!HasTimes(step)) continue;
      all.push_back(step.whole + step.between);
      whole += all.back();
      if (std::isfinite(step.rows)) rows += step.rows;
    }
    if (whole > 0) report.rows_per_second += rows / whole;
    in_steps.Add(whole);
    by_clock.Add(run->last_ended - run->first_ended);
  }
  report.in_steps = in_steps.value();
  // A host's clock can be set.
  constexpr double kAbout = 0.99;
  report.by_clock = by_clock.value() >= kAbout * report.in_steps
                        ? by_clock.value()
                        : kNotKnown;
  report.median_step = QuantileOf(all, 0.5);
  report.p99_step = QuantileOf(all, 0.99);
  if (!first.has_value()) return;
  report.first_step = *first;
  report.last_step = *last;
  const Bins bins(*first, *last - *first + 1);
  report.bins = FillBins(ranks, bins);
  std::vector<int64_t> shown;
  for (const RankTime& rank : report.lost.ranks) {
    if (shown.size() == RunReport::kMostMapRows) break;
    shown.push_back(rank.rank);
  }
  std::sort(shown.begin(), shown.end());
  for (const int64_t rank : shown) {
    report.map.push_back(FillRow(rank, *ranks.at(rank), bins));
  }
}

// ---- Operations and samples.

void FillOperations(const std::map<int64_t, const RankRun*>& ranks,
                    RunReport& report) {
  constexpr double kNanosecond = 1e-9;
  using Key =
      std::tuple<std::string, std::string, std::string, int64_t, int64_t>;
  std::map<Key, OperationRow> rows;
  for (const auto& [rank, run] : ranks) {
    report.operations_until =
        std::max(report.operations_until, run->operations_until);
    for (const OperationTimes& times : run->operations) {
      OperationRow& row = rows[{times.group, times.operation, times.dtype,
                                times.count, times.bucket}];
      const double p99 = times.took.Quantile(0.99) * kNanosecond;
      if (row.times.took.count() == 0 || p99 > row.slowest_p99) {
        row.slowest_rank = rank;
        row.slowest_p99 = p99;
      }
      Histogram merged = std::move(row.times.took);
      merged.Merge(times.took);
      if (row.times.operation.empty()) row.times = times;
      row.times.took = std::move(merged);
    }
  }
  for (auto& [key, row] : rows) {
    row.p50 = row.times.took.Quantile(0.5) * kNanosecond;
    row.p99 = row.times.took.Quantile(0.99) * kNanosecond;
    report.operations.push_back(std::move(row));
  }
  const auto time_of = [](const OperationRow& row) {
    return row.p50 * static_cast<double>(row.times.took.count());
  };
  std::stable_sort(
      report.operations.begin(), report.operations.end(),
      [&](const auto& a, const auto& b) { return time_of(a) > time_of(b); });
}

void FillSlowest(const std::map<int64_t, const RankRun*>& ranks,
                 RunReport& report) {
  for (const auto& [rank, run] : ranks) {
    for (const auto& [loader, samples] : run->slowest) {
      for (const SlowRecord& sample : samples) {
        report.slowest.push_back({rank, loader, sample});
      }
    }
  }
  std::stable_sort(report.slowest.begin(), report.slowest.end(),
                   [](const auto& a, const auto& b) {
                     return a.sample.seconds > b.sample.seconds;
                   });
  report.slowest.resize(
      std::min(report.slowest.size(), RunReport::kMostSlowest));
}

// ---- What other files say.

// Returns the path of the sink json_lines under [metrics] in a job's text, or
// "" if there is none.
std::string MetricsPathIn(const std::string& job) {
  const absl::StatusOr<Config> config = ParseConfig(job, "job");
  if (!config.ok()) return "";
  const Config* at = &*config;
  for (const char* const key : {"metrics", "json_lines", "path"}) {
    at = at->Find(key);
    if (at == nullptr) return "";
  }
  const auto* const path = at->As<std::string>();
  return path == nullptr ? "" : *path;
}

absl::Status FillCurves(const std::string& path, const JobRecords& records,
                        RunReport& report) {
  const bool is_given = !path.empty();
  const std::string from = is_given ? path : MetricsPathIn(report.job);
  const auto first = records.ranks.find(0);
  if (from.empty() || (!is_given && first == records.ranks.end())) {
    return absl::OkStatus();
  }
  std::optional<CurveWriter> writer;
  if (first != records.ranks.end()) {
    constexpr double kMicrosecond = 1e-6;
    writer = {first->second->pid,
              static_cast<double>(records.run) * kMicrosecond};
  }
  absl::StatusOr<std::vector<Curve>> curves = ReadCurves(from, writer);
  if (!curves.ok()) {
    // The job's text may name a file of another machine.
    if (!is_given) return absl::OkStatus();
    return Annotate(curves.status(), absl::StrCat("--metrics=", path),
                    "; it should be the sink of [metrics]");
  }
  report.curves = *std::move(curves);
  report.curves_from = from;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunReport> ReadRunReport(
    const RunReportOptions& options,
    const std::function<void(absl::string_view)>& tell) {
  JobRecordsOptions of_job;
  of_job.run = options.run;
  of_job.wanted.times = true;
  LOCKSTEP_ASSIGN_OR_RETURN(const JobRecords records,
                            ReadJobRecords(options.path, of_job, tell));
  RunReport report;
  report.path = options.path;
  report.number = records.number;
  report.runs = static_cast<int64_t>(records.runs.size());
  report.began = records.begins()[static_cast<size_t>(records.number - 1)];
  report.size = records.size;
  report.job = records.ranks.begin()->second->job;
  report.notes = records.notes;
  report.is_whole = records.is_whole;
  report.lost = FindLostTime(records.ranks, records.size);
  FillSteps(records.ranks, report);
  FillOperations(records.ranks, report);
  FillSlowest(records.ranks, report);
  LOCKSTEP_RETURN_IF_ERROR(FillCurves(options.metrics, records, report));
  std::map<int64_t, int64_t> pids;
  for (const auto& [rank, run] : records.ranks) pids[rank] = run->pid;
  LOCKSTEP_ASSIGN_OR_RETURN(report.end, FindRunEnd(options.launches, pids));
  return report;
}

}  // namespace lockstep
