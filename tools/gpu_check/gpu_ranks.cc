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
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/over_device.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_rank.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::LoadCuda;

constexpr absl::Duration kDeadline = absl::Seconds(1);

// ---- A rank, in its process.

struct Joined {
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
};

absl::StatusOr<Joined> Join(const RankProcesses::Self& self) {
  LOCKSTEP_ASSIGN_OR_RETURN(const GpuOptions options, BeginRank(self));
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            LoadCuda(options.cuda_library));
  Joined joined;
  LOCKSTEP_ASSIGN_OR_RETURN(joined.world, JoinWorld(self));
  GroupOptions group_options = NcclGroupOptions(options);
  group_options.transport = OverDevice(
      [nccl = group_options.nccl](const TransportContext& context) {
        return internal_collective::MakeTransport("nccl", context, nccl);
      },
      cuda, kGpuDevice);
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
    options.reduces_all = options.reduces_in_rank_order = false;
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

using Run = std::function<absl::Status(Communicator&)>;

constexpr int64_t kElements = int64_t{1} << 20;

absl::Status Expect(absl::Span<const float> values, float expected) {
  for (const float value : values) {
    if (value == expected) continue;
    return absl::DataLossError(
        absl::StrCat("an element is ", value, " and not ", expected));
  }
  return absl::OkStatus();
}

absl::Status AllReduce(Communicator& group) {
  std::vector<float> values(kElements, 1.0f + group.rank());
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
  return Expect(values, 3);
}

absl::Status Broadcast(Communicator& group) {
  std::vector<float> values(kElements, 1.0f + group.rank());
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Broadcast(buffer, buffer, 1)));
  return Expect(values, 2);
}

absl::Status SendAndReceive(Communicator& group) {
  std::vector<float> values(kElements, 5);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  if (group.rank() == 0) return Wait(group.Send(buffer, 1));
  std::fill(values.begin(), values.end(), 0.0f);
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Recv(buffer, 0)));
  return Expect(values, 5);
}

// Does nothing until it is killed.
void Stay() {
  for (;;) pause();
}

absl::Status Miss(Communicator& group) {
  if (group.rank() == 1) Stay();
  CallOptions options;
  options.deadline = kDeadline;
  return Wait(group.Barrier(options));
}

absl::Status Die(Communicator& group) {
  if (group.rank() == 1) Stay();
  return Wait(group.Barrier());
}

absl::Status Abort(Communicator& group) {
  if (group.rank() == 1) group.Abort(absl::InternalError("loss is NaN"));
  return Wait(group.Barrier());
}

// Waits for the failure. An operation in which ranks differ may end well on a
// device; the next ones report it.
absl::Status UntilFailure(Communicator& group, absl::Status status) {
  while (status.ok()) status = Wait(group.Barrier());
  return status;
}

absl::Status DifferInCount(Communicator& group) {
  std::vector<float> values(group.rank() == 0 ? 1000 : 2000);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  return UntilFailure(group,
                      Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
}

absl::Status DifferInReduceOp(Communicator& group) {
  std::vector<float> values(1000);
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  return UntilFailure(
      group, Wait(group.AllReduce(
                 buffer, buffer,
                 group.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax)));
}

struct Scenario {
  std::string role;
  std::string what;
  Run run;
  absl::StatusCode due = absl::StatusCode::kOk;
  std::string says = "OK";    // a part of the Status
  double at_most = 0;         // seconds, or 0: no target
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
  };
}

// The bounds are the same as in docs/errors.md.
std::vector<Scenario> FaultScenarios() {
  constexpr auto kDiffer = absl::StatusCode::kFailedPrecondition;
  return {
      {"miss", "a rank does not come, deadline 1 s", Miss,
       absl::StatusCode::kDeadlineExceeded, "rank 1 (", 2,
       /*rank_1_stays=*/true},
      {"die", "kill -9", Die, absl::StatusCode::kUnavailable, "rank 1 (", 0.5,
       /*rank_1_stays=*/true, /*rank_1_is_killed=*/true},
      {"differ_in_count", "all-reduces of 1000 and of 2000 elements",
       DifferInCount, kDiffer, "differ at operation", 2},
      {"differ_in_reduce_op", "all-reduces of sum and of max", DifferInReduceOp,
       kDiffer, "differ at operation", 2},
      {"abort", "Abort", Abort, absl::StatusCode::kAborted, "rank 1 aborted",
       0.5},
  };
}

RankProcesses::Role RoleOf(const Run& run) {
  return [run](const RankProcesses::Self& self) {
    const absl::StatusOr<Joined> joined = Join(self);
    PrintJoined(joined.status());
    if (!joined.ok()) return 0;
    AwaitGo(self);
    const double issued = ClockSeconds();
    const absl::Status status = run(*joined->group);
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
      roles[scenario.role] = RoleOf(scenario.run);
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
