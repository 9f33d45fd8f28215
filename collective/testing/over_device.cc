#include "lockstep/collective/testing/over_device.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaStream;
using internal_gpu::kCudaStreamNonBlocking;

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
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<const internal_gpu::Gpu> device,
                              internal_gpu::Gpu::Open(*cuda, ordinal));
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
  explicit DeviceMemory(std::unique_ptr<const internal_gpu::Gpu> device)
      : device_(std::move(device)) {}

  const std::unique_ptr<const internal_gpu::Gpu> device_;
  CudaStream* stream_ = nullptr;

  Mutex mutex_;
  std::multimap<size_t, void*> spare_ ABSL_GUARDED_BY(mutex_);  // by size
};

// ---- Operations.

size_t BytesOf(const ConstBuffer& buffer) {
  return static_cast<size_t>(buffer.count * SizeOf(buffer.dtype));
}

// The same operation on the device.
struct OnDevice {
  Operation op;
  Block in, out;  // parts of one block, if in place
};

// The launch of a collective on the device.
// Thread-safety: as Launch.
class HostLaunch final : public Launch {
 public:
  HostLaunch(std::shared_ptr<DeviceMemory> memory,
             std::shared_ptr<const OnDevice> on_device,
             std::shared_ptr<Launch> inner, const Buffer& out,
             std::shared_ptr<std::atomic<bool>> cancelled)
      : memory_(std::move(memory)),
        on_device_(std::move(on_device)),
        inner_(std::move(inner)),
        out_(out),
        cancelled_(std::move(cancelled)) {}

  absl::StatusOr<State> Begin() override { return CopyBack(inner_->Begin()); }
  absl::StatusOr<State> Look() override { return CopyBack(inner_->Look()); }
  absl::Status WaitOnStream(Stream /*stream*/) override {
    return absl::UnimplementedError(
        "the output is copied to host memory, for which no stream waits: call "
        "Wait");
  }

 private:
  absl::StatusOr<State> CopyBack(absl::StatusOr<State> state) {
    const bool copies = state.ok() && *state == State::kDone && !*cancelled_;
    if (copies) {
      LOCKSTEP_RETURN_IF_ERROR(
          memory_->Copy(out_.data, on_device_->op.out.data, BytesOf(out_)));
    }
    return state;
  }

  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<const OnDevice> on_device_;
  const std::shared_ptr<Launch> inner_;
  const Buffer out_;
  const std::shared_ptr<const std::atomic<bool>> cancelled_;
};

// A transport for host memory that uses the inner one on the device.
// Thread-safety: as DeviceTransport.
class HostOverDevice final : public DeviceTransport {
 public:
  HostOverDevice(std::unique_ptr<DeviceTransport> inner,
                 std::shared_ptr<DeviceMemory> memory)
      : memory_(std::move(memory)), inner_(std::move(inner)) {}

  absl::string_view name() const override { return inner_->name(); }

  // The memory on the device is not there yet.
  absl::Status CheckSupported(const Operation& op) const override {
    Operation empty = op;
    empty.in.count = empty.out.count = 0;
    empty.in.device = empty.out.device = device();
    return inner_->CheckSupported(empty);
  }

  absl::Status Connect() override { return inner_->Connect(); }

  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) override {
    const auto on_device = std::make_shared<OnDevice>();
    LOCKSTEP_RETURN_IF_ERROR(Copy(*op, *on_device));
    LOCKSTEP_RETURN_IF_ERROR(inner_->CheckSupported(on_device->op));
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Launch> launch,
                              inner_->Prepare({on_device, &on_device->op}));
    return std::make_shared<HostLaunch>(memory_, on_device, std::move(launch),
                                        op->out, cancelled_);
  }

  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const Block block, memory_->Take(BytesOf(in)));
    LOCKSTEP_RETURN_IF_ERROR(memory_->Copy(block.get(), in.data, BytesOf(in)));
    return inner_->Send(
        to, ConstBuffer(block.get(), in.count, in.dtype, device()), tag);
  }
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const Block block, memory_->Take(BytesOf(out)));
    LOCKSTEP_RETURN_IF_ERROR(inner_->Recv(
        from, Buffer{block.get(), out.count, out.dtype, device()}, tag));
    return memory_->Copy(out.data, block.get(), BytesOf(out));
  }

  void Cancel() override {
    *cancelled_ = true;
    inner_->Cancel();
  }

 private:
  Device device() const { return {Device::Kind::kCuda, memory_->ordinal()}; }

  // Copies the input to the device.
  absl::Status Copy(const Operation& op, OnDevice& to) const {
    LOCKSTEP_RETURN_IF_ERROR(TakeMemory(op, to));
    LOCKSTEP_RETURN_IF_ERROR(
        memory_->Copy(to.in.get(), op.in.data, BytesOf(op.in)));
    to.op = op;
    to.op.in = ConstBuffer(to.in.get(), op.in.count, op.in.dtype, device());
    to.op.out = Buffer{to.out.get(), op.out.count, op.out.dtype, device()};
    return absl::OkStatus();
  }

  absl::Status TakeMemory(const Operation& op, OnDevice& to) const {
    const size_t in_bytes = BytesOf(op.in), out_bytes = BytesOf(op.out);
    const char* const in = static_cast<const char*>(op.in.data);
    const char* const out = static_cast<const char*>(op.out.data);
    const bool in_place = in_bytes > 0 && out_bytes > 0 &&
                          in < out + out_bytes && out < in + in_bytes;
    if (!in_place) {
      LOCKSTEP_ASSIGN_OR_RETURN(to.in, memory_->Take(in_bytes));
      LOCKSTEP_ASSIGN_OR_RETURN(to.out, memory_->Take(out_bytes));
      return absl::OkStatus();
    }
    const char* const begin = std::min(in, out);
    const char* const end = std::max(in + in_bytes, out + out_bytes);
    LOCKSTEP_ASSIGN_OR_RETURN(const Block block, memory_->Take(end - begin));
    to.in = Block(block, block.get() + (in - begin));
    to.out = Block(block, block.get() + (out - begin));
    return absl::OkStatus();
  }

  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ =
      std::make_shared<std::atomic<bool>>(false);
  const std::unique_ptr<DeviceTransport> inner_;
};

}  // namespace

TransportFactory OverDevice(TransportFactory inner, const CudaApi* cuda,
                            int ordinal) {
  return [inner = std::move(inner), cuda, ordinal](
             const TransportContext& context) -> absl::StatusOr<AnyTransport> {
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<DeviceMemory> memory,
                              DeviceMemory::Create(cuda, ordinal));
    LOCKSTEP_ASSIGN_OR_RETURN(AnyTransport transport, inner(context));
    return std::make_unique<HostOverDevice>(
        std::get<std::unique_ptr<DeviceTransport>>(std::move(transport)),
        std::move(memory));
  };
}

}  // namespace lockstep
