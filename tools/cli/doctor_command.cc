#include "lockstep/tools/cli/doctor_command.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/tools/cli/doctor_report.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/machine.h"
#include "lockstep/tools/doctor/ranks.h"
#include "lockstep/tools/doctor/watchdog.h"

namespace lockstep {
namespace {

// Returns the text of a setting, or "".
std::string TextOf(const Config& table, const char* key) {
  const Config* const value = table.Find(key);
  const auto* const text =
      value == nullptr ? nullptr : value->As<std::string>();
  return text == nullptr ? "" : *text;
}

NcclOptions NcclOptionsOf(const Config& group) {
  NcclOptions nccl;
  nccl.nccl_library = TextOf(group, "nccl_library");
  nccl.cuda_library = TextOf(group, "cuda_library");
  const Config* const device = group.Find("device");
  const auto* const number =
      device == nullptr ? nullptr : device->As<int64_t>();
  if (number != nullptr) nccl.device = static_cast<int>(*number);
  return nccl;
}

// One run of the command.
// Thread-safety: thread-compatible.
class Doctor {
 public:
  Doctor(const CommandHost& host, const DoctorCommand& command,
         const Environment& environment, OutputFormat format, Job job,
         std::ostream& out)
      : host_(host),
        command_(command),
        environment_(environment),
        format_(format),
        job_(std::move(job)),
        until_(absl::Now() + command.timeout),
        nccl_(NcclOptionsOf(job_.group)),
        group_(TextOf(job_.group, "name")),
        out_(out) {}

  int Run();

 private:
  // Reads the facts about this machine, and judges them, unless another rank
  // does.
  void ExamineMachine(Watchdog& watchdog);
  // Joins the ranks, and examines them.
  void ExamineTogether(Watchdog& watchdog);
  int Print();

  bool is_text() const { return format_ == OutputFormat::kText; }

  const CommandHost& host_;
  const DoctorCommand& command_;
  const Environment& environment_;
  const OutputFormat format_;
  const Job job_;
  const absl::Time until_;
  const NcclOptions nccl_;
  const std::string group_;  // the backend that the job names
  std::ostream& out_;

  int rank_ = 0, size_ = 1;
  bool has_launch_ = true;        // whether the launcher's variables make sense
  bool examines_machine_ = true;  // whether no other rank of this machine does
  bool is_printed_ = false;       // whether the machine's report is
  MachineFacts facts_;
  std::optional<MachineReport> machine_;
  std::optional<RanksReport> ranks_;
  std::atomic<bool> has_joined_{false};
};

int Doctor::Run() {
  // The calls that wait for other ranks have deadlines of their own.
  constexpr absl::Duration kGrace = absl::Seconds(10);
  Watchdog watchdog("lockstep doctor", command_.timeout, kGrace,
                    "reading the launcher's variables");
  const auto launch =
      ReadLaunchEnvironment(environment_, job_.world.init == "env://");
  has_launch_ = launch.ok();
  if (launch.ok()) {
    rank_ = job_.world.rank < 0 ? launch->rank : job_.world.rank;
    size_ = job_.world.size < 0 ? launch->size : job_.world.size;
    // Where the launcher does not say the local rank, each rank may be the
    // only one of its machine.
    examines_machine_ = launch->local_rank <= 0;
  } else {
    const auto local_rank = environment_.find("LOCAL_RANK");
    examines_machine_ =
        local_rank == environment_.end() || local_rank->second == "0";
  }
  if (examines_machine_) ExamineMachine(watchdog);
  const std::string apart =
      machine_.has_value() ? WhatKeepsRanksApart(*machine_) : "";
  // Another machine shows at once what rank 0 may never learn.
  if (is_text() && machine_.has_value() &&
      (rank_ == 0 || command_.quick || !apart.empty())) {
    PrintMachine(*machine_, command_.strict, out_);
    is_printed_ = true;
  }
  const bool tries_ranks = !command_.quick && has_launch_ && size_ > 1;
  if (tries_ranks && apart.empty()) {
    ExamineTogether(watchdog);
  } else if (tries_ranks) {
    ranks_.emplace().findings.push_back(
        {"meeting", Verdict::kNotJudged,
         absl::StrCat("not tried, since the ranks can't meet: see \"", apart,
                      "\" above"),
         ""});
  }
  return Print();
}

void Doctor::ExamineMachine(Watchdog& watchdog) {
  FactsOptions options;
  options.environment = environment_;
  options.world = job_.world;
  options.nccl = nccl_;
  options.on_step = [&watchdog](absl::string_view what) {
    watchdog.Begin(absl::StrCat("looking at ", what));
  };
  facts_ = ReadMachineFacts(options);
  JudgeOptions judge;
  judge.version = kVersion;
  judge.world = job_.world;
  if (!group_.empty()) judge.backend = group_;
  machine_ = JudgeMachine(facts_, judge);
}

void Doctor::ExamineTogether(Watchdog& watchdog) {
  watchdog.Begin("joining the ranks");
  ranks_.emplace();
  WorldOptions options = job_.world;
  options.join_deadline =
      std::min(options.join_deadline,
               std::max(until_ - absl::Now(), absl::Milliseconds(1)));
  options.leave_patience = std::min(options.leave_patience, absl::Seconds(5));
  // All ranks say why they don't meet, and rank 0 alone what is slow later.
  options.on_slow = [this](absl::string_view what) {
    if (rank_ == 0 || !has_joined_) host_.tell(what);
  };
  const absl::StatusOr<std::unique_ptr<World>> world =
      World::FromEnvironment(options);
  if (!world.ok()) {
    ranks_->findings.push_back(
        {"meeting", Verdict::kFailure, std::string(world.status().message()),
         "do what the message says, and look at the output of the ranks that "
         "it names"});
    return;
  }
  has_joined_ = true;
  RanksOptions together;
  together.until = until_;
  if (command_.deep) together.effort = DeepEffort();
  together.facts = facts_;
  if (machine_.has_value()) together.machine = *machine_;
  together.nccl = nccl_;
  together.job = job_.fingerprint;
  if (group_ == "gloo") {
    together.backend = "tcp";
  } else if (!group_.empty()) {
    together.backend = group_;
  }
  together.make_own = [this](World& joined) {
    return job_.MakeGroup(*host_.registry, joined);
  };
  together.tell = [this, &watchdog](absl::string_view what) {
    watchdog.Begin(what);
    if (rank_ == 0) host_.tell(what);
  };
  ranks_ = ExamineRanks(**world, together);
}

int Doctor::Print() {
  // Rank 0 says what all have found, unless it is gone. Other ranks of a
  // machine have nothing to say.
  if (has_joined_ && !ranks_->must_speak) return 0;
  if (!machine_.has_value() && !ranks_.has_value()) return 0;
  DoctorReport report;
  report.is_strict = command_.strict;
  report.size = size_;
  report.have_met = has_joined_;
  if (machine_.has_value()) report.machines.push_back(*machine_);
  if (ranks_.has_value()) {
    // If this rank has examined its machine, that is the first.
    const std::vector<MachineReport>& all = ranks_->machines;
    const bool is_known = machine_.has_value() && !all.empty();
    report.machines.insert(report.machines.end(),
                           all.begin() + (is_known ? 1 : 0), all.end());
  }
  report.ranks = std::move(ranks_);
  PrintReport(report, format_, is_printed_ ? 1 : 0, out_);
  if (is_text() && !command_.quick && has_launch_ && size_ == 1) {
    out_ << "\nThe ranks were not tried together, since there is one. A "
            "launcher starts several:\n"
            "  lockstep launch -n 4 -- lockstep doctor\n";
  }
  return report.passes() ? 0 : 1;
}

}  // namespace

absl::StatusOr<int> RunDoctor(const CommandHost& host,
                              const DoctorCommand& command,
                              const Environment& environment,
                              std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command.job, /*needs_file=*/false));
  if (command.quick && command.deep) {
    return absl::InvalidArgumentError(
        "--quick looks at this machine alone, and --deep measures ranks for "
        "longer: give one of them");
  }
  if (command.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout should be more than nothing, but it is ",
                     absl::FormatDuration(command.timeout)));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ReadRightConfig(command.job));
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, ReadJobOf(host, config));
  // Names are looked up when a part is made, but this group is made late.
  Config group;
  group.Set("group", job.group);
  for (const ConfigError& error : CheckJob(group, nullptr, *host.registry)) {
    return absl::FailedPreconditionError(absl::StrCat(
        error.location, error.location.empty() ? "" : ": ", error.message));
  }
  return Doctor(host, command, environment, format, std::move(job), out).Run();
}

}  // namespace lockstep
