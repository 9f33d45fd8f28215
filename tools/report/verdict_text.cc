#include "lockstep/tools/report/verdict_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

using ::lockstep::internal_report::VerdictFacts;
using Kind = RunVerdict::Kind;
using Place = RunVerdict::Place;

constexpr char kAboutData[] =
    "More workers or more batches ahead (num_workers, prefetch_batches) may "
    "help. The report has the slowest samples, and lockstep bench loader shows "
    "where the time of a loader goes.";
constexpr char kAboutDataOfRanks[] =
    "Look at where that data lies (disk, network), and at the slowest samples, "
    "which the report has. On such a machine, lockstep bench loader shows "
    "where "
    "the time of a loader goes.";
constexpr char kAboutBetween[] =
    "Save checkpoints less often or in the background, or do less in hooks and "
    "sinks.";
constexpr char kAboutMachines[] =
    "Compare such a machine with the others: lockstep doctor examines each, "
    "and "
    "lockstep trace shows what the ranks did in the slowest steps.";
constexpr char kAboutSteps[] =
    "lockstep trace shows what the ranks did in the slowest steps.";
constexpr char kAboutLinks[] =
    "The report has the latencies of the operations, and lockstep doctor "
    "measures the links. Several batches a step (parts), or gradients that "
    "travel in 16 bits, send less.";

// Returns the first rank of the verdict.
const RankTime* FirstRank(const LostTime& time) {
  const auto found = std::find_if(time.ranks.begin(), time.ranks.end(),
                                  [&](const RankTime& each) {
                                    return !time.verdict.ranks.empty() &&
                                           each.rank == time.verdict.ranks[0];
                                  });
  return found == time.ranks.end() ? nullptr : &*found;
}

// Returns "rank 3 (trainer-1)" or "ranks 1 and 3 (trainer-1)".
std::string SayRanks(const LostTime& time) {
  constexpr size_t kMost = 8;
  std::vector<int64_t> ranks = time.verdict.ranks;
  std::sort(ranks.begin(), ranks.end());
  std::set<std::string> hosts;
  for (const RankTime& rank : time.ranks) {
    if (std::binary_search(ranks.begin(), ranks.end(), rank.rank)) {
      hosts.insert(rank.host);
    }
  }
  std::string text;
  if (ranks.size() == 1) {
    text = absl::StrCat("rank ", ranks[0]);
  } else if (ranks.size() > kMost) {
    const size_t more = ranks.size() - kMost;
    ranks.resize(kMost);
    text = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " and ", more,
                        " more");
  } else {
    const int64_t last = ranks.back();
    ranks.pop_back();
    text = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " and ", last);
  }
  if (hosts.size() != 1 || hosts.begin()->empty()) return text;
  constexpr size_t kMostOfHost = 100;
  return absl::StrCat(text, " (", Printable(*hosts.begin(), kMostOfHost), ")");
}

// Returns where late ranks lose their time, as the end of a sentence.
std::string SayPlace(const LostTime& time) {
  const bool is_one = time.verdict.ranks.size() <= 1;
  switch (time.verdict.place) {
    case Place::kData:
      return is_one ? ", which waits for its data"
                    : ", which wait for their data";
    case Place::kBetween:
      return absl::StrCat(", which ", is_one ? "comes" : "come",
                          " late from between steps (checkpoints, hooks, "
                          "sinks)");
    case Place::kOwn:
      return ", whose own part of the step takes longer";
    case Place::kUnknown:
      break;
  }
  return "";
}

// Returns how many more samples a slow rank has than the others, in brackets.
std::string SayRows(const LostTime& time) {
  constexpr double kMore = 1.1;
  const RankTime* const slow = FirstRank(time);
  if (slow == nullptr || time.verdict.place != Place::kOwn) return "";
  std::vector<double> others;
  for (const RankTime& rank : time.ranks) {
    if (&rank != slow) others.push_back(rank.rows);
  }
  std::sort(others.begin(), others.end());
  const double median = others.empty() ? 0 : others[others.size() / 2];
  if (slow->rows <= median * kMore) return "";
  return absl::StrCat(" (it has ", SayNumber(slow->rows),
                      " samples in a step, and the others have ",
                      SayNumber(median), ")");
}

std::string SaySteps(const RunVerdict& verdict, int64_t all) {
  constexpr size_t kMost = 3;
  std::string text = absl::StrCat(
      "in ", verdict.steps.size(), " of ", WithCommas(all), " steps (",
      verdict.steps.size() == 1 ? "step " : "the worst: ");
  for (size_t i = 0; i < std::min(verdict.steps.size(), kMost); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", verdict.steps[i]);
  }
  return text + ")";
}

std::string SayFew(const VerdictFacts& facts, const LostTime& time) {
  const RunVerdict& verdict = time.verdict;
  std::string steps = SaySteps(verdict, time.steps);
  if (!verdict.ranks.empty()) {
    return absl::StrCat(steps, ", where the others wait for ", SayRanks(time),
                        SayPlace(time));
  }
  if (verdict.place == Place::kData) {
    return steps + ", where ranks wait for data";
  }
  if (!facts.few_in_transfer) return steps;
  return absl::StrCat(
      steps, ", where all ranks are blocked in collectives at the same time: ",
      facts.lacks_ranks
          ? "a rank without records was late, or a link was slow"
          : "a link was slow, or a rank was stopped within a collective");
}

// Returns the beginning of the sentence, and the cause as its end.
std::pair<absl::string_view, std::string> SayCause(const VerdictFacts& facts,
                                                   const LostTime& time) {
  const RunVerdict& verdict = time.verdict;
  switch (verdict.kind) {
    case Kind::kFewSteps:
      return {"A few steps", SayFew(facts, time)};
    case Kind::kSlowRanks:
      return {verdict.ranks.size() == 1 ? "One slow rank" : "Slow ranks",
              absl::StrCat("since the others wait for ", SayRanks(time),
                           SayPlace(time), SayRows(time))};
    case Kind::kRotating:
      return {"Rotating", absl::StrCat("since in each step the others wait for "
                                       "one rank, but not always for the same",
                                       SayPlace(time))};
    case Kind::kData:
      return {"Data-bound", "since ranks wait for data"};
    case Kind::kCommunication:
      return {"Communication-bound",
              "while all ranks are blocked in collectives, also the one that "
              "comes last"};
    default:
      return {"", ""};
  }
}

// Returns what explains part of the lost time, the largest part first.
std::vector<std::pair<double, std::string>> PartsOf(const LostTime& time) {
  const RunVerdict& verdict = time.verdict;
  std::vector<std::pair<double, std::string>> parts = {
      {verdict.of_data, "waits for data"},
      {verdict.of_communication, "transfers"},
      {verdict.of_last_ranks, "the last rank of each step"},
      {verdict.of_few_steps, "a few steps"}};
  if (!verdict.ranks.empty()) {
    parts.emplace_back(verdict.of_slow_ranks,
                       absl::StrCat("rank ", verdict.ranks[0], " alone"));
  }
  std::stable_sort(
      parts.begin(), parts.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  return parts;
}

std::string SayUnexplained(const VerdictFacts& facts, const LostTime& time) {
  constexpr double kLittle = 0.05;
  std::string text =
      absl::StrCat("Unexplained: ", SayShare(time.verdict.lost_share),
                   " of the time is lost, and no cause explains 80 % of that");
  const char* separator = ": ";
  for (const auto& [part, name] : PartsOf(time)) {
    if (part < kLittle) continue;
    absl::StrAppend(&text, std::exchange(separator, ", "), name, " ",
                    SayShare(part));
  }
  return absl::StrCat(
      text, facts.lacks_ranks ? "; a rank without records may be late" : "",
      ".");
}

std::string AdviceFor(const LostTime& time) {
  const RunVerdict& verdict = time.verdict;
  switch (verdict.kind) {
    case Kind::kData:
      return kAboutData;
    case Kind::kCommunication:
      return kAboutLinks;
    case Kind::kSlowRanks:
    case Kind::kRotating:
    case Kind::kFewSteps: {
      const bool names_ranks = !verdict.ranks.empty();
      if (verdict.place == Place::kData) {
        return names_ranks ? kAboutDataOfRanks : kAboutData;
      }
      if (verdict.place == Place::kBetween) return kAboutBetween;
      return names_ranks ? kAboutMachines : kAboutSteps;
    }
    case Kind::kUnexplained: {
      const std::string first = PartsOf(time)[0].second;
      if (first == "waits for data") return kAboutData;
      if (first == "transfers") return kAboutLinks;
      return kAboutSteps;
    }
    default:
      return "";
  }
}

}  // namespace

absl::string_view Name(const RunVerdict& verdict) {
  switch (verdict.kind) {
    case Kind::kTooShort:
      return "too short";
    case Kind::kHealthy:
      return "healthy";
    case Kind::kFewSteps:
      return "few steps";
    case Kind::kSlowRanks:
      return verdict.ranks.size() == 1 ? "one slow rank" : "slow ranks";
    case Kind::kRotating:
      return "rotating";
    case Kind::kData:
      return "data";
    case Kind::kCommunication:
      return "communication";
    case Kind::kUnexplained:
      break;
  }
  return "unexplained";
}

namespace internal_report {

void SayVerdict(const VerdictFacts& facts, LostTime& time) {
  RunVerdict& verdict = time.verdict;
  verdict.advice = AdviceFor(time);
  const bool is_long_between = verdict.between_share >= kHealthyShare;
  const std::string between =
      absl::StrCat(SayShare(verdict.between_share),
                   " of the time passes between steps (checkpoints, hooks, "
                   "sinks)");
  switch (verdict.kind) {
    case Kind::kTooShort:
      verdict.sentence = absl::StrCat(
          "Too short: ", time.steps, time.steps == 1 ? " step" : " steps",
          time.steps == 1 ? " counts" : " count",
          ", and a verdict takes at least ", kLeastSteps, ".");
      return;
    case Kind::kHealthy:
      verdict.sentence = absl::StrCat(
          "Healthy: ", SayShare(verdict.lost_share),
          " of the time is lost to waits for data and in collectives",
          is_long_between ? absl::StrCat(", but ", between) : "", ".");
      if (is_long_between) verdict.advice = kAboutBetween;
      return;
    case Kind::kUnexplained:
      verdict.sentence = SayUnexplained(facts, time);
      break;
    default: {
      const auto [kind, cause] = SayCause(facts, time);
      verdict.sentence = absl::StrCat(
          kind, ": ", SayShare(verdict.lost_share), " of the time is lost, ",
          SayShare(verdict.explained), " of that ", cause, ".");
    }
  }
  if (is_long_between && verdict.place != Place::kBetween) {
    absl::StrAppend(&verdict.advice, " Besides, ", between, ".");
  }
}

}  // namespace internal_report

}  // namespace lockstep
