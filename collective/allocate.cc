// Communicator::Allocate. The ranks tell each other what memory they have, and
// then whether they have reached the memory of all.
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/large_memory.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/transport.h"

namespace lockstep {
namespace {

using internal_collective::Group;

// A rank tells the others this.
struct Told {
  enum class Have : char {
    kShared = 's',   // memory that others may reach
    kPrivate = 'p',  // memory of its own
    kNone = 'n',     // no memory
  };
  Have have = Have::kNone;
  std::string address;  // of kShared
  absl::Status error;   // of the others
};

// The bytes of what one rank tells: `have`, the code of the error, and the
// address or the message of the error, which may be cut off. Zeros follow.
constexpr int64_t kToldBytes = DeviceTransport::kNoticeBytes;
static_assert(RankMemory::kMostAddressBytes < kToldBytes - 2);

void Write(const Told& own, char* bytes) {
  bytes[0] = static_cast<char>(own.have);
  bytes[1] = static_cast<char>(own.error.code());
  const absl::string_view text = own.have == Told::Have::kShared
                                     ? absl::string_view(own.address)
                                     : own.error.message();
  text.copy(bytes + 2, kToldBytes - 3);
}

Told Read(const char* bytes) {
  Told told;
  told.have = static_cast<Told::Have>(bytes[0]);
  told.address = bytes + 2;
  told.error =
      absl::Status(static_cast<absl::StatusCode>(bytes[1]), told.address);
  return told;
}

// Gathers `own` of all ranks in `all`. If the group's operations take memory of
// a device alone, copies to such memory and back. A copy that fails ends the
// group, since the others wait for it.
absl::Status Gather(Communicator& communicator, Group& group,
                    const ConstBuffer& own, const Buffer& all,
                    const CallOptions& call) {
  const Buffer notices = group.notices();
  if (notices.data == nullptr) {
    return Wait(communicator.AllGather(own, all, call));
  }
  const auto move = [&](const ConstBuffer& from, const Buffer& to) {
    absl::Status moved = group.Move(from, to);
    if (!moved.ok()) communicator.Abort(moved);
    return moved;
  };
  Buffer from = notices;
  from.count = own.count;
  Buffer to = notices;
  to.data = static_cast<char*>(notices.data) + own.count;
  to.count = all.count;
  LOCKSTEP_RETURN_IF_ERROR(move(own, from));
  LOCKSTEP_RETURN_IF_ERROR(Wait(communicator.AllGather(from, to, call)));
  return move(to, all);
}

// Tells the others what this rank has, and returns what all have, by rank.
absl::StatusOr<std::vector<Told>> Tell(Communicator& communicator, Group& group,
                                       const Told& own,
                                       const CallOptions& call) {
  if (group.size == 1) return std::vector<Told>{own};
  std::vector<char> in(kToldBytes), all(group.size * kToldBytes);
  Write(own, in.data());
  LOCKSTEP_RETURN_IF_ERROR(Gather(
      communicator, group, ConstBuffer(in.data(), kToldBytes, DType::kU8),
      {all.data(), group.size * kToldBytes, DType::kU8, {}}, call));
  std::vector<Told> told(group.size);
  for (int rank = 0; rank < group.size; ++rank) {
    told[rank] = Read(all.data() + rank * kToldBytes);
  }
  return told;
}

// Returns the first rank that has this, or -1.
int FirstThat(const std::vector<Told>& all, Told::Have have) {
  const auto found =
      std::find_if(all.begin(), all.end(),
                   [&](const Told& told) { return told.have == have; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

// Returns the error of a rank, with its name, or OK for rank -1.
absl::Status ErrorOf(const std::vector<Told>& all, int rank) {
  if (rank < 0) return absl::OkStatus();
  return Annotate(all[rank].error, absl::StrCat("rank ", rank));
}

// Returns false if this host has less memory. The system would give out its
// pages all the same, until it has to end processes.
bool HostHas(int64_t bytes) {
  struct sysinfo host = {};
  if (sysinfo(&host) != 0) return true;
  return static_cast<double>(bytes) <=
         static_cast<double>(host.mem_unit) *
             (static_cast<double>(host.totalram) +
              static_cast<double>(host.totalswap));
}

// Returns memory of this process alone, which is 0.
absl::StatusOr<std::shared_ptr<void>> AllocatePrivate(int64_t bytes) {
  void* const memory =
      internal_base::AllocateLarge(bytes, sysconf(_SC_PAGESIZE));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError("the host has none left");
  }
  std::shared_ptr<void> owner(memory, std::free);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return owner;
}

// The memory of this rank, and what it tells the others about it.
struct Own {
  std::shared_ptr<void> memory;
  std::shared_ptr<RankMemory> shared;  // the same, if others may reach it
  Told told;
};

Own MakeOwn(Group& group, int64_t bytes) {
  Own own;
  const bool on_device = group.notices().data != nullptr;
  if (!on_device && !HostHas(bytes)) {
    own.told.error = absl::ResourceExhaustedError("the host has less");
    return own;
  }
  absl::StatusOr<std::unique_ptr<RankMemory>> shared = group.Allocate(bytes);
  if (shared.ok()) {
    own.shared = *std::move(shared);
    own.memory = std::shared_ptr<void>(own.shared, own.shared->data());
    own.told.have = Told::Have::kShared;
    own.told.address = own.shared->Address();
    return own;
  }
  own.told.error = shared.status();
  absl::StatusOr<std::shared_ptr<void>> alone =
      on_device ? group.AllocateOnDevice(bytes) : AllocatePrivate(bytes);
  if (alone.ok()) {
    own.memory = *std::move(alone);
    own.told.have = Told::Have::kPrivate;
  } else {
    own.told.error = alone.status();
  }
  return own;
}

// Returns where the ranks find this rank's memory, by its address.
std::vector<std::string> AddressesOf(const std::vector<Told>& all) {
  std::vector<std::string> addresses;
  addresses.reserve(all.size());
  for (const Told& told : all) addresses.push_back(told.address);
  return addresses;
}

}  // namespace

absl::StatusOr<GroupMemory> Communicator::AllocateOnAll(
    int64_t bytes, const CallOptions& call) {
  MutexLock lock(group_->allocating);
  Own own = MakeOwn(*group_, bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Told> all,
                            Tell(*this, *group_, own.told, call));
  const int without = FirstThat(all, Told::Have::kNone);
  if (without >= 0) {
    return Annotate(
        all[without].error,
        absl::StrCat("there is no memory for ", bytes, " bytes of group '",
                     name(), "' on rank ", without));
  }
  int alone = FirstThat(all, Told::Have::kPrivate);
  if (alone < 0) {
    own.told.error = own.shared->Reach(AddressesOf(all));
    if (!own.told.error.ok()) own.told.have = Told::Have::kPrivate;
    LOCKSTEP_ASSIGN_OR_RETURN(all, Tell(*this, *group_, own.told, call));
    alone = FirstThat(all, Told::Have::kPrivate);
  }
  if (own.shared != nullptr) own.shared->Settle(/*is_shared=*/alone < 0);
  return GroupMemory(std::move(own.memory), bytes, device(),
                     ErrorOf(all, alone));
}

}  // namespace lockstep
