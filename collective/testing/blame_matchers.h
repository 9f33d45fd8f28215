// Matchers and values for tests of blame. Tests look at the code and the blame
// of a failure. Only verdicts_test compares whole messages. Another test looks
// for a part of a message where the blame does not tell enough.
//
//   EXPECT_THAT(status, Blames(absl::StatusCode::kUnavailable,
//                              Blame::Cause::kLost, {2}));
//   EXPECT_THAT(status, BlamesIn("barrier() #3 of group 'world'", 3));
#ifndef LOCKSTEP_COLLECTIVE_TESTING_BLAME_MATCHERS_H_
#define LOCKSTEP_COLLECTIVE_TESTING_BLAME_MATCHERS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "lockstep/collective/blame.h"

namespace lockstep {

// Shows a cause where a test fails.
inline void PrintTo(Blame::Cause cause, std::ostream* out) {
  *out << Name(cause);
}

// Returns the ranks of a blame, in the order of their numbers.
inline std::vector<int> RanksOf(const Blame& blame) {
  std::vector<int> ranks;
  for (const Blame::Rank& rank : blame.ranks) ranks.push_back(rank.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Returns a blame of the error of one rank, or of no rank if `rank` is -1.
inline Blame BlameOn(int rank, absl::StatusCode code,
                     Blame::Cause cause = Blame::Cause::kFailed) {
  Blame blame;
  blame.cause = cause;
  blame.code = code;
  if (rank >= 0) blame.ranks.emplace_back().rank = rank;
  return blame;
}

namespace internal_blame_matchers {

MATCHER_P3(BlamesMatcher, code, cause, ranks, "") {
  const absl::Status& status = arg;
  const std::optional<Blame> blame = BlameOf(status);
  if (!blame.has_value()) {
    *result_listener << "which has no blame";
    return false;
  }
  *result_listener << "which has the blame " << ToJson(*blame);
  return status.code() == code && blame->cause == cause &&
         RanksOf(*blame) == ranks;
}

MATCHER_P2(BlamesInMatcher, operation, number, "") {
  const absl::Status& status = arg;
  const std::optional<Blame> blame = BlameOf(status);
  if (!blame.has_value()) {
    *result_listener << "which has no blame";
    return false;
  }
  *result_listener << "which has the blame " << ToJson(*blame);
  return blame->operation == operation && blame->number == number;
}

}  // namespace internal_blame_matchers

// Matches a status with this code, whose blame has this cause and these ranks,
// in any order.
inline auto Blames(absl::StatusCode code, Blame::Cause cause,
                   std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return internal_blame_matchers::BlamesMatcher(code, cause, ranks);
}

// Matches a status whose blame has this operation, with this number.
inline auto BlamesIn(absl::string_view operation, uint64_t number) {
  return internal_blame_matchers::BlamesInMatcher(std::string(operation),
                                                  number);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_BLAME_MATCHERS_H_
