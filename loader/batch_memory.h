// The memory of batches. It is plain memory unless LoaderOptions::memory is an
// allocator of this interface. PinnedMemory (pinned_memory.h) is one for CUDA.
// This is one for another kind of device:
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

// Allocates the memory of batches, and is told what happens to them.
// Guarantees: the calls for one piece of memory come one after the other:
// Filled, OnDevice any number of times, Released, BeforeReuse, and Filled
// again. Calls are left out if a batch does not get so far: one that failed is
// not filled, and one that the loader drops when it goes to another place is
// not released.
// Thread-safety: functions are called from many threads at once, each for
// another piece of memory. Workers call Filled and BeforeReuse (without
// workers, Next does). The thread that holds the batch calls OnDevice and
// Released. Allocate is called when a loader is made, and Free when the loader
// and the last of its batches are gone, on any thread. Loader::EmptyBatch calls
// all of them for memory of its own, on the thread that calls it.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // Returns memory for one batch, aligned to 64 bytes, or RESOURCE_EXHAUSTED if
  // there is none.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory, int64_t bytes) = 0;

  // Returns how much of the machine's memory Allocate(bytes) takes, rounding
  // included. LoaderOptions::prefetch_bytes bounds this number.
  virtual int64_t BytesTaken(int64_t bytes) const { return bytes; }

  // Called when the batch in this memory is complete. The loader does not write
  // to it again before BeforeReuse or Free. The results of its Bytes and Splits
  // are in this memory. An error fails the step.
  virtual absl::Status Filled(void* /*memory*/, const BatchView& /*batch*/) {
    return absl::OkStatus();
  }

  // Returns the address of the copy of this memory, for Batch::ToDevice. Work
  // that is queued on `stream` from now on must find the copy done.
  virtual absl::StatusOr<void*> OnDevice(void* memory, Stream stream);

  // Called when the user gives the batch in this memory back, or when the
  // loader does so because its step has failed, in this part or in an earlier
  // one. It must not throw.
  virtual void Released(void* /*memory*/) {}

  // Called before the batch in this memory is overwritten: it was given back,
  // dropped, or has failed. An error fails the step that would use the memory
  // next. That step may be dropped before its error is returned, and is not
  // released then. So as long as the reason of an error lasts, each call must
  // return the error.
  virtual absl::Status BeforeReuse(void* /*memory*/) {
    return absl::OkStatus();
  }
};

// Plain memory, on huge pages if the system has free ones.
// Thread-safety: thread-safe.
class HeapMemory : public BatchMemory {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory, int64_t bytes) override;
  int64_t BytesTaken(int64_t bytes) const override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_BATCH_MEMORY_H_
