#include "lockstep/collective/shm/lent_memory.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_collective {

// One piece of memory of this rank. Its address is "NUMBER:ADDRESS".
// Thread-safety: as RankMemory.
class LentMemories::Memory : public RankMemory {
 public:
  Memory(std::shared_ptr<LentMemories> lent, uint64_t number, int64_t bytes,
         std::shared_ptr<SharedMemory> memory)
      : lent_(std::move(lent)),
        number_(number),
        bytes_(bytes),
        memory_(std::move(memory)) {}

  ~Memory() override {
    // A forked process does not have the memory, and may find the mutex locked.
    if (fork_guard_.forked()) {
      KeepForEver(std::move(lent_));
      return;
    }
    {
      MutexLock lock(lent_->mutex_);
      lent_->own_.erase(Begin());
    }
    memory_->Retire();
  }

  char* data() const override { return memory_->data(); }

  std::string Address() const override {
    return absl::StrCat(number_, ":", memory_->Address());
  }

  absl::Status Reach(absl::Span<const std::string> addresses) override {
    lent_->DropRetired();
    for (int i = 0; i < lent_->size_; ++i) {
      if (i == lent_->rank_) continue;
      const absl::StatusOr<uint64_t> number =
          lent_->Reach(i, addresses[i], bytes_);
      if (!number.ok()) {
        return Annotate(number.status(),
                        absl::StrCat("the memory of rank ", i));
      }
      reached_.emplace_back(i, *number);
    }
    return absl::OkStatus();
  }

  void Settle(bool is_shared) override {
    memory_->CloseFile();
    MutexLock lock(lent_->mutex_);
    if (is_shared) {
      lent_->own_[Begin()] = {number_, bytes_};
    } else {
      for (const auto& other : reached_) lent_->others_.erase(other);
    }
    reached_.clear();
  }

 private:
  uintptr_t Begin() const {
    return reinterpret_cast<uintptr_t>(memory_->data());
  }

  std::shared_ptr<LentMemories> lent_;
  const uint64_t number_;
  const int64_t bytes_;
  const std::shared_ptr<SharedMemory> memory_;
  // The keys of the memories that Reach has mapped, until Settle.
  std::vector<std::pair<int, uint64_t>> reached_;
  const ForkGuard fork_guard_;
};

absl::StatusOr<std::unique_ptr<RankMemory>> LentMemories::Allocate(
    int64_t bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto memory, SharedMemory::Create(static_cast<size_t>(bytes),
                                        SharedMemory::Writers::kOwner));
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = ++last_number_;
  }
  return std::make_unique<Memory>(shared_from_this(), number, bytes,
                                  std::move(memory));
}

absl::StatusOr<uint64_t> LentMemories::Reach(int rank,
                                             absl::string_view address,
                                             int64_t bytes) {
  const std::vector<std::string> parts =
      absl::StrSplit(address, absl::MaxSplits(':', 1));
  uint64_t number = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &number) ||
      number == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", address, "' should be the number and the address of memory"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto memory, SharedMemory::Open(parts[1], static_cast<size_t>(bytes),
                                      SharedMemory::Writers::kOwner));
  MutexLock lock(mutex_);
  others_[{rank, number}] = {std::move(memory), bytes};
  return number;
}

Place LentMemories::Find(const void* data, int64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(mutex_);
  const auto behind = own_.upper_bound(first);
  if (behind == own_.begin()) return Place();
  const auto& [begin, own] = *std::prev(behind);
  const auto offset = static_cast<int64_t>(first - begin);
  // The bytes may be in memory that this rank has not lent.
  if (offset > own.bytes || bytes > own.bytes - offset) return Place();
  return {own.number, offset};
}

absl::StatusOr<LentBytes> LentMemories::Of(int rank, const Place& place,
                                           int64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = others_.find({rank, place.memory});
  if (found == others_.end() || place.offset < 0 ||
      place.offset > found->second.bytes ||
      bytes > found->second.bytes - place.offset) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " has lent no ", bytes, " bytes at ",
                     place.offset, " of its memory ", place.memory));
  }
  const auto& memory = found->second.memory;
  return LentBytes{memory->data() + place.offset, memory};
}

void LentMemories::DropRetired() {
  MutexLock lock(mutex_);
  for (auto each = others_.begin(); each != others_.end();) {
    each =
        each->second.memory->retired() ? others_.erase(each) : std::next(each);
  }
}

void LentMemories::DropAll() {
  MutexLock lock(mutex_);
  others_.clear();
}

}  // namespace lockstep::internal_collective
