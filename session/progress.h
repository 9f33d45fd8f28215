// Progress tells how far a training has come, by lines in the log and, on a
// terminal, by a bar. Internal.
//
//   epoch 0: step 120 of 417, 0:24 left, loss 0.2531, 12.4k rows/s, 2% waiting
//     for data, 11% in collectives
//   epoch 0: 417 steps in 34.2 s, loss 0.2711, 12.2k rows/s, 2% waiting for
//     data, 10% in collectives, 8% between steps
//   test after 417 steps: loss 0.0342, accuracy 0.981 over 360 samples
#ifndef LOCKSTEP_SESSION_PROGRESS_H_
#define LOCKSTEP_SESSION_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class Progress {
 public:
  using Output = std::function<void(absl::string_view text)>;

  // Within an epoch, the bar is shown; without `bar`, a line comes every so
  // often.
  Progress(absl::Duration every, Output line, Output bar);

  // The steps of an epoch begin, or go on.
  void BeginSteps(SteadyTime now);

  // `steps_in_epoch` returns how many steps the epoch has, and 0 where nobody
  // knows. It is called once in an epoch that takes long enough for a line.
  void AddStep(const StepReport& step,
               const std::function<int64_t()>& steps_in_epoch);

  // All steps of the epoch are over.
  void EndSteps();

  void AddEvaluation(absl::string_view loader, int64_t steps, int64_t samples,
                     absl::Span<const Metric> means);

  // Takes the bar away.
  void End();

 private:
  // Adds up steps that follow each other.
  struct Stretch {
    explicit Stretch(SteadyTime now = SteadyTime()) : begin(now), end(now) {}

    SteadyTime begin, end;
    int64_t steps = 0;
    double weight = 0;
    double data_seconds = 0;
    double collective_seconds = 0;
    double between_seconds = 0;
    bool is_weight_rows = true;
    std::vector<Metric> sums;

    void Add(const StepReport& step);
    void Add(absl::string_view name, double sum);
    void Add(const Stretch& later);
    double seconds() const { return StepReport::SecondsBetween(begin, end); }
    // Returns means, rates, and what the time went into.
    std::string Describe() const;
  };

  bool IsTime(SteadyTime now);
  std::string LineOf(const StepReport& step, const Stretch& recent) const;
  std::string BarOf(const StepReport& step, const Stretch& recent) const;
  // Returns "0:24 left, ", or nothing.
  std::string TimeLeft(const StepReport& step, const Stretch& recent) const;

  const absl::Duration every_;
  const Output line_;
  const Output bar_;

  int64_t epoch_ = 0;
  int64_t steps_in_epoch_ = -1;  // -1: nobody has asked so far
  Stretch whole_;                // since BeginSteps, or since the epoch began
  Stretch last_;                 // since the last line, or since `before_`
  Stretch before_;               // of a bar, the stretch before that
  SteadyTime shown_;             // when the bar was
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_PROGRESS_H_
