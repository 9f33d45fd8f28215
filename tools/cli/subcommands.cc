#include "lockstep/tools/cli/subcommands.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/doctor_command.h"
#include "lockstep/tools/cli/launch.h"

namespace lockstep {
namespace {

absl::StatusOr<int> ExitCode(const absl::Status& status) {
  LOCKSTEP_RETURN_IF_ERROR(status);
  return 0;
}

void AddFormat(CommandLine& line, std::string& format) {
  line.Add("format", &format, "text, json or csv");
}

Subcommand Check(CheckCommand& command) {
  CommandLine line(
      "lockstep check", "says everything that is wrong with a job's text",
      R"(It needs no ranks. It opens the data, unless --size stands in for it, and
shows the batches on each number of ranks.

  lockstep check job.toml --world=1,2,8
  lockstep check job.toml --size=1000000 --format=json)");
  AddFileAndFlags(line, command.job);
  line.Add("world", &command.world, "numbers of ranks");
  line.Add("replicas", &command.replicas,
           "how many ranks share each part of the data");
  line.Add("size", &command.size,
           "samples of a dataset that stands in for those of all loaders");
  AddFormat(line, command.format);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return RunCheck(host, command, out);
          }};
}

Subcommand Plan(PlanCommand& command) {
  CommandLine line(
      "lockstep plan", "shows which rank sees which sample in which step",
      R"(In the text, * marks padding and - a masked row. It has the first and the
last steps; --all prints all of them, and the other formats do so, too.

  lockstep plan --config=job.toml --loader=train --world=8
  lockstep plan --config=job.toml --from=model.000000000120 --world=5
  lockstep plan --size=25 --world=2 --batch_size=4
  lockstep plan --size=21 --world=2 --batch_size=4 --tail=mask --format=csv)");
  line.Add("world", &command.world, "number of ranks");
  line.Add("rank", &command.rank, "the rank to plan for; all if not given");
  line.Add("epoch", &command.epoch,
           "the first epoch; 0, or that of --from, if not given");
  line.Add("epochs", &command.epochs, "how many epochs");
  line.Add("from", &command.from,
           "a checkpoint, after which a restart is planned");
  line.Add("all", &command.all, "whether to print all steps and samples");
  AddFormat(line, command.format);
  AddCutFlags(line, command.samples);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return ExitCode(RunPlan(host, command, out));
          }};
}

Subcommand PrintOrder(OrderCommand& command) {
  CommandLine line(
      "lockstep order", "prints the indices of an order, or their digest",
      R"(  lockstep order --config=job.toml --loader=train --count=20
  lockstep order --size=1000 --seed=7 --count=20
  lockstep order --profile=2.5 --size=1000000 --seed=7 --digest)");
  line.Add("epoch", &command.epoch, "the epoch");
  line.Add("first", &command.first, "the first position to print");
  line.Add("count", &command.count,
           "how many positions to print; all if not given");
  line.Add(
      "digest", &command.digest,
      "whether to print the SHA-1 of the whole order as little-endian int64");
  line.Add("world", &command.world,
           "for a job: the number of ranks, for which some orders plan");
  AddFormat(line, command.format);
  AddOrderFlags(line, command.samples);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return ExitCode(RunOrder(host, command, out));
          }};
}

Subcommand Verify(VerifyCommand& command) {
  CommandLine line(
      "lockstep verify", "proves that no sample is lost or comes twice",
      R"(It walks samplers of all ranks through each epoch, and restarts them at many
places, on as many ranks and on other numbers of them. It reads no data: that a
loader gives what its sampler says is not looked at, nor is the trainer
(trainer --verify does that).

  lockstep verify --config=job.toml --loader=train --world=8
  lockstep verify --size=1000003 --world=8 --batch_size=32 --epochs=3)");
  line.Add("world", &command.world, "number of ranks");
  line.Add("epoch", &command.epoch, "the first epoch");
  line.Add("epochs", &command.epochs, "how many epochs");
  line.Add("places", &command.places,
           "at how many places of an epoch the ranks are restarted");
  line.Add("restart_world", &command.restart_world,
           "other numbers of ranks, on which they are restarted; up to three\n"
           "if not given");
  AddFormat(line, command.format);
  AddCutFlags(line, command.samples);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return ExitCode(RunVerify(host, command, out));
          }};
}

Subcommand BenchLoader(LoaderCommand& command) {
  CommandLine line(
      "lockstep bench loader", "shows where the time of a loader goes",
      R"(It names the slowest samples, too. It reads the data of a job, files, or
rows in memory:

  lockstep bench loader --config=job.toml --loader=train
  lockstep bench loader --npy=x.npy,y.npy --batch_size=64 --num_workers=4
  lockstep bench loader --size=10000 --row_bytes=150528)");
  AddFileAndFlags(line, command.job);
  line.Add("loader", &command.loader,
           "the loader of the job; the only one, or train, if not given");
  line.Add("world", &command.world,
           "for a job: the number of ranks, of which this one is rank 0");
  line.Add(
      "npy", &command.npy,
      ".npy files to read, a field each. This flag and the next ones are for\n"
      "samples without a job");
  line.Add("tfrecord", &command.tfrecord, "TFRecord files to read");
  line.Add("folder", &command.folder,
           "a folder to read, with a sub-folder for each class");
  line.Add("size", &command.size,
           "without files: how many rows; 100000 if not given");
  line.Add("row_bytes", &command.row_bytes,
           "without files: the bytes of a row; 1024 if not given");
  line.Add("order", &command.order,
           "native, torch or sequential; native if it is not given");
  line.Add("seed", &command.seed,
           "seed of the order and of the workers; 0 if not given");
  line.Add("batch_size", &command.batch_size,
           "rows of a batch; 256 if not given");
  line.Add("epochs", &command.epochs, "how many epochs");
  line.Add("steps", &command.steps,
           "at most so many steps an epoch; 0 for all");
  line.Add("num_workers", &command.num_workers,
           "how many workers; half of the processors if not given");
  line.Add("workers", &command.workers, "tbb or threads; tbb if not given");
  line.Add(
      "prefetch_batches", &command.prefetch_batches,
      "how many batches are read ahead; 4, or more small ones, if not given");
  line.Add("trace", &command.trace,
           "a file to write, with a trace in Chrome's format");
  AddFormat(line, command.format);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return ExitCode(RunBenchLoader(host, command, out));
          }};
}

Subcommand ListSettings(PartsCommand& command) {
  CommandLine line("lockstep parts",
                   "lists what a job's text may name, and all settings",
                   R"(  lockstep parts shuffle
  lockstep parts --kind=sampler
  lockstep parts --kind=sampler --name=distributed)");
  line.AddWords("WORD...", &command.words,
                "what the name, the meaning or a setting has");
  line.Add("kind", &command.kind,
           "order, sampler, dataset, collate, loader, communicator or metrics\n"
           "sink; all if it is not given");
  line.Add("name", &command.name, "one of them; all if it is not given");
  line.Add("format", &command.format, "text, json, csv or markdown");
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return ExitCode(RunParts(host, command, out));
          }};
}

Subcommand ShowState(StateCommand& command) {
  CommandLine line(
      "lockstep state", "says what a checkpoint has, and whether it fits",
      R"(It reads the whole file, and checks its digests. With a second checkpoint, it
prints what differs; with a job, whether the job can go on from it.

  lockstep state model.000000000120
  lockstep state model.000000000120 model.000000000130
  lockstep state model.000000000120 --config=job.toml --world=5)");
  line.AddWord("FILE", &command.path, "the checkpoint");
  line.AddOptionalWord("OTHER", &command.other, "one to compare it with");
  AddFlags(line, command.job);
  line.Add("world", &command.world, "for a job: its number of ranks");
  line.Add("size", &command.size,
           "for a job: samples of a dataset that stands in for those of its\n"
           "loaders");
  AddFormat(line, command.format);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return RunState(host, command, out);
          }};
}

void AddExchangeFlags(CommandLine& line, ExchangeCommand& command) {
  line.Add("to", &command.to,
           "what to write; must be given, and must not exist");
  line.Add("format", &command.format,
           "safetensors for a file, or npy for a folder; must be given");
}

Subcommand ExportState(ExchangeCommand& command) {
  CommandLine line(
      "lockstep state export", "writes sections of a checkpoint as arrays",
      R"(Other programs can read them: a .safetensors file, or a folder of .npy files.

  lockstep state export model.000000000120 --to=model.safetensors \
      --format=safetensors --shape weights=64,10)");
  line.AddWord("FILE", &command.path, "the checkpoint");
  AddExchangeFlags(line, command);
  line.Add("prefix", &command.prefix,
           "sections whose names begin with this are written, without it");
  line.AddRepeated("shape", &command.shapes,
                   "a name, without the prefix, and the dimensions of its "
                   "array;\none dimension if not given; may be repeated");
  return {line, [&command](const CommandHost&, std::ostream& out) {
            return ExitCode(RunStateExport(command, out));
          }};
}

Subcommand ImportState(ExchangeCommand& command) {
  CommandLine line(
      "lockstep state import",
      "writes a checkpoint that has the arrays of other programs",
      R"(A training can begin with it. It has nothing but these arrays.

  lockstep state import model.safetensors --to=warm \
      --format=safetensors)");
  line.AddWord("PATH", &command.path,
               "a .safetensors file, or a folder of .npy files");
  AddExchangeFlags(line, command);
  line.Add("prefix", &command.prefix,
           "what stands before the arrays' names in the names of sections");
  return {line, [&command](const CommandHost&, std::ostream&) {
            return ExitCode(RunStateImport(command));
          }};
}

Subcommand Examine(DoctorCommand& command) {
  CommandLine line(
      "lockstep doctor", "says whether machines and ranks can run a job",
      R"(It first looks at each machine alone, and needs no other rank for that. If a
launcher has started several ranks, it then tries them together: whether each
reaches each other, whether all backends give the right results, and how fast
each two exchange data. With a job's text, the ranks meet as the job's do.

  lockstep doctor --quick
  lockstep launch -n 4 -- lockstep doctor
  srun --ntasks=8 lockstep doctor job.toml --timeout=5m)");
  AddFileAndFlags(line, command.job);
  line.Add("quick", &command.quick,
           "whether to look at this machine alone, without other ranks");
  line.Add("deep", &command.deep,
           "whether to measure all pairs of many ranks, with larger messages");
  line.Add("strict", &command.strict, "whether warnings count as failures");
  line.Add("timeout", &command.timeout, "when to give up");
  AddFormat(line, command.format);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return RunDoctor(host, command, EnvironmentOfProcess(), out);
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
  line.Add("doctor", &command.doctor,
           "whether lockstep doctor --quick looks at this host first; no rank\n"
           "is started if it finds a failure");
  line.Add("report", &command.report,
           "the file that gets a line of JSON for each attempt: how the ranks\n"
           "have ended, and which ranks are to blame");
  line.AddRest("program", &command.program);
  return {line,
          [&command](const CommandHost&, std::ostream&) -> absl::StatusOr<int> {
            return RunLaunch(command, EnvironmentOfProcess());
          }};
}

Subcommand ShowTrace(TraceCommand& command) {
  CommandLine line(
      "lockstep trace", "shows what the ranks did, on one time line",
      R"(It reads what the sink json_lines has written under [rank_metrics]: waits for
data, operations, and the reads of workers in the first 100 steps, in every
hundredth and in slow ones. ui.perfetto.dev and chrome://tracing open the JSON;
the text says what there is, and which steps took longest. It ends with 1 if a
rank is missing or its records are damaged, and shows the others.

  lockstep trace /data/runs/7/steps --output=trace.json
  lockstep trace /data/runs/7/steps --format=text
  lockstep trace /data/runs/7/steps --steps=100-200 --ranks=0,3 --format=csv)");
  line.AddWord("PATH", &command.path,
               "the path of the sink, the folder of its files, or one of them");
  line.Add("run", &command.run,
           "which start of the job, from 1 on; the last one if not given");
  line.Add("steps", &command.steps,
           "a step, such as 120, or a range, such as 100-200; all that have\n"
           "events if not given");
  line.Add("ranks", &command.ranks, "some ranks; all if not given");
  line.Add("max_error", &command.max_error,
           "the largest error of a time that is accepted, where ranks run on\n"
           "several machines");
  line.Add("output", &command.output,
           "the file to write; the standard output if not given");
  AddFormat(line, command.format);
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return RunTrace(host, command, out);
          }};
}

Subcommand ShowReport(ReportCommand& command) {
  CommandLine line(
      "lockstep report", "says where the time of a run went, and why",
      R"(It reads what the sink json_lines has written under [rank_metrics]. The verdict
comes first: healthy, data-bound, communication-bound, slow ranks, another rank
each step, or a few steps. With --output, it writes a page for a browser. It
ends with 1 if a rank is missing or its records are damaged, and shows the
others.

  lockstep report /data/runs/7/steps
  lockstep report /data/runs/7/steps --output=report.html
  lockstep report --compare /data/runs/6/steps /data/runs/7/steps)");
  line.AddWord("PATH", &command.path,
               "the path of the sink, the folder of its files, or one of them");
  line.Add("run", &command.run,
           "which start of the job, from 1 on; the last one if not given");
  line.Add("compare", &command.compare,
           "the path of the first of two runs; PATH is the second one");
  line.Add("compare_run", &command.compare_run,
           "which start of that job; the last one if not given");
  line.Add("metrics", &command.metrics,
           "the path of the sink json_lines under [metrics], for the loss and\n"
           "other curves; the one that the job names if not given");
  line.Add("launch", &command.launch,
           "files of lockstep launch --report, which say how the run ended");
  line.Add("output", &command.output,
           "the file to write; the standard output if not given");
  line.Add("format", &command.format,
           "html, text, json or csv; if not given, text for the standard\n"
           "output, and otherwise what the file's name ends with, or html");
  return {line, [&command](const CommandHost& host, std::ostream& out) {
            return RunReportCommand(host, command, out);
          }};
}

constexpr char kAbout[] = R"(# The lockstep command

`@lockstep//tools:lockstep` is the command with Lockstep's own parts. This page is what
`lockstep help --format=markdown` prints.

All commands write data to the standard output, and messages and progress to the standard error.
They end with 0; with 1 if something is wrong with what they looked at, or two checkpoints differ;
with 2 if the command line makes no sense. `launch` has [codes of its
own](launchers.md#lockstep-launch). A command that is stopped leaves no file that is half written.

`--format=json` has all that the text has, apart from sentences. `--format=csv` has one table: the
rows of `plan`, the indices of `order`, the epochs of `verify` and `bench loader`, the mistakes of
`check`, the findings of `doctor`, the sections of `state` or the differences, the settings of
`parts`, the events of `trace`, the ranks of `report`. The JSON of `trace` is for viewers of traces.

A job's text may name parts of your own. A binary of three lines knows them, and the settings
under `[trainer]`:

```cpp command
#include "lockstep/tools/cli/command.h"

int main(int argc, char** argv) {
  return lockstep::CommandMain<TrainerOptions>(argc, argv, RegisterParts);
}
```

It depends on `@lockstep//tools:command`, and on the library that has `TrainerOptions` and
`RegisterParts`.
)";

}  // namespace

std::vector<Subcommand> AllSubcommands(CommandFlags& flags) {
  // A command whose name begins with another one's comes before it.
  return {Check(flags.check),          Plan(flags.plan),
          Verify(flags.verify),        PrintOrder(flags.order),
          ListSettings(flags.parts),   ExportState(flags.exported),
          ImportState(flags.imported), ShowState(flags.state),
          BenchLoader(flags.loader),   Examine(flags.doctor),
          StartRanks(flags.launch),    ShowTrace(flags.trace),
          ShowReport(flags.report)};
}

std::string GeneralHelp(const std::vector<Subcommand>& subcommands) {
  std::string help =
      "lockstep checks jobs, shows what their samplers, loaders and ranks do, "
      "looks at\ncheckpoints, and starts ranks.\n\n";
  for (const Subcommand& subcommand : subcommands) {
    absl::StrAppend(&help, "  ", subcommand.line.name(), "\n      ",
                    subcommand.line.summary(), "\n");
  }
  return help +
         "\nlockstep help plan, or lockstep plan --help, lists the flags "
         "of plan.\n";
}

std::string HelpAsMarkdown(const std::vector<Subcommand>& subcommands) {
  std::string text = kAbout;
  for (const Subcommand& subcommand : subcommands) {
    const absl::string_view name =
        absl::StripPrefix(subcommand.line.name(), "lockstep ");
    absl::StrAppend(&text, "\n## ", name, "\n\n```text\n",
                    subcommand.line.Help(), "```\n");
  }
  return text;
}

}  // namespace lockstep
