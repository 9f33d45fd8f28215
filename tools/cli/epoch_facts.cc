#include "lockstep/tools/cli/epoch_facts.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<Sampler>> RankSamplers::Make(
    int64_t epoch, int64_t rank) const {
  SamplerOptions options = dealing_.options;
  options.rank = rank;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order_, options));
  LOCKSTEP_RETURN_IF_ERROR(place_.has_value()
                               ? sampler->RestoreState(place_->state)
                               : sampler->StartEpoch(epoch));
  return sampler;
}

absl::StatusOr<EpochFacts> FactsOf(const RankSamplers& samplers,
                                   int64_t epoch) {
  EpochFacts facts;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler, samplers.Make(epoch, 0));
  facts.epoch = sampler->progress().epoch;
  facts.first_step = sampler->progress().steps_taken;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream,
                            sampler->order().Open(facts.epoch));
  facts.size = stream->size();
  LOCKSTEP_ASSIGN_OR_RETURN(facts.steps, sampler->StepsLeft());
  if (facts.steps > 0) {
    LOCKSTEP_RETURN_IF_ERROR(sampler->PassSteps(facts.steps - 1));
    const std::string before_last = sampler->SaveState();
    const SamplerOptions& options = sampler->options();
    for (int64_t part = 0; part < options.cut.world; ++part) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const auto each, samplers.Make(epoch, part * options.data_stride));
      LOCKSTEP_RETURN_IF_ERROR(each->RestoreState(before_last));
      BatchIndices batch;
      LOCKSTEP_RETURN_IF_ERROR(each->Next(batch).status());
      facts.last.emplace_back(batch.rows(), batch.valid);
    }
  }
  BatchIndices batch;
  bool more = true;
  while (more) {
    LOCKSTEP_ASSIGN_OR_RETURN(more, sampler->Next(batch));
  }
  facts.stats = sampler->stats();
  return facts;
}

}  // namespace lockstep
