#include "lockstep/sampler/skip_ranges.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::Status SkipRanges::Add(int64_t begin, int64_t end) {
  if (begin < 0 || begin >= end) {
    return absl::InvalidArgumentError(
        absl::StrCat("positions to skip are [begin, end) with 0 <= begin < "
                     "end, but got begin=",
                     begin, ", end=", end));
  }
  std::vector<SkipRange> joined;
  SkipRange added{begin, end};
  for (const SkipRange& range : ranges_) {
    if (range.end < added.begin || range.begin > added.end) {
      joined.push_back(range);
    } else {
      added.begin = std::min(added.begin, range.begin);
      added.end = std::max(added.end, range.end);
    }
  }
  joined.push_back(added);
  if (joined.size() > kMaxRanges) {
    return absl::ResourceExhaustedError(
        absl::StrCat("at most ", kMaxRanges, " ranges of positions can be ",
                     "skipped in an epoch, and [", begin, ", ", end,
                     ") would be one more; join neighbouring ones"));
  }
  std::sort(
      joined.begin(), joined.end(),
      [](const SkipRange& a, const SkipRange& b) { return a.begin < b.begin; });
  ranges_ = std::move(joined);
  return absl::OkStatus();
}

int64_t SkipRanges::ToKept(int64_t raw) const {
  int64_t skipped = 0;
  for (const SkipRange& range : ranges_) {
    if (range.begin >= raw) break;
    skipped += std::min(range.end, raw) - range.begin;
  }
  return raw - skipped;
}

int64_t SkipRanges::ToRaw(int64_t kept) const {
  int64_t raw = kept;
  for (const SkipRange& range : ranges_) {
    if (range.begin > raw) break;
    raw += range.end - range.begin;
  }
  return raw;
}

}  // namespace lockstep
