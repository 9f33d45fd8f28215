// The turns of a mixture's sources, which repeat round after round. Internal.
//
//   const MixtureRound round({7, 3});  // of ten turns, source 0 has seven
//   const MixtureRound::Turn& turn = round.turns[position % round.length()];
#ifndef LOCKSTEP_SAMPLER_MIXTURE_ROUND_H_
#define LOCKSTEP_SAMPLER_MIXTURE_ROUND_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The most turns of a round.
inline constexpr int64_t kMostTurns = int64_t{1} << 20;

// Returns the turns of each source in a round of the fewest turns that changes
// no share by more than 2^-21; if there is none, in a round of kMostTurns.
// Requires: 1 to kMostTurns weights are positive, and their sum is finite.
std::vector<int64_t> TurnsByWeight(const std::vector<double>& weights);

// One round.
// Thread-safety: immutable.
struct MixtureRound {
  struct Turn {
    uint32_t source;
    uint32_t before;  // turns of the same source earlier in the round
  };

  // Requires: the weights are 0 or more and add up to 1 to kMostTurns.
  explicit MixtureRound(std::vector<int64_t> source_weights);

  // Each returns a number of positions, at most 2^62, from the beginning of a
  // round on. UntilFirstEnds: those before the first turn that a source gets
  // beyond its size. UntilAllEnd: those with which each source with a weight
  // has had as many turns as its size.
  // Requires: a source with a weight has a positive size, and no size is more
  // than 2^62.
  int64_t UntilFirstEnds(absl::Span<const int64_t> sizes) const;
  int64_t UntilAllEnd(absl::Span<const int64_t> sizes) const;

  int64_t length() const { return static_cast<int64_t>(turns.size()); }

  const std::vector<int64_t> weights;
  const std::vector<Turn> turns;

 private:
  int64_t PositionOf(int64_t turn, int64_t place) const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_MIXTURE_ROUND_H_
