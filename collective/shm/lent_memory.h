// Memory that a rank lends to the others of its group: they read it where it
// lies, and never write it. A rank says where its data lie by a Place, which
// the others find in their own mappings.
//
//   const auto lent = std::make_shared<LentMemories>(rank, size);
//   LOCKSTEP_ASSIGN_OR_RETURN(auto memory, lent->Allocate(bytes));
//   ...  // the ranks tell each other memory->Address()
//   LOCKSTEP_RETURN_IF_ERROR(memory->Reach(addresses));
//   memory->Settle(/*is_shared=*/true);
//
//   const Place place = lent->Find(memory->data() + 64, 8);  // {1, 64}
//
//   // In another rank:
//   LOCKSTEP_ASSIGN_OR_RETURN(const LentBytes bytes, lent->Of(rank, place, 8));
#ifndef LOCKSTEP_COLLECTIVE_SHM_LENT_MEMORY_H_
#define LOCKSTEP_COLLECTIVE_SHM_LENT_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/collective/shm/shm_layout.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Bytes of another rank's memory, which stay mapped while this object exists.
struct LentBytes {
  const char* data = nullptr;
  std::shared_ptr<const SharedMemory> memory;
};

// The memory that this rank has lent, and that it may read of others.
//
// Requires: a shared_ptr owns it, since the memory that it allocates shares it.
// Thread-safety: thread-safe.
class LentMemories : public std::enable_shared_from_this<LentMemories> {
 public:
  LentMemories(int rank, int size) : rank_(rank), size_(size) {}

  LentMemories(const LentMemories&) = delete;
  LentMemories& operator=(const LentMemories&) = delete;

  // Makes memory of this rank. RESOURCE_EXHAUSTED if there is not enough.
  absl::StatusOr<std::unique_ptr<RankMemory>> Allocate(int64_t bytes);

  // Returns where these bytes lie in memory that this rank has lent.
  Place Find(const void* data, int64_t bytes);

  // Returns bytes that another rank has lent. FAILED_PRECONDITION if it has no
  // such bytes.
  absl::StatusOr<LentBytes> Of(int rank, const Place& place, int64_t bytes);

  // Unmaps the memory that other ranks do not use any more, or that of all
  // others, when the group ends.
  void DropRetired();
  void DropAll();

 private:
  class Memory;

  // Memory that this rank has lent.
  struct Own {
    uint64_t number = 0;
    int64_t bytes = 0;
  };
  // Memory that another rank has lent.
  struct Other {
    std::shared_ptr<const SharedMemory> memory;
    int64_t bytes = 0;
  };

  // Maps memory of another rank, and returns its number there.
  absl::StatusOr<uint64_t> Reach(int rank, absl::string_view address,
                                 int64_t bytes);

  const int rank_;
  const int size_;
  Mutex mutex_;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uintptr_t, Own> own_ ABSL_GUARDED_BY(mutex_);  // by beginning
  // By rank and number.
  std::map<std::pair<int, uint64_t>, Other> others_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_LENT_MEMORY_H_
