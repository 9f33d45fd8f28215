// Tests what a continued mixture refuses, and what becomes of reads that fail.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/continued_mixture_testing.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/repeat_factor.h"
#include "lockstep/sampler/windowed.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status ErrorOf(ContinuedMixtureOptions options) {
  return ContinuedMixture::Create(std::move(options)).status();
}

auto Refused(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("mixture: "), HasSubstr(text)));
}

TEST(ContinuedMixture, SaysWhatIsWrongWithWeights) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ContinuedMixtureOptions options =
      Mixed({Native(3), Native(0)}, {1, 0}, MixtureStop::kFirstExhausted);
  LOCKSTEP_EXPECT_OK(ErrorOf(options));
  auto error_of = [&options](std::vector<double> weights) {
    options.phases[0].weights = std::move(weights);
    return ErrorOf(options);
  };
  EXPECT_THAT(error_of({1}), Refused("a weight for each of 2 sources, but "
                                     "phase 0 has 1"));
  EXPECT_THAT(error_of({1, 0, 0}), Refused("but phase 0 has 3"));
  EXPECT_THAT(error_of({-1, 0}), Refused("a weight should be a finite number "
                                         "that is not negative, but phase 0 "
                                         "has -1"));
  EXPECT_THAT(error_of({std::nan(""), 0}), Refused("but phase 0 has nan"));
  EXPECT_THAT(error_of({kInfinity, 0}), Refused("but phase 0 has inf"));
  EXPECT_THAT(error_of({0, 0}), Refused("the weights of phase 0 should have a "
                                        "positive and finite sum, but it is "
                                        "0"));
  EXPECT_THAT(error_of({1.7e308, 1.7e308}), Refused("but it is inf"));
  EXPECT_THAT(error_of({1, 0.25}), Refused("source 1 has a weight of 0.25 and "
                                           "an order without samples; its "
                                           "weight should be 0"));
  options.sources.clear();
  EXPECT_THAT(ErrorOf(options), Refused("there are 0 sources and 1 phases"));
  EXPECT_THAT(ErrorOf(Mixed(Sources((1 << 20) + 1, Native(1)),
                            std::vector<double>((1 << 20) + 1, 1.0),
                            MixtureStop::kFirstExhausted)),
              Refused("at most 2^20 sources of a phase should have a weight, "
                      "but phase 0 has 1048577"));
}

TEST(ContinuedMixture, SaysWhatIsWrongWithPhases) {
  ContinuedMixtureOptions options =
      Mixed({Native(3)}, {1}, MixtureStop::kNumSamples, 5);
  options.phases = {{1, {1}}};
  EXPECT_THAT(ErrorOf(options), Refused("the first phase should begin with "
                                        "sample 0, and each other one after "
                                        "the one before it, but phase 0 "
                                        "begins with sample 1"));
  options.phases = {{0, {1}}, {7, {1}}, {7, {1}}};
  EXPECT_THAT(ErrorOf(options), Refused("phase 2 begins with sample 7"));
  options.phases = {{0, {1}}, {-7, {1}}};
  EXPECT_THAT(ErrorOf(options), Refused("phase 1 begins with sample -7"));
  options.phases = {{0, {1}}, {7, {-1}}};
  EXPECT_THAT(ErrorOf(options), Refused("phase 1 has -1"));
  options.phases = {{0, {1}}, {7, {1}}};
  LOCKSTEP_EXPECT_OK(ErrorOf(options));
  options.end = MixtureStop::kAllExhausted;
  EXPECT_THAT(ErrorOf(options), Refused("weights that change need epochs of "
                                        "num_samples, so that it is known "
                                        "where they change, but there are 2 "
                                        "phases"));
  // Phases of the same weights share a round.
  options = Mixed({Native(3), Native(4)}, {1, 1}, MixtureStop::kNumSamples, 5);
  for (int64_t i = 1; i <= 20; ++i) {
    options.phases.push_back({i, {0.70710678, 0.57721566}});
  }
  LOCKSTEP_EXPECT_OK(ErrorOf(options));
  for (int64_t i = 21; i <= 100; ++i) {
    options.phases.push_back({i, {1, 1e-8 * static_cast<double>(i)}});
  }
  EXPECT_THAT(ErrorOf(options),
              Refused("the rounds of all phases may have 2^24 turns together"));
  options.phases.clear();
  EXPECT_THAT(ErrorOf(options), Refused("there are 2 sources and 0 phases"));
  for (const int64_t samples : {int64_t{0}, int64_t{-1}, kFar + 1}) {
    EXPECT_THAT(
        ErrorOf(Mixed({Native(3)}, {1}, MixtureStop::kNumSamples, samples)),
        Refused("num_samples should be a positive integer value"));
  }
}

CustomOrder::Function Counted(const std::vector<int64_t>& counts) {
  return [counts](int64_t epoch) {
    return absl::StatusOr<std::vector<int64_t>>(
        std::vector<int64_t>(static_cast<size_t>(counts[epoch])));
  };
}

TEST(ContinuedMixture, SaysWhatIsWrongWithSources) {
  auto error_of = [](std::shared_ptr<const Order> order) {
    return ErrorOf(Mixed({Native(3), std::move(order)}, {1, 1},
                         MixtureStop::kNumSamples, 5));
  };
  EXPECT_THAT(error_of(nullptr), Refused("source 1 has no order"));
  EXPECT_THAT(
      error_of(*RepeatFactorOrder::Create({std::vector<double>(50, 1.5), 7})),
      Refused("the order of a source should have as many positions in "
              "each epoch, but that of source 1, 'repeat_factor"));
  EXPECT_THAT(error_of(Native(kFar)), Refused("sizes must add up to 2^62"));
  const WindowOptions window = {Native(40), 4, 5, 0};
  EXPECT_THAT(
      error_of(*GroupedOrder::Create({window, std::vector<int64_t>(40, 1)})),
      Refused("the order of source 1, 'grouped', makes batches, which "
              "would be lost here: put it around the mixture, as its "
              "inner order"));
  EXPECT_THAT(
      error_of(*LengthBuckets::Create({window, std::vector<int64_t>(40, 1)})),
      Refused("makes batches"));
  // All samples are in one batch, but it has a limit.
  EXPECT_THAT(error_of(*TokenBudget::Create({{Native(3), 4, 5, 0},
                                             std::vector<int64_t>(3, 1),
                                             /*max_tokens=*/100,
                                             /*world=*/1})),
              Refused("makes batches"));
  EXPECT_THAT(error_of(*CustomOrder::CreateBatches(
                  {"growing", 9},
                  [](int64_t epoch) {
                    using Batches = std::vector<std::vector<int64_t>>;
                    return absl::StatusOr<Batches>(
                        epoch == 0 ? Batches{{1, 2}} : Batches{{1}, {2}});
                  })),
              Refused("'growing', makes batches"));
  EXPECT_THAT(error_of(*CustomOrder::Create({"none", 9}, Counted({0, 0}))),
              Refused("source 1 has a weight of 1 and an order"));
  EXPECT_THAT(
      error_of(*CustomOrder::Create(
          {"broken", 9},
          [](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
            return absl::DataLossError("the list is lost");
          })),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the list is lost")));
}

TEST(ContinuedMixture, SourcesThatChangeFailWhenTheyAreRead) {
  const auto order = Mix(Mixed(
      {Native(3), *CustomOrder::Create({"changing", 9}, Counted({2, 2, 3}))},
      {1, 1}, MixtureStop::kNumSamples, 4));
  EXPECT_EQ(ReadEpoch(*order, 0).size(), 4u);
  EXPECT_EQ(ReadEpoch(*order, 1).size(), 4u);
  std::vector<int64_t> out(4);
  const auto stream = *order->Open(2);
  const auto fails = StatusIs(
      absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr("mixture: an order of a source should have as many "
                      "positions in each epoch, but changing(size:9) has 3 in "
                      "epoch 2 and 2 in epoch 0")));
  EXPECT_THAT(stream->Read(0, 1, absl::MakeSpan(out)), fails);
  EXPECT_THAT(stream->Read(0, 1, absl::MakeSpan(out)), fails);
  EXPECT_THAT((*order->Open(2))->Prepare(), fails);
}

TEST(ContinuedMixture, AFailedReadLeavesTheStreamAsItWas) {
  const auto failing = std::make_shared<bool>(false);
  const auto order = Mix(
      Mixed({Native(5),
             *CustomOrder::Create(
                 {"sometimes", 3},
                 [failing](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
                   if (*failing) return absl::UnavailableError("later");
                   return std::vector<int64_t>{2, 0, 1};
                 }),
             Native(4)},
            {1, 1, 1}, MixtureStop::kNumSamples, 60));
  const std::vector<int64_t> expected = ReadEpoch(*order, 0);
  const auto stream = *order->Open(0);
  std::vector<int64_t> out(60);
  *failing = true;
  EXPECT_THAT(stream->Read(0, 1, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kUnavailable));
  *failing = false;
  LOCKSTEP_ASSERT_OK(stream->Read(0, 1, absl::MakeSpan(out)));
  EXPECT_EQ(out, expected);
}

// An order that throws once.
class ThrowingOrder : public Order {
 public:
  explicit ThrowingOrder(std::shared_ptr<bool> throws)
      : throws_(std::move(throws)) {}
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override {
    if (*throws_) throw std::bad_alloc();
    return Native(3)->Open(epoch);
  }
  OrderDescription Describe() const override { return Native(3)->Describe(); }

 private:
  const std::shared_ptr<bool> throws_;
};

TEST(ContinuedMixture, AReadThatThrowsLeavesTheStreamAsItWas) {
  const auto throws = std::make_shared<bool>(false);
  const auto order =
      Mix(Mixed({Native(5), std::make_shared<ThrowingOrder>(throws), Native(4)},
                {1, 1, 1}, MixtureStop::kNumSamples, 60));
  const std::vector<int64_t> expected = ReadEpoch(*order, 0);
  const auto stream = *order->Open(0);
  std::vector<int64_t> out(60);
  *throws = true;
  EXPECT_THROW(stream->Read(0, 1, absl::MakeSpan(out)).IgnoreError(),
               std::bad_alloc);
  *throws = false;
  LOCKSTEP_ASSERT_OK(stream->Read(0, 1, absl::MakeSpan(out)));
  EXPECT_EQ(out, expected);
}

}  // namespace
}  // namespace lockstep
