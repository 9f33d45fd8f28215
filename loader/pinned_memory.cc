#include "lockstep/loader/pinned_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/cuda_memory.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaEvent;
using internal_gpu::CudaResult;
using internal_gpu::CudaStream;
using internal_gpu::Gpu;
using internal_gpu::kCudaEventBlockingSync;
using internal_gpu::kCudaEventDisableTiming;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaPerThreadStream;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::LoadCuda;

// A thread that waits for such an event sleeps.
constexpr unsigned kEventFlags =
    kCudaEventBlockingSync | kCudaEventDisableTiming;

// A gap of fewer bytes is copied as well, since another copy would take longer.
constexpr int64_t kWorthACopy = 4096;

// The memory of one batch: on the host, and on the device if it is copied
// there. Thread-safety: thread-compatible.
struct Block {
  explicit Block(const Gpu& device) : device(device) {}

  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  ~Block() {
    const CudaApi& cuda = device.cuda();
    // If a call fails, the rest is freed all the same.
    device
        .InContext([&] {
          for (const User& user : users) {
            cuda.EventSynchronize(user.done);
            cuda.EventDestroy(user.done);
          }
          if (copied != nullptr) {
            cuda.EventSynchronize(copied);
            cuda.EventDestroy(copied);
          }
          if (on_device != nullptr) cuda.MemFree(on_device);
          if (on_host != nullptr) cuda.MemFreeHost(on_host);
          return absl::OkStatus();
        })
        .IgnoreError();
  }

  // A stream that reads the copy, and the event after its reads.
  struct User {
    CudaStream* stream = nullptr;
    CudaEvent* done = nullptr;
    bool recorded = false;  // `done` is recorded: the stream may be gone
  };

  const Gpu& device;
  int64_t bytes = 0;
  void* on_host = nullptr;
  void* on_device = nullptr;
  CudaEvent* copied = nullptr;
  // The first `used` users are those of the batch. The others have spare
  // events.
  std::vector<User> users;
  size_t used = 0;
  // The reason why an event of a user could not be recorded.
  absl::Status release_failure;
};

// Memory that is page-locked for a device, and copied there by a stream.
// Thread-safety: thread-safe.
class CudaMemory : public PinnedMemory {
 public:
  CudaMemory(std::unique_ptr<const Gpu> device,
             const PinnedMemoryOptions& options)
      : to_device_(options.to_device),
        max_bytes_(options.max_bytes),
        device_(std::move(device)) {}
  ~CudaMemory() override;

  // Makes the stream of the copies.
  absl::Status Begin();

  std::optional<int> device() const override { return device_->ordinal(); }
  const absl::Status& fallback() const override { return fallback_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  // Waits until the device no longer uses this memory.
  void Free(void* memory, int64_t bytes) override;
  absl::Status Filled(void* memory, const BatchView& batch) override;
  absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override;
  void Released(void* memory) override;
  absl::Status BeforeReuse(void* memory) override;

 private:
  absl::Status MakeBlock(Block& block) const;
  absl::Status Copy(const Block& block, const BatchView& batch) const;
  Block& BlockAt(void* memory);

  const bool to_device_;
  const int64_t max_bytes_;
  const absl::Status fallback_;  // OK
  const ForkGuard fork_guard_;
  std::unique_ptr<const Gpu> device_;
  // The stream of all copies, or nullptr if batches are not copied.
  CudaStream* copies_ = nullptr;

  Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // in bytes
  std::map<void*, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

// Plain memory, which takes the place of a device's.
// Thread-safety: thread-safe.
class PlainMemory : public PinnedMemory {
 public:
  explicit PlainMemory(absl::Status why) : fallback_(std::move(why)) {}

  std::optional<int> device() const override { return std::nullopt; }
  const absl::Status& fallback() const override { return fallback_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return heap_.Allocate(bytes);
  }
  void Free(void* memory, int64_t bytes) override { heap_.Free(memory, bytes); }
  int64_t BytesTaken(int64_t bytes) const override {
    return heap_.BytesTaken(bytes);
  }
  absl::StatusOr<void*> OnDevice(void* memory, Stream /*stream*/) override {
    return memory;
  }

 private:
  const absl::Status fallback_;
  HeapMemory heap_;
};

absl::Status Check(const PinnedMemoryOptions& options) {
  if (options.max_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_bytes should be 0 (no limit) or more, but got ",
                     "max_bytes=", options.max_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<PinnedMemory>> PinnedMemory::Create(
    const PinnedMemoryOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  const absl::StatusOr<const CudaApi*> cuda = LoadCuda(options.cuda_library);
  if (cuda.ok()) return internal_loader::MakeCudaMemory(**cuda, options);
  if (!absl::IsUnavailable(cuda.status())) return cuda.status();
  if (options.device < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device should be the number of a CUDA device, but got "
                     "device=",
                     options.device));
  }
  if (options.require_device) {
    return absl::UnavailableError(absl::StrCat(
        "require_device is set, and there is none: ", cuda.status().message()));
  }
  auto memory = std::make_shared<PlainMemory>(absl::UnavailableError(
      absl::StrCat("batches stay in plain memory, and ToDevice gives that: ",
                   cuda.status().message())));
  if (options.on_fallback) {
    CatchAll("on_fallback", [&] {
      options.on_fallback(memory->fallback());
      return absl::OkStatus();
    }).IgnoreError();
  }
  return memory;
}

absl::StatusOr<std::shared_ptr<PinnedMemory>> internal_loader::MakeCudaMemory(
    const CudaApi& cuda, const PinnedMemoryOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto device, Gpu::Open(cuda, options.device));
  auto memory = std::make_shared<CudaMemory>(std::move(device), options);
  LOCKSTEP_RETURN_IF_ERROR(memory->Begin());
  return memory;
}

namespace {

absl::Status CudaMemory::Begin() {
  if (!to_device_) return absl::OkStatus();
  return device_->InContext([&] {
    return device_->Check(
        device_->cuda().StreamCreate(&copies_, kCudaStreamNonBlocking),
        "cuStreamCreate");
  });
}

CudaMemory::~CudaMemory() {
  if (fork_guard_.forked()) {  // all this belongs to the parent process
    for (auto& entry : blocks_) static_cast<void>(entry.second.release());
    static_cast<void>(device_.release());
    return;
  }
  if (copies_ == nullptr) return;
  device_
      ->InContext([this] {
        device_->cuda().StreamDestroy(copies_);
        return absl::OkStatus();
      })
      .IgnoreError();
}

absl::StatusOr<void*> CudaMemory::Allocate(int64_t bytes) {
  {
    MutexLock lock(mutex_);
    if (max_bytes_ > 0 && bytes > max_bytes_ - held_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a batch of ", bytes, " bytes goes beyond what may be page-locked: ",
          held_, " bytes are, and max_bytes=", max_bytes_,
          "; raise max_bytes, or lower prefetch_batches"));
    }
    held_ += bytes;
  }
  auto block = std::make_unique<Block>(*device_);
  block->bytes = bytes;
  absl::Status made = MakeBlock(*block);
  if (!made.ok()) block = nullptr;
  MutexLock lock(mutex_);
  if (block == nullptr) {
    held_ -= bytes;
    return made;
  }
  void* const memory = block->on_host;
  blocks_.emplace(memory, std::move(block));
  return memory;
}

absl::Status CudaMemory::MakeBlock(Block& block) const {
  const CudaApi& cuda = device_->cuda();
  // CUDA refuses to allocate 0 bytes.
  const size_t bytes = std::max<int64_t>(block.bytes, 1);
  return device_->InContext([&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(device_->Check(
        cuda.MemHostAlloc(&block.on_host, bytes, kCudaHostAllocPortable),
        "cuMemHostAlloc"));
    if (!to_device_) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(
        device_->Check(cuda.MemAlloc(&block.on_device, bytes), "cuMemAlloc"));
    return device_->Check(cuda.EventCreate(&block.copied, kEventFlags),
                          "cuEventCreate");
  });
}

void CudaMemory::Free(void* memory, int64_t bytes) {
  if (fork_guard_.forked()) return;
  std::unique_ptr<Block> block;
  {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(memory);
    block = std::move(found->second);
    blocks_.erase(found);
  }
  block = nullptr;  // may wait for the device, so no lock is held
  MutexLock lock(mutex_);
  held_ -= bytes;
}

Block& CudaMemory::BlockAt(void* memory) {
  MutexLock lock(mutex_);
  return *blocks_.find(memory)->second;
}

absl::Status CudaMemory::Filled(void* memory, const BatchView& batch) {
  if (copies_ == nullptr) return absl::OkStatus();
  Block& block = BlockAt(memory);
  const CudaApi& cuda = device_->cuda();
  return device_->InContext([&]() -> absl::Status {
    for (size_t i = 0; i < block.used; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(
          device_->Check(cuda.StreamWaitEvent(copies_, block.users[i].done, 0),
                         "cuStreamWaitEvent"));
    }
    block.used = 0;
    absl::Status status = Copy(block, batch);
    // The event is recorded even if only a part of the copy was queued.
    status.Update(device_->Check(cuda.EventRecord(block.copied, copies_),
                                 "cuEventRecord"));
    return status;
  });
}

// Copies the parts of the batch, in as few pieces as is worth it.
absl::Status CudaMemory::Copy(const Block& block,
                              const BatchView& batch) const {
  int64_t begin = 0;
  int64_t end = 0;
  const auto copy = [&] {
    if (begin == end) return absl::OkStatus();
    return device_->Check(
        device_->cuda().MemcpyAsync(static_cast<char*>(block.on_device) + begin,
                                    static_cast<char*>(block.on_host) + begin,
                                    end - begin, copies_),
        "cuMemcpyAsync");
  };
  // `add` must be called for parts in the order of their places.
  const auto add = [&](const void* first, size_t bytes) -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    const int64_t place =
        static_cast<const char*>(first) - static_cast<char*>(block.on_host);
    if (place - end >= kWorthACopy) {
      LOCKSTEP_RETURN_IF_ERROR(copy());
      begin = place;
    }
    end = place + static_cast<int64_t>(bytes);
    return absl::OkStatus();
  };
  const absl::Span<const FieldSpec> fields = batch.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    const absl::Span<const char> bytes = batch.Bytes(static_cast<int>(i));
    LOCKSTEP_RETURN_IF_ERROR(add(bytes.data(), bytes.size()));
  }
  for (const FieldSpec& field : fields) {
    if (!field.ragged()) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<const int64_t> splits,
                              batch.Splits(field.name));
    LOCKSTEP_RETURN_IF_ERROR(
        add(splits.data(), splits.size() * sizeof(splits[0])));
  }
  return copy();
}

absl::StatusOr<void*> CudaMemory::OnDevice(void* memory, Stream stream) {
  if (copies_ == nullptr) {
    return absl::FailedPreconditionError(
        "batches stay in page-locked memory: set "
        "PinnedMemoryOptions::to_device, or copy them yourself");
  }
  if (fork_guard_.forked()) {
    return absl::FailedPreconditionError(
        "this process was forked from the one that uses the device");
  }
  if (reinterpret_cast<uintptr_t>(stream.handle()) == kCudaPerThreadStream) {
    return absl::InvalidArgumentError(
        "ToDevice takes a stream that is the same in all threads, but got "
        "cudaStreamPerThread: make one by cudaStreamCreate");
  }
  Block& block = BlockAt(memory);
  CudaStream* const user = static_cast<CudaStream*>(stream.handle());
  for (size_t i = 0; i < block.used; ++i) {
    if (block.users[i].stream == user) return block.on_device;
  }
  const CudaApi& cuda = device_->cuda();
  LOCKSTEP_RETURN_IF_ERROR(device_->InContext([&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(device_->CheckNotCaptured(
        user,
        "the stream of ToDevice is being captured into a graph: call ToDevice "
        "before the capture begins"));
    if (block.used == block.users.size()) {
      block.users.reserve(block.used + 1);
      CudaEvent* done = nullptr;
      LOCKSTEP_RETURN_IF_ERROR(device_->Check(
          cuda.EventCreate(&done, kEventFlags), "cuEventCreate"));
      block.users.push_back({nullptr, done});
    }
    LOCKSTEP_RETURN_IF_ERROR(
        device_->Check(cuda.StreamWaitEvent(user, block.copied, 0),
                       "cuStreamWaitEvent on the stream of ToDevice"));
    // This fails for a stream of another device, now and not at the release.
    return device_->Check(
        cuda.EventRecord(block.users[block.used].done, user),
        "cuEventRecord on the stream of ToDevice, which should be one of this "
        "device");
  }));
  Block::User& next = block.users[block.used++];
  next.stream = user;
  next.recorded = false;
  return block.on_device;
}

void CudaMemory::Released(void* memory) {
  // A forked process has no CUDA, and a thread of the parent may hold the lock.
  if (copies_ == nullptr || fork_guard_.forked()) return;
  Block& block = BlockAt(memory);
  if (block.used == 0) return;
  const CudaApi& cuda = device_->cuda();
  block.release_failure = device_->InContext([&]() -> absl::Status {
    absl::Status status;
    for (size_t i = 0; i < block.used; ++i) {
      Block::User& user = block.users[i];
      if (user.recorded) continue;
      absl::Status recorded = device_->CheckNotCaptured(
          user.stream,
          "the stream of an earlier ToDevice was being captured into a graph "
          "when the batch was released: release batches before the capture "
          "begins or when it has ended");
      if (recorded.ok()) {
        recorded = device_->Check(
            cuda.EventRecord(user.done, user.stream),
            "cuEventRecord on the stream of an earlier ToDevice");
      }
      user.recorded = recorded.ok();
      status.Update(recorded);
    }
    return status;
  });
}

absl::Status CudaMemory::BeforeReuse(void* memory) {
  if (copies_ == nullptr) return absl::OkStatus();
  Block& block = BlockAt(memory);
  // The failure is not cleared: the step that fails by it may be dropped, and
  // then Released is not called again.
  LOCKSTEP_RETURN_IF_ERROR(block.release_failure);
  return device_->InContext([&] {
    return device_->Check(device_->cuda().EventSynchronize(block.copied),
                          "cuEventSynchronize");
  });
}

}  // namespace
}  // namespace lockstep
