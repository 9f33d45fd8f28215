// The section of gpu_check that measures the cost of Lockstep's part of an
// operation, beside NCCL alone.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_

#include "lockstep/base/language.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// Measures all-reduces of a single rank, by a Communicator and by NCCL itself,
// in turns. "NCCL alone" is non-blocking, as the Communicator's NCCL is: NCCL
// then launches from its own thread, which takes longer. Blocking NCCL is
// reported for comparison.
void MeasureOverhead(const GpuOptions& options,
                     const internal_gpu::CudaApi& cuda,
                     const internal_collective::NcclApi& nccl,
                     GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_OVERHEAD_H_
