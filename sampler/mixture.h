// Several datasets mixed in proportion.
//
//   MixtureOptions options;
//   options.sources = {{1000000, 3},  // web text: its size and its weight
//                      {20000, 1}};   // books
//   options.stop = MixtureStop::kFirstExhausted;
//   auto order = MixtureOrder::Create(options);
//
// Of the first n positions each source has its share of n, but for less than
// one. A source is shuffled, and when it is used up it is shuffled anew. The
// sources lie one after the other in the indices: 0 to 999,999 is web text
// here, and 1,000,000 the first book. Take it with Layout::kBlocked; see
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

// How long an epoch is.
enum class MixtureStop {
  // Until a source would have to begin again: nothing comes twice.
  kFirstExhausted,
  // Until every source (with a weight) came to its end: all of it comes.
  kAllExhausted,
  // As long as MixtureOptions::num_samples says.
  kNumSamples,
};

struct MixtureOptions {
  struct Source {
    int64_t size = 0;    // samples
    int64_t weight = 1;  // its part of the mixture; 0 leaves it out
  };

  // At least one with a weight, each of which has samples. The weights add up
  // to 2^20 at most: 3 and 1, or 333 and 667.
  std::vector<Source> sources;

  MixtureStop stop = MixtureStop::kFirstExhausted;
  int64_t num_samples = 0;  // for kNumSamples

  uint64_t seed = 0;
};

// Memory: 16 bytes for each unit of weight, shared. Any position in constant
// time.
class MixtureOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const MixtureOrder>> Create(
      const MixtureOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  bool NeedsBlockedLayout() const override { return true; }

  // Whose turn it is at each place of a round, which the mixture repeats.
  struct Turn {
    int64_t source;
    int64_t turns_before;  // of the same source in the round
  };

 private:
  explicit MixtureOrder(const MixtureOptions& options);

  int64_t LengthByStop() const;
  int64_t PositionOfTurn(int64_t source, int64_t turn, int64_t place) const;

  const MixtureOptions options_;
  const std::shared_ptr<const std::vector<Turn>> round_;
  const int64_t length_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_MIXTURE_H_
