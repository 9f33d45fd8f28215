// Functions of the CUDA driver, from the library that comes with every driver.
// A program starts without that library, and compiles without its headers.
//
//   auto cuda = LoadCuda("");   // or the path of a libcuda.so.1
//   CudaContext* context = nullptr;
//   absl::Status status =
//       CudaStatus(**cuda, (*cuda)->DevicePrimaryCtxRetain(&context, 0),
//                  "cuDevicePrimaryCtxRetain");
//
// This is the API of the driver and not that of the runtime, for two reasons.
// One driver library serves programs of all CUDA versions. Its contexts are
// those of the trainer's runtime, which is often linked into the trainer
// statically.
//
// The declarations are those of cuda.h with other names; headers_test.cc
// compares them with the real ones. CUDA's documentation describes the
// functions.
#ifndef LOCKSTEP_GPU_CUDA_API_H_
#define LOCKSTEP_GPU_CUDA_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_gpu {

// A CUresult. This code tests for the following values.
using CudaResult = int;
inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaInvalidValue = 1;
inline constexpr CudaResult kCudaOutOfMemory = 2;
inline constexpr CudaResult kCudaNotInitialized = 3;
inline constexpr CudaResult kCudaStubLibrary = 34;
inline constexpr CudaResult kCudaNoDevice = 100;
inline constexpr CudaResult kCudaInvalidDevice = 101;
inline constexpr CudaResult kCudaInvalidContext = 201;
inline constexpr CudaResult kCudaInvalidHandle = 400;
inline constexpr CudaResult kCudaNotReady = 600;
inline constexpr CudaResult kCudaCaptureUnsupported = 900;
inline constexpr CudaResult kCudaCaptureInvalidated = 901;
inline constexpr CudaResult kCudaCaptureIsolation = 905;
inline constexpr CudaResult kCudaCaptureImplicit = 906;
inline constexpr CudaResult kCudaCapturedEvent = 907;

using CudaDevice = int;

// Opaque types of CUDA.
struct CudaContext;
struct CudaStream;
struct CudaEvent;

// A flag of StreamCreate: the stream does not wait for the default stream.
inline constexpr unsigned kCudaStreamNonBlocking = 1;

// The handle that means another stream in each thread.
inline constexpr uintptr_t kCudaPerThreadStream = 2;

// A thread's mode says which captures forbid it unsafe calls. A call that is
// forbidden fails, and breaks the capture too.
enum class CudaCaptureMode : int {
  kGlobal =
      0,  // its own captures, and those that other threads began in this mode
  kThreadLocal = 1,  // its own captures
  kRelaxed = 2,      // no captures
};
enum class CudaCaptureStatus : int {
  kNone = 0,
  kActive = 1,
  kInvalidated = 2,
};

// Flags of EventCreate.
inline constexpr unsigned kCudaEventBlockingSync = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;

// A flag of MemHostAlloc: the memory is page-locked for all contexts.
inline constexpr unsigned kCudaHostAllocPortable = 1;

enum class CudaPointerAttribute : int {
  kMemoryType = 2,     // an unsigned: one of the values below
  kIsManaged = 8,      // an unsigned: 0 or 1
  kDeviceOrdinal = 9,  // an int
};
inline constexpr unsigned kCudaMemoryTypeHost = 1;
inline constexpr unsigned kCudaMemoryTypeDevice = 2;

// The driver's functions. Device memory has the type void*, where CUDA has a
// 64-bit integer: functions take both alike.
struct CudaApi {
  CudaResult (*Init)(unsigned flags);
  CudaResult (*DriverGetVersion)(int* version);
  CudaResult (*GetErrorName)(CudaResult result, const char** name);
  CudaResult (*GetErrorString)(CudaResult result, const char** text);

  CudaResult (*DeviceGetCount)(int* count);
  CudaResult (*DeviceGet)(CudaDevice* device, int ordinal);
  CudaResult (*DeviceGetName)(char* name, int bytes, CudaDevice device);
  CudaResult (*DevicePrimaryCtxRetain)(CudaContext** context,
                                       CudaDevice device);
  CudaResult (*DevicePrimaryCtxRelease)(CudaDevice device);
  CudaResult (*CtxPushCurrent)(CudaContext* context);
  CudaResult (*CtxPopCurrent)(CudaContext** context);

  CudaResult (*StreamCreate)(CudaStream** stream, unsigned flags);
  CudaResult (*StreamDestroy)(CudaStream* stream);
  CudaResult (*StreamWaitEvent)(CudaStream* stream, CudaEvent* event,
                                unsigned flags);
  CudaResult (*StreamQuery)(CudaStream* stream);
  CudaResult (*StreamSynchronize)(CudaStream* stream);
  CudaResult (*StreamIsCapturing)(CudaStream* stream,
                                  CudaCaptureStatus* status);
  // Exchanges the mode of this thread and `*mode`.
  CudaResult (*ThreadExchangeStreamCaptureMode)(CudaCaptureMode* mode);
  CudaResult (*LaunchHostFunc)(CudaStream* stream, void (*function)(void*),
                               void* argument);

  CudaResult (*EventCreate)(CudaEvent** event, unsigned flags);
  CudaResult (*EventDestroy)(CudaEvent* event);
  CudaResult (*EventRecord)(CudaEvent* event, CudaStream* stream);
  CudaResult (*EventQuery)(CudaEvent* event);
  CudaResult (*EventSynchronize)(CudaEvent* event);

  CudaResult (*MemAlloc)(void** device_memory, size_t bytes);
  CudaResult (*MemFree)(void* device_memory);
  CudaResult (*MemHostAlloc)(void** host_memory, size_t bytes, unsigned flags);
  CudaResult (*MemFreeHost)(void* host_memory);
  CudaResult (*MemcpyAsync)(void* to, const void* from, size_t bytes,
                            CudaStream* stream);
  CudaResult (*MemsetD8Async)(void* device_memory, unsigned char value,
                              size_t bytes, CudaStream* stream);
  CudaResult (*PointerGetAttributes)(unsigned count,
                                     CudaPointerAttribute* attributes,
                                     void** values, const void* pointer);
};

// The kind of some memory, and the device that it belongs to.
struct CudaPointer {
  unsigned type =
      0;  // kCudaMemoryTypeHost, ...Device, or 0 if CUDA does not know it
  unsigned is_managed = 0;
  int device = 0;  // the device's ordinal
};
CudaResult DescribePointer(const CudaApi& cuda, const void* pointer,
                           CudaPointer& description);

// Loads and initializes the library at `path`, or libcuda.so.1 if `path` is
// empty. Each library is loaded only once in a process, and never unloaded.
// Fails with UNAVAILABLE if there is no driver or no device, and with the error
// of CudaStatus if the driver fails. Thread-safe.
absl::StatusOr<const CudaApi*> LoadCuda(const std::string& path);

// Returns OK for kCudaSuccess, RESOURCE_EXHAUSTED if memory ran out, and
// INTERNAL for other results. The message has `what` and CUDA's words for the
// result.
absl::Status CudaStatus(const CudaApi& cuda, CudaResult result,
                        absl::string_view what);

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_CUDA_API_H_
