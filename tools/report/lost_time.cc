#include "lockstep/tools/report/lost_time.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {
namespace {

// ---- Steps that all ranks have.

bool IsTime(float seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool HasTimes(const StepTimes& step) {
  return IsTime(step.whole) && IsTime(step.between) && IsTime(step.for_data) &&
         IsTime(step.blocked);
}

// Walks through the steps that all ranks have, without the first one.
// Thread-safety: thread-compatible.
class CommonSteps {
 public:
  explicit CommonSteps(const std::map<int64_t, const RankRun*>& ranks) {
    for (const auto& [rank, run] : ranks) steps_.push_back(&run->steps);
    places_.resize(steps_.size());
    row_.resize(steps_.size());
    if (FindNext()) Pass();
  }

  // Goes to the next step of which all ranks have the times. Returns false if
  // there is none.
  bool Next() {
    while (FindNext()) {
      const bool is_whole = std::all_of(
          row_.begin(), row_.end(), [](auto* step) { return HasTimes(*step); });
      Pass();
      if (is_whole) return true;
    }
    return false;
  }

  // The times of this step, in the order of ranks.
  const std::vector<const StepTimes*>& row() const { return row_; }

 private:
  bool FindNext() {
    if (steps_.empty()) return false;
    int64_t wanted = std::numeric_limits<int64_t>::min();
    for (size_t at = 0, same = 0; same < steps_.size();
         at = (at + 1) % steps_.size()) {
      const std::vector<StepTimes>& steps = *steps_[at];
      size_t& place = places_[at];
      while (place < steps.size() && steps[place].step < wanted) ++place;
      if (place == steps.size()) return false;
      same = steps[place].step == wanted ? same + 1 : 1;
      wanted = steps[place].step;
      row_[at] = &steps[place];
    }
    return true;
  }

  void Pass() {
    for (size_t& place : places_) ++place;
  }

  std::vector<const std::vector<StepTimes>*> steps_;
  std::vector<size_t> places_;  // of the next step that is not passed
  std::vector<const StepTimes*> row_;
};

// ---- One step.

// Some values of one kind, a rank each.
// Thread-safety: thread-compatible.
class Values {
 public:
  void Assign(const std::vector<double>& values) {
    order_.resize(values.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(),
              [&values](size_t a, size_t b) { return values[a] < values[b]; });
    sorted_.resize(values.size());
    places_.resize(values.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      sorted_[i] = values[order_[i]];
      places_[order_[i]] = i;
    }
  }

  // Returns the median of all values but one.
  // Requires: there are at least two.
  double MedianWithout(size_t one) const {
    const size_t left = sorted_.size() - 1;
    const auto at = [&](size_t i) {
      return sorted_[i < places_[one] ? i : i + 1];
    };
    return (at((left - 1) / 2) + at(left / 2)) / 2;
  }

 private:
  std::vector<double> sorted_;
  std::vector<size_t> order_, places_;
};

// What a step lost, and what it would have lost otherwise.
// Thread-safety: thread-compatible.
class StepLoss {
 public:
  // `row` has the times of all ranks.
  void Look(const std::vector<const StepTimes*>& row) {
    const size_t ranks = row.size();
    for (auto* each : {&data_, &blocked_, &between_}) each->resize(ranks);
    for (size_t i = 0; i < ranks; ++i) {
      data_[i] = row[i]->for_data;
      blocked_[i] = row[i]->blocked;
      between_[i] = row[i]->between;
    }
    const auto last = std::min_element(blocked_.begin(), blocked_.end());
    last_ = static_cast<size_t>(last - blocked_.begin());
    least_ = *last;
    second_ = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < ranks; ++i) {
      if (i != last_) second_ = std::min(second_, blocked_[i]);
    }
    lost_ = std::accumulate(data_.begin(), data_.end(), 0.0) +
            std::accumulate(blocked_.begin(), blocked_.end(), 0.0);
    if (ranks < 2) return;
    sorted_data_.Assign(data_);
    sorted_blocked_.Assign(blocked_);
    sorted_between_.Assign(between_);
    FindLateness();
  }

  size_t ranks() const { return data_.size(); }
  double lost() const { return lost_; }
  // The rank that came last, and the time that all ranks were blocked.
  size_t last() const { return last_; }
  double least_blocked() const { return least_; }

  // For how long the second to last rank has waited for the last one, and the
  // parts of that as in RankTime.
  double late() const { return ranks() < 2 ? 0 : second_ - least_; }
  double late_for_data() const { return late_for_data_; }
  double late_between() const { return late_between_; }

  // The following functions return how much less would have been lost.

  double WithoutData() const {
    // A rank comes by its wait for data earlier. Those that come before the
    // last one wait for it.
    double last_comes = -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (size_t i = 0; i < ranks(); ++i) {
      const double comes = -blocked_[i] - data_[i];
      last_comes = std::max(last_comes, comes);
      sum += comes;
    }
    const auto count = static_cast<double>(ranks());
    return lost_ - (count * last_comes - sum + count * least_);
  }

  double WithoutCommunication() const {
    return static_cast<double>(ranks()) * least_;
  }

  // The rank that comes last would come as the median of the others does. If
  // another rank were faster, it would wait for longer, and nothing would be
  // won. Requires: there are at least two ranks.
  double WithoutSlowLast() const {
    const double for_data =
        std::max(data_[last_] - sorted_data_.MedianWithout(last_), 0.0);
    const double waits = sorted_blocked_.MedianWithout(last_) - least_ - late();
    return static_cast<double>(ranks() - 1) * late() + for_data - waits;
  }

 private:
  void FindLateness() {
    const auto over = [&](const Values& sorted,
                          const std::vector<double>& values) {
      return std::max(values[last_] - sorted.MedianWithout(last_), 0.0);
    };
    late_for_data_ = std::min(over(sorted_data_, data_), late());
    late_between_ =
        std::min(over(sorted_between_, between_), late() - late_for_data_);
  }

  std::vector<double> data_, blocked_, between_;
  Values sorted_data_, sorted_blocked_, sorted_between_;
  double lost_ = 0;
  size_t last_ = 0;
  double least_ = 0, second_ = 0;
  double late_for_data_ = 0, late_between_ = 0;
};

// ---- Some steps.

// What some steps lost, and would have lost otherwise.
struct Losses {
  explicit Losses(size_t ranks) : without_slow(ranks) {}

  void Add(const StepLoss& step) {
    ++steps;
    lost += step.lost();
    without_data += step.WithoutData();
    without_communication += step.WithoutCommunication();
    if (step.ranks() < 2) return;
    without_slow[step.last()] += step.WithoutSlowLast();
    without_last += step.WithoutSlowLast();
    late += step.late();
    late_for_data += step.late_for_data();
    late_between += step.late_between();
  }

  // Returns the rank without which most would not have been lost.
  size_t slow() const {
    const auto most =
        std::max_element(without_slow.begin(), without_slow.end());
    return static_cast<size_t>(most - without_slow.begin());
  }

  // Returns which part of the loss this is.
  double Part(double won) const { return lost > 0 ? won / lost : 0; }
  bool Explains(double won) const { return Part(won) >= kExplainedShare; }

  int64_t steps = 0;
  double lost = 0;
  double without_data = 0, without_communication = 0, without_last = 0;
  std::vector<double> without_slow;                      // a rank each
  double late = 0, late_for_data = 0, late_between = 0;  // of the last ranks
};

RunVerdict::Place PlaceOf(double late, double for_data, double between) {
  if (for_data > late / 2) return RunVerdict::Place::kData;
  if (between > late / 2) return RunVerdict::Place::kBetween;
  if (late - for_data - between > late / 2) return RunVerdict::Place::kOwn;
  return RunVerdict::Place::kUnknown;
}

struct LossOfStep {
  int64_t step = 0;
  double lost = 0;
};

// Returns the worst steps, and how much less would have been lost if they had
// lost as much as the median of all. They are as few as explain the loss, or as
// many as count as few.
std::vector<LossOfStep> WorstSteps(std::vector<LossOfStep> steps, double lost,
                                   double& won) {
  // Three of a hundred are a few, and three of ten are not.
  const auto count = static_cast<double>(steps.size());
  const auto most = static_cast<size_t>(
      std::max({1.0, count * kFewShare, std::min(3.0, count / 10)}));
  std::stable_sort(
      steps.begin(), steps.end(),
      [](const auto& a, const auto& b) { return a.lost > b.lost; });
  const double median = steps[steps.size() / 2].lost;
  won = 0;
  size_t few = 0;
  while (few < most && won < lost * kExplainedShare) {
    won += steps[few++].lost - median;
  }
  steps.resize(few);
  return steps;
}

// ---- Words.

std::string Percent(double share) {
  if (share > 0 && share < 0.01) return "less than 1 %";
  return absl::StrCat(std::lround(share * 100), " %");
}

std::string SayRank(const RankTime& rank) {
  return absl::StrCat(
      "rank ", rank.rank,
      rank.host.empty() ? ""
                        : absl::StrCat(" (", absl::CHexEscape(rank.host), ")"));
}

// Returns where a late rank loses its time, as the end of a sentence.
absl::string_view SayPlace(RunVerdict::Place place) {
  switch (place) {
    case RunVerdict::Place::kData:
      return ", which waits for its data";
    case RunVerdict::Place::kBetween:
      return ", which comes late from between its steps (checkpoints, hooks, "
             "sinks)";
    case RunVerdict::Place::kOwn:
      return ", whose own part of the step takes longer";
    case RunVerdict::Place::kUnknown:
      break;
  }
  return "";
}

std::string SaySteps(const RunVerdict& verdict, int64_t all) {
  constexpr size_t kMost = 3;
  std::string text =
      absl::StrCat("in ", verdict.steps.size(), " of ", all, " steps (",
                   verdict.steps.size() == 1 ? "step " : "the worst: ");
  for (size_t i = 0; i < std::min(verdict.steps.size(), kMost); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", verdict.steps[i]);
  }
  return text + ")";
}

constexpr char kAdviceOnData[] =
    "More workers or more batches ahead (num_workers, prefetch_batches) may "
    "help. The slowest samples are listed below, and lockstep bench loader "
    "shows "
    "where the time of a loader goes.";
constexpr char kAdviceOnDataOfRank[] =
    "Look at where its data lies (its disk, its network). Its slowest samples "
    "are listed below, and lockstep bench loader shows on its machine where "
    "the "
    "time of its loader goes.";
constexpr char kAdviceOnRank[] =
    "Compare its machine with the others: lockstep doctor examines each, and "
    "lockstep trace shows what the rank did in the slowest steps.";
constexpr char kAdviceOnLinks[] =
    "The latencies of the operations are listed below, and lockstep doctor "
    "measures the links. Several batches a step (parts), or gradients that "
    "travel in 16 bits, need less of them.";

std::string AdviceFor(const RunVerdict& verdict) {
  switch (verdict.kind) {
    case RunVerdict::Kind::kData:
      return kAdviceOnData;
    case RunVerdict::Kind::kCommunication:
      return kAdviceOnLinks;
    case RunVerdict::Kind::kOneRank:
    case RunVerdict::Kind::kRotating:
    case RunVerdict::Kind::kFewSteps:
      if (verdict.place == RunVerdict::Place::kData) {
        return verdict.rank < 0 ? kAdviceOnData : kAdviceOnDataOfRank;
      }
      if (verdict.place == RunVerdict::Place::kBetween) {
        return "Save checkpoints less often, or do less in hooks and sinks.";
      }
      return kAdviceOnRank;
    default:
      return "";
  }
}

// Returns what the cause does, as the end of "... is lost, ".
std::string SayCause(const RunVerdict& verdict, const LostTime& time,
                     bool few_in_transfer) {
  const auto slow = std::find_if(
      time.ranks.begin(), time.ranks.end(),
      [&](const RankTime& each) { return each.rank == verdict.rank; });
  switch (verdict.kind) {
    case RunVerdict::Kind::kFewSteps: {
      std::string text = SaySteps(verdict, time.steps);
      if (slow != time.ranks.end() && time.ranks.size() > 1) {
        return absl::StrCat(text, ", where the others wait for ",
                            SayRank(*slow), SayPlace(verdict.place));
      }
      if (verdict.place == RunVerdict::Place::kData) {
        return text + ", where ranks wait for data";
      }
      return text + (few_in_transfer
                         ? ", where all ranks are blocked in collectives at "
                           "the same time: a link was slow, or a rank was "
                           "stopped within a collective"
                         : "");
    }
    case RunVerdict::Kind::kOneRank:
      return absl::StrCat("since the others wait for ", SayRank(*slow),
                          SayPlace(verdict.place));
    case RunVerdict::Kind::kRotating:
      return absl::StrCat(
          "since in each step the others wait for one rank, "
          "but not always for the same",
          SayPlace(verdict.place));
    case RunVerdict::Kind::kData:
      return "since ranks wait for data";
    case RunVerdict::Kind::kCommunication:
      return "while all ranks are blocked in collectives, also the one that "
             "comes last";
    default:
      return "";
  }
}

std::string SayUnexplained(const RunVerdict& verdict, bool lacks_ranks) {
  std::string text = absl::StrCat(
      Percent(verdict.lost_share),
      " of the time is lost, and no single cause explains most of that: waits "
      "for data explain ",
      Percent(std::max(verdict.of_data, 0.0)), ", communication ",
      Percent(verdict.of_communication));
  if (verdict.rank >= 0) {
    absl::StrAppend(&text, ", rank ", verdict.rank, " ",
                    Percent(std::max(verdict.of_one_rank, 0.0)));
  }
  absl::StrAppend(
      &text, ", and a few steps ", Percent(std::max(verdict.of_few_steps, 0.0)),
      " of it", lacks_ranks ? "; a rank without records may be late" : "", ".");
  return text;
}

// ---- The whole run.

// Where ranks are late in turns, none of them explains more than this.
constexpr double kMostOfOneInTurns = 2.0 / 3;

// Finds the verdict from all steps.
// Thread-safety: thread-compatible.
class Judge {
 public:
  Judge(const std::map<int64_t, const RankRun*>& ranks, int64_t size)
      : runs_(ranks),
        lacks_ranks_(static_cast<int64_t>(ranks.size()) < size),
        all_(ranks.size()),
        few_(ranks.size()) {}

  LostTime Find() {
    AddSteps();
    time_.verdict = JudgeSteps();
    std::stable_sort(
        time_.ranks.begin(), time_.ranks.end(),
        [](const auto& a, const auto& b) { return a.late > b.late; });
    Say();
    return std::move(time_);
  }

 private:
  void AddSteps() {
    std::vector<std::vector<float>> whole(runs_.size());
    size_t most = 0;
    for (const auto& [rank, run] : runs_) {
      RankTime& added = time_.ranks.emplace_back();
      added.rank = rank;
      added.host = run->host;
      if (run->read_steps > 0) {
        added.read = run->read_seconds / static_cast<double>(run->read_steps);
      }
      most = std::max(most, run->steps.size());
    }
    StepLoss loss;
    for (CommonSteps steps(runs_); steps.Next();) {
      loss.Look(steps.row());
      all_.Add(loss);
      steps_.push_back({steps.row()[0]->step, loss.lost()});
      for (size_t i = 0; i < steps.row().size(); ++i) {
        AddTo(time_.ranks[i], *steps.row()[i], loss.least_blocked());
        whole[i].push_back(steps.row()[i]->whole + steps.row()[i]->between);
      }
      RankTime& last = time_.ranks[loss.last()];
      last.late += loss.late();
      last.late_for_data += loss.late_for_data();
      last.late_between += loss.late_between();
      last.times_last += loss.late() > 0 ? 1 : 0;
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i].empty()) continue;
      const auto middle =
          whole[i].begin() + static_cast<std::ptrdiff_t>(whole[i].size() / 2);
      std::nth_element(whole[i].begin(), middle, whole[i].end());
      time_.ranks[i].median_step = *middle;
    }
    time_.steps = all_.steps;
    time_.left_out =
        std::max<int64_t>(static_cast<int64_t>(most) - all_.steps - 1, 0);
  }

  static void AddTo(RankTime& rank, const StepTimes& step, double transfer) {
    const double blocked = step.blocked;
    rank.whole += double{step.whole} + step.between;
    rank.for_data += step.for_data;
    rank.for_others += blocked - transfer;
    rank.in_transfer += transfer;
    rank.between += step.between;
    rank.own += std::max(step.whole - step.for_data - blocked, 0.0);
  }

  RunVerdict JudgeSteps() {
    RunVerdict verdict;
    double whole = 0;
    for (const RankTime& rank : time_.ranks) whole += rank.whole;
    if (time_.steps < kLeastSteps || whole <= 0) return verdict;
    verdict.lost_share = all_.lost / whole;
    double won_in_few = 0;
    const std::vector<LossOfStep> worst =
        WorstSteps(steps_, all_.lost, won_in_few);
    const bool has_others = time_.ranks.size() > 1;
    const size_t slow = all_.slow();
    const double of_slow = all_.without_slow[slow];
    verdict.of_data = all_.Part(all_.without_data);
    verdict.of_communication = all_.Part(all_.without_communication);
    verdict.of_one_rank = all_.Part(of_slow);
    verdict.of_last_ranks = all_.Part(all_.without_last);
    verdict.of_few_steps = all_.Part(won_in_few);
    if (has_others) verdict.rank = time_.ranks[slow].rank;
    if (verdict.lost_share < kHealthyShare) {
      verdict.kind = RunVerdict::Kind::kHealthy;
      verdict.rank = -1;
      return verdict;
    }
    verdict.kind = RunVerdict::Kind::kUnexplained;
    if (all_.Explains(won_in_few)) {
      JudgeFew(worst, verdict);
    } else if (has_others && all_.Explains(of_slow)) {
      const RankTime& rank = time_.ranks[slow];
      verdict.kind = RunVerdict::Kind::kOneRank;
      verdict.explained = verdict.of_one_rank;
      verdict.place = PlaceOf(rank.late, rank.late_for_data, rank.late_between);
      if (verdict.place == RunVerdict::Place::kData && AllReadSlowly(slow)) {
        verdict.kind = RunVerdict::Kind::kData;
        verdict.place = RunVerdict::Place::kUnknown;
      }
    } else if (has_others && all_.Explains(all_.without_last) &&
               verdict.of_one_rank < kMostOfOneInTurns) {
      verdict.kind = RunVerdict::Kind::kRotating;
      verdict.explained = verdict.of_last_ranks;
      verdict.place = PlaceOf(all_.late, all_.late_for_data, all_.late_between);
    } else if (all_.Explains(all_.without_data)) {
      verdict.kind = RunVerdict::Kind::kData;
      verdict.explained = verdict.of_data;
    } else if (all_.Explains(all_.without_communication) && !lacks_ranks_) {
      verdict.kind = RunVerdict::Kind::kCommunication;
      verdict.explained = verdict.of_communication;
    }
    const bool names_rank = verdict.kind == RunVerdict::Kind::kOneRank ||
                            verdict.kind == RunVerdict::Kind::kFewSteps ||
                            verdict.kind == RunVerdict::Kind::kUnexplained;
    if (!names_rank) verdict.rank = -1;
    return verdict;
  }

  // Returns true if the workers of the other ranks take about as long to read
  // as those of this one.
  bool AllReadSlowly(size_t slow) const {
    constexpr double kAbout = 0.8;
    std::vector<double> others;
    for (size_t i = 0; i < time_.ranks.size(); ++i) {
      if (i != slow && time_.ranks[i].read > 0) {
        others.push_back(time_.ranks[i].read);
      }
    }
    if (others.empty() || time_.ranks[slow].read <= 0) return false;
    const auto middle =
        others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    return *middle >= kAbout * time_.ranks[slow].read;
  }

  // Looks at the steps that lose most once more, by themselves.
  void JudgeFew(const std::vector<LossOfStep>& worst, RunVerdict& verdict) {
    verdict.kind = RunVerdict::Kind::kFewSteps;
    verdict.explained = verdict.of_few_steps;
    std::vector<int64_t> numbers;
    for (const LossOfStep& step : worst) {
      verdict.steps.push_back(step.step);
    }
    numbers = verdict.steps;
    std::sort(numbers.begin(), numbers.end());
    StepLoss loss;
    for (CommonSteps steps(runs_); steps.Next();) {
      if (!std::binary_search(numbers.begin(), numbers.end(),
                              steps.row()[0]->step)) {
        continue;
      }
      loss.Look(steps.row());
      few_.Add(loss);
    }
    verdict.rank = -1;
    const size_t slow = few_.slow();
    const bool has_others = time_.ranks.size() > 1;
    if (has_others && few_.Explains(few_.without_slow[slow])) {
      verdict.rank = time_.ranks[slow].rank;
    }
    if (has_others && few_.Explains(few_.without_last)) {
      verdict.place = PlaceOf(few_.late, few_.late_for_data, few_.late_between);
    } else if (few_.Explains(few_.without_data)) {
      verdict.place = RunVerdict::Place::kData;
    }
  }

  void Say() {
    RunVerdict& verdict = time_.verdict;
    verdict.advice = AdviceFor(verdict);
    switch (verdict.kind) {
      case RunVerdict::Kind::kTooShort:
        verdict.sentence = absl::StrCat(
            "Too short: ", time_.steps, time_.steps == 1 ? " step" : " steps",
            " of all ranks, without the first one, can't tell where the time "
            "goes.");
        return;
      case RunVerdict::Kind::kHealthy:
        verdict.sentence = absl::StrCat(
            "Healthy: ", Percent(verdict.lost_share),
            " of the time is lost to waits for data and in collectives.");
        return;
      case RunVerdict::Kind::kUnexplained:
        verdict.sentence = absl::StrCat("Unexplained: ",
                                        SayUnexplained(verdict, lacks_ranks_));
        return;
      default:
        break;
    }
    std::string name(Name(verdict.kind));
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    verdict.sentence = absl::StrCat(
        verdict.kind == RunVerdict::Kind::kData ||
                verdict.kind == RunVerdict::Kind::kCommunication
            ? absl::StrCat(name, "-bound")
            : name,
        ": ", Percent(verdict.lost_share), " of the time is lost, ",
        Percent(std::min(verdict.explained, 1.0)), " of that ",
        SayCause(verdict, time_, few_.Explains(few_.without_communication)),
        ".");
  }

  const std::map<int64_t, const RankRun*>& runs_;
  const bool lacks_ranks_;
  Losses all_, few_;
  std::vector<LossOfStep> steps_;
  LostTime time_;
};

}  // namespace

absl::string_view Name(RunVerdict::Kind kind) {
  switch (kind) {
    case RunVerdict::Kind::kTooShort:
      return "too short";
    case RunVerdict::Kind::kHealthy:
      return "healthy";
    case RunVerdict::Kind::kFewSteps:
      return "few steps";
    case RunVerdict::Kind::kOneRank:
      return "one slow rank";
    case RunVerdict::Kind::kRotating:
      return "rotating";
    case RunVerdict::Kind::kData:
      return "data";
    case RunVerdict::Kind::kCommunication:
      return "communication";
    case RunVerdict::Kind::kUnexplained:
      return "unexplained";
  }
  return "unexplained";
}

LostTime FindLostTime(const std::map<int64_t, const RankRun*>& ranks,
                      int64_t size) {
  return Judge(ranks, size).Find();
}

}  // namespace lockstep
