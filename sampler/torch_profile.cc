#include "lockstep/sampler/torch_profile.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::string_view Name(TorchProfile profile) {
  switch (profile) {
    case TorchProfile::k1_13:
      return "1.13";
    case TorchProfile::k2_5:
      return "2.5";
    case TorchProfile::k2_6:
      return "2.6";
    case TorchProfile::k2_7:
      return "2.7";
  }
  return "invalid";
}

absl::StatusOr<TorchProfile> ParseTorchProfile(absl::string_view name) {
  for (const TorchProfile profile : {TorchProfile::k1_13, TorchProfile::k2_5,
                                     TorchProfile::k2_6, TorchProfile::k2_7}) {
    if (Name(profile) == name) return profile;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown profile '", name,
      "'; known: 1.13 (for 1.13 to 2.4), 2.5, 2.6, 2.7 (for 2.7 and later)"));
}

bool BuildsInsideOut(TorchProfile profile, int64_t size) {
  return profile >= TorchProfile::k2_6 && size >= kTorchLargePermutation;
}

bool Draws64Bits(TorchProfile profile, int64_t size) {
  const int bits = profile >= TorchProfile::k2_7 ? 28 : 32;
  return size >= int64_t{1} << bits;
}

}  // namespace lockstep
