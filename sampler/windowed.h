// Orders that bring similar samples together: by group, by length, or by a
// budget of tokens. They rearrange an inner order window by window, and mark
// where batches must break.
//
//   // Batches of landscape or portrait images, never mixed (aspect_grouping):
//   GroupedOptions options;
//   options.window.inner = *NativeShuffle::Create({n, 7});
//   options.window.global_batch = 8 * 16;
//   options.groups = group_of_image;
//   auto order = GroupedOrder::Create(options);
//
// The rearranged stream is cut into global batches and then dealt, so all ranks
// take the same number of steps. (Grouping on each rank can't promise that, and
// a job with unequal steps hangs.) Every position of the inner order comes
// once. The rest of a window that fills no batch becomes a short batch, which
// the tail policy pads and counts.
//
// The rearrangement depends only on the options, not on the number of ranks or
// the batch size. A resized job cuts the same stream anew, at the same breaks.
// The batches fit best the global batch for which they were planned.
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
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct WindowOptions {
  // The order that is rearranged.
  std::shared_ptr<const Order> inner;

  // The rows of a global batch, of all shards together, to plan for.
  int64_t global_batch = 1;

  // The number of such batches in a window. More batches in a window fill
  // better and shuffle less. A restart reads at most one window again.
  int64_t batches = 100;

  // The seed of the order in which the batches of a window come. GroupedOrder
  // does not use it.
  uint64_t seed = 0;
};

// The common part of these orders, which reads the windows.
// Thread-safety: immutable.
class WindowedOrder : public Order,
                      public std::enable_shared_from_this<WindowedOrder> {
 public:
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return options_.inner->coverage(); }

  // A planned batch in a rearranged window.
  struct Planned {
    int64_t size;
    int64_t max_rows = 0;  // as in IndexStream::Segment
    int64_t rows = 0;
  };
  struct Plan {
    std::vector<int64_t> indices;   // a permutation of the window's indices
    std::vector<Planned> segments;  // in the order of the indices
    // The samples of each row, if rows have several. Then there is one segment.
    std::vector<int64_t> row_sizes;
  };

  std::vector<Part> PartsAt(int64_t epoch, int64_t position) const override {
    return options_.inner->PartsAt(epoch, position);
  }
  std::string Explain() const override { return options_.inner->Explain(); }

 protected:
  // `positions` are those of a window; 0: global_batch times batches.
  WindowedOrder(std::string name, WindowOptions options,
                std::vector<int64_t> values, int64_t positions = 0);

  // Return INVALID_ARGUMENT that begins with `what`, the name of the order, or
  // OK. There must be a value for each sample; `values_name` says what they
  // are. Lengths must be 0 to `most`.
  static absl::Status CheckWindow(absl::string_view what,
                                  const WindowOptions& options,
                                  absl::Span<const int64_t> values,
                                  absl::string_view values_name);
  static absl::Status CheckLengths(absl::string_view what,
                                   absl::Span<const int64_t> lengths,
                                   int64_t most);

  // Rearranges one window, whose indices are in `plan`. `key` differs between
  // windows and between epochs.
  virtual void Rearrange(uint64_t key, Plan& plan) const = 0;

  // Returns the text that the derived order adds to the description.
  virtual std::string Details() const { return ""; }

  const WindowOptions& window() const { return options_; }
  int64_t window_positions() const { return positions_; }
  // Returns the group or the length of a sample.
  int64_t ValueOf(int64_t index) const {
    return values_[static_cast<size_t>(index)];
  }

 private:
  friend class WindowedStream;

  const std::string name_;
  const WindowOptions options_;
  const std::vector<int64_t> values_;
  const int64_t positions_;
  const uint64_t digest_;
};

struct GroupedOptions {
  WindowOptions window;
  // The group of each sample; any numbers. AspectGroups makes them from the
  // sizes of images.
  std::vector<int64_t> groups;
};

// Batches of one group each, in the order in which they became full.
// Thread-safety: immutable.
class GroupedOrder : public WindowedOrder {
 public:
  static absl::StatusOr<std::shared_ptr<const GroupedOrder>> Create(
      GroupedOptions options);

 protected:
  void Rearrange(uint64_t key, Plan& plan) const override;

 private:
  using WindowedOrder::WindowedOrder;
};

// Returns the group of each image by its aspect ratio, height / width. The
// group is the number of `edges`, in ascending order, that the ratio reaches.
// {1} separates landscape (0) from portrait and square (1).
std::vector<int64_t> AspectGroups(absl::Span<const double> ratios,
                                  absl::Span<const double> edges);

struct LengthBucketOptions {
  WindowOptions window;
  // The length of each sample, in tokens or in another unit that is padded.
  std::vector<int64_t> lengths;
};

// Batches of similar lengths. Each window is sorted and cut into batches, and
// the batches are shuffled. Layout::kBlocked wastes least, since similar
// lengths land on one rank. The strided layout gives all ranks equal work.
// Thread-safety: immutable.
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

  // The largest product of rows and longest row in each shard. No sample may be
  // longer.
  int64_t max_tokens = 0;

  // The number of shards to plan for: of ranks, unless CutOptions::shards is
  // set.
  int64_t world = 1;
};

// Batches of similar lengths, with as many rows as the budget allows. Give the
// sampler a batch_size of the most rows that a shard may have.
// Thread-safety: immutable.
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
