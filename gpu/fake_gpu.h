// A CUDA driver and an NCCL over host memory, for tests without a GPU: one
// shared library that is given to LoadCuda and LoadNccl in place of the real
// ones. What it does it does as they do, also what goes wrong:
//
//   * a stream is a thread that runs what was queued, in order;
//   * device memory is only what MemAlloc gave; it belongs to a device, whose
//     streams MemFree waits for;
//   * ranks are threads or processes, which meet by the unique id;
//   * a communicator that is not blocking is to be polled;
//   * operations that differ between ranks wait for ever, until CommAbort,
//     unless they are told to meet;
//   * a stream may be captured, by cuStreamBeginCapture_v2: what is queued
//     there is not run, and what is unsafe beside it is refused and breaks it.
//
// Unsafe are all calls that make, free, ask or await something, a few more than
// for a real driver. It has no graphs to launch, no managed memory, no
// CommInitRank inside a group, 16 ranks at most; and the default stream is one
// like any other. Reductions are done in the order of ranks, in float for f16
// and bf16; of min and max a NaN is returned only where all ranks have one, as
// by NCCL.
//
// Its switches are set by a function that is found with dlsym,
//
//   void FakeGpuSet(const char* name, long long value);
//
// or, for child processes, by environment variables such as
// FAKE_GPU_DEVICE_COUNT, which are read when it is loaded:
//
//   device_count         8
//   no_driver            1: cuInit finds no device
//   init_error           what cuInit then returns, 0
//   version              of NCCL, 22809
//   in_progress          how often CommGetAsyncError says kInProgress after
//                        each call on a communicator that is not blocking
//   connects_lazily      1: what is called first on a communicator is in
//   progress
//                        until all its ranks have called something
//   async_error_at       the operation of a communicator, from 1, that ends in
//   async_error          this NcclResult, 6 (kRemoteError), on
//   fault_rank           this rank, -1 (all)
//   hang_at              the operation that waits for ever, on fault_rank
//   allow_duplicate_gpu  1: ranks may share a device
//   meets_by_bytes       1: what is of equal bytes meets, whatever else differs
//                        between ranks, and ends with garbage, as real NCCL's
#ifndef LOCKSTEP_GPU_FAKE_GPU_H_
#define LOCKSTEP_GPU_FAKE_GPU_H_

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {

// What the fake NCCL uses of the fake CUDA.

long long FakeGpuGet(const std::string& name);

// The context that is current in this thread, or else the first device's.
int FakeCurrentDevice();

// Where the memory at an address is, if CUDA gave it out.
struct FakeMemory {
  size_t bytes = 0;  // of the whole allocation
  int device = -1;   // -1: page-locked host memory
};
std::optional<FakeMemory> FakeMemoryAt(const void* pointer);

// Queues `task` on the stream; false if it is of another device.
bool FakeEnqueue(CudaStream* stream, int device, std::function<void()> task);

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_FAKE_GPU_H_
