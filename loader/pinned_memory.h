// Batches in page-locked memory, copied to a CUDA device ahead of their use:
//
//   PinnedMemoryOptions pinned;
//   pinned.device = local_rank;
//   pinned.require_device = true;
//   LOCKSTEP_ASSIGN_OR_RETURN(options.memory, PinnedMemory::Create(pinned));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       auto loader, Loader::Create(dataset, std::move(sampler), options));
//   ...
//   for (absl::StatusOr<Batch>& batch : loader->Epoch(epoch)) {
//     LOCKSTEP_RETURN_IF_ERROR(batch.status());
//     LOCKSTEP_ASSIGN_OR_RETURN(const DeviceBatch x,
//                               batch->ToDevice(Stream(stream)));
//     // Memory of the device. Work that uses it is queued on the stream, and
//     // the host does not wait.
//     LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<const float> images,
//                               x.Values<float>("image"));
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
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/batch_memory.h"

namespace lockstep {

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

  // Returns nullopt if batches are in plain memory.
  virtual std::optional<int> device() const = 0;
  // Returns the reason why batches are in plain memory, or OK if they are not.
  virtual const absl::Status& fallback() const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_PINNED_MEMORY_H_
