#include "lockstep/sampler/mixture_round.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
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

// Sets `turns` to the whole numbers that are nearest to shares of
// `denominator`. Returns false if they don't add up to it, or if one would be
// further from its share than kClosest or leave a source out.
bool FindFractions(const std::vector<double>& shares, int64_t denominator,
                   std::vector<int64_t>& turns) {
  constexpr double kClosest = 1.0 / (int64_t{1} << 21);
  turns.clear();
  int64_t total = 0;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(denominator);
    const double whole = std::floor(exact + 0.5);
    if (std::abs(exact - whole) > kClosest * static_cast<double>(denominator) ||
        (share > 0 && whole < 1)) {
      return false;
    }
    turns.push_back(static_cast<int64_t>(whole));
    total += turns.back();
  }
  return total == denominator;
}

// Returns turns that add up to kMostTurns. Each share has those of its part
// that is a whole number, and at least one. The turns that are then left go to
// the sources that lack most, and turns that are too many come from those that
// lack least.
std::vector<int64_t> MostTurns(const std::vector<double>& shares) {
  constexpr auto kAll = static_cast<double>(kMostTurns);
  std::vector<int64_t> turns;
  for (const double share : shares) {
    turns.push_back(std::max(static_cast<int64_t>(std::floor(share * kAll)),
                             int64_t{share > 0 ? 1 : 0}));
  }
  int64_t left =
      kMostTurns - std::accumulate(turns.begin(), turns.end(), int64_t{0});
  const int64_t step = left < 0 ? -1 : 1;
  // By how much a source lacks a step, and its number from behind.
  std::priority_queue<std::pair<double, int64_t>> lacks;
  auto add = [&](size_t i) {
    if (turns[i] <= (step < 0 ? 1 : 0)) return;
    const double lack = shares[i] * kAll - static_cast<double>(turns[i]);
    lacks.emplace(static_cast<double>(step) * lack, -static_cast<int64_t>(i));
  };
  for (size_t i = 0; left != 0 && i < shares.size(); ++i) add(i);
  for (; left != 0; left -= step) {
    const auto i = static_cast<size_t>(-lacks.top().second);
    lacks.pop();
    turns[i] += step;
    add(i);
  }
  return turns;
}

}  // namespace

std::vector<int64_t> TurnsByWeight(const std::vector<double>& weights) {
  // A quotient of a weight must not become 0, which would leave a source out.
  constexpr double kLeast = std::numeric_limits<double>::min();
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (const double weight : weights) {
    shares.push_back(weight > 0 ? std::max(weight / sum, kLeast) : 0);
  }
  std::vector<int64_t> turns;
  for (int64_t number = 1; number <= kMostTurns; ++number) {
    if (FindFractions(shares, number, turns)) return turns;
  }
  return MostTurns(shares);
}

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
