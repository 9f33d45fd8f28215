// Positions of a stream that a job leaves out, for instance the batches around
// a loss spike: at most 64 ranges of them.
//
//   SkipRanges skip;
//   absl::Status status = skip.Add(4096, 8192);
//   skip.ToRaw(5000);  // 9096: what is left is numbered without gaps
#ifndef LOCKSTEP_SAMPLER_SKIP_RANGES_H_
#define LOCKSTEP_SAMPLER_SKIP_RANGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

struct SkipRange {
  int64_t begin;  // the first position left out
  int64_t end;    // the first one after it that is not
};

// Thread-safety: thread-compatible.
class SkipRanges {
 public:
  static constexpr int kMaxRanges = 64;

  // Leaves out [begin, end) too. INVALID_ARGUMENT unless 0 <= begin < end;
  // RESOURCE_EXHAUSTED when the ranges, joined where they touch, are over 64.
  absl::Status Add(int64_t begin, int64_t end);

  // Ascending, apart from each other.
  absl::Span<const SkipRange> ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }

  // How many of the positions below `raw` are left in: its number among them.
  int64_t ToKept(int64_t raw) const;

  // The position that is number `kept` among those left in.
  int64_t ToRaw(int64_t kept) const;

 private:
  std::vector<SkipRange> ranges_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SKIP_RANGES_H_
