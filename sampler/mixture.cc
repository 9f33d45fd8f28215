#include "lockstep/sampler/mixture.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/mixture_round.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

MixtureRound MakeRound(const MixtureOptions& options) {
  std::vector<int64_t> weights;
  for (const MixtureOptions::Source& source : options.sources) {
    weights.push_back(source.weight);
  }
  return MixtureRound(std::move(weights));
}

int64_t LengthByStop(const MixtureOptions& options, const MixtureRound& round) {
  if (options.stop == MixtureStop::kNumSamples) return options.num_samples;
  std::vector<int64_t> sizes;
  for (const MixtureOptions::Source& source : options.sources) {
    sizes.push_back(source.size);
  }
  return options.stop == MixtureStop::kFirstExhausted
             ? round.UntilFirstEnds(sizes)
             : round.UntilAllEnd(sizes);
}

// Thread-safety: thread-compatible.
class MixtureStream : public IndexStream {
 public:
  MixtureStream(const MixtureOptions& options, int64_t size, uint64_t key,
                std::shared_ptr<const MixtureRound> round)
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
    const int64_t length = round_->length();
    for (int64_t& index : out) {
      const MixtureRound::Turn& turn = round_->turns[first % length];
      Source& source = sources_[turn.source];
      const int64_t turns = first / length * source.weight + turn.before;
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

  void Shuffle(Source& source, uint32_t number, int64_t pass) {
    if (pass == source.pass) return;
    source.pass = pass;
    const uint64_t key = RandomKey(key_, number, static_cast<uint64_t>(pass));
    source.permutation = NativePermutation(source.size, key);
  }

  const int64_t size_;
  const uint64_t key_;
  const std::shared_ptr<const MixtureRound> round_;
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
    if (source.weight < 0 || source.weight > kMostTurns ||
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
  if (weights < 1 || weights > kMostTurns) {
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
      round_(std::make_shared<const MixtureRound>(MakeRound(options))),
      length_(LengthByStop(options, *round_)) {}

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
