// Where batches live: plain memory unless an allocator of this interface is
// given, for instance for page-locked memory.
//
//   class Pinned : public BatchMemory {
//    public:
//     absl::StatusOr<void*> Allocate(int64_t bytes) override;
//     void Free(void* memory, int64_t bytes) override;
//     // Begins the copy to the device, on a stream of its own.
//     absl::Status Filled(void* memory, int64_t bytes) override;
//     // Waits for the event that ends the copy; so does Free.
//     absl::Status BeforeReuse(void* memory) override;
//   };
//   options.memory = std::make_shared<Pinned>();
#ifndef LOCKSTEP_LOADER_BATCH_MEMORY_H_
#define LOCKSTEP_LOADER_BATCH_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: Filled and BeforeReuse are called from many workers at once,
// each for a batch of its own; Allocate when a loader is made; Free when the
// loader and the last of its batches are gone, on whatever thread that is.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // Memory for one batch, aligned to 64 bytes. RESOURCE_EXHAUSTED when there is
  // none.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory, int64_t bytes) = 0;

  // The batch in this memory is complete, and will not be written again before
  // BeforeReuse or Free. `bytes` are those of Allocate, of which the batch may
  // take fewer. An error fails the step.
  virtual absl::Status Filled(void* /*memory*/, int64_t /*bytes*/) {
    return absl::OkStatus();
  }

  // The batch in this memory was given back, dropped or failed (and then
  // perhaps never filled), and will now be overwritten. An error fails the step
  // that was to use it.
  virtual absl::Status BeforeReuse(void* /*memory*/) {
    return absl::OkStatus();
  }
};

// Plain memory, on huge pages where the system has them to give.
class HeapMemory : public BatchMemory {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory, int64_t bytes) override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_BATCH_MEMORY_H_
