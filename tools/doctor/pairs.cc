#include "lockstep/tools/doctor/pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
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
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/test_memory.h"

namespace lockstep {
namespace {

constexpr int64_t kSmallBytes = 8;

double SecondsSince(SteadyTime begin) {
  return absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - begin));
}

template <typename T>
T MedianOf(std::vector<T> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Sends a message to the other rank of a pair and receives it back, or does the
// opposite. Returns the seconds for one way.
absl::StatusOr<double> ThereAndBack(Communicator& group, int other,
                                    const Buffer& buffer, absl::Time until) {
  const CallOptions call = CallUntil(until);
  const SteadyTime begin = SteadyNow();
  if (group.rank() < other) {
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Send(buffer, other, call)));
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Recv(buffer, other, call)));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Recv(buffer, other, call)));
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Send(buffer, other, call)));
  }
  return SecondsSince(begin) / 2;
}

absl::StatusOr<PairSpeed> MeasurePair(Communicator& group, int other,
                                      const PairOptions& options,
                                      const TestMemory& memory) {
  const Buffer small = memory.As(DType::kU8, kSmallBytes);
  const Buffer large = memory.As(DType::kU8, options.bytes);
  // The first messages of a pair take longer.
  LOCKSTEP_RETURN_IF_ERROR(
      ThereAndBack(group, other, small, options.until).status());
  LOCKSTEP_RETURN_IF_ERROR(
      ThereAndBack(group, other, large, options.until).status());
  std::vector<double> latencies;
  for (int i = 0; i < options.pings; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double seconds,
                              ThereAndBack(group, other, small, options.until));
    latencies.push_back(seconds);
  }
  PairSpeed speed;
  speed.a = std::min(group.rank(), other);
  speed.b = std::max(group.rank(), other);
  speed.latency = MedianOf(latencies);
  for (int i = 0; i < options.repeats; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double seconds,
                              ThereAndBack(group, other, large, options.until));
    speed.bytes_per_second =
        std::max(speed.bytes_per_second,
                 static_cast<double>(options.bytes) / std::max(seconds, 1e-9));
  }
  return speed;
}

// The medians of the pairs of one kind.
struct Medians {
  size_t pairs = 0;
  double latency = 0;
  double bytes_per_second = 0;
  double of_limit = -1;  // -1 if there is nothing to compare with
  const char* why_not = "no limit is known";
};

Medians MediansOf(const std::vector<PairSpeed>& pairs, bool is_local) {
  Medians medians;
  std::vector<double> latencies, speeds, shares;
  for (const PairSpeed& pair : pairs) {
    if (pair.is_local != is_local) continue;
    latencies.push_back(pair.latency);
    speeds.push_back(pair.bytes_per_second);
    if (!pair.has_processors) {
      medians.why_not = "ranks share processors";
    } else if (pair.limit > 0) {
      shares.push_back(pair.bytes_per_second / pair.limit);
    }
  }
  medians.pairs = speeds.size();
  if (speeds.empty()) return medians;
  medians.latency = MedianOf(latencies);
  medians.bytes_per_second = MedianOf(speeds);
  if (!shares.empty()) medians.of_limit = MedianOf(shares);
  return medians;
}

bool IsSlow(const PairSpeed& pair, const Medians& medians) {
  // Where there are one or two pairs, none is an exception.
  constexpr size_t kFewest = 3;
  return medians.pairs >= kFewest && pair.has_processors &&
         (pair.bytes_per_second < medians.bytes_per_second / 2 ||
          pair.latency > 4 * medians.latency);
}

// Returns "12.34 us, 4.56 GB/s (37 % of ...)".
std::string Describe(const Medians& medians, const char* limit) {
  return absl::StrFormat(
      "%.4g us, %.3g GB/s (%s)", medians.latency * 1e6,
      medians.bytes_per_second / 1e9,
      medians.of_limit < 0
          ? absl::StrCat("not judged: ", medians.why_not)
          : absl::StrFormat("%.0f %% of %s", medians.of_limit * 100, limit));
}

// Returns "rank 3" if it is one of each of the slow pairs, and "" otherwise.
std::string RankOfAll(const std::vector<PairSpeed>& slow) {
  constexpr size_t kFewest = 2;
  if (slow.size() < kFewest) return "";
  std::map<int, size_t> times;
  for (const PairSpeed& pair : slow) {
    ++times[pair.a];
    ++times[pair.b];
  }
  for (const auto& [rank, count] : times) {
    if (count == slow.size()) return absl::StrCat("rank ", rank);
  }
  return "";
}

}  // namespace

int RoundsOf(int size) { return size % 2 == 0 ? size - 1 : size; }

int RoundOf(const PairSpeed& pair, int size) {
  const int circle = RoundsOf(size);
  return (pair.a + (pair.b == circle ? pair.a : pair.b)) % circle;
}

int PartnerIn(int round, int rank, int size) {
  // The ranks but the last stand in a circle of odd size, in which each round
  // mirrors them. The one that is its own mirror image is paired with the
  // last. If the number of ranks is odd, that one does not exist, and its
  // partner pauses.
  const int circle = RoundsOf(size);
  int partner;
  if (rank == circle) {
    // 2 * partner = round, in the circle.
    partner = static_cast<int>(int64_t{round} * ((circle + 1) / 2) % circle);
  } else {
    partner = (round - rank % circle + circle) % circle;
    if (partner == rank) partner = circle;
  }
  return partner < size ? partner : -1;
}

std::vector<int> ChooseRounds(int size, int most_partners) {
  const int all = size < 2 ? 0 : RoundsOf(size);
  const int count = std::min(all, most_partners);
  std::vector<int> rounds;
  for (int i = 0; i < count; ++i) {
    rounds.push_back(static_cast<int>(int64_t{i} * all / count));
  }
  return rounds;
}

absl::StatusOr<std::vector<PairSpeed>> MeasurePairs(
    Communicator& group, const std::vector<int>& rounds,
    const PairOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto memory,
      TestMemory::Make(group, options.bytes, options.nccl, options.until));
  std::vector<PairSpeed> speeds;
  absl::Duration needed;  // by a round, as the last one has taken
  for (const int round : rounds) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const bool goes_on,
        AnswerOfRankZero(group.rank() != 0 || options.goes_on(needed), group,
                         *memory, options.until));
    if (!goes_on) break;
    const SteadyTime begin = SteadyNow();
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier(CallUntil(options.until))));
    const int other = PartnerIn(round, group.rank(), group.size());
    if (other < 0) continue;  // It has no partner.
    LOCKSTEP_ASSIGN_OR_RETURN(const PairSpeed speed,
                              MeasurePair(group, other, options, *memory));
    if (group.rank() < other) speeds.push_back(speed);
    needed = absl::FromChrono(SteadyNow() - begin);
  }
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier(CallUntil(options.until))));
  return speeds;
}

absl::StatusOr<double> MeasureCopies(Communicator& group, absl::Time until) {
  constexpr size_t kBytes = size_t{4} << 20;
  constexpr int kRepeats = 20;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier(CallUntil(until))));
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const SteadyTime begin = SteadyNow();
    std::memcpy(to.data(), from.data(), kBytes);
    seconds.push_back(SecondsSince(begin));
  }
  // The copies are used, so that the compiler keeps them.
  if (to.back() != from.back()) return absl::InternalError("a copy differs");
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier(CallUntil(until))));
  return static_cast<double>(kBytes) / std::max(MedianOf(seconds), 1e-9);
}

void TakeBetter(const std::vector<PairSpeed>& again,
                std::vector<PairSpeed>& pairs) {
  std::map<std::pair<int, int>, const PairSpeed*> found;
  for (const PairSpeed& pair : again) found[{pair.a, pair.b}] = &pair;
  for (PairSpeed& pair : pairs) {
    const auto same = found.find({pair.a, pair.b});
    if (same == found.end()) continue;
    pair.latency = std::min(pair.latency, same->second->latency);
    pair.bytes_per_second =
        std::max(pair.bytes_per_second, same->second->bytes_per_second);
  }
}

std::vector<PairSpeed> SlowPairs(const std::vector<PairSpeed>& pairs) {
  const Medians local = MediansOf(pairs, true), far = MediansOf(pairs, false);
  std::vector<PairSpeed> slow;
  for (const PairSpeed& pair : pairs) {
    if (IsSlow(pair, pair.is_local ? local : far)) slow.push_back(pair);
  }
  return slow;
}

Finding JudgePairs(const std::string& backend,
                   const std::vector<PairSpeed>& pairs) {
  // Data go through memory several times, but once through a link.
  constexpr double kLeastOfCopies = 0.05, kLeastOfLink = 0.5;
  constexpr size_t kMostNamed = 4;
  Finding finding;
  finding.check = absl::StrCat("pairs, ", backend);
  const Medians local = MediansOf(pairs, true), far = MediansOf(pairs, false);
  std::vector<std::string> texts;
  if (local.pairs > 0) {
    texts.push_back(
        absl::StrCat("on one machine ", Describe(local, "copies of memory")));
  }
  if (far.pairs > 0) {
    texts.push_back(
        absl::StrCat("between machines ", Describe(far, "the link")));
  }
  finding.text = absl::StrJoin(texts, "; ");
  const std::vector<PairSpeed> slow = SlowPairs(pairs);
  if (!slow.empty()) {
    finding.verdict = Verdict::kWarning;
    std::vector<std::string> named;
    for (size_t i = 0; i < std::min(slow.size(), kMostNamed); ++i) {
      named.push_back(absl::StrFormat(
          "%d and %d (%.4g us, %.3g GB/s)", slow[i].a, slow[i].b,
          slow[i].latency * 1e6, slow[i].bytes_per_second / 1e9));
    }
    const std::string all = RankOfAll(slow);
    absl::StrAppend(
        &finding.text, "; slower than the others: ranks ",
        absl::StrJoin(named, ", "),
        slow.size() > kMostNamed
            ? absl::StrCat(" and ", slow.size() - kMostNamed, " more pairs")
            : "",
        all.empty() ? "" : absl::StrCat(", always with ", all));
    const bool is_far =
        std::any_of(slow.begin(), slow.end(),
                    [](const PairSpeed& p) { return !p.is_local; });
    finding.remedy = absl::StrCat(
        "measure again, since another program may have used the ",
        is_far ? "network; if the same pairs are slow, look at the cables and "
                 "the switches that they have in common"
               : "processors; if the same pairs are slow, look at the memory "
                 "and the processors that they have in common");
    return finding;
  }
  const bool is_local_slow =
      local.of_limit >= 0 && local.of_limit < kLeastOfCopies;
  const bool is_far_slow = far.of_limit >= 0 && far.of_limit < kLeastOfLink;
  if (is_local_slow || is_far_slow) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        is_far_slow
            ? "look whether other programs use the link, and whether the job "
              "uses the right one (world.interface)"
            : "look whether other programs use the processors, and whether "
              "each rank has one (processors above)";
  } else if (local.of_limit < 0 && far.of_limit < 0) {
    finding.verdict = Verdict::kNotJudged;
  }
  return finding;
}

std::string Encode(const std::vector<PairSpeed>& pairs) {
  return absl::StrJoin(
      pairs, "\n", [](std::string* out, const PairSpeed& pair) {
        absl::StrAppend(out, pair.a, " ", pair.b, " ", pair.latency, " ",
                        pair.bytes_per_second);
      });
}

absl::StatusOr<std::vector<PairSpeed>> DecodePairs(const std::string& text) {
  std::vector<PairSpeed> pairs;
  for (const auto& line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    PairSpeed pair;
    if (words.size() != 4 || !absl::SimpleAtoi(words[0], &pair.a) ||
        !absl::SimpleAtoi(words[1], &pair.b) ||
        !absl::SimpleAtod(words[2], &pair.latency) ||
        !absl::SimpleAtod(words[3], &pair.bytes_per_second)) {
      return absl::InternalError("a rank has sent pairs that can't be read");
    }
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace lockstep
