#include "lockstep/loader/batch_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAlignment = 64;

// Large batches get huge pages of their own, so their sizes are rounded up.
int64_t UnitOf(int64_t bytes) {
  return bytes >= kHugePage ? kHugePage : kAlignment;
}

}  // namespace

absl::StatusOr<void*> BatchMemory::OnDevice(void*, Stream) {
  return absl::FailedPreconditionError(
      "batches of this loader are not copied to a device: set "
      "LoaderOptions::memory to a PinnedMemory");
}

absl::StatusOr<void*> HeapMemory::Allocate(int64_t bytes) {
  const int64_t unit = UnitOf(bytes);
  const int64_t rounded = BytesTaken(bytes);
  void* const memory = std::aligned_alloc(unit, rounded);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for a batch of ", bytes, " bytes"));
  }
  if (unit == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

int64_t HeapMemory::BytesTaken(int64_t bytes) const {
  const int64_t unit = UnitOf(bytes);
  return std::max(unit, (bytes + unit - 1) / unit * unit);
}

void HeapMemory::Free(void* memory, int64_t) { std::free(memory); }

}  // namespace lockstep
