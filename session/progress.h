// Progress shows how far a training has come: with lines in the log and, on a
// terminal, with a bar. Internal.
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
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {

// Requires: the outputs can be called as long as it lives.
// Thread-safety: thread-compatible.
class Progress {
 public:
  using Output = std::function<void(absl::string_view text)>;

  // `line` gets lines of the log. Within an epoch, `bar` gets the text of the
  // bar, or, if it is null, `line` gets a line after each interval `every`.
  // `weight` is the name of what the trainer's weights count, for rates.
  Progress(absl::Duration every, std::string weight, Output line, Output bar);

  // Begins the steps of an epoch, or continues them.
  void BeginSteps(SteadyTime now);

  // `steps_in_epoch` returns the number of steps of the epoch, or 0 if it is
  // not known. It is called once in each epoch that is long enough for a line.
  void AddStep(const StepReport& step,
               const std::function<int64_t()>& steps_in_epoch);

  // Ends the epoch, and writes a line about all of its steps.
  void EndSteps();

  void AddEvaluation(absl::string_view loader, int64_t steps, int64_t samples,
                     absl::Span<const Metric> means);

  // Removes the bar.
  void End();

 private:
  // A sum of the trainer's, and the weight by which it is divided.
  // Thread-safety: thread-compatible.
  struct Sum {
    std::string name;
    double value = 0;
    double weight = 0;
  };

  // The sum of consecutive steps.
  // Thread-safety: thread-compatible.
  struct Stretch {
    explicit Stretch(SteadyTime now = SteadyTime()) : begin(now), end(now) {}

    SteadyTime begin, end;
    int64_t steps = 0;
    double weight = 0;
    double data_seconds = 0;
    double collective_seconds = 0;
    double between_seconds = 0;
    bool is_weight_rows = true;
    std::vector<Sum> sums;

    void Add(const StepReport& step);
    void Add(absl::string_view name, double sum, double weight);
    void Add(const Stretch& later);
    double seconds() const { return StepReport::SecondsBetween(begin, end); }
    // Returns the text of the means, the rate, and the shares of the time.
    // `unit` is that of a weight that is not the number of rows.
    std::string Describe(absl::string_view unit) const;
  };

  bool IsTime(SteadyTime now);
  std::string LineOf(const StepReport& step, const Stretch& recent) const;
  std::string BarOf(const StepReport& step, const Stretch& recent) const;
  // Returns a text such as "0:24 left, ", or an empty one if it is not known.
  std::string TimeLeft(const StepReport& step, const Stretch& recent) const;

  const absl::Duration every_;
  const std::string weight_;
  const Output line_;
  const Output bar_;

  int64_t epoch_ = 0;
  int64_t steps_in_epoch_ = -1;  // -1: not asked yet
  Stretch whole_;     // the steps since BeginSteps or the epoch's begin
  Stretch last_;      // the steps since the last line, or since before_
  Stretch before_;    // with a bar: the stretch before last_
  SteadyTime shown_;  // the time when the bar was shown last
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_PROGRESS_H_
