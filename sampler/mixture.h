// Mixes several datasets in proportion.
//
//   MixtureOptions options;
//   options.sources = {{1000000, 3},  // web text: its size and its weight
//                      {20000, 1}};   // books
//   options.stop = MixtureStop::kFirstExhausted;
//   auto order = MixtureOrder::Create(options);
//
// Among the first n positions, the count of each source differs from its share
// of n by less than one. Each source is shuffled, and shuffled again when it is
// used up. The sources follow each other in the indices: here 0 to 999,999 is
// web text, and 1,000,000 is the first book. Use Layout::kBlocked; see
// stratified.h.
#ifndef LOCKSTEP_SAMPLER_MIXTURE_H_
#define LOCKSTEP_SAMPLER_MIXTURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct MixtureRound;

// The end of an epoch.
enum class MixtureStop {
  // The epoch ends before a source begins again, so no sample comes twice.
  kFirstExhausted,
  // The epoch ends when every source (with a weight) has ended, so every sample
  // comes.
  kAllExhausted,
  // The epoch ends after MixtureOptions::num_samples positions.
  kNumSamples,
};

struct MixtureOptions {
  struct Source {
    int64_t size = 0;    // in samples
    int64_t weight = 1;  // its share of the mixture; 0 leaves it out
  };

  // The sources. At least one has a weight, and each with a weight has samples.
  // The weights add up to at most 2^20: 3 and 1, or 333 and 667.
  std::vector<Source> sources;

  MixtureStop stop = MixtureStop::kFirstExhausted;
  int64_t num_samples = 0;  // for kNumSamples

  uint64_t seed = 0;
};

// Memory: 8 bytes for each unit of weight, shared by all epochs. Reads any
// position in constant time.
// Thread-safety: immutable.
class MixtureOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const MixtureOrder>> Create(
      const MixtureOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return Coverage::kAny; }
  bool NeedsBlockedLayout() const override { return true; }

 private:
  explicit MixtureOrder(const MixtureOptions& options);

  const MixtureOptions options_;
  const std::shared_ptr<const MixtureRound> round_;
  const int64_t length_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_MIXTURE_H_
