// MeasureAverages measures what Gradients::Average adds to the work of NCCL.
//
//   LOCKSTEP_RETURN_IF_ERROR(OnCard(cuda, [&](Card& card) {
//     return MeasureAverages(options, nccl, group, host, card);
//   }));
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_SPEED_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_SPEED_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"

namespace lockstep {

// Measures averages of models of 4, 26 and 192 tensors of f32, in turns:
//
//   * what a trainer would do without Gradients: if there are several ranks, an
//     all-reduce of the weights on the host, and a wait for it; then one
//     all-reduce of all gradients by NCCL alone, which multiplies by a factor;
//   * Average of gradients in memory of Gradients;
//   * Average of gradients in memory of the trainer's with gaps, which are
//     copied into a bucket and back.
//
// Each ends when the card has the means. All ranks call it. Rank 0 prints rows
// (gpu_rank.h).
// Requires: as for CheckGradientSteps.
absl::Status MeasureAverages(const GpuOptions& options,
                             const internal_collective::NcclApi& nccl,
                             Communicator& group, Communicator& host,
                             Card& card);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GRADIENT_SPEED_H_
