// Orders that bring like samples together: by group, by length, by a budget of
// tokens. They rearrange an inner order, a window of it at a time, and mark
// where batches must break.
//
//   // Batches of landscape or portrait images, never mixed (aspect_grouping):
//   GroupedOptions options;
//   options.window.inner = *NativeShuffle::Create({n, 7});
//   options.window.global_batch = 8 * 16;
//   options.groups = group_of_image;
//   auto order = GroupedOrder::Create(options);
//
// Global batches are made of the rearranged stream and then dealt, so that all
// ranks take the same number of steps (per-rank grouping can't promise that,
// and hangs where it fails). Every position of the inner order comes once; what
// does not fill a batch closes the window as a short one, padded and counted by
// the tail policy.
//
// What is rearranged depends on the options alone, and not on the number of
// ranks or the batch size: a job that is resized cuts the same stream anew, at
// the same breaks. The global batch they were planned for is the one they fit
// best.
#ifndef LOCKSTEP_SAMPLER_WINDOWED_H_
#define LOCKSTEP_SAMPLER_WINDOWED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct WindowOptions {
  // The order that is rearranged.
  std::shared_ptr<const Order> inner;

  // Rows of a global batch, batch_size times world, to plan for.
  int64_t global_batch = 1;

  // How many such batches are looked at together. More make better batches and
  // a less random order; a restart reads one window at most again.
  int64_t batches = 100;

  // Of the order in which a window's batches come. GroupedOrder has no use for
  // it.
  uint64_t seed = 0;
};

// The common part: walks the windows.
class WindowedOrder : public Order,
                      public std::enable_shared_from_this<WindowedOrder> {
 public:
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

  // A batch-to-be in a rearranged window.
  struct Planned {
    int64_t size;
    int64_t max_rows = 0;  // as in IndexStream::Segment
    int64_t rows = 0;
  };
  struct Plan {
    std::vector<int64_t> indices;   // a permutation of the window's
    std::vector<Planned> segments;  // in their order
  };

 protected:
  WindowedOrder(std::string name, WindowOptions options,
                std::vector<int64_t> values);

  // Rearranges one window, whose indices `plan` holds. `key` tells windows and
  // epochs apart.
  virtual void Rearrange(uint64_t key, Plan& plan) const = 0;

  // What derived orders add to the description.
  virtual std::string Details() const { return ""; }

  const WindowOptions& window() const { return options_; }
  // The group or length of a sample.
  int64_t ValueOf(int64_t index) const {
    return values_[static_cast<size_t>(index)];
  }

 private:
  friend class WindowedStream;

  const std::string name_;
  const WindowOptions options_;
  const std::vector<int64_t> values_;
  const uint64_t digest_;
};

struct GroupedOptions {
  WindowOptions window;
  // The group of each sample, by any numbers. AspectGroups makes them from
  // images' sizes.
  std::vector<int64_t> groups;
};

// Batches of one group each, in the order in which they filled.
class GroupedOrder : public WindowedOrder {
 public:
  static absl::StatusOr<std::shared_ptr<const GroupedOrder>> Create(
      GroupedOptions options);

 protected:
  void Rearrange(uint64_t key, Plan& plan) const override;

 private:
  using WindowedOrder::WindowedOrder;
};

// The group of images by aspect ratio, height / width: how many of `edges`,
// which ascend, it reaches. {1} tells landscape (0) from portrait and square
// (1).
std::vector<int64_t> AspectGroups(absl::Span<const double> ratios,
                                  absl::Span<const double> edges);

struct LengthBucketOptions {
  WindowOptions window;
  // The length of each sample, in tokens or anything else that gets padded.
  std::vector<int64_t> lengths;
};

// Batches of like lengths: a window is sorted, cut into batches, and the
// batches are shuffled. Layout::kBlocked wastes least, since neighbours in
// length meet on one rank; the strided layout gives all ranks as much work.
class LengthBuckets : public WindowedOrder {
 public:
  static absl::StatusOr<std::shared_ptr<const LengthBuckets>> Create(
      LengthBucketOptions options);

 protected:
  void Rearrange(uint64_t key, Plan& plan) const override;

 private:
  using WindowedOrder::WindowedOrder;
};

struct TokenBudgetOptions {
  WindowOptions window;  // global_batch: the most rows of a global batch
  std::vector<int64_t> lengths;

  // On each rank rows times the longest row never exceed it. No sample may be
  // longer.
  int64_t max_tokens = 0;

  // The number of ranks to plan for.
  int64_t world = 1;
};

// Batches of like lengths and of as many rows as the budget allows. Give the
// sampler a batch_size of the most rows a rank may have.
class TokenBudget : public WindowedOrder {
 public:
  static absl::StatusOr<std::shared_ptr<const TokenBudget>> Create(
      TokenBudgetOptions options);

 protected:
  void Rearrange(uint64_t key, Plan& plan) const override;
  std::string Details() const override;

 private:
  TokenBudget(WindowOptions window, std::vector<int64_t> lengths,
              int64_t max_tokens, int64_t world);

  const int64_t max_tokens_;
  const int64_t world_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_WINDOWED_H_
