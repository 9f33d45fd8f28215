// Philox4x32-10 (Salmon et al., SC 2011): a random function. A key and a
// counter give 128 random bits, the same ones anywhere, at any time, in any
// order; so whoever knows his place needs no state.
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

// The counter's four words of 32 bits are, in the order of the paper, the lower
// and the upper half of `low`, then those of `high`.
struct PhiloxCounter {
  uint64_t low = 0;
  uint64_t high = 0;
};

// The four output words, likewise.
struct PhiloxBlock {
  uint64_t low = 0;
  uint64_t high = 0;
};

// The block of one counter. `key` holds the two key words, the first one low.
PhiloxBlock Philox(uint64_t key, PhiloxCounter counter);

// out[i] = Philox(key, {first.low + i, first.high}), by the widest vectors that
// the processor has. `low` wraps around without a carry into `high`.
void PhiloxFill(uint64_t key, PhiloxCounter first, absl::Span<PhiloxBlock> out);

namespace internal_base {
// PhiloxFill without vectors, for the test that both agree.
void PhiloxFillPortable(uint64_t key, PhiloxCounter first,
                        absl::Span<PhiloxBlock> out);
}  // namespace internal_base

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PHILOX_H_
