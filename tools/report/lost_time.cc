#include "lockstep/tools/report/lost_time.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/report/step_loss.h"
#include "lockstep/tools/report/verdict_text.h"

namespace lockstep {
namespace {

using ::lockstep::internal_report::CommonSteps;
using ::lockstep::internal_report::Lateness;
using ::lockstep::internal_report::SayVerdict;
using ::lockstep::internal_report::StepLoss;
using ::lockstep::internal_report::VerdictFacts;

// Where ranks are late in turns, none of them explains more than this.
constexpr double kMostOfOneInTurns = 2.0 / 3;

template <typename T>
T MedianOf(std::vector<T> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the part of the time for which all ranks are blocked that transfers
// take, from the steps of which all ranks have each collective. If a step has
// several, and each waits for another rank, that is less than 1.
double TransferShare(const std::map<int64_t, const RankRun*>& ranks) {
  std::map<int64_t, std::vector<const CollectiveTimes*>> steps;
  for (const auto& [rank, run] : ranks) {
    for (const CollectiveTimes& times : run->collectives) {
      steps[times.step].push_back(&times);
    }
  }
  double least_of_each = 0;
  double least_of_sums = 0;
  for (const auto& [step, times] : steps) {
    const size_t count = times[0]->took.size();
    const bool are_alike =
        times.size() == ranks.size() &&
        std::all_of(times.begin(), times.end(),
                    [&](auto* each) { return each->took.size() == count; });
    if (!are_alike) continue;
    std::vector<double> sums(times.size());
    for (size_t i = 0; i < count; ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t rank = 0; rank < times.size(); ++rank) {
        const double took = times[rank]->took[i];
        least = std::min(least, took);
        sums[rank] += took;
      }
      least_of_each += least;
    }
    least_of_sums += *std::min_element(sums.begin(), sums.end());
  }
  return least_of_sums > 0 ? least_of_each / least_of_sums : 1;
}

// The sums of what some steps have lost, and would have lost otherwise.
struct Losses {
  explicit Losses(size_t ranks) : without_slow(ranks) {}

  void Add(const StepLoss& step) {
    lost += step.lost();
    without_data += step.WithoutData();
    without_transfers += step.WithoutTransfers();
    if (!step.has_last()) return;
    const double won = step.WithoutLast();
    without_slow[step.last()] += won;
    without_last += won;
    const Lateness late = step.LatenessOf(step.last());
    lateness.all += late.all;
    lateness.for_data += late.for_data;
    lateness.between += late.between;
    lateness.own += late.own;
  }

  // Returns the rank without which most would not have been lost.
  size_t slowest() const {
    return static_cast<size_t>(
        std::max_element(without_slow.begin(), without_slow.end()) -
        without_slow.begin());
  }

  // Returns which part of the loss this is.
  double Part(double won) const {
    return lost > 0 ? std::clamp(won / lost, 0.0, 1.0) : 0;
  }
  bool Explains(double won) const { return Part(won) >= kExplainedShare; }

  double lost = 0;
  double without_data = 0, without_transfers = 0, without_last = 0;
  std::vector<double> without_slow;  // a rank each
  Lateness lateness;                 // of the last ranks
};

RunVerdict::Place PlaceOf(const Lateness& late) {
  if (late.for_data > late.all / 2) return RunVerdict::Place::kData;
  if (late.between > late.all / 2) return RunVerdict::Place::kBetween;
  if (late.own > late.all / 2) return RunVerdict::Place::kOwn;
  return RunVerdict::Place::kUnknown;
}

// Finds the verdict from all steps.
// Thread-safety: thread-compatible.
class Judge {
 public:
  Judge(const std::map<int64_t, const RankRun*>& runs, int64_t size)
      : runs_(runs), all_(runs.size()), few_(runs.size()) {
    facts_.lacks_ranks = static_cast<int64_t>(runs.size()) < size;
  }

  LostTime Find() {
    transfer_share_ = TransferShare(runs_);
    AddSteps();
    SortSteps();
    JudgeSteps();
    std::stable_sort(
        time_.ranks.begin(), time_.ranks.end(),
        [](const auto& a, const auto& b) { return a.late > b.late; });
    SayVerdict(facts_, time_);
    return std::move(time_);
  }

 private:
  bool has_others() const { return runs_.size() > 1; }

  void AddSteps() {
    std::vector<std::vector<float>> whole(runs_.size());
    size_t most = 0;
    for (const auto& [rank, run] : runs_) {
      RankTime& added = time_.ranks.emplace_back();
      added.rank = rank;
      added.host = run->host;
      most = std::max(most, run->steps.size());
      if (run->read_steps == 0) continue;
      added.read = run->read_seconds / static_cast<double>(run->read_steps);
    }
    StepLoss loss;
    for (CommonSteps steps(runs_); steps.Next();) {
      loss.Look(steps.row(), transfer_share_);
      all_.Add(loss);
      ++time_.steps;
      LostStep& step = worst_.emplace_back();
      step.step = steps.step();
      step.lost = loss.lost();
      if (loss.has_last()) step.last = time_.ranks[loss.last()].rank;
      for (size_t i = 0; i < whole.size(); ++i) {
        const StepTimes& times = *steps.row()[i];
        AddTo(time_.ranks[i], times, loss, i);
        whole[i].push_back(times.whole + times.between);
        step.longest = std::max<double>(step.longest, whole[i].back());
      }
      if (loss.has_last()) ++time_.ranks[loss.last()].times_last;
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      RankTime& rank = time_.ranks[i];
      rank.rows /= static_cast<double>(std::max<int64_t>(time_.steps, 1));
      rank.median_step = MedianOf(std::move(whole[i]));
    }
    time_.left_out =
        std::max<int64_t>(static_cast<int64_t>(most) - time_.steps - 1, 0);
  }

  void AddTo(RankTime& rank, const StepTimes& step, const StepLoss& loss,
             size_t at) const {
    rank.whole += double{step.whole} + step.between;
    rank.for_data += step.for_data;
    rank.for_others += step.blocked - loss.in_transfer(at);
    rank.in_transfer += loss.in_transfer(at);
    rank.between += step.between;
    rank.own +=
        std::max(double{step.whole} - step.for_data - step.blocked, 0.0);
    if (step.rows > 0) rank.rows += step.rows;
    if (!has_others()) return;
    const Lateness late = loss.LatenessOf(at);
    rank.late += late.all;
    rank.late_for_data += late.for_data;
    rank.late_between += late.between;
    rank.late_own += late.own;
  }

  void SortSteps() {
    std::stable_sort(
        worst_.begin(), worst_.end(),
        [](const auto& a, const auto& b) { return a.lost > b.lost; });
    time_.worst.assign(
        worst_.begin(),
        worst_.begin() + static_cast<std::ptrdiff_t>(
                             std::min(worst_.size(), LostTime::kMostWorst)));
  }

  void JudgeSteps() {
    RunVerdict& verdict = time_.verdict;
    double whole = 0;
    double between = 0;
    for (const RankTime& rank : time_.ranks) {
      whole += rank.whole;
      between += rank.between;
    }
    if (time_.steps < kLeastSteps || whole <= 0) return;
    verdict.lost_share = all_.lost / whole;
    verdict.between_share = between / whole;
    verdict.of_data = all_.Part(all_.without_data);
    verdict.of_communication = all_.Part(all_.without_transfers);
    verdict.of_last_ranks = all_.Part(all_.without_last);
    const std::vector<int64_t> few = FewSteps();
    const std::vector<size_t> slow = SlowRanks();
    if (verdict.lost_share < kHealthyShare) {
      verdict.kind = RunVerdict::Kind::kHealthy;
      return;
    }
    const double of_one =
        has_others() ? all_.Part(all_.without_slow[all_.slowest()]) : 0;
    if (verdict.of_few_steps >= kExplainedShare) {
      JudgeFew(few);
    } else if (verdict.of_slow_ranks >= kExplainedShare) {
      JudgeSlow(slow);
    } else if (verdict.of_last_ranks >= kExplainedShare &&
               of_one < kMostOfOneInTurns) {
      verdict.kind = RunVerdict::Kind::kRotating;
      verdict.explained = verdict.of_last_ranks;
      verdict.place = PlaceOf(all_.lateness);
    } else if (verdict.of_data >= kExplainedShare) {
      verdict.kind = RunVerdict::Kind::kData;
      verdict.explained = verdict.of_data;
    } else if (verdict.of_communication >= kExplainedShare &&
               !facts_.lacks_ranks) {
      verdict.kind = RunVerdict::Kind::kCommunication;
      verdict.explained = verdict.of_communication;
    } else {
      verdict.kind = RunVerdict::Kind::kUnexplained;
      if (verdict.of_slow_ranks > 0.05) SetRanks(slow);
    }
  }

  void SetRanks(const std::vector<size_t>& slow) {
    for (const size_t rank : slow) {
      time_.verdict.ranks.push_back(time_.ranks[rank].rank);
    }
  }

  // Returns the steps that lose most, as few as explain the loss, or as many as
  // count as few. If they were not slow, they would lose as much as the median.
  std::vector<int64_t> FewSteps() {
    // Three of a hundred are a few, and three of ten are not.
    const auto count = static_cast<double>(worst_.size());
    const auto most = static_cast<size_t>(
        std::max({1.0, count * kFewShare, std::min(3.0, count / 10)}));
    const double median = worst_[worst_.size() / 2].lost;
    double won = 0;
    std::vector<int64_t> few;
    while (few.size() < most && !all_.Explains(won)) {
      won += worst_[few.size()].lost - median;
      few.push_back(worst_[few.size()].step);
    }
    time_.verdict.of_few_steps = all_.Part(won);
    return few;
  }

  // Looks at the steps that lose most once more, by themselves.
  void JudgeFew(const std::vector<int64_t>& few) {
    RunVerdict& verdict = time_.verdict;
    verdict.kind = RunVerdict::Kind::kFewSteps;
    verdict.explained = verdict.of_few_steps;
    verdict.steps = few;
    std::vector<int64_t> sorted = few;
    std::sort(sorted.begin(), sorted.end());
    StepLoss loss;
    for (CommonSteps steps(runs_); steps.Next();) {
      loss.Look(steps.row(), transfer_share_);
      if (std::binary_search(sorted.begin(), sorted.end(), steps.step())) {
        few_.Add(loss);
      }
    }
    const size_t slowest = few_.slowest();
    if (few_.Explains(few_.without_slow[slowest])) SetRanks({slowest});
    if (few_.Explains(few_.without_last)) {
      verdict.place = PlaceOf(few_.lateness);
    } else if (few_.Explains(few_.without_data)) {
      verdict.place = RunVerdict::Place::kData;
    }
    facts_.few_in_transfer = few_.Explains(few_.without_transfers);
  }

  // ---- Slow ranks.

  // Returns sets of ranks that may be the cause, the smallest first: those that
  // are late most, and those of the hosts that are late most.
  std::vector<std::vector<size_t>> SetsOfRanks() const {
    constexpr size_t kMostRanks = 16;
    constexpr size_t kMostHosts = 4;
    std::vector<size_t> late(time_.ranks.size());
    for (size_t i = 0; i < late.size(); ++i) late[i] = i;
    std::stable_sort(late.begin(), late.end(), [this](size_t a, size_t b) {
      return time_.ranks[a].late > time_.ranks[b].late;
    });
    std::vector<std::vector<size_t>> sets;
    const size_t half = late.size() / 2;
    for (size_t size = 2; size <= std::min(half, kMostRanks); ++size) {
      sets.emplace_back(late.begin(),
                        late.begin() + static_cast<std::ptrdiff_t>(size));
    }
    std::vector<std::string> hosts;
    for (const size_t rank : late) {
      const std::string& host = time_.ranks[rank].host;
      if (hosts.size() == kMostHosts ||
          std::find(hosts.begin(), hosts.end(), host) != hosts.end()) {
        continue;
      }
      hosts.push_back(host);
      std::vector<size_t> of_host;
      for (const size_t each : late) {
        if (time_.ranks[each].host == host) of_host.push_back(each);
      }
      if (of_host.size() > 1 && of_host.size() <= half) {
        sets.push_back(std::move(of_host));
      }
    }
    return sets;
  }

  // Returns the ranks that explain the loss, or else the one that explains
  // most.
  std::vector<size_t> SlowRanks() {
    if (!has_others()) return {};
    const size_t slowest = all_.slowest();
    double& part = time_.verdict.of_slow_ranks;
    part = all_.Part(all_.without_slow[slowest]);
    if (part >= kExplainedShare) return {slowest};
    const std::vector<std::vector<size_t>> sets = SetsOfRanks();
    std::vector<std::vector<bool>> are_in(
        sets.size(), std::vector<bool>(time_.ranks.size()));
    for (size_t i = 0; i < sets.size(); ++i) {
      for (const size_t rank : sets[i]) are_in[i][rank] = true;
    }
    std::vector<double> won(sets.size());
    StepLoss loss;
    for (CommonSteps steps(runs_); steps.Next();) {
      loss.Look(steps.row(), transfer_share_);
      for (size_t i = 0; i < sets.size(); ++i) {
        won[i] += loss.WithoutSet(are_in[i]);
      }
    }
    for (size_t i = 0; i < sets.size(); ++i) {
      if (!all_.Explains(won[i])) continue;
      part = all_.Part(won[i]);
      return sets[i];
    }
    return {slowest};
  }

  void JudgeSlow(const std::vector<size_t>& slow) {
    RunVerdict& verdict = time_.verdict;
    Lateness late;
    std::vector<double> reads;
    std::vector<bool> is_slow(time_.ranks.size());
    for (const size_t rank : slow) {
      const RankTime& time = time_.ranks[rank];
      late.all += time.late;
      late.for_data += time.late_for_data;
      late.between += time.late_between;
      late.own += time.late_own;
      reads.push_back(time.read);
      is_slow[rank] = true;
    }
    verdict.explained = verdict.of_slow_ranks;
    verdict.place = PlaceOf(late);
    SetRanks(slow);
    std::vector<double> others;
    for (size_t i = 0; i < is_slow.size(); ++i) {
      if (!is_slow[i]) others.push_back(time_.ranks[i].read);
    }
    // If the workers of the others take about as long, all of them are slow.
    constexpr double kAbout = 0.8;
    const double read = MedianOf(std::move(reads));
    if (verdict.place == RunVerdict::Place::kData && read > 0 &&
        MedianOf(std::move(others)) >= kAbout * read) {
      verdict.kind = RunVerdict::Kind::kData;
      verdict.place = RunVerdict::Place::kUnknown;
    } else {
      verdict.kind = RunVerdict::Kind::kSlowRanks;
    }
  }

  const std::map<int64_t, const RankRun*>& runs_;
  VerdictFacts facts_;
  double transfer_share_ = 1;
  Losses all_, few_;
  std::vector<LostStep> worst_;  // all steps that count
  LostTime time_;
};

}  // namespace

LostTime FindLostTime(const std::map<int64_t, const RankRun*>& ranks,
                      int64_t size) {
  return Judge(ranks, size).Find();
}

}  // namespace lockstep
