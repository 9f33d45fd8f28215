// TorchProfile names the releases of PyTorch at which its orders changed.
//
//   absl::StatusOr<TorchProfile> profile = ParseTorchProfile("2.5");
//
// Below 214,748,364 samples, every release gives the same permutation. From
// there on the profiles differ. Random draws with replacement differ from 2^28
// samples on.
#ifndef LOCKSTEP_SAMPLER_TORCH_PROFILE_H_
#define LOCKSTEP_SAMPLER_TORCH_PROFILE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A profile stands for its release and all later ones before the next profile.
enum class TorchProfile {
  k1_13,  // 1.13 to 2.4
  k2_5,   // the last with the old permutation at every size
  k2_6,   // the first with the new permutation
  k2_7,   // adds the new rule for random integers: 2.7 and later
};

inline constexpr TorchProfile kNewestTorchProfile = TorchProfile::k2_7;

// From this size on, randperm builds the permutation in another way (2.6+).
inline constexpr int64_t kTorchLargePermutation = 214748364;

// Returns "1.13", "2.5", "2.6" or "2.7".
absl::string_view Name(TorchProfile profile);

// Returns the profile of a release of PyTorch, from 1.13 on: "2.6", "2.15",
// "2.14.0+cu126". INVALID_ARGUMENT for any other text.
absl::StatusOr<TorchProfile> ParseTorchProfile(absl::string_view name);

// Returns true if randperm(size) is built inside-out, so that no position is
// known before it is complete.
bool BuildsInsideOut(TorchProfile profile, int64_t size);

// Returns true if randint draws 64 bits for a range of `size`, and not 32.
bool Draws64Bits(TorchProfile profile, int64_t size);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_PROFILE_H_
