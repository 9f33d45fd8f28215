#include "lockstep/gradients/marks.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::internal_gradients {
namespace {

constexpr int64_t kKinds = 4;
constexpr int64_t kMostParameters = int64_t{1} << 60;

}  // namespace

void Marks::BeginStep() {
  for (std::atomic<uint8_t>& mark : marks_) {
    mark.store(0, std::memory_order_relaxed);
  }
  for (std::atomic<int64_t>& number : order_) {
    number.store(0, std::memory_order_relaxed);
  }
  marked_.store(0, std::memory_order_relaxed);
  is_open_.store(true, std::memory_order_relaxed);
}

// A mistake that nobody has asked for may be a mark that comes too late, so the
// step that follows tells of it.
void Marks::EndStep() {
  is_open_.store(false, std::memory_order_relaxed);
  const bool was_told = std::exchange(is_told_, false);
  if (!was_told && Noted().kind == Mistake::Kind::kOutside) return;
  mistake_.store(0, std::memory_order_relaxed);
}

void Marks::BeginPart() {
  for (std::atomic<uint8_t>& mark : marks_) {
    mark.fetch_and(kInStep, std::memory_order_relaxed);
  }
}

bool Marks::Mark(int64_t parameter) {
  if (parameter < 0 || parameter >= static_cast<int64_t>(marks_.size())) {
    return Note(Mistake::Kind::kNoParameter, parameter);
  }
  if (!is_open_.load(std::memory_order_relaxed)) {
    return Note(Mistake::Kind::kOutside, parameter);
  }
  const auto number = static_cast<size_t>(parameter);
  const uint8_t before =
      marks_[number].fetch_or(kInPart | kInStep, std::memory_order_relaxed);
  if ((before & kInPart) != 0) return Note(Mistake::Kind::kTwice, parameter);
  order_[number].store(marked_.fetch_add(1, std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  return true;
}

std::vector<int64_t> Marks::Places() const {
  std::vector<int64_t> places(order_.size());
  int64_t behind = marked_.load(std::memory_order_relaxed);
  for (size_t i = order_.size(); i-- > 0;) {
    const int64_t number = order_[i].load(std::memory_order_relaxed);
    places[i] = number > 0 ? number - 1 : behind++;
  }
  return places;
}

bool Marks::Note(Mistake::Kind kind, int64_t parameter) {
  int64_t none = 0;
  mistake_.compare_exchange_strong(
      none,
      std::clamp(parameter, -kMostParameters, kMostParameters) * kKinds +
          static_cast<int64_t>(kind),
      std::memory_order_relaxed);
  return false;
}

Marks::Mistake Marks::mistake() {
  const Mistake noted = Noted();
  is_told_ = is_told_ || noted.kind != Mistake::Kind::kNone;
  return noted;
}

Marks::Mistake Marks::Noted() const {
  const int64_t noted = mistake_.load(std::memory_order_relaxed);
  const int64_t kind = ((noted % kKinds) + kKinds) % kKinds;
  return {static_cast<Mistake::Kind>(kind), (noted - kind) / kKinds};
}

}  // namespace lockstep::internal_gradients
