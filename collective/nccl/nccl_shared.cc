#include "lockstep/collective/nccl/nccl_shared.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

using internal_gpu::CudaEvent;
using internal_gpu::CudaStatus;

absl::StatusOr<CudaEvent*> EventPool::Take() {
  CudaEvent* event = nullptr;
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
      cuda_, cuda_.EventCreate(&event, internal_gpu::kCudaEventDisableTiming),
      "cuEventCreate"));
  return event;
}

void EventPool::Give(CudaEvent* event) {
  MutexLock lock(mutex_);
  free_.push_back(event);
}

void EventPool::DestroyAll() {
  MutexLock lock(mutex_);
  for (CudaEvent* const event : free_) cuda_.EventDestroy(event);
  free_.clear();
}

absl::Status NcclShared::Open(int ordinal) {
  int devices = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda.DeviceGetCount(&devices), "cuDeviceGetCount"));
  const int by_rank = devices == 1 ? 0 : context_.local_rank;
  const bool is_given = ordinal >= 0;
  absl::StatusOr<std::unique_ptr<const internal_gpu::Gpu>> device =
      internal_gpu::Gpu::Open(cuda, is_given ? ordinal : by_rank);
  if (absl::IsInvalidArgument(device.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("NcclOptions::", device.status().message(),
                     is_given ? "" : ", this rank's number on its host"));
  }
  LOCKSTEP_RETURN_IF_ERROR(device.status());
  device_ = *std::move(device);
  return absl::OkStatus();
}

absl::Status NcclShared::CheckCancelled() const {
  return cancelled ? TransportCancelled() : absl::OkStatus();
}

absl::StatusOr<NcclUniqueId> NcclShared::ShareId(absl::string_view of,
                                                 bool makes) const {
  const std::string key = absl::StrCat(context_.key, "/nccl", of);
  NcclUniqueId id = {};
  if (makes) {
    const NcclResult result = nccl.GetUniqueId(&id);
    if (result != NcclResult::kSuccess) {
      return absl::InternalError(
          absl::StrCat("nccl, making an id: ", nccl.GetErrorString(result),
                       " (", nccl.GetLastError(nullptr), ")"));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        context_.store->Set(key, {id.internal, sizeof(id.internal)}));
    return id;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string shared,
      AwaitKey(*context_.store, key, [this] { return CheckCancelled(); }));
  if (shared.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the store should have an id of ", sizeof(id.internal),
        " bytes under '", key, "', but has ", shared.size(), " bytes"));
  }
  shared.copy(id.internal, sizeof(id.internal));
  return id;
}

}  // namespace lockstep::internal_collective
