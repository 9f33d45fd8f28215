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
constexpr int64_t kToldBytes = 512;
static_assert(RankMemory::kMostAddressBytes < kToldBytes - 2);

// Tells the others what this rank has, and returns what all have, by rank.
absl::StatusOr<std::vector<Told>> Tell(Communicator& group, const Told& own,
                                       const CallOptions& call) {
  if (group.size() == 1) return std::vector<Told>{own};
  std::vector<char> in(kToldBytes), all(group.size() * kToldBytes);
  in[0] = static_cast<char>(own.have);
  in[1] = static_cast<char>(own.error.code());
  const absl::string_view text = own.have == Told::Have::kShared
                                     ? absl::string_view(own.address)
                                     : own.error.message();
  text.copy(in.data() + 2, kToldBytes - 3);
  const ConstBuffer from(in.data(), kToldBytes, DType::kU8);
  const Buffer to = {all.data(), group.size() * kToldBytes, DType::kU8, {}};
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.AllGather(from, to, call)));
  std::vector<Told> told(group.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    const char* const each = all.data() + rank * kToldBytes;
    told[rank].have = static_cast<Told::Have>(each[0]);
    told[rank].address = each + 2;
    told[rank].error =
        absl::Status(static_cast<absl::StatusCode>(each[1]), each + 2);
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

// Returns memory of this process alone, which is 0, or nullptr.
std::shared_ptr<void> AllocatePrivate(int64_t bytes) {
  void* const memory =
      internal_base::AllocateLarge(bytes, sysconf(_SC_PAGESIZE));
  if (memory == nullptr) return nullptr;
  std::shared_ptr<void> owner(memory, std::free);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return owner;
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

// The memory of this rank, and what it tells the others about it.
struct Own {
  std::shared_ptr<void> memory;
  std::shared_ptr<RankMemory> shared;  // the same, if others may reach it
  Told told;
};

Own MakeOwn(Group& group, int64_t bytes) {
  Own own;
  if (!HostHas(bytes)) return own;
  absl::StatusOr<std::unique_ptr<RankMemory>> shared = group.Allocate(bytes);
  if (shared.ok()) {
    own.shared = *std::move(shared);
    own.memory = std::shared_ptr<void>(own.shared, own.shared->data());
    own.told.have = Told::Have::kShared;
    own.told.address = own.shared->Address();
    return own;
  }
  own.memory = AllocatePrivate(bytes);
  if (own.memory != nullptr) own.told.have = Told::Have::kPrivate;
  own.told.error = shared.status();
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
  Own own = MakeOwn(*group_, bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Told> all, Tell(*this, own.told, call));
  const int without = FirstThat(all, Told::Have::kNone);
  if (without >= 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for ", bytes, " bytes of group '",
                     name(), "' on rank ", without));
  }
  int alone = FirstThat(all, Told::Have::kPrivate);
  if (alone < 0) {
    own.told.error = own.shared->Reach(AddressesOf(all));
    if (!own.told.error.ok()) own.told.have = Told::Have::kPrivate;
    LOCKSTEP_ASSIGN_OR_RETURN(all, Tell(*this, own.told, call));
    alone = FirstThat(all, Told::Have::kPrivate);
  }
  if (own.shared != nullptr) own.shared->Settle(/*is_shared=*/alone < 0);
  return GroupMemory(std::move(own.memory), bytes, ErrorOf(all, alone));
}

}  // namespace lockstep
