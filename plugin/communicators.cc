// Registers groups of ranks.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
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
  table.Add("rank", &options.rank,
            "The number of this rank; -1: the launcher's variables say it.");
  table.Add("size", &options.size,
            "The number of ranks; -1: the launcher's variables say it.");
  table.Add("job", &options.job,
            "A text that all ranks of one attempt share, and that differs "
            "between attempts; empty: the launcher's variables say it.");
  table.Add("interface", &options.interface,
            "The network interface, or an address of this host, for data; "
            "empty: the interface by which this host reaches rank 0.");
  table.Add("join_deadline", &options.join_deadline,
            "The longest time that ranks wait until all have joined.");
  table.Add("slow_join", &options.slow_join,
            "If joining takes longer than this, on_slow is told.");
  table.Add("beat", &options.beat,
            "The time between two heartbeats of a rank.");
  table.Add("silence", &options.silence,
            "A rank counts as lost if nothing comes from it for this time.");
  table.Add("leave_patience", &options.leave_patience,
            "The longest time that rank 0 stays for the others at the end.");
}

void BindOptions(GroupOptions& options, OptionTable& table) {
  table.Add("group", &options.name,
            "The name of the group in messages. At any time, a job has at most "
            "one group of each name.");
  table.Add("deadline", &options.deadline,
            "The longest time that an operation may take, including the "
            "transfer of its data.");
  table.Add("slow", &options.slow,
            "If an operation takes longer than this, on_slow is told.");
}

void BindOptions(NcclOptions& options, OptionTable& table) {
  table.Add(
      "device", &options.device,
      "The number of the CUDA device; -1: the only one, or that of the local "
      "rank.");
  table.Add("nccl_library", &options.nccl_library,
            "The path of NCCL's library; empty: the system finds it.");
  table.Add("cuda_library", &options.cuda_library,
            "The path of the CUDA driver's library; empty: the system finds "
            "it.");
}

namespace internal_plugin {
namespace {

constexpr char kAuto[] = "auto";
constexpr char kShm[] = "shm";
constexpr char kTcp[] = "tcp";
constexpr char kGloo[] = "gloo";
constexpr char kNccl[] = "nccl";

// A group of the backend nccl, which alone has NcclOptions.
struct NcclGroup : GroupOptions {};

void BindOptions(NcclGroup& options, OptionTable& table) {
  lockstep::BindOptions(static_cast<GroupOptions&>(options), table);
  lockstep::BindOptions(options.nccl, table);
}

template <const char* kBackend, typename Options = GroupOptions>
absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
    const PluginContext& context, const Options& options) {
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
      kAuto, "shm if all ranks share a host, and otherwise tcp.",
      MakeGroup<kAuto>));
  status.Update(registry.Add<Communicator>(
      kShm, "Processes of one host, by shared memory.", MakeGroup<kShm>));
  status.Update(registry.Add<Communicator>(
      kNccl, "Processes with a CUDA device each, by NCCL.",
      MakeGroup<kNccl, NcclGroup>));
  status.Update(registry.Add<Communicator>(
      kTcp, "Processes of any hosts, by TCP.", MakeGroup<kTcp>));
  status.Update(registry.Add<Communicator>(
      kGloo, "The same as tcp, under the name that PyTorch's users know.",
      MakeGroup<kTcp>));
  return status;
}

}  // namespace internal_plugin
}  // namespace lockstep
