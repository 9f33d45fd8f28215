// Compares our declarations of CUDA's and NCCL's functions, types and constants
// with the real headers. Nothing is linked or run: the test is that it
// compiles.
#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaCaptureMode;
using internal_gpu::CudaCaptureStatus;
using internal_gpu::CudaPointerAttribute;
using internal_gpu::kCudaCapturedEvent;
using internal_gpu::kCudaCaptureImplicit;
using internal_gpu::kCudaCaptureInvalidated;
using internal_gpu::kCudaCaptureIsolation;
using internal_gpu::kCudaCaptureUnsupported;
using internal_gpu::kCudaEventBlockingSync;
using internal_gpu::kCudaEventDisableTiming;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaInvalidContext;
using internal_gpu::kCudaInvalidDevice;
using internal_gpu::kCudaInvalidHandle;
using internal_gpu::kCudaInvalidValue;
using internal_gpu::kCudaMemoryTypeDevice;
using internal_gpu::kCudaMemoryTypeHost;
using internal_gpu::kCudaNoDevice;
using internal_gpu::kCudaNotInitialized;
using internal_gpu::kCudaNotReady;
using internal_gpu::kCudaOutOfMemory;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::kCudaStubLibrary;
using internal_gpu::kCudaSuccess;

// True if arguments of the two types are passed in the same way. CUDA's device
// memory is an integer there and a pointer here.
template <typename Ours, typename Theirs>
constexpr bool kPassedAlike =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_class_v<Ours> ==
        std::is_class_v<Theirs>&& std::is_floating_point_v<Ours> ==
        std::is_floating_point_v<Theirs>;

template <typename Ours, typename Theirs>
struct CalledAlike : std::false_type {};

template <typename Result, typename... Arguments, typename TheirResult,
          typename... TheirArguments>
struct CalledAlike<Result (*)(Arguments...), TheirResult(TheirArguments...)> {
  static constexpr bool Check() {
    if constexpr (sizeof...(Arguments) == sizeof...(TheirArguments)) {
      return kPassedAlike<Result, TheirResult> &&
             (kPassedAlike<Arguments, TheirArguments> && ...);
    }
    return false;
  }
  static constexpr bool value = Check();
};

#define LOCKSTEP_SAME_FUNCTION(api, ours, theirs)                          \
  static_assert(CalledAlike<decltype(api::ours), decltype(theirs)>::value, \
                #theirs " has other arguments")

#define LOCKSTEP_SAME_NCCL(function) \
  LOCKSTEP_SAME_FUNCTION(NcclApi, function, nccl##function)
LOCKSTEP_SAME_NCCL(GetVersion);
LOCKSTEP_SAME_NCCL(GetUniqueId);
LOCKSTEP_SAME_NCCL(GetErrorString);
LOCKSTEP_SAME_NCCL(GetLastError);
LOCKSTEP_SAME_NCCL(CommInitRankConfig);
LOCKSTEP_SAME_NCCL(CommFinalize);
LOCKSTEP_SAME_NCCL(CommDestroy);
LOCKSTEP_SAME_NCCL(CommAbort);
LOCKSTEP_SAME_NCCL(CommGetAsyncError);
LOCKSTEP_SAME_NCCL(AllReduce);
LOCKSTEP_SAME_NCCL(Broadcast);
LOCKSTEP_SAME_NCCL(Reduce);
LOCKSTEP_SAME_NCCL(AllGather);
LOCKSTEP_SAME_NCCL(ReduceScatter);
LOCKSTEP_SAME_NCCL(Send);
LOCKSTEP_SAME_NCCL(Recv);
LOCKSTEP_SAME_NCCL(GroupStart);
LOCKSTEP_SAME_NCCL(GroupEnd);
LOCKSTEP_SAME_NCCL(RedOpCreatePreMulSum);
LOCKSTEP_SAME_NCCL(RedOpDestroy);

#define LOCKSTEP_SAME_CUDA(function) \
  LOCKSTEP_SAME_FUNCTION(CudaApi, function, cu##function)
LOCKSTEP_SAME_CUDA(Init);
LOCKSTEP_SAME_CUDA(DriverGetVersion);
LOCKSTEP_SAME_CUDA(GetErrorName);
LOCKSTEP_SAME_CUDA(GetErrorString);
LOCKSTEP_SAME_CUDA(DeviceGetCount);
LOCKSTEP_SAME_CUDA(DeviceGet);
LOCKSTEP_SAME_CUDA(DeviceGetName);
LOCKSTEP_SAME_CUDA(DevicePrimaryCtxRetain);
LOCKSTEP_SAME_CUDA(DevicePrimaryCtxRelease);
LOCKSTEP_SAME_CUDA(CtxPushCurrent);
LOCKSTEP_SAME_CUDA(CtxPopCurrent);
LOCKSTEP_SAME_CUDA(StreamCreate);
LOCKSTEP_SAME_CUDA(StreamDestroy);
LOCKSTEP_SAME_CUDA(StreamWaitEvent);
LOCKSTEP_SAME_CUDA(StreamQuery);
LOCKSTEP_SAME_CUDA(StreamSynchronize);
LOCKSTEP_SAME_CUDA(StreamIsCapturing);
LOCKSTEP_SAME_CUDA(ThreadExchangeStreamCaptureMode);
LOCKSTEP_SAME_CUDA(LaunchHostFunc);
LOCKSTEP_SAME_CUDA(EventCreate);
LOCKSTEP_SAME_CUDA(EventDestroy);
LOCKSTEP_SAME_CUDA(EventRecord);
LOCKSTEP_SAME_CUDA(EventQuery);
LOCKSTEP_SAME_CUDA(EventSynchronize);
LOCKSTEP_SAME_CUDA(MemAlloc);
LOCKSTEP_SAME_CUDA(MemFree);
LOCKSTEP_SAME_CUDA(MemHostAlloc);
LOCKSTEP_SAME_CUDA(MemFreeHost);
LOCKSTEP_SAME_CUDA(MemcpyAsync);
LOCKSTEP_SAME_CUDA(PointerGetAttributes);

#define LOCKSTEP_SAME_VALUE(ours, theirs)                         \
  static_assert(static_cast<long long>(ours) == (theirs), #theirs \
                " is "                                            \
                "another number")

LOCKSTEP_SAME_VALUE(NcclResult::kSuccess, ncclSuccess);
LOCKSTEP_SAME_VALUE(NcclResult::kUnhandledCudaError, ncclUnhandledCudaError);
LOCKSTEP_SAME_VALUE(NcclResult::kSystemError, ncclSystemError);
LOCKSTEP_SAME_VALUE(NcclResult::kInternalError, ncclInternalError);
LOCKSTEP_SAME_VALUE(NcclResult::kInvalidArgument, ncclInvalidArgument);
LOCKSTEP_SAME_VALUE(NcclResult::kInvalidUsage, ncclInvalidUsage);
LOCKSTEP_SAME_VALUE(NcclResult::kRemoteError, ncclRemoteError);
LOCKSTEP_SAME_VALUE(NcclResult::kInProgress, ncclInProgress);
LOCKSTEP_SAME_VALUE(NcclDataType::kInt8, ncclInt8);
LOCKSTEP_SAME_VALUE(NcclDataType::kUint8, ncclUint8);
LOCKSTEP_SAME_VALUE(NcclDataType::kInt32, ncclInt32);
LOCKSTEP_SAME_VALUE(NcclDataType::kUint32, ncclUint32);
LOCKSTEP_SAME_VALUE(NcclDataType::kInt64, ncclInt64);
LOCKSTEP_SAME_VALUE(NcclDataType::kUint64, ncclUint64);
LOCKSTEP_SAME_VALUE(NcclDataType::kFloat16, ncclFloat16);
LOCKSTEP_SAME_VALUE(NcclDataType::kFloat32, ncclFloat32);
LOCKSTEP_SAME_VALUE(NcclDataType::kFloat64, ncclFloat64);
LOCKSTEP_SAME_VALUE(NcclDataType::kBfloat16, ncclBfloat16);
LOCKSTEP_SAME_VALUE(NcclRedOp::kSum, ncclSum);
LOCKSTEP_SAME_VALUE(NcclRedOp::kProd, ncclProd);
LOCKSTEP_SAME_VALUE(NcclRedOp::kMax, ncclMax);
LOCKSTEP_SAME_VALUE(NcclRedOp::kMin, ncclMin);
LOCKSTEP_SAME_VALUE(NcclRedOp::kAvg, ncclAvg);
LOCKSTEP_SAME_VALUE(NcclScalarResidence::kDevice, ncclScalarDevice);
LOCKSTEP_SAME_VALUE(NcclScalarResidence::kHostImmediate,
                    ncclScalarHostImmediate);
LOCKSTEP_SAME_VALUE(kNcclUndefined, NCCL_CONFIG_UNDEF_INT);
LOCKSTEP_SAME_VALUE(kNcclVersionNeeded, NCCL_VERSION(2, 18, 0));

LOCKSTEP_SAME_VALUE(sizeof(NcclUniqueId), sizeof(ncclUniqueId));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, size), offsetof(ncclConfig_t, size));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, magic), offsetof(ncclConfig_t, magic));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, version),
                    offsetof(ncclConfig_t, version));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, blocking),
                    offsetof(ncclConfig_t, blocking));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, cga_cluster_size),
                    offsetof(ncclConfig_t, cgaClusterSize));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, min_ctas),
                    offsetof(ncclConfig_t, minCTAs));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, max_ctas),
                    offsetof(ncclConfig_t, maxCTAs));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, net_name),
                    offsetof(ncclConfig_t, netName));
LOCKSTEP_SAME_VALUE(offsetof(NcclConfig, split_share),
                    offsetof(ncclConfig_t, splitShare));

LOCKSTEP_SAME_VALUE(kCudaSuccess, CUDA_SUCCESS);
LOCKSTEP_SAME_VALUE(kCudaInvalidValue, CUDA_ERROR_INVALID_VALUE);
LOCKSTEP_SAME_VALUE(kCudaOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
LOCKSTEP_SAME_VALUE(kCudaNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
LOCKSTEP_SAME_VALUE(kCudaStubLibrary, CUDA_ERROR_STUB_LIBRARY);
LOCKSTEP_SAME_VALUE(kCudaNoDevice, CUDA_ERROR_NO_DEVICE);
LOCKSTEP_SAME_VALUE(kCudaInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
LOCKSTEP_SAME_VALUE(kCudaInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
LOCKSTEP_SAME_VALUE(kCudaInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
LOCKSTEP_SAME_VALUE(kCudaNotReady, CUDA_ERROR_NOT_READY);
LOCKSTEP_SAME_VALUE(kCudaCaptureUnsupported,
                    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
LOCKSTEP_SAME_VALUE(kCudaCaptureInvalidated,
                    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
LOCKSTEP_SAME_VALUE(kCudaCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
LOCKSTEP_SAME_VALUE(kCudaCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
LOCKSTEP_SAME_VALUE(kCudaCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
LOCKSTEP_SAME_VALUE(CudaCaptureMode::kGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
LOCKSTEP_SAME_VALUE(CudaCaptureMode::kThreadLocal,
                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
LOCKSTEP_SAME_VALUE(CudaCaptureMode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
LOCKSTEP_SAME_VALUE(CudaCaptureStatus::kNone, CU_STREAM_CAPTURE_STATUS_NONE);
LOCKSTEP_SAME_VALUE(CudaCaptureStatus::kActive,
                    CU_STREAM_CAPTURE_STATUS_ACTIVE);
LOCKSTEP_SAME_VALUE(CudaCaptureStatus::kInvalidated,
                    CU_STREAM_CAPTURE_STATUS_INVALIDATED);
LOCKSTEP_SAME_VALUE(kCudaStreamNonBlocking, CU_STREAM_NON_BLOCKING);
LOCKSTEP_SAME_VALUE(kCudaEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
LOCKSTEP_SAME_VALUE(kCudaEventDisableTiming, CU_EVENT_DISABLE_TIMING);
LOCKSTEP_SAME_VALUE(kCudaHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
LOCKSTEP_SAME_VALUE(CudaPointerAttribute::kMemoryType,
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
LOCKSTEP_SAME_VALUE(CudaPointerAttribute::kIsManaged,
                    CU_POINTER_ATTRIBUTE_IS_MANAGED);
LOCKSTEP_SAME_VALUE(CudaPointerAttribute::kDeviceOrdinal,
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
LOCKSTEP_SAME_VALUE(kCudaMemoryTypeHost, CU_MEMORYTYPE_HOST);
LOCKSTEP_SAME_VALUE(kCudaMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);

TEST(Headers, InitializersAreAlike) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
}

}  // namespace
}  // namespace lockstep::internal_collective
