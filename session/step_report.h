// A StepReport holds all that there is to tell of a step that has ended.
// Internal.
#ifndef LOCKSTEP_SESSION_STEP_REPORT_H_
#define LOCKSTEP_SESSION_STEP_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep::internal_session {

struct StepReport {
  std::string loader;  // its name in the job
  int64_t epoch = 0;
  int64_t number = 0;    // in the epoch, from 0
  int64_t steps = 0;     // of the training, this one included
  int64_t rows = 0;      // the valid ones of this rank
  int64_t position = 0;  // in the epoch's stream, behind this step

  // Over all ranks.
  int64_t total_weight = 0;
  bool is_weight_rows = true;  // on this rank
  absl::Span<const Metric> means;

  // The times when the step before this one was over, when the batch was asked
  // for, when it was there, and when the step was over. The first step of a
  // loop has none before it: its `before` is its `asked`.
  SteadyTime before, asked, begun, ended;

  double collective_seconds = 0;

  double seconds() const { return SecondsBetween(asked, ended); }
  double data_seconds() const { return SecondsBetween(asked, begun); }
  double between_seconds() const { return SecondsBetween(before, asked); }

  static double SecondsBetween(SteadyTime from, SteadyTime to) {
    return absl::ToDoubleSeconds(absl::FromChrono(to - from));
  }
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_REPORT_H_
