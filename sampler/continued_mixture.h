// Mixes orders in proportion, and goes on with each of them over the epochs of
// the mixture.
//
//   ContinuedMixtureOptions options;
//   options.sources = {*NativeShuffle::Create({1000000, 7}),  // web text
//                      *NativeShuffle::Create({20000, 8})};   // books
//   options.phases = {{0, {0.7, 0.3}},          // from the beginning on
//                     {5000000, {0.5, 0.5}}};   // after so many samples
//   options.end = MixtureStop::kNumSamples;
//   options.num_samples = 100000;  // of an epoch
//   auto order = ContinuedMixture::Create(options);
//
// The samples of a source are the epochs of its order, one after the other: a
// sample comes for the second time when all samples of its source have come,
// whatever the epoch of the mixture. So a large source goes on where the epoch
// before has left it, and a small one goes through as many permutations as its
// weight needs. (MixtureOrder shuffles all sources anew in each epoch.)
//
// Among the first n positions of an epoch, or of a phase, the count of each
// source differs from its share of n by less than one. With kNumSamples, epochs
// go on in the middle of a round; otherwise each begins one. What comes is a
// function of the epoch and the position alone, so it depends neither on the
// number of ranks nor on where a job was started again.
//
// The sources follow each other in the indices: here 0 to 999,999 is web text,
// and 1,000,000 is the first book. Use Layout::kBlocked; see stratified.h.
#ifndef LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_H_
#define LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct ContinuedMixtureOptions {
  // The orders of the sources. Each walks its own source, from index 0, and has
  // as many positions in each epoch. An order that groups samples belongs
  // around the mixture, since its batches would be lost here.
  std::vector<std::shared_ptr<const Order>> sources;

  // The weights from a sample on. Samples are counted over all epochs, from
  // epoch 0 on.
  struct Phase {
    int64_t first_sample = 0;
    // One for each source, finite and not negative; 0 leaves a source out. They
    // need not add up to 1. Their shares become fractions of a common
    // denominator, which is the smallest one that changes no share by more than
    // 2^-21; it is at most 2^20. So 0.7 and 0.3 are 7 and 3 turns of ten.
    std::vector<double> weights;
  };

  // The phases, of which the first has first_sample = 0, and each begins after
  // the one before it. Several need kNumSamples.
  std::vector<Phase> phases;

  // The end of an epoch. With kFirstExhausted, the source that ends first comes
  // once in each epoch, and the others go on in the next one.
  MixtureStop end = MixtureStop::kFirstExhausted;
  int64_t num_samples = 0;  // for kNumSamples
};

// Memory: 8 bytes for each turn of a phase's round (ten in the example), and
// one open stream for each source.
// Thread-safety: immutable.
class ContinuedMixture : public Order,
                         public std::enable_shared_from_this<ContinuedMixture> {
 public:
  static absl::StatusOr<std::shared_ptr<const ContinuedMixture>> Create(
      ContinuedMixtureOptions options);

  ~ContinuedMixture() override;

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  bool NeedsBlockedLayout() const override { return true; }
  std::vector<Part> PartsAt(int64_t epoch, int64_t position) const override;
  std::string Explain() const override;

 private:
  friend class ContinuedMixtureStream;
  struct Source;
  struct Phase;
  struct Place;
  struct Plan;

  explicit ContinuedMixture(std::unique_ptr<const Plan> plan);

  Place PlaceOf(int64_t epoch, int64_t position) const;

  const std::unique_ptr<const Plan> plan_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_H_
