// Takes turns in proportion to whole-number quotas, as evenly as can be:
//
//   QuotaTurns turns({2, 1});    // of every three turns 0 gets two, and 1 one
//   int64_t who = turns.Next();
//
// After n turns each class has had less than one turn more or less than its
// share of n (Tijdeman's chairman assignment), and after as many turns as the
// quotas add up to exactly its quota.
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

// Thread-safety: thread-compatible.
class QuotaTurns {
 public:
  // Requires quotas of 0 or more that add up to 1 to 2^48, of up to 2^20
  // classes.
  explicit QuotaTurns(absl::Span<const int64_t> quotas);

  // The class whose turn it is.
  int64_t Next();

 private:
  // A class's next turn may be taken from one time on, and must be by another.
  using Due = std::pair<int64_t, int64_t>;  // time, class
  using Earliest = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  int64_t DueTime(int64_t who) const;
  void AddTurn(int64_t who);

  std::vector<int64_t> quotas_;
  std::vector<int64_t> turns_;
  int64_t total_ = 0;
  int64_t unit_ = 0;  // 2k - 2 for k classes
  int64_t time_ = 0;
  Earliest released_;  // by when they may be taken
  Earliest due_;       // by when they must be
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_QUOTA_H_
