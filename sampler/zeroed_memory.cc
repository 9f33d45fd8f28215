#include "lockstep/sampler/zeroed_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// The largest piece that comes from the heap. For smaller pieces, a system call
// would take longer than the use of the piece. For larger ones, an allocator
// asks the system too.
constexpr size_t kMostOfHeap = size_t{64} << 10;

}  // namespace

absl::StatusOr<ZeroedMemory> ZeroedMemory::Create(size_t bytes,
                                                  absl::string_view purpose) {
  ZeroedMemory memory;
  if (bytes == 0) return memory;
  if (bytes <= kMostOfHeap) {
    memory.data_ = std::calloc(1, bytes);
    memory.bytes_ = bytes;
    if (memory.data_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          purpose, " needs ", bytes, " bytes of memory, which are not free"));
    }
    return memory;
  }
  // The kernel grants more memory than there is, and kills the process that
  // touches it.
  const size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* data = MAP_FAILED;
  if (bytes <= physical) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        purpose, " needs ", bytes, " bytes of memory, of which ",
        "this machine has ", physical, " in all and too few free"));
  }
  // Random access to gigabytes is bound by address translation; with pages of 2
  // MiB it is a third faster. If madvise fails, only the speed is lower.
  madvise(data, bytes, MADV_HUGEPAGE);
  memory.data_ = data;
  memory.bytes_ = bytes;
  return memory;
}

ZeroedMemory::~ZeroedMemory() {
  if (bytes_ <= kMostOfHeap) {
    std::free(data_);
  } else {
    munmap(data_, bytes_);
  }
}

}  // namespace lockstep
