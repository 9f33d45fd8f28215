#include "lockstep/collective/control/mark_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace lockstep::internal_collective {
namespace {

constexpr size_t kMostKept = 4096;

}  // namespace

std::optional<MarkTable::Difference> MarkTable::Compare(int rank,
                                                        const Mark& mark) {
  const auto& [at, is_new] = marks_.insert({mark.number, {rank, mark}});
  if (is_new) return std::nullopt;
  const auto& [other, first] = at->second;
  if (first.digest != mark.digest) {
    return Difference{
        mark.number, rank, other, {{rank, mark.what}, {other, first.what}}};
  }
  for (const int same : {rank, other}) {
    uint64_t& agreed = agreed_[same];
    agreed = std::max(agreed, mark.number);
  }
  return std::nullopt;
}

uint64_t MarkTable::FirstUnknown(int rank, int other) const {
  const auto agreed = [this](int which) {
    const auto found = agreed_.find(which);
    return found == agreed_.end() ? 0 : found->second;
  };
  return 1 + std::min(agreed(rank), agreed(other));
}

void MarkTable::Trim(size_t size) {
  if (agreed_.size() == size) {
    const auto least = std::min_element(
        agreed_.begin(), agreed_.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    marks_.erase(marks_.begin(), marks_.upper_bound(least->second));
  }
  if (marks_.size() <= kMostKept) return;
  // Marks of all ages are kept, since a rank that is far behind has yet to come
  // to the old ones.
  for (uint64_t stride = 2; marks_.size() > kMostKept / 2; stride *= 2) {
    for (auto i = marks_.begin(); i != marks_.end();) {
      i = i->first % stride == 0 ? std::next(i) : marks_.erase(i);
    }
  }
}

}  // namespace lockstep::internal_collective
