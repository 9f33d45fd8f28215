#include "lockstep/tools/cli/plan.h"

#include <cstdint>
#include <limits>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

PlanCommand Sized(int64_t size, int64_t world, int64_t batch_size) {
  PlanCommand command;
  command.samples.size = size;
  command.samples.batch_size = batch_size;
  command.world = world;
  return command;
}

std::string Plan(const PlanCommand& command) {
  const TestHost host;
  return Printed(
      [&](std::ostream& out) { return RunPlan(host, command, out); });
}

absl::Status Refusal(const PlanCommand& command) {
  const TestHost host;
  return ErrorOf(
      [&](std::ostream& out) { return RunPlan(host, command, out); });
}

// A job whose loader `train` shuffles 21 words.
std::string JobFile(const std::string& name,
                    const std::string& sampler = "name = \"native_shuffle\"",
                    const std::string& more = "") {
  return WriteText(name, "[loader.train]\n" + more +
                             "dataset = {name = \"words\", size = 21}\n"
                             "sampler = {global_batch_size = 4, " +
                             sampler + "}\n");
}

PlanCommand OfJob(const std::string& file, int64_t world) {
  PlanCommand command;
  command.samples.job.config = file;
  command.world = world;
  return command;
}

TEST(Plan, Text) {
  EXPECT_EQ(Plan(Sized(5, 2, 2)),
            R"(epoch 0: 2 steps on each of 2 ranks; 5 of 5 samples come
  A step has up to 2 rows on each rank, 4 together.
  In the last step, rank 0 has 1 row, rank 1 has 1 row (1 of them padding).
  1 row repeats a sample as padding, marked by * (tail = "pad").
  step  rank  rows  samples
     0     0     2  4 1
     0     1     2  0 3
     1     0     1  2
     1     1     1  4*
)");
}

TEST(Plan, TellsWhatTheTailDoes) {
  PlanCommand command = Sized(5, 2, 4);
  command.samples.tail = "mask";
  command.samples.shuffle = false;
  command.rank = 1;
  EXPECT_THAT(Plan(command),
              AllOf(HasSubstr("  3 rows are empty, marked by - (tail = "
                              "\"mask\").\n"),
                    EndsWith("     0     1     4  1 3 - -\n")));
  command.samples.tail = "drop";
  EXPECT_THAT(Plan(command), HasSubstr("  1 sample is left out "
                                       "(tail = \"drop\").\n"));
  command.samples.tail = "uneven";
  EXPECT_THAT(Plan(command),
              AllOf(HasSubstr("In the last step, rank 0 has 3 rows, rank 1 has "
                              "2 rows.\n"),
                    HasSubstr("Ranks may have one row less than others")));
  command = Sized(10, 1, 4);
  EXPECT_THAT(Plan(command), HasSubstr("No row is padding"));
  command.samples.tail = "drop";
  EXPECT_THAT(Plan(command),
              HasSubstr("No sample is left out (tail = \"drop\"; drop_last "));
  command.samples.tail = "";
  command.samples.drop_last = true;
  EXPECT_THAT(Plan(command),
              HasSubstr("2 samples are left out (drop_last).\n"));
}

TEST(Plan, TellsHowShardsAreDealt) {
  PlanCommand command = Sized(100, 5, 2);
  command.samples.shards = 24;
  command.samples.shuffle = false;
  EXPECT_THAT(
      Plan(command),
      AllOf(StartsWith("epoch 0: 3 steps on each of 5 ranks; 100 of 100 "
                       "samples come\n"
                       "  A step has up to 48 rows together, in 24 shards of "
                       "up to 2 rows, which are the\n"
                       "  same on any number of ranks. Ranks 0 to 3 get 5 "
                       "shards each, and rank 4 gets\n  4.\n"
                       "  In the last step, rank 0 has 5 rows (1 of them "
                       "padding), "),
            // Shard 0 has the positions 0 and 24.
            HasSubstr("     0     0    10  0 24 1 25 2 26 3 27 4 28\n")));
  command.world = 23;
  EXPECT_THAT(Plan(command),
              HasSubstr("ranks. Rank 0 gets 2 shards, and ranks 1 to "
                        "22 get 1.\n"));
  command.world = 8;
  EXPECT_THAT(Plan(command), HasSubstr("ranks. Each rank gets 3 shards.\n"));
  command.samples.tail = "uneven";
  EXPECT_THAT(Plan(command), HasSubstr("Shards may have one row less"));
  command = OfJob(JobFile("shards.toml",
                          "name = \"native_shuffle\", shards = 4, "
                          "min_last_batch = 1, small_last_batch = \"merge\""),
                  6);
  command.samples.replicas = 2;
  EXPECT_THAT(Plan(command),
              AllOf(HasSubstr("Each rank gets 2 shards or 1.\n"),
                    HasSubstr("  A last step that was joined may have more.")));
  command = Sized(100, 25, 2);
  command.samples.shards = 24;
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("25, but got shards=24: set more shards")));
}

// The shards of a job whose gradients are exact.
TEST(Plan, TellsTheShardsOfAJob) {
  PlanCommand command =
      OfJob(JobFile("exact.toml", "name = \"native_shuffle\""), 2);
  command.samples.job.values = {"gradients.exact=true", "gradients.shards=2"};
  EXPECT_THAT(Plan(command), HasSubstr("in 2 shards of up to "));
}

TEST(Plan, OtherFormatsHaveTheShards) {
  PlanCommand command = Sized(5, 1, 1);
  command.samples.shards = 4;
  command.samples.shuffle = false;
  command.samples.tail = "mask";
  command.format = "csv";
  EXPECT_EQ(Plan(command),
            "epoch,rank,step,row,position,index,valid,shard\n"
            "0,0,0,0,0,0,1,0\n"
            "0,0,0,1,1,1,1,1\n"
            "0,0,0,2,2,2,1,2\n"
            "0,0,0,3,3,3,1,3\n"
            "0,0,1,0,4,4,1,0\n"
            "0,0,1,1,5,-1,0,1\n"
            "0,0,1,2,6,-1,0,2\n"
            "0,0,1,3,7,-1,0,3\n");
  command.format = "json";
  EXPECT_THAT(Plan(command), HasSubstr("\"positions\": [0, 1, 2, 3], "
                                       "\"shards\": [0, 1, 2, 3]}"));
}

TEST(Plan, ShowsTheBeginningAndTheEndOfMillions) {
  PlanCommand command = Sized(2'000'000, 64, 16);
  command.samples.tail = "uneven";
  const std::string text = Plan(command);
  EXPECT_THAT(text, AllOf(StartsWith("epoch 0: 1,954 steps on each of 64 "
                                     "ranks; 2,000,000 of 2,000,000 samples "
                                     "come\n"),
                          HasSubstr("\n  ... 54 ranks ...\n"),
                          HasSubstr("\n  ... 1,951 steps ...\n"),
                          HasSubstr("\n  1953    63     2  1351525 1475642\n"),
                          HasSubstr(" more\n"),
                          EndsWith("  --all prints all steps, ranks and "
                                   "samples.\n")));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_LT(lines.size(), 45);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80) << line;

  command = Sized(1000, 2, 30);
  command.all = true;
  EXPECT_THAT(Plan(command), Not(HasSubstr("...")));
}

TEST(Plan, NoSteps) {
  EXPECT_THAT(Plan(Sized(0, 1, 4)),
              AllOf(StartsWith("epoch 0: 0 steps on each of 1 rank; 0 of 0 "
                               "samples come\n"),
                    Not(HasSubstr("step  rank"))));
  PlanCommand command = Sized(0, 1, 4);
  command.format = "csv";
  EXPECT_EQ(Plan(command), "epoch,rank,step,row,position,index,valid\n");
  command.format = "json";
  EXPECT_EQ(Plan(command), "[\n]\n");
}

TEST(Plan, Csv) {
  PlanCommand command = Sized(3, 2, 1);
  command.format = "csv";
  command.epochs = 2;
  command.rank = 1;
  EXPECT_EQ(Plan(command),
            "epoch,rank,step,row,position,index,valid\n"
            "0,1,0,0,1,0,1\n"
            "0,1,1,0,3,2,0\n"
            "1,1,0,0,1,2,1\n"
            "1,1,1,0,3,1,0\n");
}

TEST(Plan, Json) {
  PlanCommand command = Sized(3, 2, 2);
  command.format = "json";
  EXPECT_EQ(Plan(command),
            "[\n"
            "{\"epoch\": 0, \"rank\": 0, \"step\": 0, \"valid\": 2, "
            "\"indices\": [2, 1], \"positions\": [0, 2]},\n"
            "{\"epoch\": 0, \"rank\": 1, \"step\": 0, \"valid\": 1, "
            "\"indices\": [0, 2], \"positions\": [1, 3]}\n"
            "]\n");
}

// The plan shows what the job's loader gives out.
TEST(Plan, OfAJob) {
  const PlanCommand command = OfJob(
      JobFile("plan.toml", "name = \"sequential\"", "micro_batch_size = 1\n"),
      2);
  EXPECT_THAT(Plan(command),
              AllOf(HasSubstr("6 steps on each of 2 ranks; 21 of 21 samples"),
                    HasSubstr("A step comes in up to 2 parts of at most 1 "
                              "row.\n"),
                    HasSubstr("     0     1     2  1 3\n")));
  PlanCommand sized = command;
  sized.samples.size = 9;
  EXPECT_THAT(Plan(sized), HasSubstr("9 of 9 samples come"));
  PlanCommand changed = command;
  changed.samples.job.values = {"loader.train.sampler.global_batch_size=7"};
  EXPECT_THAT(Refusal(changed), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("such as 6 or 8, but got "
                                                   "global_batch_size=7")));
  PlanCommand replicated = command;
  replicated.samples.replicas = 2;
  replicated.world = 4;
  EXPECT_THAT(
      Plan(replicated),
      AllOf(HasSubstr("on each of 4 ranks"),
            HasSubstr("2 ranks share each part of the data"),
            HasSubstr("In the last step, rank 0 has 1 row, rank 1 has 1 "
                      "row (1 of them padding), rank\n  2 has 1 row, rank 3 "
                      "has 1 row (1 of them padding).\n"),
            HasSubstr("     0     3     2  1 3\n")));
}

TEST(Plan, TellsHowMuchIsPadding) {
  const PlanCommand command = OfJob(
      JobFile("lengths.toml",
              "name = \"length_buckets\", order = {name = \"sequential\"}"),
      2);
  EXPECT_THAT(Plan(command),
              HasSubstr(" % of the elements of all batches are padding, "
                        "if each row is padded to\n  the longest one of its "
                        "batch (column 'length').\n"));
}

std::string Rows(const PlanCommand& command) {
  PlanCommand csv = command;
  csv.format = "csv";
  return Plan(csv);
}

// A restart on another number of ranks gets the samples that are left.
TEST(Plan, FromACheckpoint) {
  NativeShuffleOptions shuffle;
  shuffle.size = 21;
  SamplerOptions options;
  options.cut.batch_size = 4;
  const auto sampler =
      *Sampler::Create(*NativeShuffle::Create(shuffle), options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(3));
  LOCKSTEP_ASSERT_OK(sampler->PassSteps(2));
  const std::string path = testing::TempDir() + "/plan_state";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto writer,
                                CheckpointWriter::Create(path));
  LOCKSTEP_ASSERT_OK(writer->Begin("loader/train", 1));
  LOCKSTEP_ASSERT_OK(writer->Append(sampler->SaveState()));
  LOCKSTEP_ASSERT_OK(writer->Finish());

  PlanCommand command = OfJob(JobFile("from.toml"), 2);
  command.from = path;
  EXPECT_THAT(
      Plan(command),
      AllOf(HasSubstr("epoch 3: 4 steps on each of 2 ranks, from step 2 on; 13 "
                      "of 21 samples come\n"),
            HasSubstr("  The checkpoint is at epoch 3, after 2 steps, at "
                      "position 8.\n")));
  // On as many ranks, these are the last rows of the whole epoch.
  PlanCommand whole = command;
  whole.from = "";
  whole.epoch = 3;
  whole.world = command.world = 1;
  const std::string rest = Rows(command);
  EXPECT_THAT(Rows(whole), EndsWith(rest.substr(rest.find('\n') + 1)));
  command.epochs = 2;
  EXPECT_THAT(Rows(command), HasSubstr("\n4,0,0,0,0,"));

  command.epoch = 0;
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("leave out --epoch")));
  command.epoch.reset();
  command.samples.job.values = {"loader.train.sampler.seed=1"};
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("seed")));
  command.from = "/no/such/file";
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kNotFound));
}

// The command stops writing to a stream that is full.
TEST(Plan, EndsWhenNothingIsTaken) {
  struct Full : std::streambuf {
    int_type overflow(int_type) override {
      ++asked;
      return traits_type::eof();
    }
    int asked = 0;
  };
  PlanCommand endless = Sized(int64_t{1} << 60, 1, 4);
  endless.samples.order = "sequential";
  endless.format = "csv";
  Full full;
  std::ostream out(&full);
  const TestHost host;
  LOCKSTEP_EXPECT_OK(RunPlan(host, endless, out));
  EXPECT_EQ(full.asked, 1);
}

TEST(Plan, SaysWhatIsWrong) {
  const auto expect = [](const PlanCommand& command,
                         const std::string& message) {
    EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr(message)));
  };
  expect(PlanCommand(),
         "--size, the number of samples in the dataset, should be 0 or more, "
         "but it is not given; give it, as in --size=1000, or --config=FILE");
  expect(Sized(-1, 1, 1), "should be 0 or more, but it is -1");
  PlanCommand command = Sized(10, 2, 1);
  command.rank = 2;
  expect(command, "--rank should be from 0 to 1, but it is 2");
  expect(Sized(10, 0, 1),
         "--world, the number of ranks, should be from 1 to 1000000");
  command = Sized(10, 2, 1);
  command.samples.tail = "padd";
  expect(command, "there is no --tail 'padd'; did you mean 'pad'?");
  command = Sized(10, 2, 1);
  command.samples.order = "native";
  command.samples.shuffle = true;
  expect(command, "--shuffle means --order=torch, but --order is");
  command.samples.order = "torch";
  command.samples.shuffle = false;
  expect(command,
         "--noshuffle means --order=sequential, but --order is 'torch'");
  command = Sized(10, 2, 1);
  command.samples.order = "native";
  command.samples.profile = "2.7";
  expect(command, "--profile is of the torch order, but the order is native");
  command.samples.order = "";
  command.samples.profile = "newest";
  expect(command, "profile should be a release of PyTorch");
  command = Sized(10, 2, 1);
  command.format = "xml";
  expect(command, "there is no --format 'xml'");
  command = Sized(10, 2, 1);
  command.epochs = 0;
  expect(command, "--epochs 1 or more");
  command.epochs = 2;
  command.epoch = std::numeric_limits<int64_t>::max();
  expect(command, "at most 2^62");
  command = Sized(10, 2, 1);
  command.samples.loader = "train";
  expect(command, "--loader is of a job: give --config=FILE");
}

TEST(Plan, SaysWhatContradictsAJob) {
  const std::string file = JobFile("contradictions.toml");
  PlanCommand command = OfJob(file, 2);
  command.samples.tail = "pad";
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--tail and --config contradict each other")));
  command = OfJob(file, 2);
  command.samples.job.file = file;
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is given twice, as a word and by --config")));
  command = Sized(10, 2, 1);
  command.samples.job.values = {"loader.train.seed=1"};
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--set changes values of a job: give")));
  command = OfJob(file, 2);
  command.samples.loader = "trian";
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the job has no --loader 'trian'; did you "
                                 "mean 'train'?")));
  command = OfJob(WriteText("two.toml", "[loader.a]\n[loader.b]\n"), 1);
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("give --loader, since the job has several: a, "
                                 "b")));
  command = OfJob(WriteText("given.toml",
                            "[loader.a]\n"
                            "sampler = {name = \"sequential\", "
                            "rank_batch_size = 1}\n"),
                  1);
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("--size says how many")));
}

}  // namespace
}  // namespace lockstep
