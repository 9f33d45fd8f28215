// Memory for large arrays: it begins at a cache line and, from 2 MiB on, has
// huge pages of its own, with which a processor translates fewer addresses.
//
//   void* const memory = AllocateLarge(bytes);
//   if (memory == nullptr) return absl::ResourceExhaustedError(...);
//   ...
//   std::free(memory);
#ifndef LOCKSTEP_BASE_LARGE_MEMORY_H_
#define LOCKSTEP_BASE_LARGE_MEMORY_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Returns the number of bytes that AllocateLarge allocates for so many: a
// multiple of the unit at which the memory begins.
// Requires: `bytes` is at least 0. `alignment` is a power of two, from 64 to
// 2 MiB.
int64_t LargeBytes(int64_t bytes, int64_t alignment = 64);

// Returns memory with any contents, which std::free frees, or nullptr if there
// is none. Small memory begins at a multiple of `alignment`.
void* AllocateLarge(int64_t bytes, int64_t alignment = 64);

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_LARGE_MEMORY_H_
