#include "lockstep/collective/nccl/nccl_transport.h"

#include <cstdint>
#include <map>
#include <memory>
#include <thread>  // NOLINT: NCCL aborts in one of its own
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/nccl/nccl_channel.h"
#include "lockstep/collective/nccl/nccl_collectives.h"
#include "lockstep/collective/nccl/nccl_shared.h"
#include "lockstep/collective/nccl/nccl_types.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport_util.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/gpu_memory.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaPointer;
using internal_gpu::kCudaSuccess;

// The longest time that ranks that leave wait for each other.
constexpr absl::Duration kLeaveTakes = absl::Seconds(2);

// A rank's transport: its collectives, and a channel to and from each rank with
// which it exchanges messages.
// Requires: Open comes first.
// Thread-safety: as transport.h says. Cancel has a thread of the transport
// abort the collectives, since that may take time. Channels are aborted by the
// threads that use them.
class NcclTransport : public DeviceTransport {
 public:
  NcclTransport(const TransportContext& context, const CudaApi& cuda,
                const NcclApi& nccl)
      : shared_(context, cuda, nccl), collectives_(shared_) {}
  ~NcclTransport() override;

  // Opens the device, and starts the thread.
  absl::Status Open(int ordinal);

  absl::string_view name() const override { return "nccl"; }
  absl::Status CheckSupported(const Operation& op) const override;
  absl::Status Connect() override;
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) override {
    return collectives_.Prepare(op);
  }
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override {
    return ChannelOf(to, /*sends=*/true).Send(in, tag);
  }
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override {
    return ChannelOf(from, /*sends=*/false).Recv(out, tag);
  }
  absl::Status Move(const ConstBuffer& in, const Buffer& out) override;
  absl::StatusOr<std::shared_ptr<void>> AllocateOnDevice(
      int64_t bytes) override {
    return internal_gpu::AllocateOn(shared_.kept_device(), bytes);
  }
  Buffer notices() const override {
    return {notices_.get(),
            NoticeBytes(),
            DType::kU8,
            {Device::Kind::kCuda, shared_.device().ordinal()}};
  }
  void Cancel() override;

 private:
  absl::Status CheckBuffer(absl::string_view what,
                           const ConstBuffer& buffer) const;
  int64_t NoticeBytes() const { return (shared_.size + 1) * kNoticeBytes; }
  void AbortWhenCancelled();
  void Leave();
  NcclChannel& ChannelOf(int peer, bool sends);

  NcclShared shared_;
  NcclCollectives collectives_;
  // The stream of messages that the rank sends to itself.
  internal_gpu::CudaStream* moves_ = nullptr;
  std::shared_ptr<void> notices_;
  std::thread aborter_;

  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // The channels, by peer and whether this rank sends.
  std::map<std::pair<int, bool>, NcclChannel> channels_ ABSL_GUARDED_BY(mutex_);
};

// ---- Its beginning and its end.

absl::Status NcclTransport::Open(int ordinal) {
  LOCKSTEP_RETURN_IF_ERROR(shared_.Open(ordinal));
  LOCKSTEP_ASSIGN_OR_RETURN(notices_, AllocateOnDevice(NoticeBytes()));
  LOCKSTEP_RETURN_IF_ERROR(shared_.device().InContext([this] {
    LOCKSTEP_RETURN_IF_ERROR(collectives_.Open());
    return shared_.Check(shared_.cuda.StreamCreate(
                             &moves_, internal_gpu::kCudaStreamNonBlocking),
                         "cuStreamCreate");
  }));
  LOCKSTEP_ASSIGN_OR_RETURN(
      aborter_, internal_base::StartQuietThread(
                    "lockstep-abort", [this] { AbortWhenCancelled(); }));
  return absl::OkStatus();
}

absl::Status NcclTransport::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(shared_.CheckCancelled());
  return shared_.device().InContext([this] {
    LOCKSTEP_RETURN_IF_ERROR(collectives_.Connect());
    return shared_.CheckCancelled();
  });
}

void NcclTransport::Cancel() {
  MutexLock lock(mutex_);
  shared_.cancelled = true;
  changed_.NotifyAll();
}

void NcclTransport::AbortWhenCancelled() {
  {
    MutexLock lock(mutex_);
    while (!shared_.cancelled && !closing_) changed_.Wait(mutex_);
  }
  if (!shared_.cancelled) return;
  const auto abort = [this] {
    collectives_.Abort();
    return absl::OkStatus();
  };
  // The abort is needed also if the trainer has destroyed the context.
  if (!shared_.device().InContext(abort).ok()) abort().IgnoreError();
}

NcclTransport::~NcclTransport() {
  if (!shared_.is_open()) return;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  if (aborter_.joinable()) aborter_.join();
  const auto leave = [this] {
    Leave();
    return absl::OkStatus();
  };
  shared_.device().InContext(leave).IgnoreError();
}

void NcclTransport::Leave() {
  MutexLock lock(mutex_);
  // All communicators begin to end before one is waited for, since other ranks
  // may wait for another one first.
  collectives_.Finalize();
  for (auto& [id, channel] : channels_) channel.Finalize();
  const SteadyTime until = After(kLeaveTakes);
  collectives_.DestroyUntil(until);
  for (auto& [id, channel] : channels_) {
    channel.DestroyUntil(until);
    channel.Release();
  }
  collectives_.Release();
  if (moves_ != nullptr) shared_.cuda.StreamDestroy(moves_);
  shared_.events.DestroyAll();
}

// ---- Messages from one rank to another.

NcclChannel& NcclTransport::ChannelOf(int peer, bool sends) {
  MutexLock lock(mutex_);
  const std::pair<int, bool> id(peer, sends);
  return channels_.try_emplace(id, shared_, peer, sends).first->second;
}

absl::Status NcclTransport::Move(const ConstBuffer& in, const Buffer& out) {
  if (in.count == 0 || in.data == out.data) return absl::OkStatus();
  return shared_.device().InContext([&] {
    LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
        shared_.cuda.MemcpyAsync(out.data, in.data, in.count * SizeOf(in.dtype),
                                 moves_),
        "nccl, cuMemcpyAsync"));
    return shared_.Check(shared_.cuda.StreamSynchronize(moves_),
                         "nccl, cuStreamSynchronize");
  });
}

// ---- What is supported.

absl::Status NcclTransport::CheckSupported(const Operation& op) const {
  if (op.kind == OpKind::kAllReduceShards) {
    return absl::UnimplementedError(
        "nccl adds up in an order of its own, so sums of shards would not have "
        "the same bits on another number of ranks: use a group of another "
        "backend, for memory of the host");
  }
  if (Reduces(op.kind)) {
    if (!NcclTypeOf(op.dtype).has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("nccl does not reduce ", Name(op.dtype),
                       ": convert it to i32, or use another backend"));
    }
    if (!NcclRedOpOf(op.op).has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("nccl has sum, avg, min, max and prod, and no ",
                       Name(op.op), ": use another backend"));
    }
    if (op.scale != 1 && op.op != ReduceOp::kSum && op.op != ReduceOp::kAvg) {
      return absl::UnimplementedError(absl::StrCat(
          "nccl scales inputs of sum and avg alone, and this is ", Name(op.op),
          ": multiply the input by scale=", op.scale, " before the call"));
    }
  }
  // Each thread has another one.
  if (op.after.has_value() && reinterpret_cast<uintptr_t>(op.after->handle()) ==
                                  internal_gpu::kCudaPerThreadStream) {
    return absl::InvalidArgumentError(
        "CallOptions::stream should be the same in all threads, but is "
        "cudaStreamPerThread: make one by cudaStreamCreate");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", op.in));
  const bool same = op.in.count > 0 && op.out.data == op.in.data &&
                    op.out.device.kind == op.in.device.kind &&
                    op.out.device.ordinal == op.in.device.ordinal;
  return same ? absl::OkStatus() : CheckBuffer("out", op.out);
}

// Returns an error if the buffer is not in the memory of this rank's device. A
// buffer that does not matter on this rank has no elements.
absl::Status NcclTransport::CheckBuffer(absl::string_view what,
                                        const ConstBuffer& buffer) const {
  if (buffer.count == 0) return absl::OkStatus();
  const int own = shared_.device().ordinal();
  if (buffer.device.kind != Device::Kind::kCuda) {
    return absl::UnimplementedError(absl::StrCat(
        "nccl moves memory of CUDA device ", own, ", and ", what,
        " is of the host: copy it to the device and set its Buffer::device, "
        "or use the tcp backend"));
  }
  if (buffer.device.ordinal != own) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " should be memory of CUDA device ", own,
                     ", which is this rank's, but has device.ordinal=",
                     buffer.device.ordinal));
  }
  CudaPointer memory;
  if (DescribePointer(shared_.cuda, buffer.data, memory) != kCudaSuccess) {
    // Some drivers answer only in a context.
    LOCKSTEP_RETURN_IF_ERROR(shared_.device().InContext([&] {
      return shared_.Check(DescribePointer(shared_.cuda, buffer.data, memory),
                           "cuPointerGetAttributes");
    }));
  }
  const bool on_device = memory.type == internal_gpu::kCudaMemoryTypeDevice;
  if (on_device && memory.device == own) return absl::OkStatus();
  // Managed memory goes where it is needed.
  if (memory.is_managed != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " should be memory of CUDA device ", own,
      ", as its Buffer::device says, but is ",
      on_device ? absl::StrCat("memory of device ", memory.device, ": ")
                : "memory of the host: ",
      "copy it to device ", own));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    const TransportContext& context, const NcclOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRank(context));
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            internal_gpu::LoadCuda(options.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclApi* const nccl,
                            LoadNccl(options.nccl_library));
  auto transport = std::make_unique<NcclTransport>(context, *cuda, *nccl);
  LOCKSTEP_RETURN_IF_ERROR(transport->Open(options.device));
  return transport;
}

}  // namespace lockstep::internal_collective
