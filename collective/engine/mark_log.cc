#include "lockstep/collective/engine/mark_log.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::internal_collective {
namespace {

constexpr size_t kNamed = 16;  // marks with a description
constexpr size_t kMost = 48;

}  // namespace

// The stride is a power of two, so that ranks that issue at different speeds
// still mark some of the same operations.
void MarkLog::Add(uint64_t number, uint64_t fingerprint, const Operation& op) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  last_.number = number;
  last_.digest = (last_.digest ^ fingerprint) * kOdd;
  last_.digest ^= last_.digest >> 32;
  const bool named = marks_.size() < kNamed;
  if (!named && number % stride_ != 0) return;
  marks_.push_back(last_);
  if (named) marks_.back().what = op.Describe();
  if (marks_.size() < kMost) return;
  stride_ *= 2;
  const auto dropped = [this](const Mark& mark) {
    return mark.number % stride_ != 0;
  };
  marks_.erase(std::remove_if(marks_.begin() + kNamed, marks_.end(), dropped),
               marks_.end());
}

std::vector<Mark> MarkLog::Take() {
  std::vector<Mark> marks = std::move(marks_);
  if (!marks.empty() && marks.back().number < last_.number) {
    marks.push_back(last_);
  }
  marks_.clear();
  stride_ = 1;
  return marks;
}

}  // namespace lockstep::internal_collective
