// The lockstep tool. Data goes to stdout, and messages go to stderr. It exits
// with 0; with 1 if a check or a file has failed or stdout can't be written;
// and with 2 if the command line makes no sense. RunLaunch documents the exit
// codes of launch.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/checkpoint_commands.h"
#include "lockstep/tools/cli/command_line.h"
#include "lockstep/tools/cli/launch.h"
#include "lockstep/tools/cli/launch_command.h"
#include "lockstep/tools/cli/loader_commands.h"
#include "lockstep/tools/cli/parts_command.h"
#include "lockstep/tools/cli/sampler_commands.h"

namespace lockstep {
namespace {

// Writes to stdout, and remembers the error of a write that has failed, which
// std::cout doesn't.
// Thread-safety: for one thread at a time.
class StdoutBuffer : public std::streambuf {
 public:
  StdoutBuffer() { setp(bytes_, bytes_ + sizeof(bytes_)); }
  StdoutBuffer(const StdoutBuffer&) = delete;
  StdoutBuffer& operator=(const StdoutBuffer&) = delete;

  // Returns errno of the first write that has failed, or 0.
  int error() const { return error_; }

 protected:
  int sync() override {
    for (const char* at = pbase(); error_ == 0 && at < pptr();) {
      const ssize_t size = write(STDOUT_FILENO, at, pptr() - at);
      if (size >= 0) {
        at += size;
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    setp(bytes_, bytes_ + sizeof(bytes_));
    return error_ == 0 ? 0 : -1;
  }

  int_type overflow(int_type byte) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(byte, traits_type::eof())) {
      sputc(traits_type::to_char_type(byte));
    }
    return traits_type::not_eof(byte);
  }

 private:
  char bytes_[65536];
  int error_ = 0;
};

// One command of the tool.
struct Subcommand {
  CommandLine line;
  // Returns the exit code, or an error that main reports.
  std::function<absl::StatusOr<int>(std::ostream& out)> run;
};

absl::StatusOr<int> ExitCode(const absl::Status& status) {
  LOCKSTEP_RETURN_IF_ERROR(status);
  return 0;
}

void AddOrderFlags(CommandLine& line, SamplerCommand& command) {
  line.Add("size", &command.size, "samples in the dataset; must be given");
  line.Add("order", &command.order,
           "torch, native or sequential; torch if it is not given");
  line.Add("shuffle", &command.shuffle,
           "the same as --order=torch; --noshuffle is --order=sequential");
  line.Add("profile", &command.profile,
           "for the order torch: the release of PyTorch that it is to match,\n"
           "any from 1.13 on; 2.7 if it is not given");
  line.Add("seed", &command.seed, "seed of the order");
}

void AddCutFlags(CommandLine& line, SamplerCommand& command) {
  AddOrderFlags(line, command);
  line.Add("world", &command.world, "number of ranks");
  line.Add("batch_size", &command.batch_size, "rows of a rank in a step");
  line.Add("epoch", &command.epoch, "the first epoch");
  line.Add("epochs", &command.epochs, "how many epochs");
  line.Add(
      "tail", &command.tail,
      "what happens to the last global batch: pad, drop (the drop_last of\n"
      "DistributedSampler), uneven or mask");
  line.Add("layout", &command.layout, "strided or blocked");
  line.Add("drop_last", &command.drop_last,
           "whether to drop an incomplete batch, as BatchSampler's drop_last");
}

Subcommand Plan(SamplerCommand& command) {
  CommandLine line("lockstep plan",
                   "prints which rank sees which sample in which step",
                   R"(In the text, * marks padding and - a masked row.

  lockstep plan --size=25 --world=2 --batch_size=4
  lockstep plan --size=21 --world=2 --batch_size=4 --tail=mask --format=csv)");
  AddCutFlags(line, command);
  line.Add("rank", &command.rank, "the rank to plan for; all if not given");
  line.Add("format", &command.format, "text, csv or json");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunPlan(command, out));
          }};
}

Subcommand PrintOrder(SamplerCommand& command) {
  CommandLine line("lockstep order",
                   "prints the indices of an order, or their digest",
                   R"(  lockstep order --size=1000 --seed=7 --count=20
  lockstep order --profile=2.5 --size=1000000 --seed=7 --digest)");
  AddOrderFlags(line, command);
  line.Add("epoch", &command.epoch, "the epoch");
  line.Add("first", &command.first, "the first position to print");
  line.Add("count", &command.count,
           "how many positions to print; all if not given");
  line.Add(
      "digest", &command.digest,
      "whether to print the SHA-1 of the whole order as little-endian int64");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunOrder(command, out));
          }};
}

Subcommand Verify(SamplerCommand& command) {
  CommandLine line(
      "lockstep verify",
      "checks that every position is accounted for once over all ranks",
      "  lockstep verify --size=1000003 --world=8 --batch_size=32 --epochs=3");
  AddCutFlags(line, command);
  command.on_progress = [](absl::string_view text) {
    std::cerr << "lockstep verify: " << text << "\n";
  };
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunVerify(command, out));
          }};
}

Subcommand BenchLoader(LoaderCommand& command) {
  CommandLine line(
      "lockstep bench loader", "shows where the time of a loader goes",
      R"(It names the slowest samples, too. It reads files, or rows in memory:

  lockstep bench loader --npy=x.npy,y.npy --batch_size=64 --num_workers=4
  lockstep bench loader --size=10000 --row_bytes=150528)");
  line.Add("npy", &command.npy, ".npy files to read, a field each");
  line.Add("tfrecord", &command.tfrecord, "TFRecord files to read");
  line.Add("folder", &command.folder,
           "a folder to read, with a sub-folder for each class");
  line.Add("size", &command.size,
           "without files: how many rows; 100000 if not given");
  line.Add("row_bytes", &command.row_bytes,
           "without files: the bytes of a row; 1024 if not given");
  line.Add("order", &command.order,
           "native, torch or sequential; native if it is not given");
  line.Add("seed", &command.seed, "seed of the order and of the workers");
  line.Add("batch_size", &command.batch_size, "rows of a batch");
  line.Add("epochs", &command.epochs, "how many epochs");
  line.Add("steps", &command.steps,
           "at most so many steps an epoch; 0 for all");
  line.Add("num_workers", &command.num_workers,
           "how many workers; half of the processors if not given");
  line.Add("workers", &command.workers, "tbb or threads");
  line.Add(
      "prefetch_batches", &command.prefetch_batches,
      "how many batches are read ahead; 4, or more small ones, if not given");
  line.Add("trace", &command.trace,
           "a file to write, with a trace in Chrome's format");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunBenchLoader(command, out));
          }};
}

Subcommand ListSettings(PartsCommand& command) {
  CommandLine line("lockstep parts",
                   "lists what a job's text may name, and all settings",
                   R"(  lockstep parts --kind=sampler
  lockstep parts --kind=sampler --name=distributed)");
  line.Add("kind", &command.kind,
           "order, sampler, dataset, loader, communicator or metrics sink;\n"
           "all if it is not given");
  line.Add("name", &command.name, "one of them; all if it is not given");
  line.Add("format", &command.format, "text or markdown");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunParts(command, out));
          }};
}

Subcommand ShowCheckpoint(CheckpointCommand& command) {
  CommandLine line("lockstep checkpoint show",
                   "prints the step and the sections of a checkpoint",
                   "  lockstep checkpoint show model.000000000120");
  line.AddWord("FILE", &command.path, "the checkpoint");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunCheckpointShow(command, out));
          }};
}

void AddExchangeFlags(CommandLine& line, CheckpointCommand& command) {
  line.Add("to", &command.to,
           "what to write; must be given, and must not exist");
  line.Add("format", &command.format,
           "safetensors for a file, or npy for a folder; must be given");
}

Subcommand ExportCheckpoint(CheckpointCommand& command) {
  CommandLine line(
      "lockstep checkpoint export", "writes sections of a checkpoint as arrays",
      R"(Other programs can read them: a .safetensors file, or a folder of .npy files.

  lockstep checkpoint export model.000000000120 --to=model.safetensors \
      --format=safetensors --shape weights=64,10)");
  line.AddWord("FILE", &command.path, "the checkpoint");
  AddExchangeFlags(line, command);
  line.Add("prefix", &command.prefix,
           "sections whose names begin with this are written, without it");
  line.AddRepeated("shape", &command.shapes,
                   "a name, without the prefix, and the dimensions of its "
                   "array;\none dimension if not given; may be repeated");
  return {line, [&command](std::ostream& out) {
            return ExitCode(RunCheckpointExport(command, out));
          }};
}

Subcommand ImportCheckpoint(CheckpointCommand& command) {
  CommandLine line(
      "lockstep checkpoint import",
      "writes a checkpoint that has the arrays of other programs",
      R"(A training can begin with it. It has nothing but these arrays.

  lockstep checkpoint import model.safetensors --to=warm \
      --format=safetensors)");
  line.AddWord("PATH", &command.path,
               "a .safetensors file, or a folder of .npy files");
  AddExchangeFlags(line, command);
  line.Add("prefix", &command.prefix,
           "what stands before the arrays' names in the names of sections");
  return {line, [&command](std::ostream&) {
            return ExitCode(RunCheckpointImport(command));
          }};
}

Subcommand StartRanks(LaunchCommand& command) {
  CommandLine line("lockstep launch",
                   "starts the ranks of this host, with torchrun's variables",
                   R"(  lockstep launch -n 4 -- ./train --lr=0.1
  lockstep launch -n 4 --max_restarts=3 -- ./train --lr=0.1
  lockstep launch -n 8 --nnodes=2 --node_rank=0 --master_addr=trainer-0 \
      --master_port=29500 --run_id=run7 -- ./train)");
  line.Add("n|nproc_per_node", &command.n,
           "how many ranks this host runs; must be given");
  line.Add("nnodes", &command.nnodes, "hosts, with as many ranks each");
  line.Add("node_rank", &command.node_rank, "which of the hosts this one is");
  line.Add("master_addr", &command.master_addr,
           "the host of rank 0; must be given if there are several hosts");
  line.Add("master_port", &command.master_port,
           "a port of that host; must be given if there are several hosts;\n"
           "0 for one that is free");
  line.Add("run_id|rdzv_id", &command.run_id,
           "a name of this run, the same on all hosts; must be given if there\n"
           "are several hosts, and is random if there is one");
  line.Add("max_restarts", &command.max_restarts,
           "how often all ranks are started again when one has failed");
  line.Add("restart_delay", &command.restart_delay,
           "how long the second restart waits; each later one waits twice as\n"
           "long, a minute at most, unless the ranks ran for a minute");
  line.Add("grace", &command.grace,
           "how long the others have to end by themselves when a rank fails");
  line.Add(
      "stop_grace", &command.stop_grace,
      "how long all ranks have to end by themselves after SIGINT or\n"
      "SIGTERM; should be longer than the job's stop.patience, a step and\n"
      "a checkpoint take together");
  line.Add("report", &command.report,
           "the file that gets a line of JSON for each attempt: how the ranks\n"
           "have ended, and which ranks are to blame");
  line.AddRest("program", &command.program);
  return {line, [&command](std::ostream&) -> absl::StatusOr<int> {
            return RunLaunch(command, EnvironmentOfProcess());
          }};
}

std::string GeneralHelp(const std::vector<Subcommand>& subcommands) {
  std::string help =
      "lockstep shows what Lockstep's samplers and loaders do, lists its "
      "parts,\nconverts checkpoints, and starts ranks.\n\n";
  for (const Subcommand& subcommand : subcommands) {
    absl::StrAppend(&help, "  ", subcommand.line.name(), "\n      ",
                    subcommand.line.summary(), "\n");
  }
  return help +
         "\nlockstep help plan, or lockstep plan --help, lists the flags "
         "of plan.\n";
}

// Takes the name of a subcommand from the front of `words`, and returns the
// subcommand.
absl::StatusOr<Subcommand*> TakeSubcommand(std::vector<Subcommand>& subcommands,
                                           std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (Subcommand& subcommand : subcommands) {
    std::string given = "lockstep";
    for (size_t count = 0; count <= words.size(); ++count) {
      if (given == subcommand.line.name()) {
        words.erase(words.begin(), words.begin() + count);
        return &subcommand;
      }
      if (count < words.size()) absl::StrAppend(&given, " ", words[count]);
    }
    names.push_back(subcommand.line.name().substr(sizeof("lockstep")));
  }
  const std::string known = absl::StrJoin(names, ", ");
  if (words.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "give a command: ", known, "; lockstep --help says what they do"));
  }
  if (words[0] == "bench") {
    return absl::InvalidArgumentError(
        "bench measures a loader: lockstep bench loader");
  }
  if (words[0] == "checkpoint") {
    return absl::InvalidArgumentError(
        "give a command for the checkpoint: lockstep checkpoint show, export "
        "or import");
  }
  if (absl::StartsWith(words[0], "-")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(words[0]),
        "' is no command; give the command first, as in lockstep plan "
        "--size=25; the commands are ",
        known));
  }
  const std::optional<std::string> nearest = NearestWord(words[0], names);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no command '", absl::CHexEscape(words[0]), "'; ",
      nearest.has_value() ? absl::StrCat("did you mean ", *nearest, "?")
                          : absl::StrCat("the commands are ", known)));
}

// Returns true if the user asks for help: by a first word "help", or by --help
// before any --. Removes that word from `words`.
bool TakeHelp(std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    return true;
  }
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto found = std::find_if(words.begin(), end, [](absl::string_view w) {
    return w == "--help" || w == "-help" || w == "-h";
  });
  if (found == end) return false;
  words.erase(found);
  return true;
}

// Writes the bytes that `out` still holds. Returns `code`, or the error of
// writing to stdout if nothing else has failed.
absl::StatusOr<int> Finish(absl::StatusOr<int> code, std::ostream& out,
                           const StdoutBuffer& buffer) {
  out.flush();
  if (!code.ok() || buffer.error() == 0) return code;
  return SystemError(buffer.error(), "stdout can't be written",
                     absl::StatusCode::kUnavailable);
}

absl::StatusOr<int> Run(std::vector<std::string> words, std::string& name) {
  SamplerCommand plan, order, verify;
  LoaderCommand loader;
  PartsCommand parts;
  CheckpointCommand checkpoint;
  LaunchCommand launch;
  std::vector<Subcommand> subcommands = {Plan(plan),
                                         PrintOrder(order),
                                         Verify(verify),
                                         BenchLoader(loader),
                                         ListSettings(parts),
                                         ShowCheckpoint(checkpoint),
                                         ExportCheckpoint(checkpoint),
                                         ImportCheckpoint(checkpoint),
                                         StartRanks(launch)};
  StdoutBuffer buffer;
  std::ostream out(&buffer);
  const bool help = TakeHelp(words);
  if (help && words.empty()) {
    out << GeneralHelp(subcommands);
    return Finish(0, out, buffer);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Subcommand* const subcommand,
                            TakeSubcommand(subcommands, words));
  name = subcommand->line.name();
  if (help) {
    out << subcommand->line.Help();
    return Finish(0, out, buffer);
  }
  LOCKSTEP_RETURN_IF_ERROR(subcommand->line.Parse(words));
  return Finish(subcommand->run(out), out, buffer);
}

// Changes to the folder in which `bazel run` was called. Bazel starts programs
// in the folder of their runfiles, but the user's paths start from the user's
// folder.
void GoWhereBazelWasCalled() {
  const char* const folder = getenv("BUILD_WORKING_DIRECTORY");
  std::error_code error;
  const std::string runfiles =
      std::filesystem::read_symlink("/proc/self/exe", error).string() +
      ".runfiles/";
  const std::string current = std::filesystem::current_path(error).string();
  // The variable alone does not show that Bazel has started this process: a
  // program passes it on to the programs that it starts, in any folder.
  if (folder != nullptr && absl::StartsWith(current + "/", runfiles)) {
    std::filesystem::current_path(folder, error);
  }
}

int Main(int argc, char** argv) {
  std::string name = "lockstep";
  const absl::StatusOr<int> code = CatchAll("the command", [&] {
    GoWhereBazelWasCalled();
    return Run(std::vector<std::string>(argv + 1, argv + argc), name);
  });
  if (code.ok()) return *code;
  std::cerr << name << ": " << code.status().message() << "\n";
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
