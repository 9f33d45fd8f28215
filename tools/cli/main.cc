// The lockstep tool. Data goes to stdout, messages to stderr; it exits with 0,
// with 1 where a check failed or a flag is unknown, and with 2 where the flags
// make no sense; launch exits as its ranks do.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/launch.h"
#include "lockstep/tools/cli/loader_commands.h"
#include "lockstep/tools/cli/sampler_commands.h"

ABSL_FLAG(int64_t, size, -1, "samples in the dataset; must be given");
ABSL_FLAG(int64_t, world, 1, "number of ranks");
ABSL_FLAG(int64_t, rank, -1, "the rank to plan for; -1 for all");
ABSL_FLAG(int64_t, batch_size, 1, "rows a rank and step");
ABSL_FLAG(int64_t, epoch, 0, "the epoch, or the first one");
ABSL_FLAG(int64_t, epochs, 1, "how many epochs");
ABSL_FLAG(std::string, sampler, "distributed", "distributed");
ABSL_FLAG(std::string, order, "", "torch (the default), native or sequential");
ABSL_FLAG(std::string, profile, "2.7",
          "release of PyTorch for the torch order: 1.13, 2.5, 2.6 or 2.7");
ABSL_FLAG(uint64_t, seed, 0, "seed of the order");
ABSL_FLAG(std::string, tail, "pad",
          "the last global batch: pad, drop (DistributedSampler's drop_last), "
          "uneven or mask");
ABSL_FLAG(std::string, layout, "strided", "strided or blocked");
ABSL_FLAG(bool, drop_last, false, "BatchSampler's drop_last");
ABSL_FLAG(std::string, format, "text", "of plan: text, csv or json");
ABSL_FLAG(int64_t, first, 0, "of order: the first position");
ABSL_FLAG(int64_t, count, -1, "of order: how many positions; -1 for all");
ABSL_FLAG(std::vector<std::string>, npy, {},
          "of bench loader: .npy files to read, a field each");
ABSL_FLAG(std::vector<std::string>, tfrecord, {},
          "of bench loader: TFRecord files to read");
ABSL_FLAG(std::string, folder, "",
          "of bench loader: a folder to read, with a sub-folder a class");
ABSL_FLAG(int64_t, row_bytes, 1024,
          "of bench loader without files: the bytes of a sample");
ABSL_FLAG(int64_t, steps, 0, "of bench loader: at most so many an epoch");
ABSL_FLAG(int64_t, num_workers, -1,
          "of bench loader; -1 for half of the processors");
ABSL_FLAG(std::string, workers, "tbb", "of bench loader: tbb or threads");
ABSL_FLAG(int64_t, prefetch_batches, 4, "of bench loader");
ABSL_FLAG(std::string, trace, "",
          "of bench loader: a file for a trace in Chrome's format");
ABSL_FLAG(bool, digest, false,
          "of order: the SHA-1 of the whole stream as little-endian int64");
ABSL_FLAG(int64_t, n, 0, "of launch: ranks on this host; must be given");
ABSL_FLAG(int64_t, nproc_per_node, 0, "of launch: another name of -n");
ABSL_FLAG(int64_t, nnodes, 1, "of launch: hosts, with as many ranks each");
ABSL_FLAG(int64_t, node_rank, 0, "of launch: which of them this is");
ABSL_FLAG(std::string, master_addr, "",
          "of launch: the host of rank 0; 127.0.0.1 if there is one host");
ABSL_FLAG(int64_t, master_port, 0,
          "of launch: a port of that host; one that is free if there is one "
          "host");
ABSL_FLAG(std::string, run_id, "",
          "of launch: the same on all hosts; random if there is one");
ABSL_FLAG(int64_t, max_restarts, 0,
          "of launch: how often ranks are started again when one has died");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(5),
          "of launch: what is left to the others when a rank dies, and to all "
          "after SIGINT or SIGTERM");

namespace {

constexpr char kUsage[] =
    R"(shows what Lockstep's samplers and loaders do, and starts ranks.

  lockstep plan    which rank sees which sample in which step; rows marked with
                   * are padding, - are masked
  lockstep order   the indices of an order, or their digest
  lockstep verify  that every position is accounted for once over all ranks
  lockstep bench loader
                   where the time of a loader goes, and its slowest samples
  lockstep launch  starts the ranks of this host, with torchrun's variables

Examples:
  lockstep plan --size=25 --world=2 --batch_size=4
  lockstep plan --size=21 --world=2 --batch_size=4 --tail=mask --format=csv
  lockstep order --order=torch --profile=2.5 --size=1000000 --seed=7 --digest
  lockstep verify --size=1000003 --world=8 --batch_size=32 --epochs=3
  lockstep bench loader --npy=x.npy,y.npy --batch_size=64 --num_workers=4
  lockstep launch -n 4 -- ./train --lr=0.1

lockstep --helpfull lists the flags.)";

// Takes --shuffle and --noshuffle out of the arguments. They can't be flags: a
// boolean flag does not tell "off" from "not given".
lockstep::SamplerCommand TakeShorthands(int& argc, char** argv) {
  lockstep::SamplerCommand command;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--shuffle") {
      command.shuffle = true;
    } else if (argument == "--noshuffle") {
      command.noshuffle = true;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return command;
}

// Takes -- and what follows it out of the arguments: none of that is ours.
std::vector<std::string> TakeProgram(int& argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, absl::string_view("--"));
  if (dashes == end) return {};
  argc = static_cast<int>(dashes - argv);
  return std::vector<std::string>(dashes + 1, end);
}

void TakeFlags(lockstep::SamplerCommand& command) {
  command.size = absl::GetFlag(FLAGS_size);
  command.world = absl::GetFlag(FLAGS_world);
  command.rank = absl::GetFlag(FLAGS_rank);
  command.batch_size = absl::GetFlag(FLAGS_batch_size);
  command.epoch = absl::GetFlag(FLAGS_epoch);
  command.epochs = absl::GetFlag(FLAGS_epochs);
  command.sampler = absl::GetFlag(FLAGS_sampler);
  command.order = absl::GetFlag(FLAGS_order);
  command.profile = absl::GetFlag(FLAGS_profile);
  command.seed = absl::GetFlag(FLAGS_seed);
  command.tail = absl::GetFlag(FLAGS_tail);
  command.layout = absl::GetFlag(FLAGS_layout);
  command.drop_last = absl::GetFlag(FLAGS_drop_last);
  command.format = absl::GetFlag(FLAGS_format);
  command.first = absl::GetFlag(FLAGS_first);
  command.count = absl::GetFlag(FLAGS_count);
  command.digest = absl::GetFlag(FLAGS_digest);
}

lockstep::LoaderCommand LoaderFlags() {
  lockstep::LoaderCommand command;
  command.npy = absl::GetFlag(FLAGS_npy);
  command.tfrecord = absl::GetFlag(FLAGS_tfrecord);
  command.folder = absl::GetFlag(FLAGS_folder);
  command.size = absl::GetFlag(FLAGS_size);
  command.row_bytes = absl::GetFlag(FLAGS_row_bytes);
  command.order = absl::GetFlag(FLAGS_order);
  command.seed = absl::GetFlag(FLAGS_seed);
  command.batch_size = absl::GetFlag(FLAGS_batch_size);
  command.epochs = absl::GetFlag(FLAGS_epochs);
  command.steps = absl::GetFlag(FLAGS_steps);
  command.num_workers = absl::GetFlag(FLAGS_num_workers);
  command.workers = absl::GetFlag(FLAGS_workers);
  command.prefetch_batches = absl::GetFlag(FLAGS_prefetch_batches);
  command.trace = absl::GetFlag(FLAGS_trace);
  return command;
}

lockstep::LaunchCommand LaunchFlags() {
  lockstep::LaunchCommand command;
  command.n = absl::GetFlag(FLAGS_n);
  command.nproc_per_node = absl::GetFlag(FLAGS_nproc_per_node);
  command.nnodes = absl::GetFlag(FLAGS_nnodes);
  command.node_rank = absl::GetFlag(FLAGS_node_rank);
  command.master_addr = absl::GetFlag(FLAGS_master_addr);
  command.master_port = absl::GetFlag(FLAGS_master_port);
  command.run_id = absl::GetFlag(FLAGS_run_id);
  command.max_restarts = absl::GetFlag(FLAGS_max_restarts);
  command.grace = absl::GetFlag(FLAGS_grace);
  return command;
}

absl::Status Run(const std::string& name,
                 const lockstep::SamplerCommand& command) {
  if (name == "plan") return lockstep::RunPlan(command, std::cout);
  if (name == "order") return lockstep::RunOrder(command, std::cout);
  if (name == "verify") return lockstep::RunVerify(command, std::cout);
  if (name == "bench loader") {
    return lockstep::RunBenchLoader(LoaderFlags(), std::cout);
  }
  return absl::InvalidArgumentError("unknown command '" + name +
                                    "'; known: plan, order, verify, bench "
                                    "loader, launch");
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(kUsage);
  std::vector<std::string> program = TakeProgram(argc, argv);
  lockstep::SamplerCommand command = TakeShorthands(argc, argv);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) {
    std::cerr << "lockstep: give one command: plan, order, verify, bench "
                 "loader or launch; lockstep --help tells more\n";
    return 2;
  }
  if (absl::string_view(words[1]) == "launch") {
    lockstep::LaunchCommand launch = LaunchFlags();
    // A program before -- is refused: flags after it would be taken for ours.
    if (words.size() == 2) launch.program = std::move(program);
    return lockstep::RunLaunch(launch, lockstep::EnvironmentOfProcess());
  }
  std::string name = words[1];
  for (size_t i = 2; i < words.size(); ++i) name += std::string(" ") + words[i];
  for (const std::string& word : program) name += " " + word;
  TakeFlags(command);
  const absl::Status status = Run(name, command);
  if (status.ok()) return 0;
  std::cerr << "lockstep " << name << ": " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
