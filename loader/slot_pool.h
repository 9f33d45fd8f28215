// The slots of a loader, and which of them are free. Internal.
#ifndef LOCKSTEP_LOADER_SLOT_POOL_H_
#define LOCKSTEP_LOADER_SLOT_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/slot.h"

namespace lockstep::internal_loader {

// All slots of a loader. It lives as long as the loader or any of its batches.
// Thread-safety: PutBack and GiveBack are thread-safe. Take and Listen are for
// one caller at a time.
// Memory ordering: PutBack stores Slot::free with release and Take loads it
// with acquire, so that the next user of a slot sees that the last one is done.
// The number of free slots is sequentially consistent, as pipeline.h needs it.
class SlotPool : public SlotOwner {
 public:
  // Returns RESOURCE_EXHAUSTED if there is not enough memory. If `memory` is
  // nullptr, memory is plain, and the slot that was given back last is used
  // first, since the caches may still have it. With other memory, the slot that
  // was used longest ago is used first, since the device is done with it first.
  static absl::StatusOr<std::shared_ptr<SlotPool>> Create(
      absl::Span<const FieldSpec> fields, int64_t rows, int64_t slots,
      std::shared_ptr<BatchMemory> memory);
  ~SlotPool() override;

  // Returns the bytes that a slot for batches of so many rows takes in total.
  // `memory` may be nullptr, as for Create.
  static int64_t BytesPerSlot(const BatchLayout& layout, int64_t rows,
                              const BatchMemory* memory);

  const BatchLayout& layout() const { return layout_; }
  int64_t size() const { return static_cast<int64_t>(slots_.size()); }
  int64_t free_slots() const { return free_slots_.load(); }
  BatchMemory& memory() const override { return *memory_; }

  // Takes a free slot, or returns nullptr. One caller at a time.
  Slot* Take();
  void PutBack(Slot& slot);

  // Tells the memory, calls PutBack, and tells the listener.
  void GiveBack(Slot& slot) override;

  // Is told when a user gives a slot back.
  // Thread-safety: OnSlotFree must be thread-safe.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnSlotFree() = 0;
  };
  // Sets the listener. With nullptr it waits until no call of the old listener
  // is in progress.
  void Listen(Listener* listener);

 private:
  explicit SlotPool(std::shared_ptr<BatchMemory> memory)
      : last_first_(memory == nullptr),
        memory_(last_first_ ? std::make_shared<HeapMemory>()
                            : std::move(memory)) {}

  const bool last_first_;
  const std::shared_ptr<BatchMemory> memory_;
  BatchLayout layout_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<int64_t> free_slots_{0};
  // The number of the slot that Take looks at first.
  std::atomic<size_t> hint_{0};

  // GiveBack raises calls_ and then loads listener_. Listen(nullptr) stores
  // listener_ and then waits until calls_ is 0. All are sequentially
  // consistent, so that either GiveBack sees no listener, or Listen sees its
  // call.
  std::atomic<Listener*> listener_{nullptr};
  std::atomic<int> calls_{0};
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_SLOT_POOL_H_
