// A StepReport holds everything that is reported about a step that has ended.
// Internal.
#ifndef LOCKSTEP_SESSION_STEP_REPORT_H_
#define LOCKSTEP_SESSION_STEP_REPORT_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep::internal_session {

// The facts about one step.
// Thread-safety: thread-compatible.
struct StepReport {
  std::string loader;  // the loader's name in the job
  int64_t epoch = 0;
  int64_t number = 0;    // in the epoch, from 0
  int64_t steps = 0;     // of the training, including this one
  int64_t rows = 0;      // the valid rows of this rank
  int64_t position = 0;  // in the epoch's stream, after this step
  int64_t most_left = std::numeric_limits<int64_t>::max();  // steps of the loop

  // These are over all ranks, except where the line says otherwise.
  int64_t total_weight = 0;
  bool is_weight_rows = true;  // on this rank
  absl::Span<const Metric> means;
  absl::Span<const double> mean_weights;  // by which they were divided

  // The times when the step before this one ended, when the session asked for
  // the first batch, and when this step ended. In the first step of a loop,
  // `before` equals `asked`.
  SteadyTime before, asked, ended;

  // The waits for batches, and the calls of Average, from their begin to their
  // end.
  using Interval = std::pair<SteadyTime, SteadyTime>;
  absl::Span<const Interval> waits, averages;

  double data_seconds = 0;        // in which the session waited for batches
  double average_seconds = 0;     // in which the trainer was in Average
  double blocked_seconds = 0;     // in which it waited for operations
  double collective_seconds = 0;  // in which operations of the groups ran

  double seconds() const { return SecondsBetween(asked, ended); }
  double between_seconds() const { return SecondsBetween(before, asked); }

  static double SecondsBetween(SteadyTime from, SteadyTime to) {
    return absl::ToDoubleSeconds(absl::FromChrono(to - from));
  }
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_REPORT_H_
