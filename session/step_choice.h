// A StepChoice decides in which steps a rank keeps the events: in the first 100
// ones of the process, in a sample of the later ones, which is the same on all
// ranks, and in those that take much longer than others. Internal.
//
//   StepChoice choice;
//   if (const auto why = choice.Choose(step, seconds)) Keep(*why);
#ifndef LOCKSTEP_SESSION_STEP_CHOICE_H_
#define LOCKSTEP_SESSION_STEP_CHOICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/base/language.h"
#include "lockstep/metrics/records.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class StepChoice {
 public:
  static constexpr int64_t kFirst = 100;
  // The sample has steps whose number is a multiple of this.
  static constexpr int64_t kEvery = 100;
  // A step is slow if it takes so many times as long as the median of the last
  // ones.
  static constexpr double kSlow = 2;
  // At most so many slow steps in a row are kept. Then, one is kept for each
  // ten steps.
  static constexpr double kMostSlow = 100;

  // Takes in a step, and returns why its events are kept, or nothing.
  std::optional<StepEvents::Why> Choose(int64_t step, double seconds);

  // Returns the number of slow steps since the last call that were not chosen,
  // because there were too many.
  int64_t TakeDropped();

 private:
  static constexpr size_t kLast = 64;

  bool IsSlow(double seconds);

  int64_t steps_ = 0;
  std::array<double, kLast> last_ = {};
  double median_ = 0;
  double allowed_ = kMostSlow;
  int64_t dropped_ = 0;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_CHOICE_H_
