#include "lockstep/gpu/cuda_api.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/dynamic_library.h"

namespace lockstep::internal_gpu {
namespace {

constexpr char kDefaultName[] = "libcuda.so.1";

absl::Status FindAll(const DynamicLibrary& library, CudaApi& api) {
  // The second argument is the symbol for which cuda.h defines the first one.
#define LOCKSTEP_FIND(function, symbol) \
  LOCKSTEP_RETURN_IF_ERROR(library.Find("cu" #symbol, api.function))
  LOCKSTEP_FIND(Init, Init);
  LOCKSTEP_FIND(DriverGetVersion, DriverGetVersion);
  LOCKSTEP_FIND(GetErrorName, GetErrorName);
  LOCKSTEP_FIND(GetErrorString, GetErrorString);
  LOCKSTEP_FIND(DeviceGetCount, DeviceGetCount);
  LOCKSTEP_FIND(DeviceGet, DeviceGet);
  LOCKSTEP_FIND(DeviceGetName, DeviceGetName);
  LOCKSTEP_FIND(DevicePrimaryCtxRetain, DevicePrimaryCtxRetain);
  LOCKSTEP_FIND(DevicePrimaryCtxRelease, DevicePrimaryCtxRelease_v2);
  LOCKSTEP_FIND(CtxPushCurrent, CtxPushCurrent_v2);
  LOCKSTEP_FIND(CtxPopCurrent, CtxPopCurrent_v2);
  LOCKSTEP_FIND(StreamCreate, StreamCreate);
  LOCKSTEP_FIND(StreamDestroy, StreamDestroy_v2);
  LOCKSTEP_FIND(StreamWaitEvent, StreamWaitEvent);
  LOCKSTEP_FIND(StreamQuery, StreamQuery);
  LOCKSTEP_FIND(StreamSynchronize, StreamSynchronize);
  LOCKSTEP_FIND(StreamIsCapturing, StreamIsCapturing);
  LOCKSTEP_FIND(ThreadExchangeStreamCaptureMode,
                ThreadExchangeStreamCaptureMode);
  LOCKSTEP_FIND(LaunchHostFunc, LaunchHostFunc);
  LOCKSTEP_FIND(EventCreate, EventCreate);
  LOCKSTEP_FIND(EventDestroy, EventDestroy_v2);
  LOCKSTEP_FIND(EventRecord, EventRecord);
  LOCKSTEP_FIND(EventQuery, EventQuery);
  LOCKSTEP_FIND(EventSynchronize, EventSynchronize);
  LOCKSTEP_FIND(MemAlloc, MemAlloc_v2);
  LOCKSTEP_FIND(MemFree, MemFree_v2);
  LOCKSTEP_FIND(MemHostAlloc, MemHostAlloc);
  LOCKSTEP_FIND(MemFreeHost, MemFreeHost);
  LOCKSTEP_FIND(MemcpyAsync, MemcpyAsync);
  LOCKSTEP_FIND(MemsetD8Async, MemsetD8Async);
  LOCKSTEP_FIND(PointerGetAttributes, PointerGetAttributes);
#undef LOCKSTEP_FIND
  return absl::OkStatus();
}

// Returns CudaStatus, but UNAVAILABLE if there is no driver or no device.
absl::Status LoadStatus(const CudaApi& cuda, CudaResult result,
                        absl::string_view what) {
  absl::Status status = CudaStatus(cuda, result, what);
  if (result != kCudaNoDevice && result != kCudaStubLibrary) return status;
  return absl::UnavailableError(status.message());
}

absl::StatusOr<std::unique_ptr<const CudaApi>> Load(const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const DynamicLibrary library,
                            DynamicLibrary::Open(name));
  auto api = std::make_unique<CudaApi>();
  LOCKSTEP_RETURN_IF_ERROR(FindAll(library, *api));
  LOCKSTEP_RETURN_IF_ERROR(
      LoadStatus(*api, api->Init(0), absl::StrCat("cuInit of ", name)));
  int devices = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      LoadStatus(*api, api->DeviceGetCount(&devices), "cuDeviceGetCount"));
  if (devices == 0) {
    return absl::UnavailableError(absl::StrCat(name, " knows no device"));
  }
  return api;
}

}  // namespace

absl::StatusOr<const CudaApi*> LoadCuda(const std::string& path) {
  // These are never destroyed, because threads may use CUDA until the process
  // ends.
  static auto& mutex = *new Mutex;
  static auto& loaded =
      *new std::map<std::string, std::unique_ptr<const CudaApi>>;
  const std::string name = path.empty() ? kDefaultName : path;
  MutexLock lock(mutex);
  std::unique_ptr<const CudaApi>& api = loaded[name];
  if (api == nullptr) {
    absl::StatusOr<std::unique_ptr<const CudaApi>> fresh = Load(name);
    if (absl::IsUnavailable(fresh.status())) {
      return absl::UnavailableError(absl::StrCat(
          fresh.status().message(),
          ". Install NVIDIA's driver, or let this process see the GPU "
          "(CUDA_VISIBLE_DEVICES, the container's options)"));
    }
    if (!fresh.ok()) return fresh.status();
    api = *std::move(fresh);
  }
  return api.get();
}

CudaResult DescribePointer(const CudaApi& cuda, const void* pointer,
                           CudaPointer& description) {
  description = {};
  CudaPointerAttribute attributes[] = {CudaPointerAttribute::kMemoryType,
                                       CudaPointerAttribute::kIsManaged,
                                       CudaPointerAttribute::kDeviceOrdinal};
  void* values[] = {&description.type, &description.is_managed,
                    &description.device};
  return cuda.PointerGetAttributes(3, attributes, values, pointer);
}

absl::Status CudaStatus(const CudaApi& cuda, CudaResult result,
                        absl::string_view what) {
  if (result == kCudaSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  cuda.GetErrorName(result, &name);
  cuda.GetErrorString(result, &text);
  const std::string message = absl::StrCat(
      what, " failed: ", name == nullptr ? "unknown to this driver" : name,
      " (", result, ")", text == nullptr ? "" : ", ",
      text == nullptr ? "" : text);
  return result == kCudaOutOfMemory ? absl::ResourceExhaustedError(message)
                                    : absl::InternalError(message);
}

}  // namespace lockstep::internal_gpu
