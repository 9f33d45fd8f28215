#include "lockstep/sampler/windowed.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {

// Holds one rearranged window at a time.
// Thread-safety: thread-compatible.
class WindowedStream : public IndexStream {
 public:
  WindowedStream(std::shared_ptr<const WindowedOrder> order, uint64_t key,
                 std::unique_ptr<IndexStream> inner)
      : order_(std::move(order)),
        key_(key),
        inner_(std::move(inner)),
        window_(order_->positions_) {}

  int64_t size() const override { return inner_->size(); }
  absl::Status Prepare() override { return inner_->Prepare(); }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      LOCKSTEP_RETURN_IF_ERROR(Hold(first / window_));
      index = plan_.indices[first - begin_];
      first += stride;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    LOCKSTEP_RETURN_IF_ERROR(Hold(position / window_));
    const auto after =
        std::upper_bound(ends_.begin(), ends_.end(), position - begin_);
    const size_t number = after - ends_.begin();
    const WindowedOrder::Planned& planned = plan_.segments[number];
    return Segment{begin_ + *after - planned.size, begin_ + *after,
                   planned.max_rows, planned.rows, row_ends_};
  }

 private:
  absl::Status Hold(int64_t window) {
    if (window == held_) return absl::OkStatus();
    held_ = -1;
    begin_ = window * window_;
    plan_.indices.resize(std::min(window_, size() - begin_));
    plan_.segments.clear();
    plan_.row_sizes.clear();
    LOCKSTEP_RETURN_IF_ERROR(
        inner_->Read(begin_, 1, absl::MakeSpan(plan_.indices)));
    order_->Rearrange(Random(key_, static_cast<uint64_t>(window))(), plan_);
    ends_.clear();
    int64_t end = 0;
    for (const WindowedOrder::Planned& planned : plan_.segments) {
      ends_.push_back(end += planned.size);
    }
    row_ends_.clear();
    int64_t row_end = begin_;
    for (const int64_t size : plan_.row_sizes) {
      row_ends_.push_back(row_end += size);
    }
    held_ = window;
    return absl::OkStatus();
  }

  const std::shared_ptr<const WindowedOrder> order_;
  const uint64_t key_;
  const std::unique_ptr<IndexStream> inner_;
  const int64_t window_;
  int64_t held_ = -1;
  int64_t begin_ = 0;
  WindowedOrder::Plan plan_;
  std::vector<int64_t> ends_;  // of the segments, from the window's begin
  std::vector<int64_t> row_ends_;
};

namespace {

using Plan = WindowedOrder::Plan;
using Planned = WindowedOrder::Planned;

// Shuffles the segments with their indices.
void ShuffleSegments(uint64_t key, Plan& plan) {
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (const Planned& segment : plan.segments) {
    begins.push_back(begin);
    begin += segment.size;
  }
  std::vector<size_t> numbers(plan.segments.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  Random(key).Shuffle(absl::MakeSpan(numbers));
  Plan shuffled;
  shuffled.indices.reserve(plan.indices.size());
  for (const size_t number : numbers) {
    const Planned& segment = plan.segments[number];
    const auto from = plan.indices.begin() + begins[number];
    shuffled.indices.insert(shuffled.indices.end(), from, from + segment.size);
    shuffled.segments.push_back(segment);
  }
  plan = std::move(shuffled);
}

}  // namespace

absl::Status WindowedOrder::CheckWindow(absl::string_view what,
                                        const WindowOptions& options,
                                        absl::Span<const int64_t> values,
                                        absl::string_view values_name) {
  if (options.inner == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " needs an inner order, but got none"));
  }
  if (dynamic_cast<const WindowedOrder*>(options.inner.get()) != nullptr ||
      options.inner->packing().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": the inner order rearranges too (",
        options.inner->Describe().order, "), and its batches would be lost"));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive(what, "global_batch", options.global_batch));
  LOCKSTEP_RETURN_IF_ERROR(CheckPositive(what, "batches", options.batches));
  constexpr int64_t kMost = int64_t{1} << 32;
  if (options.batches > kMost / options.global_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": a window may have at most 2^32 positions, but got batches=",
        options.batches, " of global_batch=", options.global_batch));
  }
  const int64_t size = options.inner->Describe().size;
  if (static_cast<int64_t>(values.size()) != size) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": the inner order walks ", size, " samples, but there are ",
        values.size(), " ", values_name));
  }
  return absl::OkStatus();
}

absl::Status WindowedOrder::CheckLengths(absl::string_view what,
                                         absl::Span<const int64_t> lengths,
                                         int64_t most) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0 && lengths[i] <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": lengths must be from 0 to ", most,
                     ", but lengths[", i, "] is ", lengths[i]));
  }
  return absl::OkStatus();
}

WindowedOrder::WindowedOrder(std::string name, WindowOptions options,
                             std::vector<int64_t> values, int64_t positions)
    : name_(std::move(name)),
      options_(std::move(options)),
      values_(std::move(values)),
      positions_(positions > 0 ? positions
                               : options_.global_batch * options_.batches),
      digest_(DigestOfValues(values_)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> WindowedOrder::Open(
    int64_t epoch) const {
  LOCKSTEP_ASSIGN_OR_RETURN(auto inner, options_.inner->Open(epoch));
  return std::make_unique<WindowedStream>(
      shared_from_this(),
      RandomKey(options_.seed, kWindowStream, static_cast<uint64_t>(epoch)),
      std::move(inner));
}

OrderDescription WindowedOrder::Describe() const {
  OrderDescription description;
  description.order = name_;
  description.size = static_cast<int64_t>(values_.size());
  description.seed = options_.seed;
  description.details = absl::StrCat(
      "global_batch:", options_.global_batch, ",batches:", options_.batches,
      Details(), ",", options_.inner->Describe().ToString());
  description.data = digest_;
  return description;
}

absl::StatusOr<std::shared_ptr<const GroupedOrder>> GroupedOrder::Create(
    GroupedOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckWindow("grouped", options.window, options.groups, "groups"));
  return std::shared_ptr<const GroupedOrder>(new GroupedOrder(
      "grouped", std::move(options.window), std::move(options.groups)));
}

void GroupedOrder::Rearrange(uint64_t key, Plan& plan) const {
  std::map<int64_t, std::vector<int64_t>> waiting;
  Plan grouped;
  grouped.indices.reserve(plan.indices.size());
  auto emit = [&grouped](std::vector<int64_t>& batch) {
    grouped.indices.insert(grouped.indices.end(), batch.begin(), batch.end());
    grouped.segments.push_back({static_cast<int64_t>(batch.size())});
    batch.clear();
  };
  for (const int64_t index : plan.indices) {
    std::vector<int64_t>& batch = waiting[ValueOf(index)];
    batch.push_back(index);
    if (static_cast<int64_t>(batch.size()) == window().global_batch) {
      emit(batch);
    }
  }
  for (auto& [group, batch] : waiting) {
    if (!batch.empty()) emit(batch);
  }
  plan = std::move(grouped);
}

std::vector<int64_t> AspectGroups(absl::Span<const double> ratios,
                                  absl::Span<const double> edges) {
  std::vector<int64_t> groups;
  groups.reserve(ratios.size());
  for (const double ratio : ratios) {
    groups.push_back(std::upper_bound(edges.begin(), edges.end(), ratio) -
                     edges.begin());
  }
  return groups;
}

absl::StatusOr<std::shared_ptr<const LengthBuckets>> LengthBuckets::Create(
    LengthBucketOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWindow("length_buckets", options.window,
                                       options.lengths, "lengths"));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckLengths("length_buckets", options.lengths, kMaxSize));
  return std::shared_ptr<const LengthBuckets>(new LengthBuckets(
      "length_buckets", std::move(options.window), std::move(options.lengths)));
}

void LengthBuckets::Rearrange(uint64_t key, Plan& plan) const {
  std::stable_sort(
      plan.indices.begin(), plan.indices.end(),
      [this](int64_t a, int64_t b) { return ValueOf(a) < ValueOf(b); });
  auto left = static_cast<int64_t>(plan.indices.size());
  while (left > 0) {
    plan.segments.push_back({std::min(left, window().global_batch)});
    left -= plan.segments.back().size;
  }
  ShuffleSegments(key, plan);
}

absl::StatusOr<std::shared_ptr<const TokenBudget>> TokenBudget::Create(
    TokenBudgetOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckWindow("token_budget", options.window, options.lengths, "lengths"));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("token_budget", "max_tokens", options.max_tokens));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("token_budget", "world", options.world));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckLengths("token_budget", options.lengths, options.max_tokens));
  return std::shared_ptr<const TokenBudget>(
      new TokenBudget(std::move(options.window), std::move(options.lengths),
                      options.max_tokens, options.world));
}

TokenBudget::TokenBudget(WindowOptions window, std::vector<int64_t> lengths,
                         int64_t max_tokens, int64_t world)
    : WindowedOrder("token_budget", std::move(window), std::move(lengths)),
      max_tokens_(max_tokens),
      world_(world) {}

void TokenBudget::Rearrange(uint64_t key, Plan& plan) const {
  std::stable_sort(
      plan.indices.begin(), plan.indices.end(),
      [this](int64_t a, int64_t b) { return ValueOf(a) < ValueOf(b); });
  const auto end = static_cast<int64_t>(plan.indices.size());
  auto rows_for = [this](int64_t length) {
    return max_tokens_ / std::max<int64_t>(1, length);
  };
  for (int64_t begin = 0; begin < end;) {
    // The rows are sorted, so the last row of a batch is its longest.
    int64_t size = 1;
    while (size < window().global_batch && begin + size < end) {
      const int64_t rows = size / world_ + 1;
      if (rows > rows_for(ValueOf(plan.indices[begin + size]))) break;
      ++size;
    }
    // Batches have whole rows for all ranks, except at the end of the window.
    if (begin + size < end && size > world_) size -= size % world_;
    plan.segments.push_back({size,
                             rows_for(ValueOf(plan.indices[begin + size - 1])),
                             size / world_ + (size % world_ != 0)});
    begin += size;
  }
  ShuffleSegments(key, plan);
}

std::string TokenBudget::Details() const {
  return absl::StrCat(",max_tokens:", max_tokens_, ",world:", world_);
}

}  // namespace lockstep
