// A CUDA driver and an NCCL in host memory, for tests without a GPU. It is one
// shared library, which LoadCuda and LoadNccl load in place of the real ones.
// It behaves as they do, also in error cases:
//
//   * a stream is a thread that runs the queued work in order;
//   * only memory from MemAlloc is device memory; it belongs to a device, and
//     MemFree waits for that device's streams;
//   * ranks are threads or processes, which meet by the unique id;
//   * a non-blocking communicator must be polled;
//   * operations that differ between ranks wait until CommAbort, unless a
//     switch lets them meet;
//   * cuStreamBeginCapture_v2 captures a stream: work that is queued there is
//     not run, and unsafe calls beside it fail and break the capture.
//
// All calls that make, free, query or await something count as unsafe, which is
// a few more than for a real driver. The fake can't launch graphs and has no
// managed memory. It allows no CommInitRank inside a group and at most 16
// ranks. Its default stream is like any other stream. Reductions go in the
// order of ranks, in float for f16 and bf16. As in NCCL, min and max give a NaN
// only where all ranks have one.
//
// A function that is found with dlsym sets the switches,
//
//   void FakeGpuSet(const char* name, long long value);
//   long long FakeGpuPieces();  // how many pieces of memory there are
//
// or, for child processes, environment variables such as FAKE_GPU_DEVICE_COUNT,
// which are read when the library is loaded. The switches and their defaults:
//
//   device_count         8
//   no_driver            0; 1: cuInit finds no device
//   init_error           0; the error that cuInit returns
//   full_device          -1; the device that has at most 64 KiB for anything
//   version              22809, of NCCL
//   in_progress          0; the number of times that CommGetAsyncError says
//                        kInProgress after each call on a non-blocking
//                        communicator
//   connects_lazily      0; 1: the first call on a communicator is in progress
//                        until all its ranks have called something
//   async_error_at       0; the operation of a communicator, counted from 1,
//                        that fails
//   async_error          6 (kRemoteError), the NcclResult of that failure
//   fault_rank           -1 (all), the rank that fails or hangs
//   hang_at              0; the operation that never ends
//   allow_duplicate_gpu  0; 1: ranks may share a device
//   meets_by_bytes       0; 1: operations of equal bytes meet, although they
//                        differ between ranks, and give garbage, as in real
//                        NCCL
#ifndef LOCKSTEP_GPU_FAKE_GPU_H_
#define LOCKSTEP_GPU_FAKE_GPU_H_

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_gpu {

// These functions of the fake CUDA are used by the fake NCCL.

long long FakeGpuGet(const std::string& name);

// Returns the device of this thread's current context, or 0.
int FakeCurrentDevice();

// Memory that CUDA allocated.
struct FakeMemory {
  size_t bytes = 0;  // of the whole allocation
  int device = -1;   // -1 for page-locked host memory
};
// Returns the allocation at an address, or nullopt if CUDA did not allocate it.
std::optional<FakeMemory> FakeMemoryAt(const void* pointer);

// Queues `task` on the stream. Returns false if the stream is of another
// device.
bool FakeEnqueue(CudaStream* stream, int device, std::function<void()> task);

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_FAKE_GPU_H_
