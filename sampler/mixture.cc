#include "lockstep/sampler/mixture.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/quota.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

using Turn = MixtureOrder::Turn;

constexpr int64_t kMaxWeight = int64_t{1} << 20;

std::vector<Turn> MakeRound(
    const std::vector<MixtureOptions::Source>& sources) {
  std::vector<int64_t> weights;
  for (const MixtureOptions::Source& source : sources) {
    weights.push_back(source.weight);
  }
  QuotaTurns turns(weights);
  std::vector<int64_t> taken(sources.size());
  std::vector<Turn> round;
  while (taken != weights) {
    const int64_t source = turns.Next();
    round.push_back({source, taken[source]++});
  }
  return round;
}

// Thread-safety: thread-compatible.
class MixtureStream : public IndexStream {
 public:
  MixtureStream(const MixtureOptions& options, int64_t size, uint64_t key,
                std::shared_ptr<const std::vector<Turn>> round)
      : size_(size), key_(key), round_(std::move(round)) {
    int64_t begin = 0;
    for (const MixtureOptions::Source& source : options.sources) {
      sources_.push_back(
          {begin, source.size, source.weight, -1, NativePermutation(0, 0)});
      begin += source.size;
    }
  }

  int64_t size() const override { return size_; }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    const auto length = static_cast<int64_t>(round_->size());
    for (int64_t& index : out) {
      const Turn& turn = (*round_)[first % length];
      Source& source = sources_[turn.source];
      const int64_t turns = first / length * source.weight + turn.turns_before;
      Shuffle(source, turn.source, turns / source.size);
      index = source.begin + source.permutation[turns % source.size];
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  struct Source {
    int64_t begin, size, weight;
    int64_t pass;  // the pass of the permutation, or -1
    NativePermutation permutation;
  };

  void Shuffle(Source& source, int64_t number, int64_t pass) {
    if (pass == source.pass) return;
    source.pass = pass;
    const uint64_t key = RandomKey(key_, static_cast<uint64_t>(number),
                                   static_cast<uint64_t>(pass));
    source.permutation = NativePermutation(source.size, key);
  }

  const int64_t size_;
  const uint64_t key_;
  const std::shared_ptr<const std::vector<Turn>> round_;
  std::vector<Source> sources_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const MixtureOrder>> MixtureOrder::Create(
    const MixtureOptions& options) {
  int64_t weights = 0, samples = 0;
  for (size_t i = 0; i < options.sources.size(); ++i) {
    const MixtureOptions::Source& source = options.sources[i];
    const std::string what = absl::StrCat("mixture, source ", i);
    LOCKSTEP_RETURN_IF_ERROR(CheckSize(what, source.size));
    if (source.weight < 0 || source.weight > kMaxWeight ||
        (source.weight > 0 && source.size == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": a weight is from 0 to 2^20, and 0 where there ",
                       "are no samples, but got size=", source.size,
                       ", weight=", source.weight));
    }
    weights += source.weight;
    LOCKSTEP_ASSIGN_OR_RETURN(samples,
                              AddSizes("mixture", samples, source.size));
  }
  if (weights < 1 || weights > kMaxWeight) {
    return absl::InvalidArgumentError(
        absl::StrCat("mixture: the weights must add up to 1 to 2^20, but add "
                     "up to ",
                     weights, "; divide them by a common factor"));
  }
  if (options.stop == MixtureStop::kNumSamples) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckPositive("mixture", "num_samples", options.num_samples));
  }
  return std::shared_ptr<const MixtureOrder>(new MixtureOrder(options));
}

MixtureOrder::MixtureOrder(const MixtureOptions& options)
    : options_(options),
      round_(std::make_shared<const std::vector<Turn>>(
          MakeRound(options.sources))),
      length_(LengthByStop()) {}

// Returns the position of the turn number `turn` of a source, which has `place`
// in its round.
int64_t MixtureOrder::PositionOfTurn(int64_t source, int64_t turn,
                                     int64_t place) const {
  const __int128 position =
      static_cast<__int128>(turn / options_.sources[source].weight) *
          static_cast<int64_t>(round_->size()) +
      place;
  return static_cast<int64_t>(std::min<__int128>(position, kMaxSize - 1));
}

int64_t MixtureOrder::LengthByStop() const {
  if (options_.stop == MixtureStop::kNumSamples) return options_.num_samples;
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (size_t place = 0; place < round_->size(); ++place) {
    const auto [source, turns_before] = (*round_)[place];
    const auto& [size, weight] = options_.sources[source];
    const auto at = static_cast<int64_t>(place);
    // This is the turn that would begin the source anew, and the one that ends
    // it.
    if (size % weight == turns_before) {
      first = std::min(first, PositionOfTurn(source, size, at));
    }
    if ((size - 1) % weight == turns_before) {
      last = std::max(last, PositionOfTurn(source, size - 1, at) + 1);
    }
  }
  return options_.stop == MixtureStop::kFirstExhausted ? first : last;
}

absl::StatusOr<std::unique_ptr<IndexStream>> MixtureOrder::Open(
    int64_t epoch) const {
  return std::make_unique<MixtureStream>(
      options_, length_,
      RandomKey(options_.seed, kMixtureStream, static_cast<uint64_t>(epoch)),
      round_);
}

OrderDescription MixtureOrder::Describe() const {
  OrderDescription description;
  description.order = "mixture";
  description.seed = options_.seed;
  description.details = absl::StrCat("length:", length_);
  for (const MixtureOptions::Source& source : options_.sources) {
    description.size += source.size;
    absl::StrAppend(&description.details, ",source:", source.size, "*",
                    source.weight);
  }
  return description;
}

}  // namespace lockstep
