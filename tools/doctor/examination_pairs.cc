#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/tools/doctor/examination.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/meeting.h"
#include "lockstep/tools/doctor/pairs.h"
#include "lockstep/tools/doctor/test_memory.h"

namespace lockstep::internal_doctor {

using internal_session::ClockOffset;
using internal_session::MeasureClockOffset;

absl::Status Examination::CompareJobs(Communicator& group) {
  Begin("comparing the settings of the ranks");
  absl::Status same =
      CheckSame(group, "the job", options_.job, CallUntil(work_until_));
  if (!same.ok() && !absl::IsFailedPrecondition(same)) return same;
  if (!is_first() || same.ok()) return absl::OkStatus();
  Add("settings", Verdict::kFailure, std::string(same.message()),
      "give all ranks the same text and the same values");
  return absl::OkStatus();
}

absl::Status Examination::CompareClocks(Communicator& group) {
  constexpr double kMost = 1;  // second: that of the time stamps in logs
  Begin("comparing the clocks");
  LOCKSTEP_ASSIGN_OR_RETURN(const ClockOffset offset,
                            MeasureClockOffset(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(absl::StrFormat(
                                "%.9f %.9f", offset.seconds, offset.error)));
  int worst = 0;
  // The clocks differ by this much at least, and at most.
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
  if (!is_first() || machines_.size() == 1) return absl::OkStatus();
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

absl::Status Examination::CompareCopies(Communicator& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const double copies,
                            MeasureCopies(group, work_until_));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            meeting_->Collect(absl::StrCat(copies)));
  for (const std::string& text : all) {
    if (!absl::SimpleAtod(text, &report_.copies.emplace_back())) {
      return absl::InternalError("a rank has sent what is no number");
    }
  }
  return absl::OkStatus();
}

void Examination::AddWhatIsKnown(std::vector<PairSpeed>& pairs) const {
  constexpr double kBytesPerMbit = 1e6 / 8;
  // The number of pairs that use a machine's link in a round.
  std::map<std::pair<int, std::string>, int> sharing;
  const auto id = [this](int rank) { return ids_[static_cast<size_t>(rank)]; };
  for (PairSpeed& pair : pairs) {
    pair.is_local = id(pair.a) == id(pair.b);
    pair.has_processors =
        !MachineOf(pair.a).is_crowded() && !MachineOf(pair.b).is_crowded();
    if (pair.is_local) continue;
    const int round = RoundOf(pair, world_.size());
    ++sharing[{round, id(pair.a)}];
    ++sharing[{round, id(pair.b)}];
  }
  for (PairSpeed& pair : pairs) {
    if (pair.is_local) {
      pair.limit = std::min(report_.copies[static_cast<size_t>(pair.a)],
                            report_.copies[static_cast<size_t>(pair.b)]);
      continue;
    }
    const int64_t link =
        std::min(MachineOf(pair.a).mbits, MachineOf(pair.b).mbits);
    if (link <= 0) continue;
    const int round = RoundOf(pair, world_.size());
    const int shared =
        std::max(sharing[{round, id(pair.a)}], sharing[{round, id(pair.b)}]);
    // A link carries as much in each direction, and about half of the pairs
    // use one direction at a time.
    const int at_once = (shared + 1) / 2;
    pair.limit = static_cast<double>(link) * kBytesPerMbit / at_once;
  }
}

absl::StatusOr<std::optional<std::vector<PairSpeed>>>
Examination::MeasureRounds(const std::string& name, Communicator& group,
                           const std::vector<int>& rounds) {
  PairOptions pair_options = options_.effort.pairs;
  pair_options.nccl = NcclOf(name);
  pair_options.until = work_until_;
  pair_options.goes_on = [this](absl::Duration needed) {
    return HasTimeFor(needed);
  };
  const auto mine = MeasurePairs(group, rounds, pair_options);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      meeting_->Collect(mine.ok()
                            ? Encode(*mine)
                            : absl::StrCat(kError, mine.status().message())));
  std::vector<PairSpeed> all;
  std::string failure;
  for (const std::string& text : texts) {
    if (absl::StartsWith(text, kError)) {
      if (failure.empty()) failure = text.substr(kError.size());
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PairSpeed> pairs,
                              DecodePairs(text));
    all.insert(all.end(), pairs.begin(), pairs.end());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told, meeting_->Tell(failure));
  if (!told.empty()) {
    if (is_first()) {
      Add(absl::StrCat("pairs, ", name), Verdict::kWarning, failure,
          "if all ranks are well, set a longer --timeout");
    }
    return std::nullopt;
  }
  if (is_first()) AddWhatIsKnown(all);
  // NCCL moves data between devices, whose links are not known.
  for (PairSpeed& pair : all) {
    if (name == kNccl) pair.limit = 0;
  }
  return all;
}

absl::StatusOr<std::optional<std::vector<PairSpeed>>> Examination::Measure(
    const std::string& name, Communicator& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::optional<std::vector<PairSpeed>> pairs,
      MeasureRounds(
          name, group,
          ChooseRounds(world_.size(), options_.effort.most_partners)));
  if (!pairs.has_value()) return pairs;
  std::set<int> slow;
  for (const PairSpeed& pair : SlowPairs(*pairs)) {
    slow.insert(RoundOf(pair, world_.size()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told,
                            meeting_->Tell(absl::StrJoin(slow, " ")));
  std::vector<int> rounds;
  for (const auto& word : absl::StrSplit(told, ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &rounds.emplace_back())) {
      return absl::InternalError("rank 0 has sent what is no number");
    }
  }
  if (rounds.empty()) return pairs;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto again,
                            MeasureRounds(name, group, rounds));
  if (!again.has_value()) return std::nullopt;
  TakeBetter(*again, *pairs);
  return pairs;
}

absl::Status Examination::MeasureBackend(const std::string& name,
                                         Communicator& group) {
  Begin(absl::StrCat("measuring each pair of ranks over ", name));
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<std::vector<PairSpeed>> pairs,
                            Measure(name, group));
  if (!is_first() || !pairs.has_value()) return absl::OkStatus();
  std::sort(pairs->begin(), pairs->end(),
            [](const PairSpeed& x, const PairSpeed& y) {
              return std::tie(x.a, x.b) < std::tie(y.a, y.b);
            });
  Finding finding = JudgePairs(name, *pairs);
  const size_t wanted =
      ChooseRounds(world_.size(), options_.effort.most_partners).size() *
      static_cast<size_t>(world_.size() / 2);
  if (pairs->size() < wanted) {
    absl::StrAppend(&finding.text, finding.text.empty() ? "" : "; ",
                    "there was time for ", pairs->size(), " of ", wanted,
                    " pairs, and a longer --timeout measures more");
    if (pairs->empty()) finding.verdict = Verdict::kNotJudged;
  }
  report_.findings.push_back(std::move(finding));
  report_.pairs.push_back({name, *std::move(pairs)});
  return absl::OkStatus();
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
  Communicator& group = *groups_[host_backend];
  LOCKSTEP_RETURN_IF_ERROR(CompareJobs(group));
  LOCKSTEP_RETURN_IF_ERROR(CompareClocks(group));
  LOCKSTEP_RETURN_IF_ERROR(CompareCopies(group));
  for (const auto& [name, measured] : groups_) {
    LOCKSTEP_RETURN_IF_ERROR(MeasureBackend(name, *measured));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_doctor
