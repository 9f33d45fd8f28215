#include "lockstep/sampler/torch_profile.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep {
namespace {

bool IsNumber(absl::string_view text, int* number) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, number);
}

}  // namespace

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
  // Only the first two numbers of a release such as "2.15.0+cu126" count.
  const std::vector<absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits('.', 2));
  int major = 0, minor = 0;
  const bool is_release = parts.size() >= 2 && IsNumber(parts[0], &major) &&
                          IsNumber(parts[1], &minor);
  const std::pair<int, int> release(major, minor);
  if (!is_release || release < std::pair(1, 13)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile should be a release of PyTorch from 1.13 on, as '2.6' or "
        "'2.15.0', but got '",
        absl::CHexEscape(name),
        "'; the orders of 1.13 to 2.4 are the same, and so are those of 2.7 "
        "and later"));
  }
  if (release < std::pair(2, 5)) return TorchProfile::k1_13;
  if (release < std::pair(2, 6)) return TorchProfile::k2_5;
  if (release < std::pair(2, 7)) return TorchProfile::k2_6;
  return TorchProfile::k2_7;
}

bool BuildsInsideOut(TorchProfile profile, int64_t size) {
  return profile >= TorchProfile::k2_6 && size >= kTorchLargePermutation;
}

bool Draws64Bits(TorchProfile profile, int64_t size) {
  const int bits = profile >= TorchProfile::k2_7 ? 28 : 32;
  return size >= int64_t{1} << bits;
}

}  // namespace lockstep
