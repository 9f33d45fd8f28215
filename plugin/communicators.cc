// Registers groups of ranks.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

void BindOptions(WorldOptions& options, OptionTable& table) {
  table.Add("init", &options.init,
            "The place where ranks meet: \"env://\" for the launcher's, "
            "\"tcp://host:port\" or \"file:///folder\".");
  table.Add("rank", &options.rank, "This rank; -1: as the launcher says.");
  table.Add("size", &options.size,
            "The number of ranks; -1: as the launcher says.");
  table.Add("job", &options.job,
            "The same on all ranks of one attempt, another in each; empty: as "
            "the launcher says.");
  table.Add("interface", &options.interface,
            "The network interface, or this host's address, for data; empty: "
            "the one by which rank 0 is reached.");
  table.Add("join_deadline", &options.join_deadline,
            "How long ranks wait for each other to come.");
  table.Add("slow_join", &options.slow_join,
            "A join that takes longer is told to on_slow.");
  table.Add("beat", &options.beat, "How often a rank says that it is alive.");
  table.Add("silence", &options.silence,
            "A rank that is not heard of for so long counts as lost.");
  table.Add("leave_patience", &options.leave_patience,
            "How long rank 0 stays for the others at the end.");
}

void BindOptions(GroupOptions& options, OptionTable& table) {
  table.Add("group", &options.name,
            "The name of the group in messages; a job has one of each name "
            "at a time.");
  table.Add("deadline", &options.deadline,
            "How long an operation may take, its data included.");
  table.Add("slow", &options.slow,
            "An operation that takes longer is told to on_slow.");
  table.Add("strict", &options.strict,
            "For nccl: whether ranks agree on each collective before it runs.");
  table.Add("device", &options.device,
            "For nccl: the CUDA device; -1: by the local rank.");
  table.Add("nccl_library", &options.nccl_library,
            "For nccl: where NCCL is; empty: where the system finds it.");
  table.Add("cuda_library", &options.cuda_library,
            "For nccl: where the CUDA driver is; empty: where the system finds "
            "it.");
}

namespace internal_plugin {
namespace {

constexpr char kAuto[] = "auto";
constexpr char kShm[] = "shm";
constexpr char kGloo[] = "gloo";
constexpr char kNccl[] = "nccl";

template <const char* kBackend>
absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
    const PluginContext& context, const GroupOptions& options) {
  if (context.world == nullptr) {
    return absl::FailedPreconditionError(
        "a communicator needs the job's ranks: set PluginContext::world first");
  }
  GroupOptions with_backend = options;
  with_backend.backend = kBackend;
  return context.world->MakeGroup(with_backend);
}

}  // namespace

absl::Status RegisterCommunicators(PluginRegistry& registry) {
  absl::Status status;
  status.Update(registry.Add<Communicator>(
      kAuto, "shm where all ranks share a host, and gloo elsewhere.",
      MakeGroup<kAuto>));
  status.Update(registry.Add<Communicator>(
      kShm, "Processes of one host, by shared memory.", MakeGroup<kShm>));
  status.Update(registry.Add<Communicator>(
      kNccl, "Processes with a CUDA device each, by NCCL.", MakeGroup<kNccl>));
  if (internal_collective::CheckBackend(kGloo).ok()) {
    status.Update(registry.Add<Communicator>(
        kGloo, "Processes of any hosts, by TCP.", MakeGroup<kGloo>));
  } else {
    registry.NoteAbsent<Communicator>(kGloo,
                                      "--@lockstep//config:with_gloo=true");
  }
  return status;
}

}  // namespace internal_plugin
}  // namespace lockstep
