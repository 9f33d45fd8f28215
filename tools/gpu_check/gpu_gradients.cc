#include "lockstep/tools/gpu_check/gpu_gradients.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_rank.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"
#include "lockstep/tools/gpu_check/gradient_speed.h"
#include "lockstep/tools/gpu_check/gradient_steps.h"

namespace lockstep {
namespace {

using internal_collective::LoadNccl;
using internal_collective::NcclApi;
using internal_gpu::CudaApi;
using internal_gpu::LoadCuda;

constexpr char kRole[] = "gradients";

// A rank that hangs ends after this time.
constexpr unsigned kMostSeconds = 120;

// The longest time for making a group, and for each of its operations.
constexpr absl::Duration kDeadline = absl::Seconds(60);

// The part of the time of a section that each section measures.
constexpr double kTimeShare = 0.25;

// ---- A rank, in its process.

struct Joined {
  GpuOptions options;
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;  // of nccl
  std::unique_ptr<Communicator> host;
};

absl::StatusOr<Joined> Join(const RankProcesses::Self& self) {
  Joined joined;
  LOCKSTEP_ASSIGN_OR_RETURN(joined.options, BeginRank(self));
  LOCKSTEP_ASSIGN_OR_RETURN(joined.world, JoinWorld(self));
  GroupOptions options = NcclGroupOptions(joined.options);
  options.deadline = kDeadline;
  LOCKSTEP_ASSIGN_OR_RETURN(joined.group, joined.world->MakeGroup(options));
  options = GroupOptions();
  options.name = "host";
  options.deadline = kDeadline;
  LOCKSTEP_ASSIGN_OR_RETURN(joined.host, joined.world->MakeGroup(options));
  return joined;
}

absl::Status CheckAndMeasure(const Joined& joined) {
  Communicator& group = *joined.group;
  Communicator& host = *joined.host;
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            LoadCuda(joined.options.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclApi* const nccl,
                            LoadNccl(joined.options.nccl_library));
  GradientsSeen seen;
  for (const GradientSetup& setup : GradientSetups()) {
    LOCKSTEP_RETURN_IF_ERROR(OnCard(
        *cuda,
        [&](Card& card) {
          return CheckGradientSteps(setup, joined.options, group, host, card,
                                    seen);
        },
        setup.stream));
  }
  if (host.rank() == 0) {
    PrintRow("elements compared", static_cast<double>(seen.elements),
             "elements");
    for (const auto& [dtype, error] : seen.largest_errors) {
      PrintRow(absl::StrCat("largest error of ", Name(dtype)), error,
               "roundings");
    }
  }
  return OnCard(*cuda, [&](Card& card) {
    GpuOptions options = joined.options;
    options.time *= kTimeShare;
    return MeasureAverages(options, *nccl, group, host, card);
  });
}

int BeRank(const RankProcesses::Self& self) {
  alarm(kMostSeconds);  // replaces RankProcesses' limit
  const absl::StatusOr<Joined> joined = Join(self);
  PrintJoined(joined.status());
  if (joined.ok()) PrintEnded(CheckAndMeasure(*joined));
  return 0;
}

// ---- The check.

// Runs so many ranks, and adds the rows that they print.
absl::Status RunRanks(const std::string& section, int size,
                      const std::string& argument, GpuReport& report) {
  absl::Status joined;
  // Each of them, since an error of one rank may be the cause of another's.
  std::vector<std::string> errors;
  const std::string failure = FailureOf([&] {
    RankProcesses ranks(kRole, size, argument);
    for (int rank = 0; rank < size; ++rank) {
      joined.Update(ExpectJoined(ranks.AwaitLine(rank, kJoined)));
    }
    if (!joined.ok()) return;
    for (int rank = 0; rank < size; ++rank) {
      const std::string printed = ranks.Wait(rank);
      AddRows(section, printed, report);
      const absl::Status ended = ExpectEnded(printed);
      if (ended.ok()) continue;
      errors.push_back(absl::StrCat("rank ", rank, ": ", ended.message()));
    }
  });
  if (!failure.empty()) return absl::UnknownError(failure);
  if (!joined.ok() || errors.empty()) return joined;
  return absl::UnknownError(absl::StrJoin(errors, "; "));
}

}  // namespace

std::map<std::string, RankProcesses::Role> GradientRoles() {
  return {{kRole, BeRank}};
}

void CheckGradients(const GpuOptions& options, int nccl_version,
                    GpuReport& report) {
  const std::string argument = ArgumentOf(options, nccl_version);
  for (const int size : {1, 2}) {
    const std::string section =
        size == 1 ? "gradients, one rank" : "gradients, two ranks on one card";
    const SteadyTime begin = SteadyNow();
    const absl::Status status = RunRanks(section, size, argument, report);
    report.AddRow({section, "time of the whole section",
                   absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - begin)),
                   "s"});
    report.EndSection(section, status);
  }
}

}  // namespace lockstep
