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
  // Steps that are twice to four times as slow as the median, four to eight
  // times, and so on are each of a class. Of each class, at most so many in a
  // row are kept. Then, one is kept for each 10 steps, 20 steps, and so on. So
  // steps that are a bit slow keep none from those that are very slow.
  static constexpr double kMostSlow = 100;

  StepChoice() { allowed_.fill(kMostSlow); }

  // Takes in a step, and returns why its events are kept, or nothing.
  std::optional<StepEvents::Why> Choose(int64_t step, double seconds);

  // Returns the number of slow steps since the last call that were not chosen,
  // because there were too many.
  int64_t TakeDropped();

 private:
  static constexpr size_t kLast = 64;

  static constexpr size_t kClasses = 8;

  // Returns the class of a step from 0 on, or nothing if it is not slow.
  std::optional<size_t> ClassOf(double seconds);

  int64_t steps_ = 0;
  std::array<double, kLast> last_ = {};
  double median_ = 0;
  std::array<double, kClasses> allowed_;  // of each class
  int64_t dropped_ = 0;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_STEP_CHOICE_H_
