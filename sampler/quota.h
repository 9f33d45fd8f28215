// Deals turns to classes in proportion to whole-number quotas, as evenly as
// possible:
//
//   QuotaTurns turns({2, 1});    // of every three turns 0 gets two, and 1 one
//   int64_t who = turns.Next();
//
// After n turns, the count of each class differs from its share of n by less
// than one turn (Tijdeman's chairman assignment). After as many turns as the
// quotas add up to, it equals the quota.
#ifndef LOCKSTEP_SAMPLER_QUOTA_H_
#define LOCKSTEP_SAMPLER_QUOTA_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Deals the turns.
// Thread-safety: thread-compatible.
class QuotaTurns {
 public:
  // Requires: the quotas are 0 or more and add up to 1 to 2^48; there are up to
  // 2^20 classes.
  explicit QuotaTurns(absl::Span<const int64_t> quotas);

  // Returns the class that gets the next turn.
  int64_t Next();

 private:
  // A class's next turn has a time from which it may be taken, and a time by
  // which it must be taken.
  using Due = std::pair<int64_t, int64_t>;  // time, class
  using Earliest = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  int64_t DueTime(int64_t who) const;
  void AddTurn(int64_t who);

  std::vector<int64_t> quotas_;
  std::vector<int64_t> turns_;
  int64_t total_ = 0;
  int64_t unit_ = 0;  // 2k - 2 for k classes
  int64_t time_ = 0;
  Earliest released_;  // by the time from which turns may be taken
  Earliest due_;       // by the time at which turns must be taken
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_QUOTA_H_
