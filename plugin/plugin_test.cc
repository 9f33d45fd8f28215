#include "lockstep/plugin/plugin.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_conformance.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string>& OrderNames() {
  static const auto& names = *new std::vector<std::string>{
      "block_shuffle",  "grouped",         "length_buckets", "mixture",
      "native_shuffle", "native_weighted", "packed",         "repeat_factor",
      "repeated",       "sequential",      "stratified",     "token_budget",
      "torch_random",   "torch_shuffle",   "torch_weighted"};
  return names;
}

std::vector<std::string> NamesOf(const std::vector<PluginPart>& parts) {
  std::vector<std::string> names;
  for (const PluginPart& part : parts) names.push_back(part.name);
  return names;
}

// Returns 24 samples with fields such as a label and a weight.
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

// Returns the settings without which an order can't be made of these samples.
Config Needed(const std::string& order) {
  Config options;
  if (order == "token_budget") options.Set("max_tokens", 12);
  if (order == "packed") options.Set("row_length", 5);
  if (order == "mixture") options.Set("weights", Config::Array{1});
  return options;
}

// Returns a table with the name of a part.
Config Named(const std::string& name) {
  Config table;
  table.Set("name", name);
  return table;
}

class Plugin : public testing::Test {
 protected:
  Plugin() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    context_.dataset = Samples();
    context_.world_size = 2;
  }

  // Returns the indices of rank `rank` in epoch 0.
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
                     batch.indices.begin() + batch.samples());
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
  samplers.insert(samplers.begin() + 7, "order");
  EXPECT_THAT(NamesOf(registry_.Parts<Sampler>()), ElementsAreArray(samplers));
  EXPECT_THAT(NamesOf(registry_.Parts<Dataset>()),
              ElementsAre("cache", "concat", "file_folder", "image", "npy",
                          "subset", "tar", "tfrecord", "tokens", "zip"));
  EXPECT_THAT(NamesOf(registry_.Parts<Loader>()), ElementsAre("default"));
  EXPECT_THAT(NamesOf(registry_.Parts<Communicator>()),
              ElementsAre("auto", "gloo", "nccl", "shm", "tcp"));
  EXPECT_THAT(NamesOf(registry_.Parts<MetricsSink>()),
              ElementsAre("json_lines", "prometheus", "tensorboard", "text"));
  for (const PluginPart& part : registry_.Parts()) {
    EXPECT_THAT(part.meaning,
                AllOf(Not(testing::IsEmpty()), testing::EndsWith(".")));
    for (const OptionInfo& option : part.options) {
      EXPECT_THAT(option.meaning, testing::EndsWith("."))
          << part.name << " " << option.key;
    }
  }
}

TEST(Version, IsThatOfTheModule) {
  std::ifstream file("MODULE.bazel");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr(absl::StrCat("name = \"lockstep\",\n    version "
                                           "= \"",
                                           kVersion, "\"")));
}

TEST_F(Plugin, MayBeRegisteredTwice) {
  LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
}

TEST_F(Plugin, EveryOrderIsMadeByName) {
  for (const std::string& name : OrderNames()) {
    Config options = Needed(name);
    options.Set("global_batch_size", 8);
    EXPECT_THAT(IndicesOf(name, options), Not(testing::IsEmpty())) << name;
  }
}

// Samplers of users can be tested with the same suite.
TEST_F(Plugin, EverySamplerConforms) {
  for (const std::string& name : NamesOf(registry_.Parts<Sampler>())) {
    for (const char* const tail : {"pad", "drop", "uneven", "mask"}) {
      SCOPED_TRACE(name + " " + tail);
      Config options = Needed(name);
      options.Set("global_batch_size", 6);
      // It has PyTorch's settings, which have only two tails.
      if (name != "distributed") options.Set("tail", tail);
      ExpectConforms([&](int64_t rank, int64_t ranks) {
        context_.rank = rank;
        context_.world_size = ranks;
        return registry_.Create<Sampler>(name, context_, options);
      });
    }
  }
}

// The samples of a shard, data first, by step and shard.
using ShardSamples =
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;

void AddShards(const BatchIndices& batch, ShardSamples& all) {
  for (const ShardRows& shard : batch.shards) {
    std::vector<int64_t>& samples = all[{batch.step, shard.shard}];
    const auto add = [&](int64_t begin, int64_t rows) {
      samples.insert(samples.end(),
                     batch.indices.begin() + batch.SamplesBefore(begin),
                     batch.indices.begin() + batch.SamplesBefore(begin + rows));
      samples.push_back(-2);  // the end
    };
    add(shard.begin, shard.valid);
    add(shard.padding_begin, shard.padding);
  }
}

TEST_F(Plugin, EverySamplerDealsTheSameShardsToAnyNumberOfRanks) {
  for (const std::string& name : NamesOf(registry_.Parts<Sampler>())) {
    for (const char* const tail : {"pad", "drop", "uneven", "mask"}) {
      SCOPED_TRACE(name + " " + tail);
      Config options = Needed(name);
      options.Set("global_batch_size", 12);
      options.Set("shards", 6);
      if (name != "distributed") options.Set("tail", tail);
      ShardSamples expected;
      for (const int64_t world : {1, 5}) {
        ShardSamples all;
        context_.world_size = world;
        for (context_.rank = 0; context_.rank < world; ++context_.rank) {
          const auto sampler =
              registry_.Create<Sampler>(name, context_, options);
          LOCKSTEP_ASSERT_OK(sampler.status());
          EXPECT_EQ((*sampler)->options().cut.shards, 6);
          LOCKSTEP_ASSERT_OK((*sampler)->StartEpoch(1));
          BatchIndices batch;
          while (*(*sampler)->Next(batch)) AddShards(batch, all);
        }
        if (world == 1) expected = all;
        EXPECT_TRUE(all == expected);
      }
      EXPECT_FALSE(expected.empty());
    }
  }
}

TEST_F(Plugin, ShardsMakeAGlobalBatchPossibleOnAnyNumberOfRanks) {
  Config options;
  options.Set("global_batch_size", 48);
  context_.world_size = 5;
  context_.rank = 4;
  const auto make = [&] {
    return registry_.Create<Sampler>("sequential", context_, options);
  };
  EXPECT_THAT(make().status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("or set shards to a number that divides it: "
                                 "6, 8, 12, 16, 24 or 48")));
  options.Set("shards", 24);
  const auto sampler = make();
  LOCKSTEP_ASSERT_OK(sampler.status());
  EXPECT_EQ((*sampler)->options().cut.batch_size, 2);
  options.Set("global_batch_size", 50);
  EXPECT_THAT(
      make().status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("multiple of shards=24, such as 48 or 72, but "
                               "got global_batch_size=50"),
                     Not(HasSubstr("or set shards")))));
  options.Set("global_batch_size", 48);
  options.Set("shards", 20);
  EXPECT_THAT(make().status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("but got shards=20")));
  options.Set("shards", 4);
  EXPECT_THAT(make().status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("as many shards as ranks")));
}

TEST_F(Plugin, ShardsRefuseSettingsThatDependOnTheNumberOfRanks) {
  Config options;
  options.Set("rank_batch_size", 4);
  options.Set("shards", 6);
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("set global_batch_size to a multiple of the "
                                 "shards, and leave out rank_batch_size=4")));
  Config neither;
  neither.Set("shards", 6);
  EXPECT_THAT(
      registry_.Create<Sampler>("sequential", context_, neither),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("set global_batch_size to a multiple of the shards")));
  options = Needed("token_budget");
  options.Set("global_batch_size", 12);
  options.Set("shards", 6);
  options.Set("planned_ranks", 6);
  LOCKSTEP_EXPECT_OK(
      registry_.Create<Sampler>("token_budget", context_, options));
  options.Set("planned_ranks", 2);
  EXPECT_THAT(registry_.Create<Sampler>("token_budget", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("planned_ranks=2 contradicts shards=6")));
}

// Each order gets its settings, as its description shows.
TEST_F(Plugin, OrdersTakeTheirSettings) {
  context_.global_batch_size = 8;
  const auto description_of = [&](const std::string& name,
                                  const Config& options) {
    const auto order = registry_.Create<Order>(name, context_, options);
    LOCKSTEP_EXPECT_OK(order);
    return order.ok() ? (*order)->Describe().ToString() : "";
  };
  Config seed;
  seed.Set("seed", 7);
  EXPECT_EQ(description_of("native_shuffle", seed),
            "native_shuffle(size:24,seed:7)");
  EXPECT_EQ(description_of("stratified", seed),
            "stratified(size:24,seed:7,data:4ce45366d28a76bf)");
  EXPECT_EQ(description_of("repeat_factor", seed),
            "repeat_factor(size:24,seed:7,data:8419e11d5f8d42b3)");
  Config torch = seed;
  torch.Set("profile", "2.1");
  EXPECT_EQ(description_of("torch_shuffle", torch),
            "torch_shuffle(size:24,seed:7,profile:1.13)");
  torch.Set("num_samples", 30);
  torch.Set("replacement", true);
  torch.Set("generator", "default");
  torch.Set("persistent_workers", true);
  EXPECT_EQ(description_of("torch_random", torch),
            "torch_random(size:24,seed:7,profile:1.13,num_samples:30,re"
            "placement:true,generator:default,persistent_workers:true)");
  Config weighted = seed;
  weighted.Set("num_samples", 5);
  weighted.Set("weights", "factor");
  EXPECT_EQ(description_of("torch_weighted", weighted),
            "torch_weighted(size:24,seed:7,num_samples:5,generator:own,"
            "data:8419e11d5f8d42b3)");
  weighted.Set("replacement", false);
  EXPECT_EQ(description_of("native_weighted", weighted),
            "native_weighted(size:24,seed:7,num_samples:5,replacement:f"
            "alse,data:8419e11d5f8d42b3)");
  Config block = seed;
  block.Set("chunk_size", 3);
  block.Set("open_chunks", 2);
  EXPECT_EQ(description_of("block_shuffle", block),
            "block_shuffle(size:24,seed:7,chunk_size:3,open_chunks:2)");
  Config repeated;
  repeated.Set("order", Named("sequential"));
  repeated.Set("repeats", 2);
  repeated.Set("keep", 9);
  EXPECT_EQ(description_of("repeated", repeated),
            "repeated(size:24,repeats:2,keep:9,sequential(size:24))");
  Config window = seed;
  window.Set("order", Named("sequential"));
  window.Set("window_batches", 3);
  EXPECT_EQ(description_of("grouped", window),
            "grouped(size:24,seed:7,global_batch:8,batches:3,sequential"
            "(size:24),data:4ce45366d28a76bf)");
  EXPECT_EQ(description_of("length_buckets", window),
            "length_buckets(size:24,seed:7,global_batch:8,batches:3,seq"
            "uential(size:24),data:4ce45366d28a76bf)");
  window.Set("planned_batch_size", 4);
  window.Set("planned_ranks", 1);
  window.Set("max_tokens", 12);
  EXPECT_EQ(description_of("token_budget", window),
            "token_budget(size:24,seed:7,global_batch:4,batches:3,max_t"
            "okens:12,world:1,sequential(size:24),data:4ce45366d28a76bf"
            ")");
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

// PyTorch gives the same indices: DistributedSampler of 25 samples, 2 ranks,
// epoch 0.
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

// With two replicas and a stride of two, ranks 0 and 1 get the same data.
TEST_F(Plugin, DistributedHasReplicas) {
  context_.world_size = 4;
  context_.replicas = 2;
  Config options;
  options.Set("global_batch_size", 8);
  options.Set("data_stride", 2);
  const std::vector<int64_t> first = IndicesOf("distributed", options, 0);
  EXPECT_EQ(IndicesOf("distributed", options, 1), first);
  const std::vector<int64_t> second = IndicesOf("distributed", options, 2);
  EXPECT_EQ(IndicesOf("distributed", options, 3), second);
  std::vector<int64_t> all = first;
  all.insert(all.end(), second.begin(), second.end());
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(24);
  for (int64_t i = 0; i < 24; ++i) expected[i] = i;
  EXPECT_EQ(all, expected);
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
                       HasSubstr("different data, 2, such as 6 or 8, but got "
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
  options.Set("global_batch_size", -100);
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("such as 1 or 2, but got")));
  Config rows;
  rows.Set("rank_batch_size", int64_t{1} << 62);
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, rows),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("from 1 to 16777216")));
  options.Set("rank_batch_size", 8);
  EXPECT_THAT(
      registry_.Create<Sampler>("sequential", context_, options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("but both are")));
  context_.replicas = 0;
  EXPECT_THAT(registry_.Create<Sampler>("sequential", context_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("but got world_size=2, replicas=0")));
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
                       HasSubstr("a loader needs a sampler: set `sampler` to a "
                                 "table with its name")));
}

// Makes the dataset "samples".
absl::StatusOr<std::shared_ptr<Dataset>> MakeSamples(const PluginContext&,
                                                     const NoOptions&) {
  return Samples();
}

TEST_F(Plugin, DatasetsAreMadeOfDatasets) {
  LOCKSTEP_ASSERT_OK(registry_.Add<Dataset>("samples", "24.", MakeSamples));
  const auto labels_of = [&](const Config& table) {
    const auto dataset = registry_.CreateFrom<Dataset>(table, context_);
    LOCKSTEP_EXPECT_OK(dataset);
    return dataset.ok() ? *ReadIntegers(**dataset, "label")
                        : std::vector<int64_t>();
  };
  Config subset = Named("subset");
  subset.Set("dataset", Named("samples"));
  subset.Set("begin", 1);
  subset.Set("end", 4);
  EXPECT_THAT(labels_of(subset), ElementsAre(2, 3, 1));
  Config cache = Named("cache");
  cache.Set("dataset", subset);
  cache.Set("max_bytes", "1k");
  EXPECT_THAT(labels_of(cache), ElementsAre(2, 3, 1));
  Config concat = Named("concat");
  concat.Set("datasets", Config::Array({cache, subset}));
  EXPECT_THAT(labels_of(concat), ElementsAre(2, 3, 1, 2, 3, 1));
  Config zip = Named("zip");
  zip.Set("datasets", Config::Array({subset}));
  EXPECT_THAT(labels_of(zip), ElementsAre(2, 3, 1));
  Config indices = Named("subset");
  indices.Set("dataset", Named("samples"));
  indices.Set("indices", Config::Array({5, 3}));
  EXPECT_THAT(labels_of(indices), ElementsAre(3, 1));
}

TEST_F(Plugin, WhatIsWrongWithinIsToldWithItsParts) {
  LOCKSTEP_ASSERT_OK(registry_.Add<Dataset>("samples", "24.", MakeSamples));
  const auto error_of = [&](const Config& table) {
    return registry_.CreateFrom<Dataset>(table, context_).status();
  };
  Config subset = Named("subset");
  subset.Set("dataset", Named("samples"));
  subset.Set("end", 25);
  EXPECT_THAT(error_of(subset),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("begin=0, end=25"),
                             HasSubstr("in dataset 'subset'"))));
  subset.Set("indices", Config::Array({5, 3}));
  EXPECT_THAT(error_of(subset),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("either indices or begin and end")));
  subset.Set("dataset", Named("smaples"));
  EXPECT_THAT(error_of(subset),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("did you mean 'samples'?"),
                             HasSubstr("in dataset 'subset'"))));
  EXPECT_THAT(error_of(Named("stratified")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is a part of that name, of kind "
                                 "sampler")));
}

TEST_F(Plugin, DatasetsReadFiles) {
  const std::string path = absl::StrCat(testing::TempDir(), "/x.npy");
  const std::string header =
      "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }";
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += header + std::string(0x76 - 1 - header.size(), ' ') + "\n";
  bytes += std::string("\x07\x00\xff\xff\x00\x01", 6);
  std::ofstream(path, std::ios::binary) << bytes;
  Config file;
  file.Set("field", "label");
  file.Set("path", path);
  Config npy;
  npy.Set("files", Config::Array({file}));
  npy.Set("access", "read");
  const auto dataset = registry_.Create<Dataset>("npy", context_, npy);
  LOCKSTEP_ASSERT_OK(dataset);
  EXPECT_THAT(ReadIntegers(**dataset, "label"),
              IsOkAndHolds(ElementsAre(7, -1, 256)));
  const std::string nowhere = "/no/such/place";
  Config files;
  files.Set("files", Config::Array({nowhere}));
  EXPECT_THAT(registry_.Create<Dataset>("tfrecord", context_, files),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(nowhere)));
  Config folder;
  folder.Set("path", nowhere);
  EXPECT_THAT(registry_.Create<Dataset>("file_folder", context_, folder),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(nowhere)));
}

TEST_F(Plugin, RanksAreThoseOfTheWorld) {
  WorldOptions alone;
  alone.rank = 0;
  alone.size = 1;
  const auto world = World::Join(alone);
  LOCKSTEP_ASSERT_OK(world);
  Config options;
  options.Set("global_batch_size", 8);
  PluginContext context;
  context.dataset = context_.dataset;
  context.world = world->get();
  const auto ours = registry_.Create<Sampler>("sequential", context, options);
  LOCKSTEP_ASSERT_OK(ours);
  EXPECT_EQ((*ours)->options().cut.world, 1);
  // The numbers of the context override those of the world.
  context.rank = 3;
  context.world_size = 4;
  const auto said = registry_.Create<Sampler>("sequential", context, options);
  LOCKSTEP_ASSERT_OK(said);
  EXPECT_EQ((*said)->options().cut.world, 4);
  EXPECT_EQ((*said)->options().rank, 3);
}

TEST_F(Plugin, LoadersTakeTheProgramsCallbacks) {
  int64_t collated = 0;
  int64_t initialised = 0;
  context_.loader_hooks.collate = [&](BatchView&, Random&) {
    ++collated;
    return absl::OkStatus();
  };
  context_.loader_hooks.worker_init = [&](WorkerInfo&) {
    ++initialised;
    return absl::OkStatus();
  };
  context_.loader_hooks.memory = std::make_shared<HeapMemory>();
  context_.loader_hooks.progress = [](const LoaderProgress&) {};
  context_.loader_hooks.progress_interval = absl::Seconds(7);
  Config loader;
  loader.Set("num_workers", 0);
  loader.Set("sampler", Named("sequential")).Set("global_batch_size", 48);
  const auto made = registry_.Create<Loader>("default", context_, loader);
  LOCKSTEP_ASSERT_OK(made);
  for (auto& batch : (*made)->Epoch(0)) LOCKSTEP_ASSERT_OK(batch);
  EXPECT_EQ(collated, 1);
  EXPECT_EQ(initialised, 1);
  EXPECT_EQ((*made)->options().memory, context_.loader_hooks.memory);
  EXPECT_NE((*made)->options().progress, nullptr);
  EXPECT_EQ((*made)->options().progress_interval, absl::Seconds(7));
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
  options.Set("group", "another");
  LOCKSTEP_EXPECT_OK(registry_.Create<Communicator>("tcp", context_, options));
  LOCKSTEP_EXPECT_OK(registry_.Create<Communicator>("gloo", context_, options));
}

TEST_F(Plugin, MetricsGoToAFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/metrics");
  Config options;
  options.Set("path", path);
  auto sink = registry_.Create<MetricsSink>("text", context_, options);
  LOCKSTEP_ASSERT_OK(sink);
  LOCKSTEP_EXPECT_OK((*sink)->Write(7, {{"loss", 0.25}, {"a\nb", 1234567.5}}));
  LOCKSTEP_EXPECT_OK((*sink)->Flush());
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "step 7: loss 0.25, a\\nb 1234567.5");
  options.Set("path", "/proc/no_such_file");
  EXPECT_THAT(registry_.Create<MetricsSink>("text", context_, options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("can't open")));
}

// Each rank has a place of its own.
TEST_F(Plugin, SinksAreToldOfTheirRank) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/ranks/");
  context_.rank = 3;
  context_.world_size = 5;
  Config options;
  options.Set("path", folder + "steps");
  for (const char* const name : {"text", "json_lines", "prometheus"}) {
    const auto sink = registry_.Create<MetricsSink>(name, context_, options);
    LOCKSTEP_ASSERT_OK(sink);
    LOCKSTEP_EXPECT_OK((*sink)->Write(7, {{"loss", 0.25}}));
    LOCKSTEP_EXPECT_OK((*sink)->Flush());
  }
  EXPECT_TRUE(std::ifstream(folder + "steps.rank0003").good());
  EXPECT_TRUE(std::ifstream(folder + "steps.rank0003.prom").good());
  std::ifstream file(folder + "steps.rank0003.jsonl");
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, HasSubstr("\"rank\":3,\"size\":5,"));
  Config run;
  run.Set("folder", folder + "run");
  LOCKSTEP_EXPECT_OK(
      registry_.Create<MetricsSink>("tensorboard", context_, run));
  EXPECT_TRUE(std::filesystem::is_directory(folder + "run/rank0003"));
}

TEST_F(Plugin, SaysHowAnOrderBecomesASampler) {
  LOCKSTEP_ASSERT_OK(registry_.Add<Order>(
      "mine", "An order.",
      +[](const PluginContext&,
          const NoOptions&) -> absl::StatusOr<std::shared_ptr<const Order>> {
        return absl::UnimplementedError("not needed");
      }));
  EXPECT_THAT(registry_.Create<Sampler>("mine", context_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is an order of that name, for {name = "
                                 "\"order\", order = {name = \"mine\"}}")));
}

}  // namespace
}  // namespace lockstep
