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

// All slots of a loader. Lives as long as the loader or any of its batches.
class SlotPool : public SlotOwner {
 public:
  // RESOURCE_EXHAUSTED where there is no memory for them. Where `memory` is
  // nullptr it is plain, and the slot that was given back last is used first,
  // being the warmest; of other memory the one that was used longest ago, which
  // the device is done with first.
  static absl::StatusOr<std::shared_ptr<SlotPool>> Create(
      absl::Span<const FieldSpec> fields, int64_t rows, int64_t slots,
      std::shared_ptr<BatchMemory> memory);
  ~SlotPool() override;

  // Returns how much memory a slot for batches of so many rows takes in all.
  // `memory` may be nullptr, as for Create.
  static int64_t BytesPerSlot(const BatchLayout& layout, int64_t rows,
                              const BatchMemory* memory);

  const BatchLayout& layout() const { return layout_; }
  int64_t size() const { return static_cast<int64_t>(slots_.size()); }
  int64_t free_slots() const { return free_slots_.load(); }
  BatchMemory& memory() const override { return *memory_; }

  // A free slot, which is then no longer free, or nullptr. One caller at a
  // time.
  Slot* Take();
  void PutBack(Slot& slot);

  // PutBack, and a word to the memory before and to the listener after it.
  void GiveBack(Slot& slot) override;

  // Who is told when a user gives a slot back; nullptr when it is gone.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnSlotFree() = 0;
  };
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
  // The slot to be looked at first.
  std::atomic<size_t> hint_{0};

  // Calls that are in progress, so that Listen(nullptr) can wait for them.
  std::atomic<Listener*> listener_{nullptr};
  std::atomic<int> calls_{0};
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_SLOT_POOL_H_
