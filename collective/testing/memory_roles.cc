#include "lockstep/collective/testing/memory_roles.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using internal_collective::MakeShmTransportFor;
using internal_collective::ShmTesting;
using Self = RankProcesses::Self;

// The deadline of ranks that something else ends. It is shorter than the time
// limit of their processes.
constexpr absl::Duration kUntilTold = absl::Minutes(3);

constexpr int64_t kCount = int64_t{3} << 19;  // of floats: 6 MiB
constexpr int64_t kBytes = kCount * static_cast<int64_t>(sizeof(float));

struct Joined {
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
};

absl::StatusOr<Joined> Join(const Self& self, const ShmTesting& testing = {}) {
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  options.beat = absl::Milliseconds(20);
  options.leave_patience = absl::Seconds(5);
  LOCKSTEP_ASSIGN_OR_RETURN(auto world, World::Join(options));
  GroupOptions group_options;
  group_options.backend = "shm";
  group_options.transport =
      [testing](
          const TransportContext& context) -> absl::StatusOr<AnyTransport> {
    return MakeShmTransportFor(testing, context);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(auto group, world->MakeGroup(group_options));
  return Joined{std::move(world), std::move(group)};
}

// Returns the exit code of a role.
int Ended(const absl::Status& status) {
  if (status.ok()) return 0;
  std::printf("failed: %s\n", status.ToString().c_str());
  return 1;
}

absl::StatusOr<Work> Issue(Communicator& group, absl::Span<float> in,
                           absl::Span<float> out, absl::Duration deadline) {
  CallOptions call;
  call.deadline = deadline;
  return group.AllReduce(BufferOf(in), BufferOf(out), ReduceOp::kSum, call);
}

absl::Status Reduce(Communicator& group, absl::Span<float> in,
                    absl::Span<float> out) {
  return Wait(Issue(group, in, out, absl::ZeroDuration()));
}

bool AllAre(absl::Span<const float> values, float due) {
  return std::all_of(values.begin(), values.end(),
                     [due](float value) { return value == due; });
}

// ---- A rank that stands still while it reads.

absl::Status Stand(const Self& self, ShmTesting::Reads where,
                   absl::Duration deadline) {
  bool stands = false;  // used by the thread that does the operation
  ShmTesting testing;
  testing.before_read = [&](int rank, ShmTesting::Reads reads) {
    if (rank + 1 != self.size || reads != where ||
        !std::exchange(stands, false))
      return;
    std::printf("joined\n");
    AwaitGo(self);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const Joined joined, Join(self, testing));
  LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
                            joined.group->Allocate(2 * kBytes));
  LOCKSTEP_RETURN_IF_ERROR(memory.sharing());
  const absl::Span<float> in = memory.As<float>().first(kCount);
  const absl::Span<float> out = memory.As<float>().subspan(kCount);
  const auto own = static_cast<float>(self.rank + 1);
  const auto sum = static_cast<float>(self.size * (self.size + 1)) / 2;
  for (int i = 0; i < 3; ++i) {
    std::fill(in.begin(), in.end(), own);
    LOCKSTEP_RETURN_IF_ERROR(Reduce(*joined.group, in, out));
    if (!AllAre(out, sum)) return absl::DataLossError("wrong sums");
  }
  stands = true;
  if (self.rank + 1 < self.size) std::printf("joined\n");
  const double issued = ClockSeconds();
  const bool aborts = self.argument == "abort";
  const absl::StatusOr<Work> work = Issue(
      *joined.group, in, out, self.argument.empty() ? deadline : kUntilTold);
  if (aborts && self.rank == 0) {
    AwaitGo(self);
    joined.group->Abort(absl::InternalError("the test goes on"));
  }
  absl::Status status = Wait(work);
  const double answered = ClockSeconds();
  if (!AllAre(in, own)) status = absl::DataLossError("another rank wrote here");
  std::fill(in.begin(), in.end(), -1.0F);
  std::fill(out.begin(), out.end(), -1.0F);
  std::printf("%s | %.6f | %.6f\n", status.ToString().c_str(), issued,
              answered);
  return absl::OkStatus();
}

// ---- Memory that can't be shared.

absl::Status SetLimit(int resource, rlim_t limit) {
  const rlimit both = {limit, limit};
  if (setrlimit(resource, &both) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "a limit can't be set");
}

absl::Status PrintWhyNotShared(Communicator& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory, group.Allocate(kBytes));
  const absl::Span<float> floats = memory.As<float>();
  std::fill(floats.begin(), floats.end(), 1.0F);
  LOCKSTEP_RETURN_IF_ERROR(Reduce(group, floats, floats));
  if (!AllAre(floats, static_cast<float>(group.size()))) {
    return absl::DataLossError("wrong sums");
  }
  std::printf("not shared, %s\n", memory.sharing().ToString().c_str());
  return absl::OkStatus();
}

absl::Status AllocateWithoutFiles(const Self& self) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Joined joined, Join(self));
  if (self.rank == 1) LOCKSTEP_RETURN_IF_ERROR(SetLimit(RLIMIT_NOFILE, 0));
  return PrintWhyNotShared(*joined.group);
}

// Returns the bytes of this process's addresses.
absl::StatusOr<rlim_t> AddressBytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  if (!(file >> pages)) return absl::NotFoundError("no /proc/self/statm");
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

absl::Status AllocateWithoutAddresses(const Self& self) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Joined joined, Join(self));
  if (self.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const rlim_t used, AddressBytes());
    LOCKSTEP_RETURN_IF_ERROR(
        SetLimit(RLIMIT_AS, used + static_cast<rlim_t>(kBytes) * 3 / 2));
  }
  return PrintWhyNotShared(*joined.group);
}

// ---- Memory that comes and goes.

absl::Status AllocateOften(const Self& self) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Joined joined, Join(self));
  constexpr int64_t kLittle = 300000;
  Held before;
  for (int i = 0; i < 1000; ++i) {
    if (i == 20) before = HeldNow();
    LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
                              joined.group->Allocate(kLittle));
    LOCKSTEP_RETURN_IF_ERROR(memory.sharing());
    const absl::Span<float> floats = memory.As<float>();
    LOCKSTEP_RETURN_IF_ERROR(Reduce(*joined.group, floats, floats));
  }
  const std::string grew = WhatGrew(GrowthSince(before));
  std::printf("%s\n", grew.empty() ? "nothing is left over" : grew.c_str());
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, RankProcesses::Role> MemoryRoles(
    absl::Duration deadline) {
  const auto role = [](const std::function<absl::Status(const Self&)>& run) {
    return [run](const Self& self) { return Ended(run(self)); };
  };
  const auto stand = [&](ShmTesting::Reads where) {
    return role([=](const Self& self) { return Stand(self, where, deadline); });
  };
  return {{"stands_in_reduce", stand(ShmTesting::Reads::kToReduce)},
          {"stands_in_copy", stand(ShmTesting::Reads::kToCopy)},
          {"no_memory_files", role(AllocateWithoutFiles)},
          {"no_addresses", role(AllocateWithoutAddresses)},
          {"allocates", role(AllocateOften)}};
}

}  // namespace lockstep
