// A RunReport is everything that a report shows of one run of a job.
//
//   RunReportOptions options;
//   options.path = "/data/runs/7/steps";
//   LOCKSTEP_ASSIGN_OR_RETURN(const RunReport report,
//                             ReadRunReport(options, tell));
//   std::cout << report.lost.verdict.sentence << '\n';
//   PrintPage(report, std::cout);
#ifndef LOCKSTEP_TOOLS_REPORT_RUN_REPORT_H_
#define LOCKSTEP_TOOLS_REPORT_RUN_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/report/curves.h"
#include "lockstep/tools/report/launch_report.h"
#include "lockstep/tools/report/lost_time.h"

namespace lockstep {

struct RunReportOptions {
  std::string path;            // of the sink json_lines under [rank_metrics]
  std::optional<int64_t> run;  // from 1 on; unset: the last one
  // The path of the sink json_lines under [metrics]; "": the one that the job's
  // text names, if its files are there.
  std::string metrics;
  std::vector<std::string> launches;  // files of the launcher's --report
};

// Some steps that follow each other, and what a step of them was like.
struct StepBin {
  int64_t first_step = 0;
  int64_t last_step = 0;
  // Seconds of a step, as means over its steps and all ranks. NaN: no rank has
  // a step in it.
  double for_data = 0, blocked = 0, between = 0, own = 0;
  double slowest = 0;  // the longest step on any rank
  // The batches that were ready at the end of steps: the least, the mean and
  // the most of all ranks.
  double least_ready = 0, mean_ready = 0, most_ready = 0;
};

// A rank's line in a map. It has a value for each StepBin; NaN: no step.
struct MapRow {
  int64_t rank = 0;
  std::vector<float> rows;        // samples of a step, as a mean
  std::vector<float> lost_share;  // of its time that the rank lost
};

// An operation of all ranks together. Times are seconds.
struct OperationRow {
  OperationTimes times;  // the histograms of all ranks together
  double p50 = 0, p99 = 0;
  int64_t slowest_rank = 0;  // the one with the largest p99
  double slowest_p99 = 0;
};

struct SlowSampleRow {
  int64_t rank = 0;
  std::string loader;
  SlowRecord sample;
};

struct RunReport {
  static constexpr int64_t kMostBins = 200;
  static constexpr size_t kMostMapRows = 64;
  static constexpr size_t kMostSlowest = 20;

  std::string path;
  int64_t number = 0;  // of the run, from 1 on
  int64_t runs = 0;
  absl::Time began;
  int64_t size = 0;  // the number of ranks, also of those that are missing
  std::string job;   // its text
  std::vector<std::string> notes;  // what is missing or damaged
  bool is_whole = true;

  LostTime lost;
  int64_t first_step = 0, last_step = 0;
  // `in_steps` is how long a rank was in these steps, as a mean. `by_clock` is
  // how long they took by the host's clock: with evaluations and all else
  // between two loops over steps. NaN: not known.
  double in_steps = 0, by_clock = 0;
  bool has_time_outside() const {
    constexpr double kNoticed = 1.01;
    return by_clock > kNoticed * in_steps;
  }
  double rows_per_second = 0;            // of all ranks together, in the steps
  double median_step = 0, p99_step = 0;  // seconds, of all ranks and steps
  std::optional<RunEnd> end;

  std::vector<StepBin> bins;
  // Those of at most kMostMapRows ranks, the ones that are late most, in the
  // order of ranks.
  std::vector<MapRow> map;
  // The operations of the steps up to this one, those first whose count times
  // p50 is largest.
  int64_t operations_until = 0;
  std::vector<OperationRow> operations;
  std::vector<SlowSampleRow> slowest;  // the slowest first
  std::vector<Curve> curves;
  std::string curves_from;  // the path of the metrics; "": none was found
};

// Reads the records of a run. `tell` gets the progress of reading and the
// notes.
absl::StatusOr<RunReport> ReadRunReport(
    const RunReportOptions& options,
    const std::function<void(absl::string_view)>& tell);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_RUN_REPORT_H_
