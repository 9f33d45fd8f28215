#include "lockstep/plugin/plugin.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::vector<std::string>& OrderNames() {
  static const auto& names = *new std::vector<std::string>{
      "block_shuffle",   "grouped",       "length_buckets", "native_shuffle",
      "native_weighted", "repeat_factor", "repeated",       "sequential",
      "stratified",      "token_budget",  "torch_random",   "torch_shuffle",
      "torch_weighted"};
  return names;
}

std::vector<std::string> NamesOf(const std::vector<PluginPart>& parts) {
  std::vector<std::string> names;
  for (const PluginPart& part : parts) names.push_back(part.name);
  return names;
}

// 24 samples with a label, a weight and so on.
std::shared_ptr<Dataset> Samples() {
  std::vector<int64_t> numbers(24);
  std::vector<double> weights(24);
  for (int64_t i = 0; i < 24; ++i) {
    numbers[i] = 1 + i % 3;
    weights[i] = 0.5 + static_cast<double>(i % 2);
  }
  return *TensorDataset::Create({
      NamedTensor::Own<int64_t>("label", {24}, numbers),
      NamedTensor::Own<int64_t>("group", {24}, numbers),
      NamedTensor::Own<int64_t>("length", {24}, numbers),
      NamedTensor::Own<double>("weight", {24}, weights),
      NamedTensor::Own<double>("factor", {24}, weights),
  });
}

class Plugin : public testing::Test {
 protected:
  Plugin() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    context_.dataset = Samples();
    context_.size = 2;
  }

  // The indices of rank `rank` in epoch 0.
  std::vector<int64_t> IndicesOf(const std::string& sampler,
                                 const Config& options, int64_t rank = 0) {
    context_.rank = rank;
    const auto made = registry_.Create<Sampler>(sampler, context_, options);
    LOCKSTEP_EXPECT_OK(made);
    if (!made.ok()) return {};
    LOCKSTEP_EXPECT_OK((*made)->StartEpoch(0));
    std::vector<int64_t> indices;
    BatchIndices batch;
    while (*(*made)->Next(batch)) {
      indices.insert(indices.end(), batch.indices.begin(),
                     batch.indices.begin() + batch.valid);
    }
    return indices;
  }

  PluginRegistry registry_;
  PluginContext context_;
};

TEST_F(Plugin, RegistersExactlyTheseNames) {
  EXPECT_THAT(NamesOf(registry_.Parts<Order>()),
              ElementsAreArray(OrderNames()));
  std::vector<std::string> samplers = OrderNames();
  samplers.insert(samplers.begin() + 1, "distributed");
  samplers.insert(samplers.begin() + 6, "order");
  EXPECT_THAT(NamesOf(registry_.Parts<Sampler>()), ElementsAreArray(samplers));
  EXPECT_THAT(NamesOf(registry_.Parts<Dataset>()),
              ElementsAre("cache", "concat", "file_folder", "npy", "subset",
                          "tfrecord", "zip"));
  EXPECT_THAT(NamesOf(registry_.Parts<Loader>()), ElementsAre("default"));
#ifdef LOCKSTEP_WITH_GLOO
  EXPECT_THAT(NamesOf(registry_.Parts<Communicator>()),
              ElementsAre("auto", "gloo", "nccl", "shm"));
#else
  EXPECT_THAT(NamesOf(registry_.Parts<Communicator>()),
              ElementsAre("auto", "nccl", "shm"));
  EXPECT_THAT(registry_.Create<Communicator>("gloo", context_),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("--@lockstep//config:with_gloo=true")));
#endif
  EXPECT_THAT(NamesOf(registry_.Parts<MetricsSink>()), ElementsAre("text"));
  for (const PluginPart& part : registry_.Parts()) {
    EXPECT_THAT(part.meaning,
                AllOf(Not(testing::IsEmpty()), testing::EndsWith(".")));
    EXPECT_EQ(part.plugin, "lockstep 0.1.0");
    for (const OptionInfo& option : part.options) {
      EXPECT_THAT(option.meaning, testing::EndsWith("."))
          << part.name << " " << option.key;
    }
  }
}

TEST_F(Plugin, MayBeRegisteredTwice) {
  LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
}

TEST_F(Plugin, EveryOrderIsMadeByName) {
  for (const std::string& name : OrderNames()) {
    Config options;
    options.Set("global_batch_size", 8);
    if (name == "token_budget") options.Set("max_tokens", 12);
    EXPECT_THAT(IndicesOf(name, options), Not(testing::IsEmpty())) << name;
  }
}

TEST_F(Plugin, RanksShareTheSamples) {
  for (const char* const name : {"native_shuffle", "stratified", "grouped"}) {
    Config options;
    options.Set("global_batch_size", 8);
    std::vector<int64_t> all = IndicesOf(name, options, 0);
    for (const int64_t index : IndicesOf(name, options, 1)) {
      all.push_back(index);
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(24);
    for (int64_t i = 0; i < 24; ++i) expected[i] = i;
    EXPECT_EQ(all, expected) << name;
  }
}

// Confirmed on PyTorch: DistributedSampler of 25 samples, 2 ranks, epoch 0.
TEST_F(Plugin, DistributedIsPyTorchs) {
  context_.dataset = *TensorDataset::Create(
      {NamedTensor::Own<int64_t>("x", {25}, std::vector<int64_t>(25))});
  Config options;
  options.Set("global_batch_size", 8);
  const std::vector<int64_t> indices = IndicesOf("distributed", options);
  EXPECT_THAT(absl::MakeSpan(indices).first(8),
              ElementsAre(19, 6, 5, 11, 14, 21, 15, 22));
  options.Set("shuffle", false);
  EXPECT_THAT(IndicesOf("distributed", options, 1),
              ElementsAre(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23));
}

TEST_F(Plugin, BatchesAreOfAllRanksTogether) {
  Config options;
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("either global_batch_size or rank_batch_size "
                                 "should be set, but neither is")));
  options.Set("global_batch_size", 7);
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a multiple of the 2 ranks that get different "
                                 "data, such as 6 or 8, but got "
                                 "global_batch_size=7")));
  options.Set("global_batch_size", 8);
  EXPECT_EQ((*registry_.Create<Sampler>("sequential", context_, options))
                ->options()
                .cut.batch_size,
            4);
  context_.replicas = 2;
  EXPECT_EQ((*registry_.Create<Sampler>("sequential", context_, options))
                ->options()
                .cut.batch_size,
            8);
  options.Set("rank_batch_size", 8);
  EXPECT_THAT(
      registry_.Create<Sampler>("sequential", context_, options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("but both are")));
  context_.replicas = 0;
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("but got size=2, replicas=0")));
}

TEST_F(Plugin, ColumnsAreLookedUpByName) {
  Config options;
  options.Set("global_batch_size", 8);
  options.Set("labels", "kind");
  EXPECT_THAT(
      registry_.Create<Sampler>("stratified", context_, options),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no column 'kind'")));
  options.Set("labels", "weight");
  EXPECT_THAT(registry_.Create<Sampler>("stratified", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("column 'weight' should have integers")));
  context_.dataset = nullptr;
  EXPECT_THAT(registry_.Create<Sampler>("stratified", context_, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("needs a dataset")));
}

TEST_F(Plugin, LoadersAreMadeOfTables) {
  Config loader;
  loader.Set("num_workers", 2);
  Config& sampler = loader.Set("sampler", Config());
  sampler.Set("name", "order");
  sampler.Set("global_batch_size", 8);
  sampler.Set("order", Config()).Set("name", "sequential");
  const auto made = registry_.Create<Loader>("default", context_, loader);
  LOCKSTEP_ASSERT_OK(made);
  int64_t rows = 0;
  for (auto& batch : (*made)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    rows += batch->valid();
  }
  EXPECT_EQ(rows, 12);
  loader.Set("sampler", Config());
  EXPECT_THAT(registry_.Create<Loader>("default", context_, loader),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a sampler is made of a table with its "
                                 "name")));
}

TEST_F(Plugin, DatasetsAreMadeOfDatasets) {
  LOCKSTEP_ASSERT_OK(RegisterLockstep(registry_));
  Config subset;
  subset.Set("name", "subset");
  subset.Set("begin", 3);
  subset.Set("end", 2);
  EXPECT_THAT(registry_.CreateFrom<Dataset>(subset, context_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a dataset is made of a table")));
}

TEST_F(Plugin, GroupsNeedAWorld) {
  EXPECT_THAT(registry_.Create<Communicator>("shm", context_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("PluginContext::world")));
  WorldOptions alone;
  alone.rank = 0;
  alone.size = 1;
  const auto world = World::Join(alone);
  LOCKSTEP_ASSERT_OK(world);
  context_.world = world->get();
  Config options;
  options.Set("deadline", "5s");
  const auto group = registry_.Create<Communicator>("auto", context_, options);
  LOCKSTEP_ASSERT_OK(group);
  LOCKSTEP_EXPECT_OK(Wait((*group)->Barrier()));
}

TEST_F(Plugin, MetricsGoToAFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/metrics");
  Config options;
  options.Set("path", path);
  auto sink = registry_.Create<MetricsSink>("text", context_, options);
  LOCKSTEP_ASSERT_OK(sink);
  LOCKSTEP_EXPECT_OK((*sink)->Write(7, {{"loss", 0.25}, {"accuracy", 0.5}}));
  LOCKSTEP_EXPECT_OK((*sink)->Flush());
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "step 7: loss 0.25, accuracy 0.5");
  options.Set("path", "/no/such/folder/x");
  EXPECT_THAT(registry_.Create<MetricsSink>("text", context_, options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("can't open")));
}

}  // namespace
}  // namespace lockstep
