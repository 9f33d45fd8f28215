#include "lockstep/tools/report/step_loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/tools/records/rank_records.h"

namespace lockstep::internal_report {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool IsTime(float seconds) { return std::isfinite(seconds) && seconds >= 0; }

double OwnOf(const StepTimes& step) {
  return std::max(double{step.whole} - step.for_data - step.blocked, 0.0);
}

}  // namespace

bool HasTimes(const StepTimes& step) {
  return IsTime(step.whole) && IsTime(step.between) && IsTime(step.for_data) &&
         IsTime(step.blocked);
}

// ---- CommonSteps.

CommonSteps::CommonSteps(const std::map<int64_t, const RankRun*>& ranks)
    : places_(ranks.size()), row_(ranks.size()) {
  for (const auto& [rank, run] : ranks) steps_.push_back(&run->steps);
  if (FindNext()) Pass();
}

bool CommonSteps::Next() {
  while (FindNext()) {
    const bool is_whole = std::all_of(
        row_.begin(), row_.end(), [](auto* step) { return HasTimes(*step); });
    Pass();
    if (is_whole) return true;
  }
  return false;
}

bool CommonSteps::FindNext() {
  if (steps_.empty()) return false;
  int64_t wanted = std::numeric_limits<int64_t>::min();
  size_t same = 0;
  for (size_t at = 0; same < steps_.size(); at = (at + 1) % steps_.size()) {
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

void CommonSteps::Pass() {
  for (size_t& place : places_) ++place;
}

// ---- Values.

void Values::Assign(std::vector<double> values) {
  values_ = std::move(values);
  order_.resize(values_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(),
            [this](size_t a, size_t b) { return values_[a] < values_[b]; });
  sorted_.resize(values_.size());
  places_.resize(values_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    sorted_[i] = values_[order_[i]];
    places_[order_[i]] = i;
  }
}

double Values::MedianWithout(size_t one) const {
  const size_t left = sorted_.size() - 1;
  const auto at = [&](size_t i) {
    return sorted_[i < places_[one] ? i : i + 1];
  };
  return (at((left - 1) / 2) + at(left / 2)) / 2;
}

double Values::MedianWithout(const std::vector<bool>& set) const {
  const auto left =
      static_cast<size_t>(std::count(set.begin(), set.end(), false));
  double lower = 0;
  size_t passed = 0;
  for (const size_t rank : order_) {
    if (set[rank]) continue;
    if (passed == (left - 1) / 2) lower = values_[rank];
    if (passed == left / 2) return (lower + values_[rank]) / 2;
    ++passed;
  }
  return lower;
}

// ---- StepLoss.

void StepLoss::Look(const std::vector<const StepTimes*>& row,
                    double transfer_share) {
  const size_t ranks = row.size();
  last_own_.assign(ranks, 0);
  for (size_t i = 0; i < row_.size(); ++i) {
    if (row_[i]->step + 1 == row[i]->step) last_own_[i] = own_[i];
  }
  row_ = row;
  std::vector<double> data(ranks);
  std::vector<double> between(ranks);
  std::vector<double> own(ranks);
  std::vector<double> blocked(ranks);
  takes_part_.assign(ranks, true);
  lost_ = 0;
  least_ = second_ = kInfinite;
  double most = 0;
  for (size_t i = 0; i < ranks; ++i) {
    const StepTimes& step = *row[i];
    data[i] = step.for_data;
    between[i] = step.between;
    own[i] = OwnOf(step);
    blocked[i] = step.blocked;
    takes_part_[i] = !(step.collectives == 0);  // also if it is not known
    lost_ += data[i] + blocked[i];
    if (!takes_part_[i]) continue;
    most = std::max(most, blocked[i]);
    if (blocked[i] < least_) {
      second_ = std::exchange(least_, blocked[i]);
      last_ = i;
    } else {
      second_ = std::min(second_, blocked[i]);
    }
  }
  if (least_ == kInfinite) least_ = 0;
  if (second_ == kInfinite) second_ = least_;
  transfer_ = least_ * transfer_share;
  for (size_t i = 0; i < ranks; ++i) {
    if (!takes_part_[i]) blocked[i] = most;
  }
  data_.Assign(std::move(data));
  between_.Assign(std::move(between));
  own_.Assign(std::move(own));
  blocked_.Assign(std::move(blocked));
}

double StepLoss::in_transfer(size_t rank) const {
  return takes_part_[rank] ? transfer_ : 0;
}

Lateness StepLoss::LatenessOf(size_t rank) const {
  Lateness late;
  late.all = std::max(blocked_.MedianWithout(rank) - blocked_[rank], 0.0);
  double left = late.all;
  const auto take = [&left](double longer) {
    const double part = std::clamp(longer, 0.0, left);
    left -= part;
    return part;
  };
  late.for_data = take(data_[rank] - data_.MedianWithout(rank));
  late.between = take(between_[rank] - between_.MedianWithout(rank));
  // Work that follows the average of a step delays the next step.
  const double median = own_.MedianWithout(rank);
  late.own = take(std::max(own_[rank], last_own_[rank]) - median);
  return late;
}

double StepLoss::WithoutData() const {
  // Those that come before the last one wait for it.
  double last_comes = -kInfinite;
  double sum = 0;
  double count = 0;
  double before = 0;
  for (size_t i = 0; i < ranks(); ++i) {
    before += data_[i];
    if (!takes_part_[i]) continue;
    const double comes = -blocked_[i] - data_[i];
    last_comes = std::max(last_comes, comes);
    sum += comes;
    before += blocked_[i];
    ++count;
  }
  if (count == 0) return before;
  return before - (count * last_comes - sum + count * least_);
}

double StepLoss::WithoutTransfers() const {
  double won = 0;
  for (size_t i = 0; i < ranks(); ++i) won += in_transfer(i);
  return won;
}

double StepLoss::WithoutLast() const {
  if (!has_last()) return 0;
  const double others_win = second_ - least_;
  const double count = static_cast<double>(
      std::count(takes_part_.begin(), takes_part_.end(), true));
  return (count - 1) * others_win +
         std::max(data_[last_] - data_.MedianWithout(last_), 0.0) -
         (blocked_.MedianWithout(last_) - second_);
}

double StepLoss::WithoutSet(const std::vector<bool>& set) const {
  if (!has_last() || !set[last_]) return 0;
  double next = kInfinite;
  double others = 0;
  for (size_t i = 0; i < ranks(); ++i) {
    if (set[i] || !takes_part_[i]) continue;
    next = std::min(next, blocked_[i]);
    ++others;
  }
  if (others == 0) return 0;
  const double others_win = next - least_;
  const double comes = blocked_.MedianWithout(set) - others_win;
  const double data = data_.MedianWithout(set);
  double won = others * others_win;
  for (size_t i = 0; i < ranks(); ++i) {
    if (!set[i]) continue;
    won += std::max(data_[i] - data, 0.0) - std::max(comes - blocked_[i], 0.0);
  }
  return won;
}

}  // namespace lockstep::internal_report
