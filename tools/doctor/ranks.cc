#include "lockstep/tools/doctor/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
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
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/tools/doctor/connections.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/meeting.h"
#include "lockstep/tools/doctor/network.h"
#include "lockstep/tools/doctor/pairs.h"
#include "lockstep/tools/doctor/self_test.h"

namespace lockstep {
namespace {

using internal_base::AppendJson;
using internal_base::JsonReader;
using internal_session::ClockOffset;
using internal_session::MeasureClockOffset;

constexpr char kShm[] = "shm";
constexpr char kTcp[] = "tcp";
constexpr char kNccl[] = "nccl";

// What each rank tells rank 0 about itself.
struct Introduction {
  std::string host;
  std::string machine;  // its report, or "" if it has not looked
  int64_t gpus = 0;     // that NCCL can use
  int64_t mbits = -1;   // of the interface for data, or -1
};

std::string Encode(const Introduction& introduction) {
  std::string json = "[";
  AppendJson(introduction.host, json);
  json += ',';
  AppendJson(introduction.machine, json);
  absl::StrAppend(&json, ",", introduction.gpus, ",", introduction.mbits, "]");
  return json;
}

absl::StatusOr<Introduction> DecodeIntroduction(absl::string_view text) {
  Introduction introduction;
  JsonReader in(text);
  if (!in.Skip("[") || !in.Read(introduction.host) || !in.Skip(",") ||
      !in.Read(introduction.machine) || !in.Skip(",") ||
      !in.Read(introduction.gpus) || !in.Skip(",") ||
      !in.Read(introduction.mbits) || !in.Skip("]")) {
    return absl::InternalError("a rank has sent what can't be read");
  }
  return introduction;
}

// The examination by one rank.
// Thread-safety: thread-compatible.
class Examination {
 public:
  Examination(World& world, const RanksOptions& options)
      : world_(world), options_(options) {}

  RanksReport Run() {
    const absl::Status status = RunAll();
    if (!status.ok()) {
      if (meeting_ != nullptr) meeting_->Abort(status);
      report_.findings.push_back(
          {"ranks", Verdict::kFailure, std::string(status.message()),
           "look at the output of the ranks that it names"});
    }
    return std::move(report_);
  }

 private:
  absl::Status RunAll();
  absl::Status Introduce();
  absl::Status TryToConnect();
  absl::Status TryBackends();
  absl::Status TryBackend(const std::string& name);
  absl::StatusOr<std::string> TestGroup(const std::string& name);
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      const std::string& name);
  absl::Status CompareClocks(Communicator& group);
  absl::Status MeasureAll();
  void SetLimits(std::vector<PairSpeed>& pairs) const;

  bool is_first() const { return world_.rank() == 0; }
  NcclOptions NcclOf(const std::string& name) const {
    return name == kNccl ? options_.nccl : NcclOptions();
  }
  void Add(std::string check, Verdict verdict, std::string text,
           std::string remedy = "") {
    report_.findings.push_back(
        {std::move(check), verdict, std::move(text), std::move(remedy)});
  }
  std::string NameOf(int rank) const {
    return absl::StrCat("rank ", rank, " (",
                        report_.hosts[static_cast<size_t>(rank)], ")");
  }

  World& world_;
  const RanksOptions& options_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<Introduction> ranks_;  // on rank 0
  bool connects_ = true;             // whether all ranks reach each other
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // that work
  RanksReport report_;
};

absl::Status Examination::RunAll() {
  LOCKSTEP_ASSIGN_OR_RETURN(meeting_, Meeting::Make(world_, options_.until));
  LOCKSTEP_RETURN_IF_ERROR(Introduce());
  LOCKSTEP_RETURN_IF_ERROR(TryToConnect());
  LOCKSTEP_RETURN_IF_ERROR(TryBackends());
  LOCKSTEP_RETURN_IF_ERROR(MeasureAll());
  // Nobody leaves before all have come here.
  return meeting_->Tell("").status();
}

absl::Status Examination::Introduce() {
  Introduction mine;
  mine.host = ThisProcess(0).host;
  if (!options_.machine.host.empty()) {
    mine.host = options_.machine.host;
    mine.machine = Encode(options_.machine);
    const GpuFacts& gpus = options_.facts.gpus;
    const bool has_nccl = gpus.nccl.has_value() && gpus.nccl->ok();
    mine.gpus = has_nccl ? static_cast<int64_t>(gpus.names.size()) : 0;
  }
  const Interface* const interface =
      FindInterface(options_.facts.network.interfaces, meeting_->address());
  if (interface != nullptr) mine.mbits = interface->mbits;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            meeting_->Collect(Encode(mine)));
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(ranks_.emplace_back(), DecodeIntroduction(text));
    const Introduction& rank = ranks_.back();
    report_.hosts.push_back(rank.host);
    const auto machine = DecodeMachineReport(rank.machine);
    if (machine.has_value() && seen.insert(rank.host).second) {
      report_.machines.push_back(*machine);
    }
  }
  if (is_first()) {
    const std::set<std::string> hosts(report_.hosts.begin(),
                                      report_.hosts.end());
    Add("meeting", Verdict::kPass,
        absl::StrCat("all ", world_.size(), " ranks have come, from ",
                     hosts.size() == 1
                         ? std::string("one machine")
                         : absl::StrCat(hosts.size(), " machines")));
  }
  return absl::OkStatus();
}

absl::Status Examination::TryToConnect() {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  constexpr size_t kMostSent = 64;
  constexpr size_t kMostNamed = 4;
  if (world_.size() == 1) return absl::OkStatus();
  if (is_first()) options_.tell("trying all connections between ranks");
  const absl::StatusOr<Door> door = Door::Open(meeting_->address());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> places,
                            meeting_->Exchange(door.ok() ? door->place() : ""));
  std::vector<std::string> lines;
  if (!door.ok()) {
    lines.push_back(absl::StrCat(world_.rank(), " ", door.status().message()));
  } else {
    const SteadyTime until =
        After(std::min(kPatience, options_.until - absl::Now()));
    for (const Unreached& unreached :
         TryConnections(*door, places, world_.rank(), until)) {
      lines.push_back(absl::StrCat(unreached.rank, " ", unreached.why));
    }
  }
  const size_t count = lines.size();
  if (lines.size() > kMostSent) lines.resize(kMostSent);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      meeting_->Collect(absl::StrCat(count, "\n", absl::StrJoin(lines, "\n"))));
  size_t failures = 0;
  std::vector<std::string> named;
  for (size_t from = 0; from < all.size(); ++from) {
    const std::vector<std::string> parts =
        absl::StrSplit(all[from], '\n', absl::SkipEmpty());
    size_t here = 0;
    if (parts.empty() || !absl::SimpleAtoi(parts[0], &here)) continue;
    failures += here;
    for (size_t i = 1; i < parts.size() && named.size() < kMostNamed; ++i) {
      const std::vector<std::string> words =
          absl::StrSplit(parts[i], absl::MaxSplits(' ', 1));
      int to = 0;
      if (words.size() != 2 || !absl::SimpleAtoi(words[0], &to)) continue;
      named.push_back(to == static_cast<int>(from)
                          ? absl::StrCat(NameOf(to), ": ", words[1])
                          : absl::StrCat(NameOf(static_cast<int>(from)),
                                         " does not reach ", NameOf(to), " at ",
                                         places[static_cast<size_t>(to)], ": ",
                                         words[1]));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string connects,
                            meeting_->Tell(failures == 0 ? "yes" : "no"));
  connects_ = connects == "yes";
  if (!is_first()) return absl::OkStatus();
  const int64_t size = world_.size();
  if (connects_) {
    Add("connections", Verdict::kPass,
        absl::StrCat("each rank reaches each other over TCP: ",
                     size * (size - 1)));
  } else {
    Add("connections", Verdict::kFailure,
        absl::StrCat(failures, " of ", size * (size - 1),
                     " fail: ", absl::StrJoin(named, "; "),
                     failures > named.size() ? "; and so on" : ""),
        "let the job's machines reach each other at all TCP ports (firewall, "
        "security group, NetworkPolicy), or choose another network by "
        "world.interface");
  }
  return absl::OkStatus();
}

absl::Status Examination::TryBackends() {
  std::vector<std::string> names;
  if (is_first()) {
    const bool is_one_host = world_.local_size() == world_.size();
    if (is_one_host) {
      names.emplace_back(kShm);
    } else {
      Add(kShm, Verdict::kNotJudged,
          "not tried, since it is for ranks of one machine");
    }
    if (connects_) {
      names.emplace_back(kTcp);
    } else {
      Add(kTcp, Verdict::kNotJudged,
          "not tried, since ranks do not reach each other");
    }
    std::map<std::string, int64_t> needed, there;
    for (const Introduction& rank : ranks_) {
      ++needed[rank.host];
      there[rank.host] = std::max(there[rank.host], rank.gpus);
    }
    const bool has_gpus = std::all_of(
        needed.begin(), needed.end(), [&there](const auto& host_and_ranks) {
          return there[host_and_ranks.first] >= host_and_ranks.second;
        });
    if (has_gpus && connects_) {
      names.emplace_back(kNccl);
    } else {
      Add(kNccl, Verdict::kNotJudged,
          has_gpus ? "not tried, since ranks do not reach each other"
                   : "not tried, since not every rank has a GPU and NCCL");
    }
    if (!options_.own_backend.empty()) names.push_back(options_.own_backend);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string plan,
                            meeting_->Tell(absl::StrJoin(names, "\n")));
  for (const auto& name : absl::StrSplit(plan, '\n', absl::SkipEmpty())) {
    LOCKSTEP_RETURN_IF_ERROR(TryBackend(std::string(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> Examination::MakeGroup(
    const std::string& name) {
  if (name == options_.own_backend && options_.make_own) {
    return options_.make_own(world_);
  }
  GroupOptions group;
  group.name = absl::StrCat("doctor ", name);
  group.backend = name;
  group.nccl = options_.nccl;
  group.deadline =
      std::max(options_.until - absl::Now(), absl::Milliseconds(1));
  return world_.MakeGroup(group);
}

// Returns the first result that is wrong on this rank, or "". Keeps the group
// if there is none.
absl::StatusOr<std::string> Examination::TestGroup(const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                            MakeGroup(name));
  SelfTestOptions test;
  test.most_elements = options_.effort.most_elements;
  test.nccl = NcclOf(name);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string wrong, SelfTest(*group, test));
  groups_[name] = std::move(group);
  return wrong;
}

absl::Status Examination::TryBackend(const std::string& name) {
  if (is_first()) options_.tell(absl::StrCat("trying the backend ", name));
  const absl::StatusOr<std::string> wrong = TestGroup(name);
  const std::string mine =
      wrong.ok() ? (wrong->empty() ? "" : "wrong " + *wrong)
                 : absl::StrCat("error ", wrong.status().message());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(mine));
  std::string failure;
  for (size_t rank = 0; rank < all.size() && failure.empty(); ++rank) {
    absl::string_view text = all[rank];
    if (absl::ConsumePrefix(&text, "error ")) {
      failure = std::string(text);
    } else if (absl::ConsumePrefix(&text, "wrong ")) {
      failure = absl::StrCat(NameOf(static_cast<int>(rank)), ": ", text);
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told, meeting_->Tell(failure));
  if (!told.empty()) groups_.erase(name);
  if (!is_first()) return absl::OkStatus();
  if (failure.empty()) {
    Add(name, Verdict::kPass, "all operations give the right results");
  } else {
    Add(name, Verdict::kFailure, failure,
        "docs/errors.md says what the causes of failures mean; if results are "
        "wrong, the memory or the network of a machine may be broken");
  }
  return absl::OkStatus();
}

absl::Status Examination::CompareClocks(Communicator& group) {
  constexpr double kMost = 1;  // second: that of the time stamps in logs
  LOCKSTEP_ASSIGN_OR_RETURN(const ClockOffset offset,
                            MeasureClockOffset(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(absl::StrFormat(
                                "%.9f %.9f", offset.seconds, offset.error)));
  int worst = 0;
  // What the clocks differ at least, and at most.
  double least = 0, most = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<std::string> words = absl::StrSplit(all[rank], ' ');
    double seconds = 0, error = 0;
    if (words.size() != 2 || !absl::SimpleAtod(words[0], &seconds) ||
        !absl::SimpleAtod(words[1], &error)) {
      return absl::InternalError("a rank has sent a time that can't be read");
    }
    most = std::max(most, std::abs(seconds) + error);
    if (std::abs(seconds) - error <= least) continue;
    least = std::abs(seconds) - error;
    worst = static_cast<int>(rank);
  }
  if (!is_first() || world_.local_size() == world_.size()) {
    return absl::OkStatus();
  }
  if (least <= kMost) {
    Add("clocks", Verdict::kPass,
        absl::StrFormat("all within %.3g ms of that of rank 0", most * 1e3));
  } else {
    Add("clocks", Verdict::kWarning,
        absl::StrFormat("that of %s differs by %.3g s from that of rank 0",
                        NameOf(worst), least),
        "let a time service (chrony, systemd-timesyncd) set the clock of that "
        "machine; until then, times in logs can't be compared");
  }
  return absl::OkStatus();
}

// Returns the round in which two ranks are paired.
int RoundOf(const PairSpeed& pair, int size) {
  const int circle = RoundsOf(size);
  return (pair.a + (pair.b == circle ? pair.a : pair.b)) % circle;
}

void Examination::SetLimits(std::vector<PairSpeed>& pairs) const {
  constexpr double kBytesPerMbit = 1e6 / 8;
  // The number of pairs that use a machine's link in a round.
  std::map<std::pair<int, std::string>, int> sharing;
  const auto host = [this](int rank) {
    return report_.hosts[static_cast<size_t>(rank)];
  };
  for (PairSpeed& pair : pairs) {
    pair.is_local = host(pair.a) == host(pair.b);
    if (pair.is_local) continue;
    const int round = RoundOf(pair, world_.size());
    ++sharing[{round, host(pair.a)}];
    ++sharing[{round, host(pair.b)}];
  }
  std::map<std::string, int64_t> mbits;
  for (const Introduction& rank : ranks_) {
    mbits[rank.host] = std::max(mbits[rank.host], rank.mbits);
  }
  for (PairSpeed& pair : pairs) {
    if (pair.is_local) {
      pair.limit = std::min(report_.copies[static_cast<size_t>(pair.a)],
                            report_.copies[static_cast<size_t>(pair.b)]);
      continue;
    }
    const int64_t link = std::min(mbits[host(pair.a)], mbits[host(pair.b)]);
    if (link <= 0) continue;
    const int round = RoundOf(pair, world_.size());
    const int shared = std::max(sharing[{round, host(pair.a)}],
                                sharing[{round, host(pair.b)}]);
    // A link carries as much in each direction, and about half of the pairs
    // use one.
    pair.limit = static_cast<double>(link) * kBytesPerMbit /
                 static_cast<double>((shared + 1) / 2);
  }
}

absl::Status Examination::MeasureAll() {
  if (world_.size() == 1) return absl::OkStatus();
  std::string host_backend;
  for (const char* name : {kShm, kTcp}) {
    if (host_backend.empty() && groups_.count(name) > 0) host_backend = name;
  }
  if (host_backend.empty()) {
    if (is_first()) {
      Add("pairs", Verdict::kNotJudged,
          "not measured, since no backend works that moves the host's memory");
    }
    return absl::OkStatus();
  }
  if (is_first()) options_.tell("measuring each pair of ranks");
  Communicator& group = *groups_[host_backend];
  LOCKSTEP_RETURN_IF_ERROR(CompareClocks(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const double copies, MeasureCopies(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(absl::StrCat(copies)));
  for (const std::string& text : all) {
    if (!absl::SimpleAtod(text, &report_.copies.emplace_back())) {
      return absl::InternalError("a rank has sent what is no number");
    }
  }
  for (const auto& [name, measured] : groups_) {
    PairOptions pair_options = options_.effort.pairs;
    pair_options.nccl = NcclOf(name);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PairSpeed> mine,
                              MeasurePairs(*measured, pair_options));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                              meeting_->Collect(Encode(mine)));
    if (!is_first()) continue;
    BackendPairs backend;
    backend.backend = name;
    for (const std::string& text : texts) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PairSpeed> pairs,
                                DecodePairs(text));
      backend.pairs.insert(backend.pairs.end(), pairs.begin(), pairs.end());
    }
    std::sort(backend.pairs.begin(), backend.pairs.end(),
              [](const PairSpeed& x, const PairSpeed& y) {
                return std::tie(x.a, x.b) < std::tie(y.a, y.b);
              });
    if (name != kNccl) SetLimits(backend.pairs);
    report_.findings.push_back(JudgePairs(name, backend.pairs));
    report_.pairs.push_back(std::move(backend));
  }
  return absl::OkStatus();
}

}  // namespace

Effort DeepEffort() {
  Effort effort;
  effort.most_elements = int64_t{1} << 23;
  effort.pairs.most_partners = std::numeric_limits<int>::max();
  effort.pairs.bytes = int64_t{64} << 20;
  effort.pairs.pings = 500;
  effort.pairs.repeats = 10;
  return effort;
}

RanksReport ExamineRanks(World& world, const RanksOptions& options) {
  return Examination(world, options).Run();
}

}  // namespace lockstep
