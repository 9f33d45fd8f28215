// The steps of a loader that was not made by MakeLoader. Its ranks may have
// different numbers of steps, so they agree on the largest one, and a rank
// whose data has ended does the others' steps without data. Internal.
//
//   UnevenSteps steps(ranks, loader);
//   LOCKSTEP_RETURN_IF_ERROR(steps.BeginLoop(epoch));
//   LOCKSTEP_RETURN_IF_ERROR(steps.BeginEpoch(epoch));
//   while (steps.has_step()) {
//     ...
//     steps.EndStep();
//   }
#ifndef LOCKSTEP_SESSION_UNEVEN_STEPS_H_
#define LOCKSTEP_SESSION_UNEVEN_STEPS_H_

#include <array>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/ranks.h"

namespace lockstep::internal_session {

// Requires: the ranks and the loader outlive it.
// Thread-safety: thread-compatible.
class UnevenSteps {
 public:
  UnevenSteps(Ranks& ranks, Loader& loader) : ranks_(ranks), loader_(loader) {}

  // All ranks agree on the first epoch, in which one of them has steps left,
  // and on the number of steps that were done. `epoch` is that of this rank.
  absl::Status BeginLoop(int64_t& epoch);

  // Goes to the epoch, unless this rank has done all of its steps. All ranks
  // agree on its number of steps.
  absl::Status BeginEpoch(int64_t epoch);

  // Returns true if this rank has data in the epoch.
  bool has_data() const { return has_data_; }

  // The steps of the epoch in which this rank has still data.
  int64_t own_left() const { return own_left_; }

  // Returns true if a rank has a further step in the epoch.
  bool has_step() const { return left_ > 0; }

  // The number of the next step in the epoch, from 0.
  int64_t number() const { return number_; }

  // The number of steps that were done in all loops.
  int64_t steps() const { return steps_; }

  // The most steps that the loaders' max_steps allow from here on.
  int64_t most_left() const { return later_ == kAny ? kAny : left_ + later_; }

  void EndStep() {
    if (own_left_ > 0) --own_left_;
    --left_;
    ++number_;
    ++steps_;
  }

 private:
  using Numbers = std::array<int64_t, 5>;
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

  // Replaces the numbers by the largest ones of all ranks.
  absl::Status Agree(absl::string_view what, Numbers& numbers);
  // Returns how many steps max_steps allows this rank after so many more.
  int64_t LaterThan(int64_t steps) const;

  Ranks& ranks_;
  Loader& loader_;
  bool has_data_ = false;
  int64_t own_left_ = 0;
  int64_t left_ = 0;
  int64_t later_ = kAny;  // in later epochs
  int64_t number_ = 0;
  int64_t steps_ = 0;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_UNEVEN_STEPS_H_
