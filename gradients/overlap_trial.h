// An OverlapTrial finds out in the first steps whether steps are shorter where
// buckets travel during the backward pass. All ranks give it the same numbers,
// so all decide alike. Internal.
//
//   OverlapTrial trial(GradientsOptions::Overlap::kAuto);
//   trial.Begin();  // rank 0 has marked parameters
//   while (trial.is_measuring()) {
//     ...  // a step that overlaps if trial.overlaps()
//     trial.Add(seconds);
//   }
//   // trial.decision().why: "a step takes 12.1ms with overlap and ..."
#ifndef LOCKSTEP_GRADIENTS_OVERLAP_TRIAL_H_
#define LOCKSTEP_GRADIENTS_OVERLAP_TRIAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/gradients/gradients_options.h"
#include "lockstep/gradients/gradients_step.h"

namespace lockstep::internal_gradients {

// Thread-safety: thread-compatible.
class OverlapTrial {
 public:
  //   | from       | to         | when                                       |
  //   |------------|------------|--------------------------------------------|
  //   | kAwaits    | kMeasuring | Begin, with kAuto                          |
  //   | kAwaits    | kDecided   | Begin, with kOn; Decide, DecideForNow; or  |
  //   |            |            | kOff from the start                        |
  //   | kMeasuring | kDecided   | each way has enough steps, or too many     |
  //   |            |            | steps did not count                        |
  //   | kDecided   | kAwaits    | Resume, after DecideForNow                 |
  enum class State : uint8_t { kAwaits, kMeasuring, kDecided };

  // The steps of each way that count. One more comes before them, which changes
  // the plan, touches other memory, and counts for nothing.
  static constexpr size_t kSteps = 7;
  // The most steps that are measured, those that do not count included.
  static constexpr int kMostSteps = 64;
  // Overlap is taken if a step takes at most this share of one without it.
  static constexpr double kShare = 0.95;

  explicit OverlapTrial(GradientsOptions::Overlap wanted);

  State state() const { return state_; }
  bool is_measuring() const { return state_ == State::kMeasuring; }

  // Returns true if the step that begins next, or has begun, overlaps.
  bool overlaps() const { return decision_.on; }
  const OverlapDecision& decision() const { return decision_; }

  // Decides without a measurement.
  void Decide(bool on, std::string why);

  // Decides against overlap until Resume, which awaits marks again. `is_final`
  // says that no Resume is to be expected.
  void DecideForNow(std::string why, bool is_final);
  void Resume();

  // Takes in that rank 0 has marked parameters, so that their order is known.
  // Requires: the state is kAwaits.
  void Begin();

  // Takes in the seconds of the present step, and goes to the next one. A
  // number that is not finite does not count, and the next step goes the same
  // way.
  // Requires: the state is kMeasuring.
  void Add(double seconds);

 private:
  // The seconds of steps by the way: 0 without overlap, 1 with it.
  std::vector<double>& SecondsOf(bool with) { return seconds_[with ? 1 : 0]; }
  double MedianOf(bool with) const;
  void DecideByMeasurement();

  State state_ = State::kAwaits;
  const bool measures_;
  bool is_for_now_ = false;  // the decision is
  int measured_ = 0;         // steps, those that do not count included
  OverlapDecision decision_;
  std::array<std::vector<double>, 2> seconds_;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_OVERLAP_TRIAL_H_
