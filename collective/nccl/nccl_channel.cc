#include "lockstep/collective/nccl/nccl_channel.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/nccl/nccl_types.h"

namespace lockstep::internal_collective {

using internal_gpu::CudaResult;
using internal_gpu::kCudaNotReady;

absl::Status NcclChannel::Connect() {
  const internal_gpu::CudaApi& cuda = shared_.cuda;
  LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
      cuda.StreamCreate(&stream_, internal_gpu::kCudaStreamNonBlocking),
      "cuStreamCreate"));
  LOCKSTEP_RETURN_IF_ERROR(
      shared_.Check(cuda.MemAlloc(&scratch_, kNcclScratchBytes), "cuMemAlloc"));
  void* tag = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      shared_.Check(cuda.MemHostAlloc(&tag, sizeof(*tag_),
                                      internal_gpu::kCudaHostAllocPortable),
                    "cuMemHostAlloc"));
  tag_ = static_cast<uint64_t*>(tag);
  LOCKSTEP_ASSIGN_OR_RETURN(end_, shared_.events.Take());
  const int from = sends_ ? shared_.rank : peer_;
  const int to = sends_ ? peer_ : shared_.rank;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const NcclUniqueId id,
      shared_.ShareId(absl::StrCat("/", from, ">", to), /*makes=*/sends_));
  return communicator_.Connect(2, id, sends_ ? 0 : 1);
}

// Calls `move`, which sends or receives. Where that fails, returns when the
// stream uses no memory of the caller any more.
template <typename Do>
absl::Status NcclChannel::Use(const Do& move) {
  LOCKSTEP_RETURN_IF_ERROR(shared_.CheckCancelled());
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  return shared_.device().InContext([&] {
    if (!connected_) {
      failure_ = Connect();
      connected_ = failure_.ok();
    }
    if (failure_.ok()) failure_ = move();
    // Nothing is queued for a message that was not expected.
    if (!failure_.ok() && !absl::IsFailedPrecondition(failure_)) {
      communicator_.Abort();
      const Pauses pauses;
      while (stream_ != nullptr &&
             shared_.cuda.StreamQuery(stream_) == kCudaNotReady) {
        pauses.Pause();
      }
    }
    return failure_;
  });
}

// Waits until the device has done all that is queued on the stream now.
absl::Status NcclChannel::AwaitStream() {
  LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
      shared_.cuda.EventRecord(end_, stream_), "nccl, cuEventRecord"));
  const Pauses pauses;
  CudaResult result = kCudaNotReady;
  while ((result = shared_.cuda.EventQuery(end_)) == kCudaNotReady) {
    LOCKSTEP_RETURN_IF_ERROR(shared_.CheckCancelled());
    LOCKSTEP_RETURN_IF_ERROR(communicator_.AsyncError());
    pauses.Pause();
  }
  return shared_.Check(result, "nccl, cuEventQuery");
}

// The tag goes ahead. A receiver that expects another one never asks for the
// message, which therefore does not leave the sender's device.
absl::Status NcclChannel::Send(const ConstBuffer& in, uint64_t tag) {
  return Use([&]() -> absl::Status {
    const auto send = [&](const void* data, int64_t bytes) {
      return communicator_.Call("send", [&](NcclComm* comm) {
        return shared_.nccl.Send(data, bytes, kNcclByte, 1, comm, stream_);
      });
    };
    *tag_ = tag;
    LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
        shared_.cuda.MemcpyAsync(scratch_, tag_, sizeof(tag), stream_),
        "nccl, cuMemcpyAsync"));
    LOCKSTEP_RETURN_IF_ERROR(send(scratch_, sizeof(tag)));
    if (in.count > 0) {
      LOCKSTEP_RETURN_IF_ERROR(send(in.data, in.count * SizeOf(in.dtype)));
    }
    return AwaitStream();
  });
}

absl::Status NcclChannel::Recv(const Buffer& out, uint64_t tag) {
  return Use([&]() -> absl::Status {
    const auto receive = [&](void* data, int64_t bytes) {
      return communicator_.Call("recv", [&](NcclComm* comm) {
        return shared_.nccl.Recv(data, bytes, kNcclByte, 0, comm, stream_);
      });
    };
    LOCKSTEP_RETURN_IF_ERROR(receive(scratch_, sizeof(tag)));
    LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
        shared_.cuda.MemcpyAsync(tag_, scratch_, sizeof(tag), stream_),
        "nccl, cuMemcpyAsync"));
    LOCKSTEP_RETURN_IF_ERROR(AwaitStream());
    if (*tag_ != tag) {
      return absl::FailedPreconditionError(
          absl::StrCat("nccl, from rank ", peer_,
                       ": it has sent another message than was expected"));
    }
    if (out.count == 0) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(receive(out.data, out.count * SizeOf(out.dtype)));
    return AwaitStream();
  });
}

void NcclChannel::Release() {
  if (end_ != nullptr) shared_.events.Give(end_);
  shared_.cuda.MemFree(scratch_);
  if (tag_ != nullptr) shared_.cuda.MemFreeHost(tag_);
  if (stream_ != nullptr) shared_.cuda.StreamDestroy(stream_);
}

}  // namespace lockstep::internal_collective
