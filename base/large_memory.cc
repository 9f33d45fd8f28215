#include "lockstep/base/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace lockstep::internal_base {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// A process has no more addresses.
constexpr int64_t kMostBytes = int64_t{1} << 47;

int64_t UnitOf(int64_t bytes, int64_t alignment) {
  return bytes >= kHugePage ? kHugePage : alignment;
}

}  // namespace

int64_t LargeBytes(int64_t bytes, int64_t alignment) {
  const int64_t unit = UnitOf(bytes, alignment);
  return std::max(unit, (bytes + unit - 1) / unit * unit);
}

void* AllocateLarge(int64_t bytes, int64_t alignment) {
  if (bytes > kMostBytes) return nullptr;
  const int64_t unit = UnitOf(bytes, alignment);
  const int64_t rounded = LargeBytes(bytes, alignment);
  void* const memory = std::aligned_alloc(static_cast<size_t>(unit),
                                          static_cast<size_t>(rounded));
  if (memory != nullptr && unit == kHugePage) {
    madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  }
  return memory;
}

}  // namespace lockstep::internal_base
