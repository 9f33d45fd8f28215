// TorchBaseSeed returns the seeds of PyTorch's workers.
//
//   // g = torch.Generator().manual_seed(7)
//   // DataLoader(dataset, num_workers=2, generator=g, worker_init_fn=...)
//   options.base_seed = TorchBaseSeed(7);
//
// PyTorch draws a base seed from the loader's generator each time the loader is
// iterated, and worker i has base_seed + i. This is the first such draw, which
// persistent workers keep.
#ifndef LOCKSTEP_SAMPLER_TORCH_BASE_SEED_H_
#define LOCKSTEP_SAMPLER_TORCH_BASE_SEED_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep {

// Returns the first base seed of a generator with that seed.
uint64_t TorchBaseSeed(uint64_t generator_seed);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_BASE_SEED_H_
