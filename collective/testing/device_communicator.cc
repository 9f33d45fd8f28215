#include "lockstep/collective/testing/device_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/work.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/device.h"

namespace lockstep {
namespace {

using internal_collective::OperationLog;
using internal_collective::WorkState;
using internal_gpu::CudaApi;
using internal_gpu::CudaStream;
using internal_gpu::kCudaStreamNonBlocking;

// The deadline of the inner group is not known here. This value stands for it.
constexpr absl::Duration kInnerDeadline = absl::InfiniteDuration();

// ---- Memory.

using Block = std::shared_ptr<char>;

// Blocks of a device, and copies to and from it. Blocks that are given back are
// used again, and freed only at the end: freeing waits for all work of the
// device, which may need an operation that this thread has yet to issue.
// Thread-safety: thread-safe.
class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  static absl::StatusOr<std::shared_ptr<DeviceMemory>> Create(
      const CudaApi* cuda, int ordinal) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::unique_ptr<const internal_gpu::Device> device,
        internal_gpu::Device::Open(*cuda, ordinal));
    std::shared_ptr<DeviceMemory> memory(new DeviceMemory(std::move(device)));
    LOCKSTEP_RETURN_IF_ERROR(memory->device_->InContext([&] {
      return memory->device_->Check(
          cuda->StreamCreate(&memory->stream_, kCudaStreamNonBlocking),
          "cuStreamCreate");
    }));
    return memory;
  }

  ~DeviceMemory() {
    device_
        ->InContext([this] {
          const CudaApi& cuda = device_->cuda();
          MutexLock lock(mutex_);
          for (const auto& [bytes, memory] : spare_) cuda.MemFree(memory);
          if (stream_ != nullptr) cuda.StreamDestroy(stream_);
          return absl::OkStatus();
        })
        .IgnoreError();
  }

  int ordinal() const { return device_->ordinal(); }

  // Returns a block, or nullptr for 0 bytes.
  absl::StatusOr<Block> Take(size_t bytes) {
    if (bytes == 0) return nullptr;
    void* memory = nullptr;
    {
      MutexLock lock(mutex_);
      const auto spare = spare_.lower_bound(bytes);
      if (spare != spare_.end()) {
        bytes = spare->first;
        memory = spare->second;
        spare_.erase(spare);
      }
    }
    if (memory == nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(device_->InContext([&] {
        return device_->Check(device_->cuda().MemAlloc(&memory, bytes),
                              "cuMemAlloc");
      }));
    }
    return Block(static_cast<char*>(memory),
                 [self = shared_from_this(), bytes](char* block) {
                   MutexLock lock(self->mutex_);
                   self->spare_.emplace(bytes, block);
                 });
  }

  // Copies, and returns when the copy is complete.
  absl::Status Copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    const CudaApi& cuda = device_->cuda();
    return device_->InContext([&] {
      LOCKSTEP_RETURN_IF_ERROR(device_->Check(
          cuda.MemcpyAsync(to, from, bytes, stream_), "cuMemcpyAsync"));
      return device_->Check(cuda.StreamSynchronize(stream_),
                            "cuStreamSynchronize");
    });
  }

 private:
  explicit DeviceMemory(std::unique_ptr<const internal_gpu::Device> device)
      : device_(std::move(device)) {}

  const std::unique_ptr<const internal_gpu::Device> device_;
  CudaStream* stream_ = nullptr;

  Mutex mutex_;
  std::multimap<size_t, void*> spare_ ABSL_GUARDED_BY(mutex_);  // by size
};

// ---- Operations.

// An operation of the inner group and its memory. The mutex of Transfers guards
// the fields that change.
struct Transfer {
  Work work;
  Buffer host_out;
  Block in, out;        // parts of one block, if in place
  uint64_t ticket = 0;  // in the log
  bool ended = false;   // ended, and copied back
  absl::Status result;
};

size_t BytesOf(const ConstBuffer& buffer) {
  return static_cast<size_t>(buffer.count) * SizeOf(buffer.dtype);
}

// The operations that a rank has issued and not copied back yet.
// Thread-safety: thread-safe.
class Transfers {
 public:
  Transfers(std::shared_ptr<DeviceMemory> memory,
            std::shared_ptr<OperationLog> log)
      : memory_(std::move(memory)), log_(std::move(log)) {}

  void Add(std::shared_ptr<Transfer> transfer) {
    MutexLock lock(mutex_);
    pending_.push_back(std::move(transfer));
  }

  // Ends all operations that are done, in the order of issue. The caller of a
  // wait knows that the earlier operations are done, and may have dropped their
  // Works.
  void Settle() {
    MutexLock lock(mutex_);
    pending_.remove_if([this](const auto& transfer)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                             return EndIfDone(*transfer);
                           });
  }

  // Returns true if the transfer has ended. It need not be pending any more.
  bool Ended(Transfer& transfer) {
    Settle();
    MutexLock lock(mutex_);
    return EndIfDone(transfer);
  }

  absl::Status ResultOf(const Transfer& transfer) const {
    MutexLock lock(mutex_);
    return transfer.result;
  }

  // Drops the pending operations. From now on, an output is written only when
  // its own Work is asked.
  void Drop() {
    MutexLock lock(mutex_);
    pending_.clear();
  }

 private:
  bool EndIfDone(Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (transfer.ended) return true;
    if (!transfer.work.Done()) return false;
    transfer.ended = true;
    transfer.result = transfer.work.status();
    if (transfer.result.ok()) {
      transfer.result =
          memory_->Copy(transfer.host_out.data, transfer.out.get(),
                        BytesOf(transfer.host_out));
    }
    transfer.in = nullptr;
    transfer.out = nullptr;
    log_->End(transfer.ticket, transfer.result.code());
    return true;
  }

  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<OperationLog> log_;
  mutable Mutex mutex_;
  std::list<std::shared_ptr<Transfer>> pending_ ABSL_GUARDED_BY(mutex_);
};

// The work of a transfer.
// Thread-safety: thread-safe.
class DeviceWork : public WorkState {
 public:
  DeviceWork(std::shared_ptr<Transfers> transfers,
             std::shared_ptr<Transfer> transfer)
      : transfers_(std::move(transfers)), transfer_(std::move(transfer)) {}

  bool WaitUntil(absl::Time until) override {
    transfer_->work.WaitUntil(until).IgnoreError();  // status() returns it
    return done();
  }
  absl::Status WaitOnStream(Stream) override {
    return absl::UnimplementedError(
        "the output is copied to host memory, for which no stream waits: call "
        "Wait");
  }
  bool done() const override { return transfers_->Ended(*transfer_); }
  absl::Status status() const override {
    return done() ? transfers_->ResultOf(*transfer_) : absl::OkStatus();
  }

 private:
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<Transfer> transfer_;
};

// Issues `op` in `group`, with other buffers.
absl::StatusOr<Work> IssueIn(Communicator& group, const Operation& op,
                             const ConstBuffer& in, const Buffer& out) {
  CallOptions options;
  options.name = op.name;
  options.scale = op.scale;
  if (op.deadline != kInnerDeadline) options.deadline = op.deadline;
  options.stream = op.after;
  switch (op.kind) {
    case OpKind::kAllReduce:
      return group.AllReduce(in, out, op.op, options);
    case OpKind::kReduce:
      return group.Reduce(in, out, op.op, op.root, options);
    case OpKind::kBroadcast:
      return group.Broadcast(in, out, op.root, options);
    case OpKind::kAllGather:
      return group.AllGatherV(in, out, op.recv_counts, options);
    case OpKind::kReduceScatter:
      return group.ReduceScatter(in, out, op.op, options);
    case OpKind::kGather:
      return group.GatherV(in, out, op.recv_counts, op.root, options);
    case OpKind::kScatter:
      return group.ScatterV(in, out, op.send_counts, op.root, options);
    case OpKind::kAllToAll:
      return group.AllToAllV(in, op.send_counts, out, op.recv_counts, options);
    case OpKind::kBarrier:
      return group.Barrier(options);
    case OpKind::kSend:
      return group.Send(in, op.to, options);
    case OpKind::kRecv:
      return group.Recv(out, op.from, options);
    case OpKind::kSendRecv:
      return group.SendRecv(in, op.to, out, op.from, options);
  }
  return absl::InternalError("an operation of no kind");
}

// ---- The group.

// A communicator over host memory that uses the inner group on the device.
// Thread-safety: as Communicator.
class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(std::unique_ptr<Communicator> inner,
                     std::shared_ptr<DeviceMemory> memory)
      : Communicator(inner->name(), inner->rank(), inner->size(),
                     kInnerDeadline),
        memory_(std::move(memory)),
        transfers_(std::make_shared<Transfers>(memory_, log())),
        inner_(std::move(inner)) {}

  // When the inner group is gone, no operation uses the memory, and no caller
  // that dropped a Work expects its output any more.
  ~DeviceCommunicator() override {
    if (forked()) {  // CUDA does not work in a forked process
      KeepForEver(memory_);
      KeepForEver(transfers_);
      return;
    }
    inner_ = nullptr;
    transfers_->Drop();
  }

 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> SplitGroup(
      absl::string_view name, absl::Span<const int> members) override {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                              inner_->Split(name, members));
    return std::make_unique<DeviceCommunicator>(std::move(part), memory_);
  }

  void AbortGroup(const absl::Status& why) override { inner_->Abort(why); }
  absl::Status CloseGroup() override { return inner_->Close(); }

  // The inner group checks the operation.
  absl::Status CheckSupported(const Operation&) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<Work> Start(Operation op) override {
    auto transfer = std::make_shared<Transfer>();
    LOCKSTEP_RETURN_IF_ERROR(TakeMemory(op, *transfer));
    LOCKSTEP_RETURN_IF_ERROR(
        memory_->Copy(transfer->in.get(), op.in.data, BytesOf(op.in)));
    transfer->host_out = op.out;
    const Device device = {Device::Kind::kCuda, memory_->ordinal()};
    absl::StatusOr<Work> work = IssueIn(
        *inner_, op,
        ConstBuffer(transfer->in.get(), op.in.count, op.in.dtype, device),
        Buffer{transfer->out.get(), op.out.count, op.out.dtype, device});
    // The failure may be the group's. Then the pending operations have ended,
    // too.
    transfers_->Settle();
    LOCKSTEP_RETURN_IF_ERROR(work.status());
    transfer->work = *std::move(work);
    transfer->ticket = log()->Begin(op);
    transfers_->Add(transfer);
    return Work(std::make_shared<DeviceWork>(transfers_, std::move(transfer)));
  }

 private:
  absl::Status TakeMemory(const Operation& op, Transfer& transfer) const {
    const size_t in_bytes = BytesOf(op.in), out_bytes = BytesOf(op.out);
    const char* const in = static_cast<const char*>(op.in.data);
    const char* const out = static_cast<const char*>(op.out.data);
    const bool in_place = in_bytes > 0 && out_bytes > 0 &&
                          in < out + out_bytes && out < in + in_bytes;
    if (!in_place) {
      LOCKSTEP_ASSIGN_OR_RETURN(transfer.in, memory_->Take(in_bytes));
      LOCKSTEP_ASSIGN_OR_RETURN(transfer.out, memory_->Take(out_bytes));
      return absl::OkStatus();
    }
    const char* const begin = std::min(in, out);
    const char* const end = std::max(in + in_bytes, out + out_bytes);
    LOCKSTEP_ASSIGN_OR_RETURN(const Block block, memory_->Take(end - begin));
    transfer.in = Block(block, block.get() + (in - begin));
    transfer.out = Block(block, block.get() + (out - begin));
    return absl::OkStatus();
  }

  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<Transfers> transfers_;
  std::unique_ptr<Communicator> inner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> OverDevice(
    std::unique_ptr<Communicator> device_group, const CudaApi* cuda,
    int ordinal) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<DeviceMemory> memory,
                            DeviceMemory::Create(cuda, ordinal));
  return std::make_unique<DeviceCommunicator>(std::move(device_group),
                                              std::move(memory));
}

}  // namespace lockstep
