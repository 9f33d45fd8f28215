#include "lockstep/base/large_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"

namespace lockstep::internal_base {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

TEST(LargeMemory, BeginsWhereItShouldAndHasItsBytes) {
  for (const int64_t alignment : {64, 4096}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4097},
                                kHugePage, 3 * kHugePage + 1}) {
      void* const memory = AllocateLarge(bytes, alignment);
      ASSERT_NE(memory, nullptr);
      const int64_t unit = bytes >= kHugePage ? kHugePage : alignment;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % unit, 0u);
      const int64_t taken = LargeBytes(bytes, alignment);
      EXPECT_GE(taken, bytes);
      EXPECT_LE(taken, bytes + unit);
      EXPECT_EQ(taken % unit, 0);
      std::memset(memory, 1, taken);
      std::free(memory);
    }
  }
}

TEST(LargeMemory, IsNotThereBeyondAllAddresses) {
  EXPECT_EQ(AllocateLarge(INT64_MAX), nullptr);
  EXPECT_EQ(AllocateLarge((int64_t{1} << 47) + 1), nullptr);
}

}  // namespace
}  // namespace lockstep::internal_base
