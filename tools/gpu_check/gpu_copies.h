// The sections of gpu_check that measure how fast the card takes memory of the
// host: as it is, and by a Loader ahead of use.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_

#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// Copies from the host to the device, of memory that is page-locked and of
// memory that is not, in turns.
void MeasureCopies(const GpuOptions& options, const internal_gpu::CudaApi& cuda,
                   GpuReport& report);

// Batches that a Loader with PinnedMemory copies ahead: how fast they come
// beside bare copies, and what is left to be seen of their copies when the
// device computes meanwhile; in turns.
void MeasurePrefetched(const GpuOptions& options,
                       const internal_gpu::CudaApi& cuda, GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_COPIES_H_
