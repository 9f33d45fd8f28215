// Facts about an epoch, which commands print.
//
//   const RankSamplers samplers(dealing);
//   LOCKSTEP_ASSIGN_OR_RETURN(const EpochFacts facts,
//                             FactsOf(samplers, /*epoch=*/0));
#ifndef LOCKSTEP_TOOLS_CLI_EPOCH_FACTS_H_
#define LOCKSTEP_TOOLS_CLI_EPOCH_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/sample_source.h"
#include "lockstep/tools/cli/saved_places.h"

namespace lockstep {

// Makes samplers of ranks at the beginning of an epoch, or at the place of a
// checkpoint. All of them read one stream.
// Thread-safety: thread-compatible.
class RankSamplers {
 public:
  explicit RankSamplers(Dealing dealing,
                        std::optional<SavedPlace> place = std::nullopt)
      : dealing_(std::move(dealing)),
        order_(std::make_shared<SharedOrder>(dealing_.order)),
        place_(std::move(place)) {}

  const Dealing& dealing() const { return dealing_; }
  const std::optional<SavedPlace>& place() const { return place_; }

  // Forgets the place, since later epochs begin at their beginning.
  void LeavePlace() { place_ = std::nullopt; }

  absl::StatusOr<std::unique_ptr<Sampler>> Make(int64_t epoch,
                                                int64_t rank) const;

 private:
  const Dealing dealing_;
  const std::shared_ptr<SharedOrder> order_;
  std::optional<SavedPlace> place_;
};

// The facts of an epoch, over all ranks.
struct EpochFacts {
  int64_t epoch = 0;
  int64_t size = 0;        // positions of the stream
  int64_t first_step = 0;  // counted from the beginning of the epoch
  int64_t steps = 0;
  SamplerStats stats;
  // The rows and the data of each rank in the last step.
  std::vector<std::pair<int64_t, int64_t>> last;
};

// Computes them from the positions, without reading the samples' indices.
absl::StatusOr<EpochFacts> FactsOf(const RankSamplers& samplers, int64_t epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_EPOCH_FACTS_H_
