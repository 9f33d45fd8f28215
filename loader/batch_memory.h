// Where batches live: plain memory unless an allocator of this interface is
// given. For CUDA there is one, PinnedMemory (pinned_memory.h). One for another
// kind of device:
//
//   class OtherDevice : public BatchMemory {
//    public:
//     // Memory here and on the device, and an event.
//     absl::StatusOr<void*> Allocate(int64_t bytes) override;
//     void Free(void* memory, int64_t bytes) override;
//     // Begins the copy to the device, on a stream of its own.
//     absl::Status Filled(void* memory, const BatchView& batch) override;
//     // Makes the user's stream wait for the copy.
//     absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override;
//     // Has the next copy wait for that stream.
//     void Released(void* memory) override;
//     // Waits for the event that ends the copy; so does Free.
//     absl::Status BeforeReuse(void* memory) override;
//   };
//   options.memory = std::make_shared<OtherDevice>();
#ifndef LOCKSTEP_LOADER_BATCH_MEMORY_H_
#define LOCKSTEP_LOADER_BATCH_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

class BatchView;

// The calls for one piece of memory come one after the other: Filled, OnDevice
// any number of times, Released, BeforeReuse, and Filled again. What a step
// does not come to is left out: one that failed is not filled, and a batch that
// the user never got is not released.
// Thread-safety: functions are called from many threads at once, each for
// memory of its own: Filled and BeforeReuse from workers (or, without any, from
// Next), OnDevice and Released from whoever holds the batch, Allocate when a
// loader is made, and Free when the loader and the last of its batches are
// gone, on whatever thread that is.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // Memory for one batch, aligned to 64 bytes. RESOURCE_EXHAUSTED when there is
  // none.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory, int64_t bytes) = 0;

  // How much of the machine's memory Allocate(bytes) takes, with all that it
  // rounds up: what LoaderOptions::prefetch_bytes bounds.
  virtual int64_t BytesTaken(int64_t bytes) const { return bytes; }

  // The batch in this memory is complete, and the loader will not write it
  // again before BeforeReuse or Free. What its Bytes and Splits return lies in
  // the memory. An error fails the step.
  virtual absl::Status Filled(void* /*memory*/, const BatchView& /*batch*/) {
    return absl::OkStatus();
  }

  // For Batch::ToDevice: where the copy of this memory is, which what is queued
  // on `stream` from now on will find done.
  virtual absl::StatusOr<void*> OnDevice(void* memory, Stream stream);

  // The user gives the batch in this memory back, or the loader does for the
  // user, if its step has failed. It must not throw.
  virtual void Released(void* /*memory*/) {}

  // The batch in this memory was given back, dropped or failed, and will now be
  // overwritten. An error fails the step that was to use it. That step may be
  // dropped before anybody is told, and is not released then: what is still
  // wrong at the next call is returned again.
  virtual absl::Status BeforeReuse(void* /*memory*/) {
    return absl::OkStatus();
  }
};

// Plain memory, on huge pages where the system has them to give.
class HeapMemory : public BatchMemory {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory, int64_t bytes) override;
  int64_t BytesTaken(int64_t bytes) const override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_BATCH_MEMORY_H_
