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
//     // Memory of the device. Work that uses it is queued on the stream, and
//     // the host does not wait.
//     absl::Span<const float> images = *x.Values<float>("image");
//     Train(images.data(), x.valid(), stream);
//   }
//
// A copy begins as soon as a worker has completed the batch. A batch may be
// released when its kernels are queued: its memory on the device is written
// again only after them. Workers wait for the device if it is a whole ring of
// batches behind.
//
// Workers go on while a stream is captured into a graph, in any of CUDA's
// modes. Call ToDevice before the capture of its stream begins. Release a batch
// while none of its streams is captured; the streams may be destroyed then.
// Otherwise steps fail: for each such batch one step after the capture, and
// perhaps others before. Its streams must then live until Next has returned
// that error, or the loader is gone.
//
// LoaderOptions::prefetch_batches and prefetch_bytes say how much page-locked
// memory there is, and the device has the same amount. This is compiled without
// CUDA's headers, and loads the driver when it is used.
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

// The options of PinnedMemory.
struct PinnedMemoryOptions {
  // The device that batches are copied to. No other device is touched.
  int device = 0;

  // False: batches stay in page-locked memory. A trainer that copies them
  // itself must hold each batch until its copy is done.
  bool to_device = true;

  // The most bytes that may be page-locked for all loaders that share this
  // memory; 0: no limit. Loader::Create returns RESOURCE_EXHAUSTED beyond it.
  int64_t max_bytes = 0;

  // True: if there is no driver or no device, Create returns UNAVAILABLE and
  // says why. False: batches then stay in plain memory, and the results of
  // ToDevice must not go to kernels unless they are on_device().
  bool require_device = false;

  // The path of the CUDA driver's library. Empty: libcuda.so.1.
  std::string cuda_library;

  // Called once from Create if batches stay in plain memory. An exception that
  // it throws is ignored. Nothing else reports this by itself; fallback(),
  // device() and DeviceBatch::on_device say it when they are called.
  std::function<void(const absl::Status& why)> on_fallback;
};

// Page-locked memory for batches, and copies of them on a device. Several
// loaders may share it. The loaders and their batches keep it alive.
// Thread-safety: thread-safe, as BatchMemory requires it.
class PinnedMemory : public BatchMemory {
 public:
  // INVALID_ARGUMENT names the option that is wrong; other errors are CUDA's.
  // If there is no driver or no device, and none is required, the result is OK:
  // batches are in plain memory, and ToDevice returns that memory.
  static absl::StatusOr<std::shared_ptr<PinnedMemory>> Create(
      const PinnedMemoryOptions& options);
  ~PinnedMemory() override;

  // Returns nullopt if batches are in plain memory.
  std::optional<int> device() const;
  // Returns the reason why batches are in plain memory, or OK if they are not.
  const absl::Status& fallback() const { return fallback_; }

  // The loader calls these.
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  // Waits until the device no longer uses this memory.
  void Free(void* memory, int64_t bytes) override;
  absl::Status Filled(void* memory, const BatchView& batch) override;
  absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override;
  void Released(void* memory) override;
  absl::Status BeforeReuse(void* memory) override;

  // For tests: does what Create does with these functions, which must outlive
  // the memory.
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
  HeapMemory heap_;  // used if there is no device

  std::unique_ptr<const internal_gpu::Device> device_;
  // The stream of all copies, or nullptr if batches are not copied.
  internal_gpu::CudaStream* copies_ = nullptr;

  Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // in bytes
  std::map<void*, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_PINNED_MEMORY_H_
