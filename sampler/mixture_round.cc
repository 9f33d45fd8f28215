#include "lockstep/sampler/mixture_round.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/quota.h"

namespace lockstep {
namespace {

std::vector<MixtureRound::Turn> DealTurns(const std::vector<int64_t>& weights) {
  QuotaTurns deal(weights);
  std::vector<int64_t> taken(weights.size());
  std::vector<MixtureRound::Turn> turns(static_cast<size_t>(
      std::accumulate(weights.begin(), weights.end(), int64_t{0})));
  for (MixtureRound::Turn& turn : turns) {
    const int64_t source = deal.Next();
    turn = {static_cast<uint32_t>(source),
            static_cast<uint32_t>(taken[source]++)};
  }
  return turns;
}

}  // namespace

MixtureRound::MixtureRound(std::vector<int64_t> source_weights)
    : weights(std::move(source_weights)), turns(DealTurns(weights)) {}

// Returns the position of a source's turn number `turn`, which has `place` in
// its round.
int64_t MixtureRound::PositionOf(int64_t turn, int64_t place) const {
  const int64_t weight = weights[turns[place].source];
  const __int128 position =
      static_cast<__int128>(turn / weight) * length() + place;
  return static_cast<int64_t>(std::min<__int128>(position, kMaxSize - 1));
}

int64_t MixtureRound::UntilFirstEnds(absl::Span<const int64_t> sizes) const {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (int64_t place = 0; place < length(); ++place) {
    const auto [source, before] = turns[place];
    const int64_t size = sizes[source];
    if (size % weights[source] == before) {
      first = std::min(first, PositionOf(size, place));
    }
  }
  return first;
}

int64_t MixtureRound::UntilAllEnd(absl::Span<const int64_t> sizes) const {
  int64_t last = 0;
  for (int64_t place = 0; place < length(); ++place) {
    const auto [source, before] = turns[place];
    const int64_t size = sizes[source];
    if ((size - 1) % weights[source] == before) {
      last = std::max(last, PositionOf(size - 1, place) + 1);
    }
  }
  return last;
}

}  // namespace lockstep
