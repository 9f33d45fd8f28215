// The sections of gpu_check that measure how fast the card takes memory of the
// host: by bare copies, and by a Loader that copies ahead of use.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_

#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// Measures copies from the host to the device, of page-locked and of other
// memory, in turns.
void MeasureCopies(const GpuOptions& options, const internal_gpu::CudaApi& cuda,
                   GpuReport& report);

// Measures batches that a Loader with PinnedMemory copies ahead, in turns with
// bare copies: the rate of copies without computation, and the time that copies
// add to steps in which the device computes.
void MeasurePrefetched(const GpuOptions& options,
                       const internal_gpu::CudaApi& cuda, GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_
