// Memory of one process that other processes of the same user can map. It is
// gone with the last of them, however they end.
//
//   auto mine = SharedMemory::Create(bytes);                // in one process
//   store.Set("memory", mine->Address());
//
//   auto same = SharedMemory::Open(address, bytes);         // in another one
//
//   mine->CloseFile();                    // when all others have opened it
//
// The other processes may write it, too, or only read it.
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// A mapping of shared memory, which the destructor unmaps.
//
// Requires: the processes have the same user and process namespace.
// Guarantees: nobody can change the size of the memory.
// Thread-safety: Create and Open are thread-safe. An object is
// thread-compatible; the users of the memory itself synchronize.
class SharedMemory {
 public:
  // The ones who write the memory.
  enum class Writers {
    kAll,    // whoever opens it
    kOwner,  // the object that has made it; it begins at a page
  };

  // Makes zeroed memory. All of it is allocated now, so using it can't fail
  // later. RESOURCE_EXHAUSTED with the number of bytes if there is not enough.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(
      size_t bytes, Writers writers = Writers::kAll);

  // Maps memory that another process has made. Memory of kAll that this process
  // has made is not mapped again, so that all threads of a process see it at
  // one address. Memory of kOwner is mapped for reading alone, also where this
  // process has made it. PERMISSION_DENIED or NOT_FOUND if the memory can't be
  // opened, FAILED_PRECONDITION if there is something else at the address, and
  // RESOURCE_EXHAUSTED if memory or descriptors have run out.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(
      absl::string_view address, size_t bytes, Writers writers = Writers::kAll);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Returns the beginning of the memory, which is that of a cache line.
  char* data() const { return data_; }

  // Returns the address for Open, which is valid until CloseFile.
  std::string Address() const;
  // Closes the file. The mappings stay.
  void CloseFile();

  // Says to all who have opened memory of kOwner that it is not used any more,
  // and gives its pages back to the system. They read zeros from then on. Only
  // its maker calls it.
  void Retire();
  bool retired() const;

 private:
  SharedMemory(size_t bytes, Writers writers);

  // Maps the file. A forked process does not get memory of kOwner.
  absl::Status Map(int protection);
  // Allocates the pages of mapped memory of kOwner.
  absl::Status Populate();

  const Writers writers_;
  const size_t data_offset_;
  const size_t mapped_;  // bytes, including those before the data
  int file_ = -1;        // -1 when it is closed
  // A forked process would keep the memory alive. Only the maker's file stays
  // open for long.
  std::unique_ptr<ClosedInForks> closed_in_forks_;
  // The mapping begins with the nonce, which no other memory has.
  void* mapping_ = nullptr;
  char* data_ = nullptr;
  std::string nonce_;  // "" if another object has made the memory
  const ForkGuard fork_guard_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHARED_MEMORY_H_
