// The section of gpu_check that measures what our part of an operation costs
// beside NCCL alone.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_

#include "lockstep/base/language.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// All-reduces of a rank alone, by a Communicator and by NCCL itself, in turns.
// "NCCL alone" is not blocking, as the Communicator's is: NCCL launches from a
// thread of its own then, which takes longer. Blocking it is told for
// comparison.
void MeasureOverhead(const GpuOptions& options,
                     const internal_gpu::CudaApi& cuda,
                     const internal_collective::NcclApi& nccl,
                     GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_
