#include "lockstep/tools/doctor/examination.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/shm/shm_neighbourhood.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/connections.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/introduction.h"
#include "lockstep/tools/doctor/meeting.h"
#include "lockstep/tools/doctor/network.h"
#include "lockstep/tools/doctor/self_test.h"
#include "lockstep/tools/doctor/test_memory.h"

namespace lockstep::internal_doctor {
namespace {

// Returns true if a rank may be gone, by the error of a meeting. One that has
// only failed says so itself.
bool IsGone(int rank, const absl::Status& status) {
  const std::optional<Blame> blame = BlameOf(status);
  if (!blame.has_value()) return true;
  return blame->cause != Blame::Cause::kFailed &&
         std::any_of(blame->ranks.begin(), blame->ranks.end(),
                     [rank](const Blame::Rank& to_blame) {
                       return to_blame.rank == rank;
                     });
}

}  // namespace

RanksReport Examination::Run() {
  // A rank that can't start a thread, for instance, tells the others.
  const absl::Status status =
      CatchAll("the examination", [this] { return RunAll(); });
  report_.must_speak = is_first();
  if (status.ok()) return std::move(report_);
  if (meeting_ != nullptr) meeting_->Abort(status);
  report_.must_speak = is_first() || IsGone(/*rank=*/0, status);
  const bool is_said = !report_.findings.empty() &&
                       report_.findings.back().text == status.message();
  if (!is_said) {
    Add("ranks", Verdict::kFailure,
        absl::StrCat(doing_, ": ", status.message()),
        "look at the ranks that it names: their output, and whether their "
        "processes and machines still run; if all are well, set a longer "
        "--timeout");
  }
  return std::move(report_);
}

absl::Status Examination::RunAll() {
  Begin("waiting for the ranks to introduce themselves");
  LOCKSTEP_ASSIGN_OR_RETURN(meeting_, Meeting::Make(world_, until_));
  LOCKSTEP_RETURN_IF_ERROR(Introduce());
  LOCKSTEP_RETURN_IF_ERROR(TryToConnect());
  LOCKSTEP_RETURN_IF_ERROR(TryBackends());
  LOCKSTEP_RETURN_IF_ERROR(MeasureAll());
  // No other rank leaves before rank 0 has come here.
  return meeting_->Tell("").status();
}

void Examination::SetUntil(absl::Time until) {
  // Nothing more is measured after some time, what is being done has some more,
  // and the rest is for telling what has failed.
  constexpr double kForWork = 0.9;
  const absl::Time now = absl::Now();
  until_ = until;
  measure_until_ = now + options_.effort.for_pairs * (until - now);
  work_until_ = now + kForWork * (until - now);
}

absl::Status Examination::Introduce() {
  Introduction mine;
  mine.host = ThisProcess(0).host;
  if (!options_.machine.host.empty()) {
    mine.host = options_.machine.host;
    mine.machine = Encode(options_.machine);
    mine.quota = options_.facts.quota;
    const GpuFacts& gpus = options_.facts.gpus;
    const bool has_nccl = gpus.nccl.has_value() && gpus.nccl->ok();
    mine.gpus = has_nccl ? static_cast<int64_t>(gpus.names.size()) : 0;
  }
  mine.processors =
      options_.processors.empty() ? AllowedProcessors() : options_.processors;
  mine.machine_id = options_.machine_id;
  if (mine.machine_id.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory,
                              internal_collective::ShmNeighbourhood());
    mine.machine_id = absl::StrCat(mine.host, "/", memory);
  }
  const Interface* const interface =
      FindInterface(options_.facts.network.interfaces, meeting_->address());
  if (interface != nullptr) mine.mbits = interface->mbits;
  // It may have no limit, which the text of a number can't say.
  constexpr absl::Duration kMost = absl::Hours(24 * 365);
  mine.seconds = absl::ToDoubleSeconds(std::min(until_ - absl::Now(), kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            meeting_->Collect(Encode(mine)));
  double seconds = mine.seconds;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Introduction rank,
                              DecodeIntroduction(text));
    seconds = std::min(seconds, rank.seconds);
    AddRank(rank);
  }
  // All give up when the first of them would.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told,
                            meeting_->Tell(absl::StrCat(seconds)));
  if (!absl::SimpleAtod(told, &seconds)) {
    return absl::InternalError("rank 0 has sent what is no number");
  }
  SetUntil(absl::Now() + absl::Seconds(seconds));
  meeting_->SetUntil(until_);
  if (is_first()) JudgeMachines();
  return absl::OkStatus();
}

void Examination::AddRank(const Introduction& rank) {
  report_.hosts.push_back(rank.host);
  ids_.push_back(rank.machine_id);
  Machine& machine = machines_[rank.machine_id];
  machine.host = rank.host;
  ++machine.ranks;
  AddProcessors(rank.processors, machine.processors);
  machine.quota = std::max(machine.quota, rank.quota);
  machine.gpus = std::max(machine.gpus, rank.gpus);
  machine.mbits = std::max(machine.mbits, rank.mbits);
  const auto report = DecodeMachineReport(rank.machine);
  if (report.has_value() && !machine.is_reported) {
    machine.is_reported = true;
    machine.is_warned =
        std::any_of(report->findings.begin(), report->findings.end(),
                    [](const Finding& finding) {
                      return finding.check == kProcessors &&
                             finding.verdict == Verdict::kWarning;
                    });
    report_.machines.push_back(*report);
  }
}

void Examination::JudgeMachines() {
  std::map<std::string, int> names;
  for (const auto& [id, machine] : machines_) ++names[machine.host];
  std::vector<std::string> twice, crowded;
  for (const auto& [name, count] : names) {
    if (count > 1) twice.push_back(name);
  }
  for (const auto& [id, machine] : machines_) {
    if (!machine.is_crowded() || machine.is_warned) continue;
    crowded.push_back(absl::StrFormat("%d on the %.4g of %s", machine.ranks,
                                      machine.usable(), machine.host));
  }
  const std::string text = absl::StrCat(
      "all ", world_.size(), " ranks have come, from ",
      machines_.size() == 1 ? std::string("one machine")
                            : absl::StrCat(machines_.size(), " machines"));
  if (twice.empty()) {
    Add("meeting", Verdict::kPass, text);
  } else {
    Add("meeting", Verdict::kWarning,
        absl::StrCat(text, " or containers, of which several have one name: ",
                     absl::StrJoin(twice, ", ")),
        "give each a name of its own, since messages name them");
  }
  if (!crowded.empty()) {
    Add(kProcessors, Verdict::kWarning,
        absl::StrCat("ranks share them: ", absl::StrJoin(crowded, ", ")),
        "start no more ranks on a machine than it has processors, and let the "
        "launcher bind no two to the same");
  }
}

absl::Status Examination::TryToConnect() {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  if (world_.size() == 1) return absl::OkStatus();
  Begin("trying all connections between ranks");
  const auto soon = [this, kPatience] {
    return After(std::min(kPatience, work_until_ - absl::Now()));
  };
  const auto door = Door::Open(meeting_->address(), soon());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> places,
      meeting_->Exchange(door.ok() ? (*door)->place() : ""));
  std::vector<Unreached> mine;
  if (door.ok()) {
    mine = TryConnections(places, world_.rank(), soon());
  } else {
    mine.push_back({world_.rank(), std::string(door.status().message())});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(Encode(mine)));
  for (size_t from = 0; from < all.size(); ++from) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Unreached> unreached,
                              DecodeUnreached(all[from], world_.size()));
    for (const Unreached& to : unreached) {
      report_.unconnected.push_back({static_cast<int>(from), to.rank,
                                     places[static_cast<size_t>(to.rank)],
                                     to.why});
    }
  }
  // Over TCP, a rank connects to those below it. One that can't listen has
  // named itself.
  const bool all_needed = std::none_of(
      report_.unconnected.begin(), report_.unconnected.end(),
      [](const Unconnected& each) { return each.to <= each.from; });
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string connects,
                            meeting_->Tell(all_needed ? "yes" : "no"));
  connects_ = connects == "yes";
  if (is_first()) JudgeConnections();
  return absl::OkStatus();
}

void Examination::JudgeConnections() {
  constexpr char kCheck[] = "connections";
  constexpr size_t kMostNamed = 4;
  const std::vector<Unconnected>& failures = report_.unconnected;
  const int64_t all = int64_t{world_.size()} * (world_.size() - 1);
  if (failures.empty()) {
    Add(kCheck, Verdict::kPass,
        absl::StrCat("each rank reaches each other over TCP: ", all));
    return;
  }
  bool has_doors = true;  // whether each rank can listen
  std::vector<std::string> named;
  for (const Unconnected& each : failures) {
    has_doors = has_doors && each.from != each.to;
    if (named.size() == kMostNamed) continue;
    named.push_back(each.from == each.to
                        ? absl::StrCat(NameOf(each.to), ": ", each.why)
                        : absl::StrCat(NameOf(each.from), " does not reach ",
                                       NameOf(each.to), " at ", each.place,
                                       ": ", each.why));
  }
  Add(kCheck, connects_ ? Verdict::kWarning : Verdict::kFailure,
      absl::StrCat(
          failures.size(), " of ", all, " fail: ", absl::StrJoin(named, "; "),
          failures.size() > named.size() ? "; --format=json has all" : "",
          connects_ ? "; NCCL may need them, and tcp does not" : ""),
      has_doors
          ? "let the job's machines reach each other at all TCP ports "
            "(firewall, security group, NetworkPolicy), or choose another "
            "network by world.interface"
          : "set world.interface to an interface, or an address, that the "
            "machine has and that the others reach");
}

std::vector<std::string> Examination::ChooseBackends() {
  const std::string jobs = JobsBackend();
  std::vector<std::string> names;
  const auto choose = [&](const std::string& name, bool can_be_tried,
                          const char* why_not) {
    if (can_be_tried) {
      names.push_back(name);
    } else if (name == jobs) {
      Add(name, Verdict::kFailure,
          absl::StrCat("not tried, although the job's group uses it, "
                       "since ",
                       why_not),
          name == kTcp ? "see connections"
                       : "let group.name be \"auto\", or start the ranks where "
                         "it can be used");
    } else {
      Add(name, Verdict::kNotJudged,
          absl::StrCat("not tried, since ", why_not));
    }
  };
  choose(kShm, world_.local_size() == world_.size(),
         "it is for ranks of one machine, user and process namespace");
  choose(kTcp, connects_, "ranks do not reach each other");
  const bool has_gpus = std::all_of(
      machines_.begin(), machines_.end(), [&jobs](const auto& id_and_machine) {
        const Machine& machine = id_and_machine.second;
        // A launcher may show each rank its own GPU.
        return machine.gpus >= machine.ranks ||
               (jobs == kNccl && machine.gpus == 1);
      });
  choose(kNccl, has_gpus && connects_,
         has_gpus ? "ranks do not reach each other"
                  : "not every rank has a GPU and NCCL");
  if (jobs != kShm && jobs != kTcp && jobs != kNccl) names.push_back(jobs);
  return names;
}

absl::Status Examination::TryBackends() {
  std::vector<std::string> names;
  if (is_first()) names = ChooseBackends();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string plan,
                            meeting_->Tell(absl::StrJoin(names, "\n")));
  for (const auto& name : absl::StrSplit(plan, '\n', absl::SkipEmpty())) {
    LOCKSTEP_RETURN_IF_ERROR(TryBackend(std::string(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> Examination::MakeGroup(
    const std::string& name) {
  if (name != kShm && name != kTcp && name != kNccl) {
    if (options_.make_own) return options_.make_own(world_);
    return absl::NotFoundError(absl::StrCat("there is no backend ", name));
  }
  GroupOptions group;
  group.name = absl::StrCat("doctor ", name);
  group.backend = name;
  group.nccl = options_.nccl;
  group.deadline = CallUntil(work_until_).deadline;
  return world_.MakeGroup(group);
}

absl::StatusOr<SelfTestResult> Examination::TestGroup(const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                            MakeGroup(name));
  SelfTestOptions test;
  test.most_elements = options_.effort.most_elements;
  test.nccl = NcclOf(name);
  test.until = work_until_;
  test.goes_on = [this](absl::Duration needed) { return HasTimeFor(needed); };
  LOCKSTEP_ASSIGN_OR_RETURN(SelfTestResult result, SelfTest(*group, test));
  groups_[name] = std::move(group);
  return result;
}

absl::Status Examination::TryBackend(const std::string& name) {
  Begin(absl::StrCat("trying the backend ", name));
  const absl::StatusOr<SelfTestResult> result = TestGroup(name);
  std::string mine;
  if (!result.ok()) {
    mine = absl::StrCat(kError, result.status().message());
  } else if (!result->wrong.empty()) {
    mine = absl::StrCat("wrong ", result->wrong);
  }
  const absl::StatusOr<std::vector<std::string>> all = meeting_->Collect(mine);
  if (!all.ok()) {
    // The error of this rank may say more about the ranks that are missing.
    if (!result.ok() && is_first()) {
      Add(name, Verdict::kFailure, std::string(result.status().message()),
          "look at the ranks that it names");
    }
    return all.status();
  }
  std::string failure;
  bool is_wrong = false;
  for (size_t rank = 0; rank < all->size() && failure.empty(); ++rank) {
    absl::string_view text = (*all)[rank];
    if (absl::ConsumePrefix(&text, kError)) {
      failure = std::string(text);
    } else if (absl::ConsumePrefix(&text, "wrong ")) {
      is_wrong = true;
      failure = absl::StrCat(NameOf(static_cast<int>(rank)), ": ", text);
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told, meeting_->Tell(failure));
  if (!told.empty()) groups_.erase(name);
  if (!is_first()) return absl::OkStatus();
  const char* const jobs =
      name == JobsBackend() ? "; the job's group uses it" : "";
  if (failure.empty() && result->is_whole) {
    Add(name, Verdict::kPass,
        absl::StrCat("all operations give the right results", jobs));
  } else if (failure.empty()) {
    Add(name, Verdict::kNotJudged,
        absl::StrCat("there was no time for large messages, and a longer "
                     "--timeout tries them; the others were right",
                     jobs));
  } else if (is_wrong) {
    Add(name, Verdict::kFailure, failure,
        "let nobody train there: look at the memory, the devices and the "
        "network of that machine, and of the one from which the numbers came");
  } else {
    // The job may run without a backend that it does not use.
    Add(name, name == JobsBackend() ? Verdict::kFailure : Verdict::kWarning,
        failure,
        "do what the message says; docs/errors.md has the causes of failures, "
        "and if all ranks are well, a longer --timeout helps");
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_doctor
