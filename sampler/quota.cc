#include "lockstep/sampler/quota.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace lockstep {

QuotaTurns::QuotaTurns(absl::Span<const int64_t> quotas)
    : quotas_(quotas.begin(), quotas.end()),
      turns_(quotas.size()),
      total_(std::accumulate(quotas.begin(), quotas.end(), int64_t{0})) {
  const auto classes = static_cast<int64_t>(
      quotas_.size() -
      static_cast<size_t>(std::count(quotas_.begin(), quotas_.end(), 0)));
  // With one class, any positive unit works.
  unit_ = std::max<int64_t>(2, 2 * classes - 2);
  for (size_t who = 0; who < quotas_.size(); ++who) {
    if (quotas_[who] > 0) AddTurn(static_cast<int64_t>(who));
  }
}

// Returns total * (unit - 1 + unit * turns) / (unit * quota), rounded down.
int64_t QuotaTurns::DueTime(int64_t who) const {
  const __int128 numerator =
      static_cast<__int128>(total_) *
      (unit_ - 1 + static_cast<__int128>(unit_) * turns_[who]);
  const __int128 denominator = static_cast<__int128>(unit_) * quotas_[who];
  return static_cast<int64_t>(numerator / denominator);
}

// Adds the class's next turn. Its release time is total * (1 + unit * turns) /
// (unit * quota), rounded up.
void QuotaTurns::AddTurn(int64_t who) {
  const __int128 numerator = static_cast<__int128>(total_) *
                             (1 + static_cast<__int128>(unit_) * turns_[who]);
  const __int128 denominator = static_cast<__int128>(unit_) * quotas_[who];
  released_.emplace(
      static_cast<int64_t>((numerator + denominator - 1) / denominator), who);
}

int64_t QuotaTurns::Next() {
  ++time_;
  while (!released_.empty() && released_.top().first <= time_) {
    const int64_t who = released_.top().second;
    released_.pop();
    due_.emplace(DueTime(who), who);
  }
  const int64_t who = due_.top().second;
  due_.pop();
  ++turns_[who];
  AddTurn(who);
  return who;
}

}  // namespace lockstep
