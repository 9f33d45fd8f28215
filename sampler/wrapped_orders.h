// Orders made of other orders, and of a user's own function.
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
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// indices[inner]: an order over part of a dataset.
class SubsetOrder : public Order {
 public:
  // The inner order walks as many samples as there are indices, each of which
  // is from 0 to below `size`, the size of the dataset.
  static absl::StatusOr<std::shared_ptr<const SubsetOrder>> Create(
      std::shared_ptr<const Order> inner, std::vector<int64_t> indices,
      int64_t size);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
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
  // How often each index comes, one after the other. With the strided layout
  // and at least as many ranks, the copies land on different ranks.
  int64_t repeats = 3;

  // How many positions to keep, 0 for all. timm keeps as many as there are
  // samples, rounded down to a multiple of 256.
  int64_t keep = 0;
};

// Repeated augmentation: every sample of `inner` several times in a row.
class RepeatedOrder : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const RepeatedOrder>> Create(
      std::shared_ptr<const Order> inner, const RepeatOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;
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
  // What tells this order from others, in checkpoints too. Change it when the
  // function changes.
  std::string name;

  // Samples in the dataset.
  int64_t size = 0;
};

// An order by a user's function, which gives the whole stream of an epoch: the
// same on every rank, whenever it is asked; it may be asked by several threads
// at once, as by Loader::StepsLeft.
class CustomOrder : public Order {
 public:
  using Function =
      std::function<absl::StatusOr<std::vector<int64_t>>(int64_t epoch)>;

  static absl::StatusOr<std::shared_ptr<const CustomOrder>> Create(
      const CustomOrderOptions& options, Function function);

  // The same by global batches: each is dealt to the ranks by itself, so that
  // no two are mixed. Give the sampler a batch_size of the most rows a rank
  // gets.
  using BatchesFunction =
      std::function<absl::StatusOr<std::vector<std::vector<int64_t>>>(
          int64_t epoch)>;
  static absl::StatusOr<std::shared_ptr<const CustomOrder>> CreateBatches(
      const CustomOrderOptions& options, BatchesFunction function);

  // INVALID_ARGUMENT for indices that the dataset does not have; UNKNOWN with
  // its text for an exception of the function.
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  CustomOrder(const CustomOrderOptions& options, BatchesFunction function)
      : options_(options), function_(std::move(function)) {}

  const CustomOrderOptions options_;
  const BatchesFunction function_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_WRAPPED_ORDERS_H_
