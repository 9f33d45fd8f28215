// CheckGradientSteps trains a model whose gradients are known, on a card, and
// compares everything that Gradients promises with what the card has.
//
//   GradientsSeen seen;
//   for (const GradientSetup& setup : GradientSetups()) {
//     LOCKSTEP_RETURN_IF_ERROR(OnCard(
//         cuda,
//         [&](Card& card) {
//           return CheckGradientSteps(setup, options, group, host, card, seen);
//         },
//         setup.stream));
//   }
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_STEPS_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_STEPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"

namespace lockstep {

// A way to make Gradients.
struct GradientSetup {
  // The memory of the gradients.
  enum class Place {
    kOwn,        // memory of Gradients
    kBlock,      // one block of the trainer's for each type, without gaps
    kScattered,  // the trainer's, with gaps; every third is of Gradients
  };

  std::string name;
  Place place = Place::kOwn;
  int64_t bucket_bytes = 0;
  CardStream stream = CardStream::kOwn;

  // As in GradientsOptions. With `overwrite`, the trainer marks gradients, and
  // the options have `unused` = kSkip.
  bool overwrite = false;
  bool overlaps = false;  // kOn, and no gradient is of type f16
  bool share_values = true;
  int64_t compare_every = 0;
};

std::vector<GradientSetup> GradientSetups();

// The checks count here what they have seen.
struct GradientsSeen {
  int64_t elements = 0;  // that were compared, of gradients and of values
  // The largest difference by type, as Means::largest_error.
  std::map<DType, double> largest_errors;
};

// Makes Gradients of parameters on the card, and takes their steps: with
// different weights, several parts, a rank without rows, gradients that are
// left out, a frozen parameter, Discard, no weight at all, and two steps at
// once. All ranks call it. DATA_LOSS says what is wrong.
// Requires: the device's context is this thread's, as OnCard makes it. `group`
// is of nccl, and `host` has the same ranks.
absl::Status CheckGradientSteps(const GradientSetup& setup,
                                const GpuOptions& options, Communicator& group,
                                Communicator& host, Card& card,
                                GradientsSeen& seen);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_STEPS_H_
