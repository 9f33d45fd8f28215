#include "lockstep/plugin/job.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct RingOptions {
  int64_t size = 12;
};

void BindOptions(RingOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many samples there are.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakeRing(const PluginContext&,
                                                  const RingOptions& options) {
  if (options.size < 1) return absl::InvalidArgumentError("size is too small");
  const std::vector<int64_t> numbers(options.size, 7);
  return TensorDataset::Create(
      {NamedTensor::Own<int64_t>("x", {options.size}, numbers)});
}

struct TrainerOptions {
  double learning_rate = 0.1;
  int64_t epochs = 2;
};

void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
  table.Add("epochs", &options.epochs, "How often all samples come.");
}

Config Parsed(absl::string_view text) {
  absl::StatusOr<Config> config = ParseConfig(text, "job.toml");
  LOCKSTEP_EXPECT_OK(config);
  return config.ok() ? *std::move(config) : Config();
}

// Returns the job of a text that must be valid.
Job JobOf(absl::string_view text) {
  TrainerOptions trainer;
  absl::StatusOr<Job> job = ReadJob(Parsed(text), &trainer);
  LOCKSTEP_EXPECT_OK(job);
  return job.ok() ? *std::move(job) : Job();
}

constexpr char kJob[] = R"(
[world]
join_deadline = "2m"

[group]
deadline = "30s"

[loader.train]
num_workers = 1
dataset = {name = "ring", size = 8}
sampler = {name = "sequential", global_batch_size = 4}

[loader.test]
name = "default"
dataset = {name = "ring", size = 3}
sampler = {name = "sequential", global_batch_size = 2, tail = "mask"}

[checkpoint]
path = "/tmp/ring"
every_steps = 100
keep = 5
background = false

[trainer]
learning_rate = 0.5
)";

class JobTest : public testing::Test {
 protected:
  JobTest() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    LOCKSTEP_EXPECT_OK(registry_.Add<Dataset>("ring", "Sevens.", MakeRing));
  }

  PluginRegistry registry_;
};

TEST_F(JobTest, ReadsAllTables) {
  TrainerOptions trainer;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Job job, ReadJob(Parsed(kJob), &trainer));
  EXPECT_EQ(job.world.join_deadline, absl::Minutes(2));
  EXPECT_EQ(job.group.ToString(), "{deadline = \"30s\"}");
  EXPECT_THAT(job.loaders, SizeIs(2));
  EXPECT_EQ(job.checkpoint.path, "/tmp/ring");
  EXPECT_EQ(job.checkpoint.every_steps, 100);
  EXPECT_EQ(job.checkpoint.keep, 5);
  EXPECT_FALSE(job.checkpoint.background);
  EXPECT_EQ(trainer.learning_rate, 0.5);
  EXPECT_EQ(trainer.epochs, 2);
}

TEST_F(JobTest, MakesLoadersByName) {
  const Job job = JobOf(kJob);
  PluginContext context;
  context.world_size = 2;
  for (const auto& [name, steps] :
       {std::make_pair("train", 2), std::make_pair("test", 2)}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader,
                                  job.MakeLoader(registry_, name, context));
    int count = 0;
    for (auto& batch : loader->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      ++count;
    }
    EXPECT_EQ(count, steps) << name;
  }
  EXPECT_THAT(
      job.MakeLoader(registry_, "tets", context),
      StatusIs(absl::StatusCode::kNotFound,
               "the job has no table [loader.tets]: there is no loader 'tets'; "
               "did you mean 'test'? Known: test, train"));
}

TEST_F(JobTest, ExactGradientsGiveShardsToAllLoaders) {
  PluginContext context;
  context.world_size = 2;
  const auto shards_of = [&](const std::string& gradients) {
    const Job job = JobOf(absl::StrCat(
        absl::StrReplaceAll(
            kJob, {{"global_batch_size = 2", "global_batch_size = 24"},
                   {"global_batch_size = 4", "global_batch_size = 48"}}),
        "[gradients]\n", gradients));
    std::vector<int64_t> shards;
    for (const char* const name : {"train", "test"}) {
      const auto loader = job.MakeLoader(registry_, name, context);
      LOCKSTEP_EXPECT_OK(loader);
      if (!loader.ok()) continue;
      shards.push_back((*loader)->sampler_options().cut.shards);
    }
    return shards;
  };
  EXPECT_THAT(shards_of("exact = true"), ElementsAre(24, 24));
  EXPECT_THAT(shards_of("exact = true\nshards = 12"), ElementsAre(12, 12));
  EXPECT_THAT(shards_of("shards = 12"), ElementsAre(0, 0));
}

TEST_F(JobTest, MakesItsGroup) {
  const Job job = JobOf(kJob);
  WorldOptions alone = job.world;
  alone.init = "tcp://127.0.0.1:0";
  alone.rank = 0;
  alone.size = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto world, World::Join(alone));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto group,
                                job.MakeGroup(registry_, *world));
  EXPECT_EQ(group->size(), 1);
  EXPECT_THAT(JobOf("[group]\nname = \"mpi\"").MakeGroup(registry_, *world),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is no communicator 'mpi'")));
}

TEST_F(JobTest, MakesMetricsSinks) {
  const std::string path = testing::TempDir() + "/metrics";
  const Job job = JobOf(absl::StrCat("[metrics.text]\npath = \"", path,
                                     "\"\n[metrics.more]\nname = \"text\"\n",
                                     "path = \"", path, "2\"\n"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto sinks,
                                job.MakeMetricsSinks(registry_, {}));
  ASSERT_THAT(sinks, SizeIs(2));
  for (const auto& sink : sinks) {
    LOCKSTEP_ASSERT_OK(sink->Write(3, {{"loss", 0.5}}));
    LOCKSTEP_ASSERT_OK(sink->Flush());
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "step 3: loss 0.5\n");
  EXPECT_THAT(JobOf("[metrics.board]").MakeMetricsSinks(registry_, {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no metrics sink 'board'")));
}

// Nothing is made or opened: the parts of this text can't be.
TEST_F(JobTest, IsCheckedAsAWhole) {
  TrainerOptions trainer;
  const OptionTable table = TableOf(trainer);
  EXPECT_THAT(CheckJob(Parsed(kJob), &table, registry_), IsEmpty());
  const std::vector<ConfigError> errors = CheckJob(Parsed(R"(
[trainer]
epoch = 3

[rank_metrics.json_lines]
max_bytes = 3

[loader.train]
dataset = {name = "tar", files = ["/no/x.tar"], fields = [{field = "a"}, 3]}
sampler = {name = "order", order = {name = "repeated", order = {name = "nativ"}}}
collate = [{name = "pad", lenght = 3}]

[checkpoint]
path = "/no/x"
keep = 0

[group]
slow = "0s"
)"),
                                                   &table, registry_);
  std::vector<std::string> found;
  for (const ConfigError& error : errors) {
    found.push_back(
        absl::StrCat(error.location, " ", error.message.substr(0, 40)));
  }
  EXPECT_THAT(
      found,
      ElementsAre("job.toml:3:1 trainer: there is no setting 'epoch'; di",
                  "job.toml:5:15 path should name a folder and the beginn",
                  "job.toml:9:74 dataset 'tar', fields[1]: should be a ta",
                  "job.toml:10:65 there is no order 'nativ'; known: block_",
                  "job.toml:11:27 collate 'pad': there is no setting 'leng",
                  "job.toml:15:1 checkpoint: keep should be 1 or more che",
                  "job.toml:17:2 slow should be more than nothing, but go"));
  // Without the trainer's settings, its table is not looked at.
  EXPECT_EQ(CheckJob(Parsed("[trainer]\nx = 1"), nullptr, registry_).size(), 0);
  EXPECT_THAT(
      CheckJob(Parsed(kJob), &table, registry_, {"train"}),
      ElementsAre(Field(&ConfigError::message,
                        HasSubstr("the trainer has no loader 'test'"))));
}

TEST_F(JobTest, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[loder.train]\n",
       "job.toml:1:2: the job: there is no setting 'loder'; did you mean "
       "'loader'? Known: world, group, loader, metrics, "
       "rank_metrics, checkpoint, progress, stop, gradients, trainer"},
      {"[gradients]\nexact = true\nshards = 36",
       "job.toml:3:1: gradients: shards should be 2^n or 3 * 2^n, such as 16 "
       "or "
       "24, and at most 65536, but is 36"},
      {"[trainer]\nlearning_rat = 1",
       "job.toml:2:1: trainer: there is no setting 'learning_rat'; did you "
       "mean 'learning_rate'?"},
      {"[trainer]\nepochs = 1.5",
       "job.toml:2:1: trainer: epochs should be an integer, but got epochs = "
       "1.5"},
      {"trainer = 7",
       "job.toml:1:1: trainer: should be a table of settings, but is 7"},
      {"[world]\nbeat = 3",
       "job.toml:2:1: the job, world: beat should be a string with a time and "
       "its unit"},
      {"[checkpoint]\nevery = 3",
       "job.toml:2:1: the job, checkpoint: there is no setting 'every'"},
      {"loader.train = 3",
       "job.toml:1:8: loader.train should be a table of settings, but is 3"},
      {"loader = 3",
       "job.toml:1:1: the job: loader should be a table, each value of which "
       "is anything, but got loader = 3"},
      {"group = 7",
       "job.toml:1:1: group should be a table of settings, but is 7"},
      {"[[loader.train]]",
       "job.toml:1:10: loader.train should be a table of settings, but is [{}]"
       "; a table has single brackets"},
      {"[metrics]\ntext = true",
       "job.toml:2:1: metrics.text should be a table of settings, but is true"},
      {"[rank_metrics]\ntext = true",
       "job.toml:2:1: rank_metrics.text should be a table of settings, but is "
       "true"},
      {"progress.every = \"-1s\"",
       "progress.every is -1s; accepted are 0s, for none, and longer times"},
      {"stop.patience = \"-1s\"",
       "stop.patience is -1s; accepted are 0s, and longer times"},
  };
  for (const auto& each : cases) {
    TrainerOptions trainer;
    EXPECT_THAT(
        ReadJob(Parsed(each.text), &trainer),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.message)));
  }
  NoOptions none;
  EXPECT_THAT(ReadJob(Parsed("[trainer]\nx = 1"), &none),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("job.toml:2:1: trainer: there is no setting "
                                 "'x'")));
  LOCKSTEP_EXPECT_OK(ReadJob(Parsed(""), &none));
}

TEST_F(JobTest, HasTheLoadersThatTheTrainerMakes) {
  TrainerOptions trainer;
  LOCKSTEP_EXPECT_OK(ReadJob(Parsed(kJob), &trainer, {"test", "train"}));
  Config config = Parsed(kJob);
  LOCKSTEP_ASSERT_OK(OverrideConfig("loader.trian.num_workers=1", config));
  EXPECT_THAT(ReadJob(config, &trainer, {"test", "train"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--set loader.trian.num_workers: the trainer has no "
                       "loader 'trian'; did you mean 'train'? Known: test, "
                       "train"));
  EXPECT_THAT(ReadJob(Parsed(kJob), &trainer, {"test", "train", "valid"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "job.toml: the trainer needs a table [loader.valid], "
                       "and the job has none"));
  EXPECT_THAT(ReadJob(Config(), &trainer, {"test"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the trainer needs a table [loader.test], and the job "
                       "has none; --config=FILE names the job's text"));
}

TEST_F(JobTest, SaysWhereALoaderIsWrong) {
  const struct {
    const char* before;
    const char* after;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {"num_workers", "num_worker", absl::StatusCode::kInvalidArgument,
       "job.toml:9:1: loader 'default': there is no setting 'num_worker'; did "
       "you mean 'num_workers'?"},
      {"num_workers = ", "batch_size = ", absl::StatusCode::kInvalidArgument,
       "there is no setting 'batch_size': set global_batch_size"},
      {"size = 8", "sise = 8", absl::StatusCode::kInvalidArgument,
       "job.toml:10:27: dataset 'ring': there is no setting 'sise'; did you "
       "mean 'size'? Known: size; in loader 'default' at job.toml:8:9; in "
       "loader.train"},
      {"size = 8", "size = 0", absl::StatusCode::kInvalidArgument,
       "size is too small; in dataset 'ring' at job.toml:10:1; in loader "
       "'default' at job.toml:8:9; in loader.train"},
      {"\"ring\"", "\"rings\"", absl::StatusCode::kNotFound,
       "job.toml:10:12: there is no dataset 'rings'; did you mean 'ring'?"},
      {"sampler = {name = \"sequential\", global_batch_size = 4}", "",
       absl::StatusCode::kInvalidArgument,
       "a loader needs a sampler: set `sampler` to a table with its name, such "
       "as {name = \"distributed\", global_batch_size = 32}; in loader "
       "'default' at job.toml:8:9; in loader.train"},
      {"name = \"sequential\", ", "", absl::StatusCode::kInvalidArgument,
       "job.toml:11:1: the settings of a part of kind sampler should be a "
       "table "
       "with its name, such as {name = \"block_shuffle\"}, but got "
       "{global_batch_size = 4}"},
      {"\"default\"", "\"fast\"", absl::StatusCode::kNotFound,
       "there is no loader 'fast'"},
      {"\"default\"", "7", absl::StatusCode::kInvalidArgument,
       "the settings of a part of kind loader should be a table with its name"},
  };
  for (const auto& each : cases) {
    const Job job =
        JobOf(absl::StrReplaceAll(kJob, {{each.before, each.after}}));
    absl::Status status = job.MakeLoader(registry_, "train", {}).status();
    status.Update(job.MakeLoader(registry_, "test", {}).status());
    EXPECT_THAT(status, StatusIs(each.code, HasSubstr(each.message)));
  }
}

TEST_F(JobTest, SaysWhichSettingsACommandLineHasChanged) {
  Config config = Parsed(kJob);
  LOCKSTEP_ASSERT_OK(OverrideConfig("loader.train.dataset.size=0", config));
  TrainerOptions trainer;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Job job, ReadJob(config, &trainer));
  EXPECT_THAT(job.MakeLoader(registry_, "train", {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "size is too small; in dataset 'ring' at job.toml:10:1, "
                       "with --set loader.train.dataset.size; in loader "
                       "'default' at job.toml:8:9; in loader.train"));
}

std::vector<std::string> FieldsOf(const Fingerprint& fingerprint) {
  std::vector<std::string> fields;
  for (const Fingerprint::Field& field : fingerprint.fields()) {
    fields.push_back(absl::StrCat(field.name, " ", field.shown));
  }
  return fields;
}

TEST_F(JobTest, FingerprintHasAllButARanksOwn) {
  EXPECT_THAT(FieldsOf(JobOf("loader.train = {b = [1, {c = 2}], a = \"x\"}\n"
                             "world = {rank = 3}\n"
                             "group = {device = 2, slow = \"1s\"}\n"
                             "trainer = {epochs = 5}\n"
                             "metrics.text = {}\n"
                             "progress = {every = \"1s\"}\n"
                             "stop = {patience = \"1s\"}\n")
                           .fingerprint),
              ElementsAre("group.slow \"1s\"", "loader.train.a \"x\"",
                          "loader.train.b [1, {c = 2}]", "trainer.epochs 5",
                          "trainer.learning_rate 0.1"));
  // Ranks may write their metrics to different places, but either all or none
  // do.
  EXPECT_THAT(FieldsOf(JobOf("rank_metrics.text = {path = \"a\"}").fingerprint),
              ElementsAre("trainer.epochs 2", "trainer.learning_rate 0.1",
                          "rank_metrics yes"));
}

TEST_F(JobTest, RanksWithOtherTextsAreTold) {
  LocalGroupOptions options;
  options.size = 3;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(options));
  Config other = Parsed(kJob);
  LOCKSTEP_ASSERT_OK(OverrideConfig("loader.train.num_workers=4", other));
  TrainerOptions trainer;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Job changed, ReadJob(other, &trainer));
  const Job job = JobOf(kJob);
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const Job& mine = rank == 2 ? changed : job;
      statuses[rank] = CheckSame(*ranks[rank], "the job", mine.fingerprint);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("in field 'loader.train.num_workers' (4, "
                                   "and 1 on rank 0)")));
  }
}

absl::StatusOr<Config> ConfigOf(std::vector<const char*> words) {
  words.insert(words.begin(), "trainer");
  return ConfigOfCommandLine(static_cast<int>(words.size()), words.data());
}

TEST_F(JobTest, CommandLineNamesAFileAndChangesIt) {
  const std::string path = testing::TempDir() + "/job.toml";
  std::ofstream(path) << "[trainer]\nepochs = 3\nlearning_rate = 1\n";
  const std::string flag = "--config=" + path;
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{
           {flag.c_str(), "--set=trainer.epochs=4"},
           {"--set", "trainer.epochs=9", "--config", path.c_str(), "--set",
            "trainer.epochs=4"}}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ConfigOf(words));
    EXPECT_EQ(config.ToString(), "{trainer = {epochs = 4, learning_rate = 1}}");
  }
  EXPECT_EQ(ConfigOf({})->ToString(), "{}");
  EXPECT_EQ(ConfigOf({"--set", "a.b=c"})->ToString(), "{a = {b = \"c\"}}");
}

TEST_F(JobTest, CommandLineSaysWhatIsWrong) {
  const struct {
    std::vector<const char*> words;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {{"--config"},
       absl::StatusCode::kInvalidArgument,
       "--config needs a value behind it"},
      {{"--set"},
       absl::StatusCode::kInvalidArgument,
       "--set needs a value behind it"},
      {{"--set", "x"},
       absl::StatusCode::kInvalidArgument,
       "'x' should be KEY=VALUE"},
      {{"--config=/none.toml"}, absl::StatusCode::kNotFound, "/none.toml"},
      {{"--config="},
       absl::StatusCode::kInvalidArgument,
       "--config should name a file, but its value is empty"},
      {{"--config=/a", "--config=/b"},
       absl::StatusCode::kInvalidArgument,
       "--config may be given once"},
      {{"--configs=/a"},
       absl::StatusCode::kInvalidArgument,
       "there is no argument '--configs=/a'; --config=FILE names"},
      {{"job.toml"},
       absl::StatusCode::kInvalidArgument,
       "there is no argument 'job.toml'"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(ConfigOf(each.words),
                StatusIs(each.code, HasSubstr(each.message)));
  }
}

// Almost valid texts are either refused, or read and printed so that they can
// be read again.
TEST_F(JobTest, TakesAnyText) {
  Random random(1);
  const std::string letters = "\n\t \"'[]{}=.,#-_07aez\\\x01\xff";
  int64_t read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = kJob;
    for (uint64_t change = random.Below(4) + 1; change > 0; --change) {
      const size_t at = random.Below(text.size());
      const char letter = letters[random.Below(letters.size())];
      switch (random.Below(3)) {
        case 0:
          text[at] = letter;
          break;
        case 1:
          text.insert(at, 1, letter);
          break;
        default:
          text.erase(at, 1 + random.Below(8));
      }
    }
    const absl::StatusOr<Config> config = ParseConfig(text, "job.toml");
    if (!config.ok()) {
      EXPECT_THAT(config.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("job.toml:")));
      continue;
    }
    const std::string printed = config->ToText();
    EXPECT_EQ(Parsed(printed).ToText(), printed) << text;
    TrainerOptions trainer;
    const absl::StatusOr<Job> job = ReadJob(*config, &trainer);
    if (!job.ok()) {
      EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++read;
    for (const auto& [name, table] : job->loaders) {
      (void)job->MakeLoader(registry_, name, {});
    }
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace lockstep
