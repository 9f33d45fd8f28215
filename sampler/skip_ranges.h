// SkipRanges holds the positions that a job leaves out, for example the batches
// around a loss spike. It has at most 64 ranges.
//
//   SkipRanges skip;
//   absl::Status status = skip.Add(4096, 8192);
//   skip.ToRaw(5000);  // 9096: the kept positions have no gaps
#ifndef LOCKSTEP_SAMPLER_SKIP_RANGES_H_
#define LOCKSTEP_SAMPLER_SKIP_RANGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

struct SkipRange {
  int64_t begin;  // the first position that is left out
  int64_t end;    // the first position after it that is kept
};

// Thread-safety: thread-compatible.
class SkipRanges {
 public:
  static constexpr int kMaxRanges = 64;

  // Leaves out [begin, end) too. Ranges that touch are joined. INVALID_ARGUMENT
  // unless 0 <= begin < end. RESOURCE_EXHAUSTED if there would be more than 64
  // ranges.
  absl::Status Add(int64_t begin, int64_t end);

  // Returns the ranges in ascending order, with a gap between each two.
  absl::Span<const SkipRange> ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }

  // Returns the number of kept positions below `raw`.
  int64_t ToKept(int64_t raw) const;

  // Returns the kept position with the number `kept`.
  int64_t ToRaw(int64_t kept) const;

 private:
  std::vector<SkipRange> ranges_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SKIP_RANGES_H_
