// Prints a rank's samples of two epochs. They are interrupted in the middle,
// and continue on another number of ranks.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/presets.h"

namespace {

void Train(absl::Span<const int64_t> indices) {
  for (const int64_t index : indices) {
    std::printf(" %d", static_cast<int>(index));
  }
  std::printf("\n");
}

absl::Status Run() {
  lockstep::DistributedSamplerOptions options;  // PyTorch's order, bit for bit
  options.size = 25;
  options.num_replicas = 2;
  options.rank = 0;
  options.batch_size = 4;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::DistributedSampler(options));
  LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(0));
  lockstep::BatchIndices batch;
  for (int step = 0; step < 2; ++step) {
    LOCKSTEP_RETURN_IF_ERROR(sampler->Next(batch).status());
    Train(batch.indices.first(batch.samples()));
  }
  const std::string state = sampler->SaveState();

  options.num_replicas = 3;
  LOCKSTEP_ASSIGN_OR_RETURN(sampler, lockstep::DistributedSampler(options));
  LOCKSTEP_RETURN_IF_ERROR(sampler->RestoreState(state));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
    if (!more) return absl::OkStatus();
    Train(batch.indices.first(batch.samples()));
  }
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
