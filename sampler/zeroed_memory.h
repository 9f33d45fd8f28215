// ZeroedMemory is a large array that starts as zeros and costs nothing until it
// is touched.
//
//   absl::StatusOr<ZeroedMemory> memory = ZeroedMemory::Create(4 * n, "why");
//   auto* words = static_cast<uint32_t*>(memory->data());
#ifndef LOCKSTEP_SAMPLER_ZEROED_MEMORY_H_
#define LOCKSTEP_SAMPLER_ZEROED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class ZeroedMemory {
 public:
  // Allocates `bytes` zeros. RESOURCE_EXHAUSTED if the machine does not have so
  // many bytes; the message has `purpose`.
  static absl::StatusOr<ZeroedMemory> Create(size_t bytes,
                                             absl::string_view purpose);

  ZeroedMemory() = default;
  ZeroedMemory(ZeroedMemory&& other) noexcept { *this = std::move(other); }
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ZeroedMemory();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ZEROED_MEMORY_H_
