#include "lockstep/loader/batch_memory.h"

#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/large_memory.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

absl::StatusOr<void*> BatchMemory::OnDevice(void*, Stream) {
  return absl::FailedPreconditionError(
      "batches of this loader are not copied to a device: set "
      "LoaderOptions::memory to a PinnedMemory");
}

absl::StatusOr<void*> HeapMemory::Allocate(int64_t bytes) {
  void* const memory = internal_base::AllocateLarge(bytes);
  if (memory != nullptr) return memory;
  return absl::ResourceExhaustedError(
      absl::StrCat("there is no memory for a batch of ", bytes, " bytes"));
}

int64_t HeapMemory::BytesTaken(int64_t bytes) const {
  return internal_base::LargeBytes(bytes);
}

void HeapMemory::Free(void* memory, int64_t) { std::free(memory); }

}  // namespace lockstep
