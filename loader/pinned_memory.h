// Batches in page-locked memory, copied to a CUDA device ahead of their use:
//
//   PinnedMemoryOptions pinned;
//   pinned.device = local_rank;
//   pinned.require_device = true;
//   LOCKSTEP_ASSIGN_OR_RETURN(options.memory, PinnedMemory::Create(pinned));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       auto loader, Loader::Create(dataset, std::move(sampler), options));
//   ...
//   Batch batch;
//   while (*loader->Next(batch)) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const DeviceBatch x,
//                               batch.ToDevice(Stream(stream)));
//     // Memory of the device; what uses it is queued and not waited for.
//     absl::Span<const float> images = *x.Values<float>("image");
//     Train(images.data(), x.valid(), stream);
//   }
//
// A copy begins as soon as a worker has completed the batch. A batch may be
// released when its kernels are queued: its memory on the device is written
// again behind them. When the device is a whole ring of batches behind, workers
// wait for it.
//
// Workers go on while a stream is captured into a graph, in whichever of CUDA's
// modes. ToDevice is called before the capture of its stream begins. A batch is
// released while none of its streams is captured, and they may be destroyed
// then. Otherwise steps fail: for each such batch one after the capture, and
// perhaps others before. Its streams must live until Next has returned that
// error, or the loader is gone.
//
// Page-locked memory is what LoaderOptions::prefetch_batches and prefetch_bytes
// say, and so is the device's. It is compiled without CUDA's headers, and loads
// the driver when it is used.
#ifndef LOCKSTEP_LOADER_PINNED_MEMORY_H_
#define LOCKSTEP_LOADER_PINNED_MEMORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"

namespace lockstep {

namespace internal_gpu {
struct CudaApi;
struct CudaStream;
class Device;
}  // namespace internal_gpu

struct PinnedMemoryOptions {
  // The device that batches are copied to; no other is touched.
  int device = 0;

  // False: batches are in page-locked memory and stay there. A trainer that
  // copies them itself holds each one until its copy is done.
  bool to_device = true;

  // The most bytes that may be page-locked for all loaders that share this
  // memory, 0 for no limit. Loader::Create is RESOURCE_EXHAUSTED beyond it.
  int64_t max_bytes = 0;

  // True: where there is no driver or no device, Create is UNAVAILABLE and says
  // why. False: batches then stay in plain memory, and what ToDevice gives must
  // not go to kernels unless it is on_device().
  bool require_device = false;

  // The path of the CUDA driver's library; empty: libcuda.so.1.
  std::string cuda_library;

  // Called from Create, once, when batches stay in plain memory. What it throws
  // is ignored. Nothing else tells without being asked: fallback(), device()
  // and DeviceBatch::on_device do.
  std::function<void(const absl::Status& why)> on_fallback;
};

// May be shared by loaders, and lives as long as the last of their batches.
class PinnedMemory : public BatchMemory {
 public:
  // INVALID_ARGUMENT names the option; other errors are CUDA's. Where there is
  // no driver or no device it is OK unless one is required, and batches are in
  // plain memory, which ToDevice then gives.
  static absl::StatusOr<std::shared_ptr<PinnedMemory>> Create(
      const PinnedMemoryOptions& options);
  ~PinnedMemory() override;

  // nullopt: batches are in plain memory.
  std::optional<int> device() const;
  // Why they are; OK if they are not.
  const absl::Status& fallback() const { return fallback_; }

  // For the loader.
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  // Waits for what the device is at with this memory.
  void Free(void* memory, int64_t bytes) override;
  absl::Status Filled(void* memory, const BatchView& batch) override;
  absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override;
  void Released(void* memory) override;
  absl::Status BeforeReuse(void* memory) override;

  // For tests: by these functions, which must outlive the memory.
  static absl::StatusOr<std::shared_ptr<PinnedMemory>> CreateWith(
      const internal_gpu::CudaApi& cuda, const PinnedMemoryOptions& options);

 private:
  struct Block;

  explicit PinnedMemory(const PinnedMemoryOptions& options);

  absl::Status MakeBlock(Block& block) const;
  absl::Status Copy(const Block& block, const BatchView& batch) const;
  Block& BlockAt(void* memory);

  const bool to_device_;
  const int64_t max_bytes_;
  absl::Status fallback_;
  const ForkGuard fork_guard_;
  HeapMemory heap_;  // where there is no device

  std::unique_ptr<const internal_gpu::Device> device_;
  // All copies are in this one; nullptr if there are none.
  internal_gpu::CudaStream* copies_ = nullptr;

  Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // in bytes
  std::map<void*, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_PINNED_MEMORY_H_
