// Memory of one process that others of the same user can map, and that is gone
// with the last of them, however they end.
//
//   auto mine = SharedMemory::Create(bytes);                // in one process
//   store.Set("memory", mine->Address());
//
//   auto same = SharedMemory::Open(address, bytes);         // in another one
//
//   mine->CloseFile();                    // when all others have opened it
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

class SharedMemory {
 public:
  // Zeroed memory that is there for good: using it can't fail later.
  // RESOURCE_EXHAUSTED tells the bytes.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(size_t bytes);

  // What another called Create for, or another part of this process: that one
  // is not mapped again, so that all its threads see it at one address.
  // PERMISSION_DENIED, NOT_FOUND, or FAILED_PRECONDITION if it is not that.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(
      absl::string_view address, size_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Begins a cache line.
  char* data() const { return data_; }

  // For Open, until CloseFile.
  std::string Address() const;
  void CloseFile();

 private:
  explicit SharedMemory(size_t bytes) : mapped_(bytes) {}

  absl::Status Map();

  int file_ = -1;        // when it is open
  const size_t mapped_;  // bytes, with the nonce
  // The mapping begins with the nonce, which no other memory has.
  void* mapping_ = nullptr;
  char* data_ = nullptr;
  std::string nonce_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_
