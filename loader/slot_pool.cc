#include "lockstep/loader/slot_pool.h"

#include <cstdint>
#include <memory>
#include <thread>  // NOLINT: yield
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {

absl::StatusOr<std::shared_ptr<SlotPool>> SlotPool::Create(
    absl::Span<const FieldSpec> fields, int64_t rows, int64_t slots,
    std::shared_ptr<BatchMemory> memory) {
  std::shared_ptr<SlotPool> pool(new SlotPool(std::move(memory)));
  LOCKSTEP_RETURN_IF_ERROR(MakeLayout(fields, rows, pool->layout_));
  const BatchLayout& layout = pool->layout_;
  // A slot that has memory goes to the pool at once, so that the pool frees it.
  pool->slots_.reserve(slots);
  for (int64_t i = 0; i < slots; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->layout = &layout;
    slot->number = i;
    slot->indices.reserve(rows);
    slot->positions.reserve(rows);
    slot->shapes.resize(rows * layout.ragged_fields * kMaxDimensions);
    slot->padded.assign(layout.ragged_fields, -1);
    slot->multiples.assign(layout.ragged_fields, 1);
    LOCKSTEP_ASSIGN_OR_RETURN(void* const bytes,
                              pool->memory_->Allocate(layout.bytes));
    if (bytes == nullptr ||
        reinterpret_cast<uintptr_t>(bytes) % BatchLayout::kAlignment != 0) {
      if (bytes != nullptr) pool->memory_->Free(bytes, layout.bytes);
      return absl::InvalidArgumentError(absl::StrCat(
          "BatchMemory::Allocate must give memory aligned to ",
          BatchLayout::kAlignment, " bytes, or an error, and gave ",
          bytes == nullptr ? "nullptr" : "other memory"));
    }
    slot->memory = static_cast<char*>(bytes);
    pool->slots_.push_back(std::move(slot));
  }
  pool->free_slots_ = slots;
  return pool;
}

int64_t SlotPool::BytesPerSlot(const BatchLayout& layout, int64_t rows,
                               const BatchMemory* memory) {
  const int64_t bytes = memory == nullptr
                            ? HeapMemory().BytesTaken(layout.bytes)
                            : memory->BytesTaken(layout.bytes);
  const int64_t numbers_per_row = 2 + layout.ragged_fields * kMaxDimensions;
  return bytes + rows * numbers_per_row * static_cast<int64_t>(sizeof(int64_t));
}

SlotPool::~SlotPool() {
  for (const auto& slot : slots_) memory_->Free(slot->memory, layout_.bytes);
}

Slot* SlotPool::Take() {
  if (free_slots_.load(std::memory_order_acquire) == 0) return nullptr;
  size_t next = hint_.load(std::memory_order_relaxed);
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    Slot& slot = *slots_[next];
    next = next + 1 == slots_.size() ? 0 : next + 1;
    if (!slot.free.load(std::memory_order_acquire)) continue;
    slot.free.store(false, std::memory_order_relaxed);
    free_slots_.fetch_sub(1);
    hint_.store(next, std::memory_order_relaxed);
    return &slot;
  }
  return nullptr;
}

void SlotPool::PutBack(Slot& slot) {
  // They are cleared here and not in Plan, so that the user's thread and a
  // worker never share the contents of a Status.
  slot.errors.clear();
  slot.substitutions.clear();
  slot.status = absl::OkStatus();
  if (last_first_) hint_.store(slot.number, std::memory_order_relaxed);
  slot.free.store(true, std::memory_order_release);
  free_slots_.fetch_add(1);
}

void SlotPool::GiveBack(Slot& slot) {
  memory_->Released(slot.memory);
  PutBack(slot);
  if (listener_.load() == nullptr) return;
  calls_.fetch_add(1);
  if (Listener* const listener = listener_.load()) listener->OnSlotFree();
  calls_.fetch_sub(1);
}

void SlotPool::Listen(Listener* listener) {
  listener_.store(listener);
  if (listener != nullptr) return;
  while (calls_.load() != 0) std::this_thread::yield();
}

}  // namespace lockstep::internal_loader
