#include "lockstep/base/philox.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// These values are from kat_vectors of Random123, the authors' own
// implementation.
struct KnownAnswer {
  uint32_t counter[4];
  uint32_t key[2];
  uint32_t output[4];
};

constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

uint64_t Join(const uint32_t* words) {
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

TEST(Philox, GivesTheKnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const uint64_t key = Join(known.key);
    const PhiloxCounter counter{Join(known.counter), Join(known.counter + 2)};
    const PhiloxBlock block = Philox(key, counter);
    EXPECT_EQ(block.low, Join(known.output));
    EXPECT_EQ(block.high, Join(known.output + 2));
    // Eight blocks make PhiloxFill use vectors; the first one is compared.
    std::vector<PhiloxBlock> blocks(8);
    PhiloxFill(key, counter, absl::MakeSpan(blocks));
    EXPECT_EQ(blocks[0].low, block.low);
    EXPECT_EQ(blocks[0].high, block.high);
  }
}

// Tests every length around the vector width. Some counters start where the
// lower half of `low` carries into its upper half, and where `low` wraps
// around.
TEST(Philox, FillIsBlockForBlockTheSame) {
  const uint64_t key = 0x0123456789abcdef;
  for (const uint64_t start :
       {uint64_t{0}, uint64_t{0xfffffffb}, ~uint64_t{0} - 4}) {
    for (size_t size = 0; size < 40; ++size) {
      const PhiloxCounter first{start, 0xfedcba9876543210};
      std::vector<PhiloxBlock> fast(size), slow(size);
      PhiloxFill(key, first, absl::MakeSpan(fast));
      internal_base::PhiloxFillPortable(key, first, absl::MakeSpan(slow));
      for (size_t i = 0; i < size; ++i) {
        const PhiloxBlock one = Philox(key, {start + i, first.high});
        ASSERT_EQ(fast[i].low, one.low) << start << " " << i;
        ASSERT_EQ(fast[i].high, one.high) << start << " " << i;
        ASSERT_EQ(slow[i].low, one.low) << start << " " << i;
        ASSERT_EQ(slow[i].high, one.high) << start << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
