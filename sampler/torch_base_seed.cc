#include "lockstep/sampler/torch_base_seed.h"

#include <cstdint>

#include "lockstep/sampler/torch_generator.h"

namespace lockstep {

uint64_t TorchBaseSeed(uint64_t generator_seed) {
  return static_cast<uint64_t>(TorchGenerator(generator_seed).NextInt63());
}

}  // namespace lockstep
