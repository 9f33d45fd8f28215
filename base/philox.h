// Philox4x32-10 (Salmon et al., SC 2011) is a random function. It computes 128
// random bits from a key and a counter. The result depends on nothing else, so
// a caller that knows its counter needs no state.
//
//   PhiloxBlock block = Philox(key, {/*low=*/draw, /*high=*/position});
//
// Most callers want the distributions of random.h instead.
#ifndef LOCKSTEP_BASE_PHILOX_H_
#define LOCKSTEP_BASE_PHILOX_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The four 32-bit counter words of the paper, in order, are the lower and the
// upper half of `low`, then the lower and the upper half of `high`.
struct PhiloxCounter {
  uint64_t low = 0;
  uint64_t high = 0;
};

// The four output words, in the same layout.
struct PhiloxBlock {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Returns the block of one counter. The lower half of `key` is the first key
// word, and the upper half is the second.
PhiloxBlock Philox(uint64_t key, PhiloxCounter counter);

// Sets out[i] = Philox(key, {first.low + i, first.high}), with AVX2 vectors if
// the processor has them. `low` wraps around without a carry into `high`.
void PhiloxFill(uint64_t key, PhiloxCounter first, absl::Span<PhiloxBlock> out);

namespace internal_base {
// Does the same as PhiloxFill without vectors; a test compares the two.
void PhiloxFillPortable(uint64_t key, PhiloxCounter first,
                        absl::Span<PhiloxBlock> out);
}  // namespace internal_base

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PHILOX_H_
