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
// A source gives the epochs of its order, one after the other. If
// they are permutations, a sample comes for the second time when all samples of
// its source have come, whatever the epoch of the mixture. So a large source
// goes on where the last epoch has left it, and a small one goes through as
// many permutations as its weight needs. (MixtureOrder shuffles all sources
// anew in each epoch.)
//
// Sources take turns in rounds, which are all alike in a phase. With
// kNumSamples, an epoch goes on in the middle of a round, so that among the
// first n samples of a phase, over all its epochs, the count of each source
// differs from its share of n by less than one. Otherwise, each epoch begins a
// round, and this is true for the first n positions of each epoch. What comes
// is a function of the epoch and the position alone, so it depends neither on
// the number of ranks nor on where a job was started again.
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
  // The orders of the sources. Each walks its own source, from index 0, and all
  // of its epochs have the same number of positions. An order that groups
  // samples belongs around the mixture, since its batches would be lost here.
  std::vector<std::shared_ptr<const Order>> sources;

  // The weights from a sample on. Samples are counted over all epochs, from
  // epoch 0 on.
  struct Phase {
    int64_t first_sample = 0;
    // One for each source, finite and not negative; 0 leaves a source out. They
    // need not add up to 1. Their shares become fractions of a common
    // denominator, which is the smallest one that changes no share by more than
    // 2^-21. So 0.7 and 0.3 are 7 and 3 turns of ten. If none up to 2^20 does,
    // it is 2^20, which changes no share by 2^-20 or more unless shares below
    // that need one turn each.
    std::vector<double> weights;
  };

  // The phases, of which the first has first_sample = 0, and each begins after
  // the one before it. Several need kNumSamples.
  std::vector<Phase> phases;

  // The end of an epoch. With kFirstExhausted, the source that ends first comes
  // once in each epoch, and the others go on in the next one. With
  // kAllExhausted, the source that ends last comes once, and each other has at
  // least as many turns as its order has positions. All epochs have the length
  // of epoch 0, where all sources begin. In a later epoch, one of the others
  // may begin anew in the middle, so that a sample of it may come twice in that
  // epoch, or not at all.
  MixtureStop end = MixtureStop::kFirstExhausted;
  int64_t num_samples = 0;  // for kNumSamples
};

// Memory: 8 bytes for each turn of a phase's round (ten and two in the
// example; 2^24 at most, where phases with the same weights share one), and
// one open stream for each source in each open epoch. A stream
// that is prepared allocates only where a source begins anew, or first gets a
// weight. Thread-safety: immutable.
class ContinuedMixture : public Order,
                         public std::enable_shared_from_this<ContinuedMixture> {
 public:
  // Opens the epochs 0 and 1 of each source, to count their positions.
  static absl::StatusOr<std::shared_ptr<const ContinuedMixture>> Create(
      ContinuedMixtureOptions options);

  ~ContinuedMixture() override;

  // Opens a stream. Before epoch 0 come the epochs of the sources before their
  // epoch 0. A read fails where a source's order can't be opened, and with
  // FAILED_PRECONDITION where it has another number of positions than in epoch
  // 0. The numbers of the sources' epochs wrap where they need more than 64
  // bits.
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return Coverage::kAny; }
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

  static absl::StatusOr<std::vector<Phase>> MakePhases(
      const ContinuedMixtureOptions& options);
  Place PlaceOf(int64_t epoch, int64_t position) const;

  const std::unique_ptr<const Plan> plan_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CONTINUED_MIXTURE_H_
