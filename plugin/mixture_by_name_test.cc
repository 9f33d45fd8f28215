// Mixtures from settings.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_conformance.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<Dataset> Numbers(int64_t first, int64_t size) {
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::vector<double> weights(static_cast<size_t>(size), 1);
  for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(i)] = first + i;
  weights[0] = 0;  // the first sample of a part never comes by weight
  return *TensorDataset::Create(
      {NamedTensor::Own<int64_t>("x", {size}, values),
       NamedTensor::Own<double>("weight", {size}, weights)});
}

class MixtureByName : public testing::Test {
 protected:
  MixtureByName() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    context_.dataset =
        *ConcatDataset::Create({Numbers(0, 100), Numbers(100, 10)});
    settings_.Set("weights", Config::Array{0.7, 0.3});
  }

  absl::StatusOr<std::unique_ptr<Sampler>> Make() {
    if (settings_.Find("global_batch_size") == nullptr &&
        settings_.Find("rank_batch_size") == nullptr) {
      settings_.Set("global_batch_size", 4);
    }
    return registry_.Create<Sampler>("mixture", context_, settings_);
  }

  std::vector<int64_t> Epoch(int64_t epoch) {
    const auto sampler = Make();
    LOCKSTEP_EXPECT_OK(sampler);
    if (!sampler.ok()) return {};
    LOCKSTEP_EXPECT_OK((*sampler)->StartEpoch(epoch));
    std::vector<int64_t> indices;
    BatchIndices batch;
    while (*(*sampler)->Next(batch)) {
      const auto data = batch.indices.first(batch.valid);
      indices.insert(indices.end(), data.begin(), data.end());
    }
    return indices;
  }

  PluginRegistry registry_;
  PluginContext context_;
  Config settings_;
};

std::vector<int64_t> OfPart(const std::vector<int64_t>& indices, bool second) {
  std::vector<int64_t> part;
  for (const int64_t index : indices) {
    if ((index >= 100) == second) part.push_back(index);
  }
  return part;
}

TEST_F(MixtureByName, GoesOnWithEachPart) {
  std::vector<int64_t> large;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int64_t> indices = Epoch(epoch);
    // The epoch ends when the part of ten samples has come once.
    std::vector<int64_t> small = OfPart(indices, true);
    std::sort(small.begin(), small.end());
    EXPECT_THAT(small,
                ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 109));
    for (const int64_t index : OfPart(indices, false)) large.push_back(index);
  }
  ASSERT_EQ(large.size(), 100);
  std::sort(large.begin(), large.end());
  EXPECT_EQ(std::adjacent_find(large.begin(), large.end()), large.end())
      << "a sample of the large part came twice before all had come";
}

TEST_F(MixtureByName, PartsHaveOrdersOfTheirOwn) {
  Config weighted, sequential;
  weighted.Set("name", "native_weighted");
  sequential.Set("name", "sequential");
  settings_.Set("of", Config::Array{weighted, sequential});
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 400);
  const std::vector<int64_t> indices = Epoch(0);
  EXPECT_THAT(indices, testing::Not(testing::Contains(0)));
  const std::vector<int64_t> small = OfPart(indices, true);
  ASSERT_EQ(small.size(), 120);
  for (size_t i = 0; i < small.size(); ++i) {
    EXPECT_EQ(small[i], 100 + static_cast<int64_t>(i) % 10);
  }
}

TEST_F(MixtureByName, DefaultOrdersHaveTheSeedPlusTheirNumber) {
  settings_.Set("seed", 7);
  const std::vector<int64_t> indices = Epoch(0);
  Config first, second;
  first.Set("name", "native_shuffle");
  first.Set("seed", 7);
  second.Set("name", "native_shuffle");
  second.Set("seed", 8);
  settings_.Set("of", Config::Array{first, second});
  EXPECT_EQ(Epoch(0), indices);
}

TEST_F(MixtureByName, WeightsChangeAfterSamplesOrSteps) {
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 40);
  Config later;
  later.Set("after_samples", 60);
  later.Set("weights", Config::Array{0, 1});
  settings_.Set("schedule", Config::Array{later});
  EXPECT_EQ(OfPart(Epoch(0), true).size(), 12);
  EXPECT_EQ(OfPart(Epoch(1), true).size(), 26);  // 6 of 20, then 20
  EXPECT_EQ(OfPart(Epoch(2), true).size(), 40);
  const std::vector<int64_t> by_samples = Epoch(1);
  Config by_steps;
  by_steps.Set("after_steps", 15);
  by_steps.Set("weights", Config::Array{0, 1});
  settings_.Set("schedule", Config::Array{by_steps});
  EXPECT_EQ(Epoch(1), by_samples);
}

TEST_F(MixtureByName, StepsNeedBatchesThatRanksDoNotChange) {
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 42);
  Config later;
  later.Set("after_steps", 15);
  later.Set("weights", Config::Array{0, 1});
  settings_.Set("schedule", Config::Array{later});
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("num_samples should be a "
                                               "multiple of global_batch_size=4"
                                               ", such as 44"),
                                     HasSubstr("num_samples=42"))));
  Config ranks;
  ranks.Set("weights", Config::Array{0.7, 0.3});
  ranks.Set("end", "samples");
  ranks.Set("num_samples", 40);
  ranks.Set("schedule", Config::Array{later});
  ranks.Set("rank_batch_size", 4);
  settings_ = ranks;
  EXPECT_THAT(Make(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("`mixture` as the sampler itself, and its "
                                 "global_batch_size")));
}

TEST_F(MixtureByName, SaysWhatIsWrong) {
  settings_.Set("weights", Config::Array{1, 2, 3});
  EXPECT_THAT(Make(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a weight for each part of its dataset"),
                             HasSubstr("The dataset has 2 parts"),
                             HasSubstr("got weights = [1, 2, 3]"))));
  settings_.Set("weights", Config::Array{1, 2});
  Config inner;
  inner.Set("name", "length_buckets");
  inner.Set("lengths", "x");
  inner.Set("planned_batch_size", 2);
  inner.Set("window_batches", 2);
  settings_.Set("of", Config::Array{inner, inner});
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("put it around the mixture")));
  Config both;
  both.Set("weights", Config::Array{0, 1});
  Config settings;
  settings.Set("weights", Config::Array{1, 2});
  settings.Set("end", "samples");
  settings.Set("num_samples", 40);
  settings.Set("schedule", Config::Array{both});
  settings_ = settings;
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("either after_samples or after_steps, "
                                         "but one has neither")));
  both.Set("after_samples", 10);
  settings_.Set("schedule", Config::Array{both});
  settings_.Set("end", "all_exhausted");
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("set end = \"samples\"")));
}

TEST_F(MixtureByName, SaysWhichSettingsBelongTogether) {
  settings_.Set("num_samples", 40);
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("num_samples has no effect"),
                                     HasSubstr("num_samples=40"))));
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 0);
  EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("num_samples should be set")));
  settings_.Set("num_samples", 40);
  Config first, second;
  first.Set("after_samples", 80);
  first.Set("weights", Config::Array{1, 1});
  second.Set("after_samples", 60);
  second.Set("weights", Config::Array{1, 2});
  settings_.Set("schedule", Config::Array{first, second});
  EXPECT_THAT(Make(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("table 1 (counted from 0) begins with sample "
                                 "60, and the weights before it with sample "
                                 "80")));
}

// A dataset of other parts than it says.
class WrongParts : public Dataset {
 public:
  WrongParts(std::shared_ptr<Dataset> inner, std::vector<int64_t> parts)
      : inner_(std::move(inner)), parts_(std::move(parts)) {}
  int64_t size() const override { return inner_->size(); }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    return inner_->Read(index, context, row);
  }
  std::vector<int64_t> parts() const override { return parts_; }

 private:
  const std::shared_ptr<Dataset> inner_;
  const std::vector<int64_t> parts_;
};

TEST_F(MixtureByName, PartsMustAddUpToTheDataset) {
  const std::shared_ptr<Dataset> inner = context_.dataset;
  for (const std::vector<int64_t>& parts : {std::vector<int64_t>{100, 11},
                                            {100, 9},
                                            {120, -10},
                                            {INT64_MAX, INT64_MAX}}) {
    context_.dataset = std::make_shared<WrongParts>(inner, parts);
    EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("should add up to the size of the "
                                           "dataset, 110, but returned ")));
  }
}

struct HalfOptions {};
void BindOptions(HalfOptions&, OptionTable&) {}

TEST_F(MixtureByName, AnOrderMustWalkItsWholePart) {
  LOCKSTEP_ASSERT_OK((registry_.Add<Order, HalfOptions>(
      "half", "The first half.",
      [](const PluginContext& context,
         const HalfOptions&) -> absl::StatusOr<std::shared_ptr<const Order>> {
        return SequentialOrder::Create(context.dataset->size() / 2);
      })));
  Config half, whole;
  half.Set("name", "half");
  whole.Set("name", "sequential");
  settings_.Set("of", Config::Array{half, whole});
  EXPECT_THAT(Make(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the order of part 0, sequential(size:50), is "
                                 "over 50 samples, and the part has 100")));
}

TEST_F(MixtureByName, StepsAreNotKnownInsideAnotherOrder) {
  Config later;
  later.Set("after_steps", 10);
  later.Set("weights", Config::Array{1, 1});
  settings_.Set("name", "mixture");
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 40);
  settings_.Set("schedule", Config::Array{later});
  Config outer;
  outer.Set("order", settings_);
  outer.Set("lengths", "x");
  outer.Set("global_batch_size", 4);
  EXPECT_THAT(registry_.Create<Sampler>("length_buckets", context_, outer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Inside another order")));
}

// The seed of an outer order reaches the orders inside it.
TEST_F(MixtureByName, OrdersInsideGetTheSeed) {
  const auto description_of = [&](const Config& settings) {
    const auto order = registry_.Create<Order>("grouped", context_, settings);
    LOCKSTEP_EXPECT_OK(order);
    return order.ok() ? (*order)->Describe().ToString() : "";
  };
  Config grouped;
  grouped.Set("groups", "x");
  grouped.Set("planned_batch_size", 4);
  grouped.Set("seed", 7);
  EXPECT_THAT(description_of(grouped),
              HasSubstr("native_shuffle(size:110,seed:7)"));
  Config inner;
  inner.Set("name", "torch_shuffle");
  inner.Set("seed", 9);
  grouped.Set("order", inner);
  EXPECT_THAT(description_of(grouped), HasSubstr("seed:9"));
  inner = Config();
  inner.Set("name", "mixture");
  inner.Set("weights", Config::Array{1, 1});
  Config sequential, shuffled;
  sequential.Set("name", "sequential");
  shuffled.Set("name", "torch_shuffle");
  inner.Set("of", Config::Array{sequential, shuffled});
  grouped.Set("order", inner);
  EXPECT_THAT(description_of(grouped),
              HasSubstr("torch_shuffle(size:10,seed:8"));
}

// Inner orders had seed 0 when the outer seed did not reach them.
TEST_F(MixtureByName, AStateOfAnotherInnerSeedIsRefused) {
  Config grouped;
  grouped.Set("groups", "x");
  grouped.Set("global_batch_size", 4);
  grouped.Set("seed", 7);
  const auto now = registry_.Create<Sampler>("grouped", context_, grouped);
  LOCKSTEP_ASSERT_OK(now);
  Config inner;
  inner.Set("name", "native_shuffle");
  inner.Set("seed", 0);
  grouped.Set("order", inner);
  const auto before = registry_.Create<Sampler>("grouped", context_, grouped);
  LOCKSTEP_ASSERT_OK(before);
  LOCKSTEP_ASSERT_OK((*before)->StartEpoch(0));
  EXPECT_THAT(
      (*now)->RestoreState((*before)->SaveState()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("details")));
}

TEST_F(MixtureByName, Conforms) {
  settings_.Set("end", "samples");
  settings_.Set("num_samples", 72);
  settings_.Set("global_batch_size", 6);
  Config later;
  later.Set("after_samples", 100);
  later.Set("weights", Config::Array{1, 8});
  settings_.Set("schedule", Config::Array{later});
  ExpectConforms([&](int64_t rank, int64_t ranks) {
    context_.rank = rank;
    context_.world_size = ranks;
    return Make();
  });
}

// An order around a mixture tells the same of it.
TEST_F(MixtureByName, IsExplainedAndCounted) {
  Config inner;
  inner.Set("name", "mixture");
  inner.Set("weights", Config::Array{0.7, 0.3});
  Config outer;
  outer.Set("order", inner);
  outer.Set("planned_batch_size", 2);
  outer.Set("lengths", "x");
  const auto buckets =
      registry_.Create<Order>("length_buckets", context_, outer);
  LOCKSTEP_ASSERT_OK(buckets);
  EXPECT_THAT((*buckets)->Explain(),
              AllOf(HasSubstr("part 0 of 100 samples has 7 of 10 turns"),
                    HasSubstr("part 1 of 10 samples has 3 of 10 turns (it "
                              "comes 1 times an epoch)")));
  const std::vector<Order::Part> parts = (*buckets)->PartsAt(1, 10);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts[1].drawn, 13);
  EXPECT_EQ(parts[1].size, 10);
  EXPECT_DOUBLE_EQ(parts[1].share, 0.3);
}

TEST_F(MixtureByName, ALoaderReadsThePartsOfItsDataset) {
  settings_.Set("name", "mixture");
  settings_.Set("global_batch_size", 10);
  Config loader;
  loader.Set("sampler", settings_);
  loader.Set("num_workers", 2);
  const auto made = registry_.Create<Loader>("default", context_, loader);
  LOCKSTEP_ASSERT_OK(made);
  int64_t small = 0, all = 0;
  for (absl::StatusOr<Batch>& batch : (*made)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    const absl::Span<const int64_t> x = *batch->Values<int64_t>("x");
    for (int64_t row = 0; row < batch->valid(); ++row) {
      EXPECT_EQ(x[static_cast<size_t>(row)],
                batch->indices()[static_cast<size_t>(row)]);
      small += x[static_cast<size_t>(row)] >= 100 ? 1 : 0;
      ++all;
    }
  }
  EXPECT_EQ(small, 10);
  EXPECT_GE(all, 33);
}

}  // namespace
}  // namespace lockstep
