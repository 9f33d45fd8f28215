// Orders that wrap other orders or a user's own function.
//
//   // Only the samples that passed a filter, in shuffled order:
//   NativeShuffleOptions shuffle;
//   shuffle.size = static_cast<int64_t>(passed.size());
//   auto shuffled = NativeShuffle::Create(shuffle);
//   auto subset = SubsetOrder::Create(*shuffled, passed, dataset_size);
//
//   // Each sample three times, the copies on different ranks (timm's
//   // RepeatAugSampler):
//   auto repeated = RepeatedOrder::Create(*shuffled, RepeatOptions());
//
//   // A sampler of one's own:
//   auto own = CustomOrder::Create(
//       {"by_difficulty", dataset_size}, [](int64_t epoch) {
//         return absl::StatusOr<std::vector<int64_t>>(Rank(epoch));
//       });
//
//   // A batch sampler of one's own: CustomOrder::CreateBatches.
#ifndef LOCKSTEP_SAMPLER_WRAPPED_ORDERS_H_
#define LOCKSTEP_SAMPLER_WRAPPED_ORDERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// The indices[i], for each i of the inner order: an order over part of a
// dataset.
// Thread-safety: immutable.
class SubsetOrder : public Order {
 public:
  // The inner order reads as many samples as there are indices. Each index is
  // at least 0 and below `size`, the size of the dataset.
  static absl::StatusOr<std::shared_ptr<const SubsetOrder>> Create(
      std::shared_ptr<const Order> inner, std::vector<int64_t> indices,
      int64_t size);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override;
  std::optional<Packing> packing() const override { return inner_->packing(); }
  std::string Explain() const override { return inner_->Explain(); }
  bool NeedsBlockedLayout() const override {
    return inner_->NeedsBlockedLayout();
  }

 private:
  SubsetOrder(std::shared_ptr<const Order> inner, std::vector<int64_t> indices,
              int64_t size);

  const std::shared_ptr<const Order> inner_;
  const std::shared_ptr<const std::vector<int64_t>> indices_;
  const int64_t size_;
  const uint64_t digest_;
};

struct RepeatOptions {
  // The number of times that each index comes, in a row. With the strided
  // layout and at least as many ranks, the copies land on different ranks (with
  // CutOptions::shards, in different shards).
  int64_t repeats = 3;

  // The number of positions to keep, or 0 for all. timm keeps as many as there
  // are samples, rounded down to a multiple of 256.
  int64_t keep = 0;
};

// Repeated augmentation: each sample of `inner` comes several times in a row.
// Thread-safety: immutable.
class RepeatedOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const RepeatedOrder>> Create(
      std::shared_ptr<const Order> inner, const RepeatOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return Coverage::kAny; }
  bool NeedsBlockedLayout() const override {
    return inner_->NeedsBlockedLayout();
  }

 private:
  RepeatedOrder(std::shared_ptr<const Order> inner,
                const RepeatOptions& options)
      : inner_(std::move(inner)), options_(options) {}

  const std::shared_ptr<const Order> inner_;
  const RepeatOptions options_;
};

struct CustomOrderOptions {
  // A name that identifies this order, in checkpoints too. Change it when the
  // function changes.
  std::string name;

  // The samples in the dataset.
  int64_t size = 0;

  // The frequency of each sample in an epoch.
  Coverage coverage = Coverage::kEachOnce;
};

// An order by a user's function, which gives the whole stream of an epoch. The
// function must give the same stream on every rank and in each call. Several
// threads may call it at the same time, as Loader::StepsLeft does.
// Thread-safety: thread-safe if the function is.
class CustomOrder : public Order {
 public:
  using Function =
      std::function<absl::StatusOr<std::vector<int64_t>>(int64_t epoch)>;

  static absl::StatusOr<std::shared_ptr<const CustomOrder>> Create(
      const CustomOrderOptions& options, Function function);

  // Does the same with a function that gives global batches. Each batch is
  // dealt to the ranks by itself, so no two are mixed. Give the sampler a
  // batch_size of the most rows that a rank or shard gets.
  using BatchesFunction =
      std::function<absl::StatusOr<std::vector<std::vector<int64_t>>>(
          int64_t epoch)>;
  static absl::StatusOr<std::shared_ptr<const CustomOrder>> CreateBatches(
      const CustomOrderOptions& options, BatchesFunction function);

  // Fails with INVALID_ARGUMENT for indices that the dataset does not have, and
  // with UNKNOWN, with its text, for an exception of the function.
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
  Coverage coverage() const override { return options_.coverage; }

 private:
  CustomOrder(const CustomOrderOptions& options, BatchesFunction function)
      : options_(options), function_(std::move(function)) {}

  const CustomOrderOptions options_;
  const BatchesFunction function_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_WRAPPED_ORDERS_H_
