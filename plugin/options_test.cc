// Each options struct is written as text and read back.
#include "lockstep/plugin/options.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

// Requires: each setting of `options` differs from its default.
template <typename Options>
void ExpectText(const Options& options, const std::string& text) {
  const Config written = WriteOptions(options);
  EXPECT_EQ(written.ToText(), text);
  for (const OptionInfo& info : DescribeOptions<Options>()) {
    const Config* const value = written.Find(info.key);
    ASSERT_NE(value, nullptr) << info.key;
    EXPECT_NE(value->ToString(), info.default_value) << info.key;
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config,
                                ParseConfig(text, "job.toml"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options again,
                                ReadOptions<Options>("it", config));
  EXPECT_EQ(WriteOptions(again).ToText(), text);
}

TEST(OptionsAsText, World) {
  WorldOptions options;
  options.init = "tcp://trainer-0:29500";
  options.rank = 2;
  options.size = 4;
  options.job = "run \"7\"";
  options.interface = "eth0";
  options.join_deadline = absl::Minutes(7);
  options.slow_join = absl::Milliseconds(1500);
  options.beat = absl::Milliseconds(300);
  options.silence = absl::InfiniteDuration();
  options.leave_patience = absl::Seconds(3);
  ExpectText(options, R"(init = "tcp://trainer-0:29500"
rank = 2
size = 4
job = "run \"7\""
interface = "eth0"
join_deadline = "7m"
slow_join = "1.5s"
beat = "300ms"
silence = "inf"
leave_patience = "3s"
)");
}

TEST(OptionsAsText, Padding) {
  PadOptions options;
  options.field = "tokens";
  options.fill = -100;
  options.multiple_of = 8;
  ExpectText(options, R"(field = "tokens"
fill = -100
multiple_of = 8
)");
}

TEST(OptionsAsText, TheTokenIsNoneOfThem) {
  WorldOptions options;
  options.token = "secret";
  EXPECT_EQ(WriteOptions(options).Find("token"), nullptr);
  Config config;
  config.Set("token", "secret");
  EXPECT_THAT(ReadOptions<WorldOptions>("world", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("no setting 'token'")));
}

TEST(OptionsAsText, Group) {
  GroupOptions options;
  options.name = "gradients";
  options.deadline = absl::Hours(2);
  options.slow = absl::Seconds(20);
  ExpectText(options, R"(group = "gradients"
deadline = "2h"
slow = "20s"
)");
}

TEST(OptionsAsText, Nccl) {
  NcclOptions options;
  options.device = 3;
  options.nccl_library = "/opt/libnccl.so";
  options.cuda_library = "/opt/libcuda.so";
  ExpectText(options, R"(device = 3
nccl_library = "/opt/libnccl.so"
cuda_library = "/opt/libcuda.so"
)");
}

TEST(OptionsAsText, Loader) {
  LoaderOptions options;
  options.micro_batch_size = 2;
  options.num_workers = 3;
  options.workers = Workers::kThreads;
  options.keep_tbb_limit = !options.keep_tbb_limit;
  options.limit_nested_threads = !options.limit_nested_threads;
  options.prefetch_batches = 5;
  options.prefetch_bytes = int64_t{3} << 30;
  options.prefetch_next_epoch = !options.prefetch_next_epoch;
  options.advance_epochs = !options.advance_epochs;
  options.max_steps = 6;
  options.delivery = Delivery::kAsReady;
  options.seed = 18446744073709551615U;
  options.base_seed = 9;
  options.on_error = OnError::kSubstitute;
  options.max_failures = 10;
  options.timeout = absl::Seconds(77);
  options.trace_events = 11;
  ExpectText(options, R"(micro_batch_size = 2
num_workers = 3
workers = "threads"
keep_tbb_limit = true
limit_nested_threads = true
prefetch_batches = 5
prefetch_bytes = "3g"
prefetch_next_epoch = false
advance_epochs = true
max_steps = 6
delivery = "as_ready"
seed = "18446744073709551615"
base_seed = 9
on_error = "substitute"
max_failures = 10
timeout = "1m17s"
trace_events = 11
)");
}

TEST(OptionsAsText, Datasets) {
  FileFolderOptions folder;
  folder.path = "/data/images";
  folder.extensions = {".jpg", ".png"};
  folder.max_file_bytes = 65537;
  ExpectText(folder, R"(path = "/data/images"
extensions = [".jpg", ".png"]
max_file_bytes = 65537
)");

  TfRecordDatasetOptions records;
  records.files = {"a.tfrecord"};
  records.verify = !records.verify;
  records.max_record_bytes = 4096;
  ExpectText(records, R"(files = ["a.tfrecord"]
verify = false
max_record_bytes = "4k"
)");

  NpyFile file;
  file.field = "x";
  file.path = "/data/x.npy";
  file.bf16 = true;
  ExpectText(file, R"(field = "x"
path = "/data/x.npy"
bf16 = true
)");

  TarField field;
  field.field = "width";
  field.extensions = {"json", "JSON"};
  field.content = TarContent::kNumber;
  field.json_key = "size.width";
  field.dtype = DType::kU16;
  field.shape = std::vector<int64_t>{-1, 3};
  field.max_bytes = 65536;
  field.missing = TarMissing::kSkip;
  ExpectText(field, R"(field = "width"
extensions = ["json", "JSON"]
content = "number"
json_key = "size.width"
dtype = "u16"
shape = [-1, 3]
max_bytes = "64k"
missing = "skip"
)");

  CacheOptions cache;
  cache.max_bytes = 7;
  ExpectText(cache, "max_bytes = 7\n");
}

TEST(OptionsAsText, Images) {
  ImageOptions options;
  options.field = "photo";
  options.height = 160;
  options.width = 224;
  options.crop = ImageCrop::kCenter;
  options.resize = 232;
  options.min_area = 0.25;
  options.max_area = 0.75;
  options.min_aspect = 0.5;
  options.max_aspect = 2;
  options.flip = true;
  options.filter = ImageFilter::kBicubic;
  options.scaled_decoding = true;
  options.dtype = DType::kF32;
  options.mean = {0.485, 0.456, 0.406};
  options.deviation = {0.229, 0.224, 0.225};
  options.layout = ImageLayout::kChannelsFirst;
  options.max_pixels = 1000000;
  ExpectText(options, R"(field = "photo"
height = 160
width = 224
crop = "center"
resize = 232
min_area = 0.25
max_area = 0.75
min_aspect = 0.5
max_aspect = 2.0
flip = true
filter = "bicubic"
scaled_decoding = true
dtype = "f32"
mean = [0.485, 0.456, 0.406]
deviation = [0.229, 0.224, 0.225]
layout = "channels_first"
max_pixels = 1000000
)");
}

TEST(OptionsAsText, Sinks) {
  TextSinkOptions text;
  text.path = "/data/losses";
  ExpectText(text, "path = \"/data/losses\"\n");

  JsonLinesOptions lines;
  lines.path = "/data/steps";
  lines.max_bytes = 65536;
  lines.events = StepsWithEvents::kAll;
  ExpectText(lines, R"(path = "/data/steps"
max_bytes = "64k"
events = "all"
)");

  TensorboardOptions board;
  board.folder = "/data/runs/7";
  ExpectText(board, "folder = \"/data/runs/7\"\n");

  PrometheusOptions prometheus;
  prometheus.path = "/var/lib/node_exporter/train";
  prometheus.every = absl::Minutes(1);
  ExpectText(prometheus, R"(path = "/var/lib/node_exporter/train"
every = "1m"
)");
}

TEST(OptionsAsText, Orders) {
  NativeShuffleOptions native;
  native.seed = 7;
  ExpectText(native, "seed = 7\n");

  TorchShuffleOptions torch;
  torch.seed = 7;
  torch.profile = TorchProfile::k2_5;
  ExpectText(torch, R"(seed = 7
profile = "2.5"
)");

  TorchRandomOptions random;
  random.seed = 7;
  random.profile = TorchProfile::k1_13;
  random.num_samples = 9;
  random.replacement = true;
  random.generator = TorchGeneratorUse::kSharedWithLoader;
  random.persistent_workers = true;
  ExpectText(random, R"(seed = 7
profile = "1.13"
num_samples = 9
replacement = true
generator = "shared_with_loader"
persistent_workers = true
)");

  TorchWeightedOptions weighted;
  weighted.seed = 7;
  weighted.num_samples = 9;
  weighted.generator = TorchGeneratorUse::kDefault;
  weighted.persistent_workers = true;
  ExpectText(weighted, R"(seed = 7
num_samples = 9
generator = "default"
persistent_workers = true
)");

  NativeWeightedOptions drawn;
  drawn.seed = 7;
  drawn.num_samples = 9;
  drawn.replacement = false;
  ExpectText(drawn, R"(seed = 7
num_samples = 9
replacement = false
)");

  BlockShuffleOptions blocks;
  blocks.seed = 7;
  blocks.chunk_size = 64;
  blocks.open_chunks = 3;
  ExpectText(blocks, R"(seed = 7
chunk_size = 64
open_chunks = 3
)");

  RepeatOptions repeat;
  repeat.repeats = 2;
  repeat.keep = 9;
  ExpectText(repeat, R"(repeats = 2
keep = 9
)");

  CutOptions cut;
  cut.tail = Tail::kMask;
  cut.drop_last = true;
  cut.min_last_batch = 2;
  cut.small_last_batch = SmallLastBatch::kSpread;
  ExpectText(cut, R"(tail = "mask"
drop_last = true
min_last_batch = 2
small_last_batch = "spread"
)");
}

// A release is read as the first one with its orders.
TEST(OptionsAsText, ProfilesAreReleases) {
  Config config;
  config.Set("profile", "2.1");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto options,
                                ReadOptions<TorchShuffleOptions>("it", config));
  EXPECT_EQ(options.profile, TorchProfile::k1_13);
  config.Set("profile", "1.12");
  EXPECT_THAT(ReadOptions<TorchShuffleOptions>("it", config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "it: profile should be a release of PyTorch from 1.13 "
                       "on, such as \"2.6\", but got profile = \"1.12\""));
}

TEST(OptionsAsText, Checkpoint) {
  CheckpointOptions options;
  options.path = "/data/model";
  options.every_steps = 100;
  options.keep = 7;
  options.background = false;
  ExpectText(options, R"(path = "/data/model"
every_steps = 100
keep = 7
background = false
)");
}

// Returns the status, or the indices of rank 0 in epoch 0.
std::string MadeBy(const absl::StatusOr<std::unique_ptr<Sampler>>& sampler) {
  if (!sampler.ok()) return sampler.status().ToString();
  std::string made = (*sampler)->StartEpoch(0).ToString();
  BatchIndices batch;
  while (true) {
    const absl::StatusOr<bool> more = (*sampler)->Next(batch);
    if (!more.ok()) return more.status().ToString();
    if (!*more) return made;
    absl::StrAppend(&made, " ", absl::StrJoin(batch.indices, " "));
  }
}

// Defaults that are written as a text give the same sampler as no settings.
TEST(OptionsAsText, EverySamplerTakesItsDefaults) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(RegisterLockstep(registry));
  const std::vector<int64_t> numbers = {1, 2, 3, 1, 2, 3, 1, 2};
  PluginContext context;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      context.dataset, TensorDataset::Create({
                           NamedTensor::Own<int64_t>("label", {8}, numbers),
                           NamedTensor::Own<int64_t>("group", {8}, numbers),
                           NamedTensor::Own<int64_t>("length", {8}, numbers),
                           NamedTensor::Own<int64_t>("weight", {8}, numbers),
                           NamedTensor::Own<int64_t>("factor", {8}, numbers),
                       }));
  int made = 0;
  for (const PluginPart& part : registry.Parts()) {
    std::string text;
    for (const OptionInfo& option : part.options) {
      if (option.default_value.empty()) continue;
      absl::StrAppend(&text, option.key, " = ", option.default_value, "\n");
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(Config defaults,
                                  ParseConfig(text, part.name));
    if (part.kind != PluginKind<Sampler>::kName) continue;
    Config none;
    for (Config* const config : {&defaults, &none}) {
      config->Set("global_batch_size", 2);
      if (part.name == "token_budget") config->Set("max_tokens", 6);
      if (part.name == "packed") config->Set("row_length", 6);
      if (part.name == "mixture") config->Set("weights", Config::Array{1});
    }
    const std::string with =
        MadeBy(registry.Create<Sampler>(part.name, context, defaults));
    EXPECT_EQ(with, MadeBy(registry.Create<Sampler>(part.name, context, none)));
    EXPECT_EQ(with.substr(0, 3), "OK ") << part.name << " " << with;
    ++made;
  }
  EXPECT_EQ(made, 17);
}

}  // namespace
}  // namespace lockstep
