// The settings of gpu_check.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_OPTIONS_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The device of all ranks: the first one that the process sees.
inline constexpr int kGpuDevice = 0;

// The settings.
struct GpuOptions {
  std::string nccl_library;  // as in NcclOptions
  std::string cuda_library;
  absl::Duration time;          // the time of each section that measures speed
  int64_t most_bytes = 0;       // the largest operation or copy
  double most_overhead_us = 0;  // the target for our part of an operation
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_OPTIONS_H_
