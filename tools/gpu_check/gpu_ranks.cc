#include "lockstep/tools/gpu_check/gpu_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/over_device.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/tools/gpu_check/gpu_rank.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::Gpu;
using internal_gpu::LoadCuda;

constexpr absl::Duration kDeadline = absl::Seconds(1);

// ---- A rank, in its process.

struct Joined {
  const CudaApi* cuda = nullptr;
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
};

// The memory that a rank's group takes.
enum class Takes { kHostMemory, kDeviceMemory };

absl::StatusOr<Joined> Join(const RankProcesses::Self& self,
                            Takes takes = Takes::kHostMemory) {
  LOCKSTEP_ASSIGN_OR_RETURN(const GpuOptions options, BeginRank(self));
  Joined joined;
  LOCKSTEP_ASSIGN_OR_RETURN(joined.cuda, LoadCuda(options.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(joined.world, JoinWorld(self));
  GroupOptions group_options = NcclGroupOptions(options);
  if (takes == Takes::kHostMemory) {
    group_options.transport = OverDevice(
        [nccl = group_options.nccl](const TransportContext& context) {
          return internal_collective::MakeTransport("nccl", context, nccl);
        },
        joined.cuda, kGpuDevice);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(joined.group,
                            joined.world->MakeGroup(group_options));
  return joined;
}

int Conform(const RankProcesses::Self& self) {
  alarm(600);  // replaces RankProcesses' limit, for the whole suite
  absl::StatusOr<Joined> joined = Join(self);
  std::string failure = Line(joined.status());
  if (joined.ok()) {
    ConformanceOptions options;
    options.alone = true;
    options.reduces_all = options.reduces_in_rank_order = options.adds_shards =
        false;
    failure = FailureOf([&joined, &options] {
      ExpectConforms(
          [&joined](int) {
            std::vector<std::unique_ptr<Communicator>> ranks;
            ranks.push_back(std::move(joined->group));
            return ranks;
          },
          options);
    });
  }
  std::printf("%s\n", failure.c_str());
  return failure.empty() ? 0 : 1;
}

// ---- The operations of two ranks.

using Run = std::function<absl::Status(const Joined&)>;

constexpr int64_t kElements = int64_t{1} << 20;

absl::Status Expect(absl::Span<const float> values, float expected) {
  for (const float value : values) {
    if (value == expected) continue;
    return absl::DataLossError(
        absl::StrCat("an element is ", value, " and not ", expected));
  }
  return absl::OkStatus();
}

absl::Status AllReduce(const Joined& joined) {
  std::vector<float> values(kElements, 1.0f + joined.group->rank());
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(joined.group->AllReduce(buffer, buffer, ReduceOp::kSum)));
  return Expect(values, 3);
}

absl::Status Broadcast(const Joined& joined) {
  std::vector<float> values(kElements, 1.0f + joined.group->rank());
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_RETURN_IF_ERROR(Wait(joined.group->Broadcast(buffer, buffer, 1)));
  return Expect(values, 2);
}

absl::Status SendAndReceive(const Joined& joined) {
  std::vector<float> values(kElements, 5);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  if (joined.group->rank() == 0) return Wait(joined.group->Send(buffer, 1));
  std::fill(values.begin(), values.end(), 0.0f);
  LOCKSTEP_RETURN_IF_ERROR(Wait(joined.group->Recv(buffer, 0)));
  return Expect(values, 5);
}

// Does nothing until it is killed.
void Stay() {
  for (;;) pause();
}

absl::Status Miss(const Joined& joined) {
  if (joined.group->rank() == 1) Stay();
  CallOptions options;
  options.deadline = kDeadline;
  return Wait(joined.group->Barrier(options));
}

absl::Status Die(const Joined& joined) {
  if (joined.group->rank() == 1) Stay();
  return Wait(joined.group->Barrier());
}

absl::Status Abort(const Joined& joined) {
  Communicator& group = *joined.group;
  if (group.rank() == 1) group.Abort(absl::InternalError("loss is NaN"));
  return Wait(group.Barrier());
}

// Waits for the failure. An operation in which ranks differ may end well on a
// device; the next ones report it.
absl::Status UntilFailure(const Joined& joined, absl::Status status) {
  while (status.ok()) status = Wait(joined.group->Barrier());
  return status;
}

absl::Status DifferInCount(const Joined& joined) {
  std::vector<float> values(joined.group->rank() == 0 ? 1000 : 2000);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  return UntilFailure(
      joined, Wait(joined.group->AllReduce(buffer, buffer, ReduceOp::kSum)));
}

absl::Status DifferInReduceOp(const Joined& joined) {
  std::vector<float> values(1000);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  return UntilFailure(joined, Wait(joined.group->AllReduce(
                                  buffer, buffer,
                                  joined.group->rank() == 0 ? ReduceOp::kSum
                                                            : ReduceOp::kMax)));
}

// ---- Memory of the group, which is on the card.

// Sets elements of the card's memory, or reads them.
absl::Status Copy(const Joined& joined, void* to, const void* from,
                  int64_t bytes) {
  const CudaApi& cuda = *joined.cuda;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto gpu, Gpu::Open(cuda, kGpuDevice));
  return gpu->InContext([&] {
    LOCKSTEP_RETURN_IF_ERROR(gpu->Check(
        cuda.MemcpyAsync(to, from, bytes, nullptr), "cuMemcpyAsync"));
    return gpu->Check(cuda.StreamSynchronize(nullptr), "cuStreamSynchronize");
  });
}

absl::Status ReduceOnCard(const Joined& joined, const Buffer& in,
                          const Buffer& out) {
  const int64_t bytes = in.count * static_cast<int64_t>(sizeof(float));
  std::vector<float> values(in.count, 1.0f + joined.group->rank());
  LOCKSTEP_RETURN_IF_ERROR(Copy(joined, in.data, values.data(), bytes));
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(joined.group->AllReduce(in, out, ReduceOp::kSum)));
  LOCKSTEP_RETURN_IF_ERROR(Copy(joined, values.data(), out.data, bytes));
  return Expect(values, 3);
}

// The first half of the memory and the second one.
struct Halves {
  Buffer first, second;
};

Halves HalvesOf(const GroupMemory& memory) {
  float* const begin = static_cast<float*>(memory.data());
  return {BufferOf(begin, kElements, memory.device()),
          BufferOf(begin + kElements, kElements, memory.device())};
}

constexpr int64_t kMemoryBytes = 2 * kElements * sizeof(float);

// Adds up in memory of the group, in place and not, and in one piece after the
// other.
absl::Status UseMemory(const Joined& joined) {
  for (int i = 0; i < 3; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
                              joined.group->Allocate(kMemoryBytes));
    const Halves halves = HalvesOf(memory);
    LOCKSTEP_RETURN_IF_ERROR(ReduceOnCard(joined, halves.first, halves.first));
    LOCKSTEP_RETURN_IF_ERROR(ReduceOnCard(joined, halves.first, halves.second));
  }
  return absl::OkStatus();
}

absl::Status AbortWithMemory(const Joined& joined) {
  LOCKSTEP_ASSIGN_OR_RETURN(const GroupMemory memory,
                            joined.group->Allocate(kMemoryBytes));
  const Halves halves = HalvesOf(memory);
  LOCKSTEP_RETURN_IF_ERROR(ReduceOnCard(joined, halves.first, halves.second));
  return Abort(joined);
}

struct Scenario {
  std::string role;
  std::string what;
  Run run;
  absl::StatusCode due = absl::StatusCode::kOk;
  std::string says = "OK";  // a part of the Status
  double at_most = 0;       // seconds, or 0: no target
  Takes takes = Takes::kHostMemory;
  bool rank_1_stays = false;  // it hangs, and has no Status
  bool rank_1_is_killed = false;
};

constexpr char kTwoRanks[] = "two ranks on one card";
constexpr char kFaults[] = "faults";

std::vector<Scenario> TwoRankScenarios() {
  return {
      {"all_reduce", "all-reduce of 4 MiB, for the first time", AllReduce},
      {"broadcast", "broadcast of 4 MiB, for the first time", Broadcast},
      {"send_recv", "send and receive 4 MiB, for the first time",
       SendAndReceive},
      {"memory", "memory of the group, three times: 2 all-reduces of 4 MiB",
       UseMemory, absl::StatusCode::kOk, "OK", 0, Takes::kDeviceMemory},
  };
}

// The bounds are the same as in docs/errors.md.
std::vector<Scenario> FaultScenarios() {
  constexpr auto kDiffer = absl::StatusCode::kFailedPrecondition;
  return {
      {"miss", "a rank does not come, deadline 1 s", Miss,
       absl::StatusCode::kDeadlineExceeded, "rank 1 (", 2, Takes::kHostMemory,
       /*rank_1_stays=*/true},
      {"die", "kill -9", Die, absl::StatusCode::kUnavailable, "rank 1 (", 0.5,
       Takes::kHostMemory, /*rank_1_stays=*/true, /*rank_1_is_killed=*/true},
      {"differ_in_count", "all-reduces of 1000 and of 2000 elements",
       DifferInCount, kDiffer, "differ at operation", 2},
      {"differ_in_reduce_op", "all-reduces of sum and of max", DifferInReduceOp,
       kDiffer, "differ at operation", 2},
      {"abort", "Abort", Abort, absl::StatusCode::kAborted, "rank 1 aborted",
       0.5},
      {"abort_with_memory", "Abort, with memory of the group", AbortWithMemory,
       absl::StatusCode::kAborted, "rank 1 aborted", 0.5, Takes::kDeviceMemory},
  };
}

RankProcesses::Role RoleOf(const Scenario& scenario) {
  return [run = scenario.run,
          takes = scenario.takes](const RankProcesses::Self& self) {
    const absl::StatusOr<Joined> joined = Join(self, takes);
    PrintJoined(joined.status());
    if (!joined.ok()) return 0;
    AwaitGo(self);
    const double issued = ClockSeconds();
    const absl::Status status = run(*joined);
    std::printf("%s | %.6f | %.6f\n", Line(status).c_str(), issued,
                ClockSeconds());
    return 0;
  };
}

// ---- Checks of the results.

// Plays a scenario. Returns the time until the last rank had its Status.
absl::StatusOr<double> Play(const Scenario& scenario, RankProcesses& ranks) {
  for (int rank = 0; rank < 2; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(ExpectJoined(ranks.AwaitLine(rank, kJoined)));
  }
  AwaitReady(ranks, 2);
  Go(ranks);
  double begin = 0;
  double end = 0;
  if (scenario.rank_1_is_killed) {
    begin = ClockSeconds();
    ranks.Signal(1, SIGKILL);
  }
  for (int rank = 0; rank < (scenario.rank_1_stays ? 1 : 2); ++rank) {
    const FaultReport report = ParseFaultReport(ranks.AwaitLine(rank, " | "));
    if (!absl::StartsWith(report.status,
                          absl::StatusCodeToString(scenario.due)) ||
        !absl::StrContains(report.status, scenario.says)) {
      return absl::UnknownError(absl::StrCat(
          "rank ", rank, " should say ", absl::StatusCodeToString(scenario.due),
          " and '", scenario.says, "', and said: ", report.status));
    }
    begin = std::max(begin, report.issued);
    end = std::max(end, report.answered);
  }
  // The ranks end, whatever their operation returned.
  if (scenario.rank_1_stays) ranks.Signal(1, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) ranks.Wait(rank);
  return end - begin;
}

absl::Status PlayAll(const std::string& section,
                     const std::vector<Scenario>& scenarios,
                     const std::string& argument, GpuReport& report) {
  for (const Scenario& scenario : scenarios) {
    absl::StatusOr<double> seconds = 0;
    const std::string failure = FailureOf([&] {
      RankProcesses ranks(scenario.role, 2, argument);
      seconds = Play(scenario, ranks);
    });
    if (!failure.empty()) seconds = absl::UnknownError(failure);
    if (!seconds.ok()) return Annotate(seconds.status(), scenario.what);
    GpuRow row = {section, scenario.what, *seconds * 1e3, "ms"};
    if (scenario.at_most > 0) {
      row.bound = GpuRow::Bound::kAtMost;
      row.target = scenario.at_most * 1e3;
    }
    report.AddRow(row);
  }
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, RankProcesses::Role> GpuRoles() {
  std::map<std::string, RankProcesses::Role> roles = {{"conform", Conform}};
  for (const auto& scenarios : {TwoRankScenarios(), FaultScenarios()}) {
    for (const Scenario& scenario : scenarios) {
      roles[scenario.role] = RoleOf(scenario);
    }
  }
  return roles;
}

void CheckConformance(const GpuOptions& options, GpuReport& report) {
  const std::string failure = FailureOf([&options] {
    RankProcesses("conform", 1, ArgumentOf(options, 0)).Wait(0);
  });
  report.EndSection("conformance", failure.empty()
                                       ? absl::OkStatus()
                                       : absl::UnknownError(failure));
}

void CheckTwoRanks(const GpuOptions& options, int nccl_version,
                   GpuReport& report) {
  const std::string argument = ArgumentOf(options, nccl_version);
  report.EndSection(kTwoRanks,
                    PlayAll(kTwoRanks, TwoRankScenarios(), argument, report));
  report.EndSection(kFaults,
                    PlayAll(kFaults, FaultScenarios(), argument, report));
}

}  // namespace lockstep
