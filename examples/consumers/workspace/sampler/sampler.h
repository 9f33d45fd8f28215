// Acme's own order of samples, without Lockstep, which is the same in every
// epoch. This folder, too, has the same name as one of Lockstep's.
#ifndef SAMPLER_SAMPLER_H_
#define SAMPLER_SAMPLER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "loader/loader.h"

namespace acme {

// Returns the samples of one rank in a step, or none after the last step.
inline std::vector<int64_t> SamplesOfStep(const LoaderSettings& settings,
                                          int64_t step) {
  const int64_t first =
      (step * settings.ranks + settings.rank) * settings.batch_size;
  const int64_t end = std::min(first + settings.batch_size, settings.samples);
  std::vector<int64_t> samples;
  for (int64_t i = first; i < end; ++i) samples.push_back(i);
  return samples;
}

}  // namespace acme

#endif  // SAMPLER_SAMPLER_H_
