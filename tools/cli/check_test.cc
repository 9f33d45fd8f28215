#include "lockstep/tools/cli/check.h"

#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out;
};

// Runs the command. In what it prints, FILE stands for the path of the text.
Outcome Check(const CheckCommand& command, const CommandHost& host) {
  std::ostringstream out;
  const absl::StatusOr<int> code = RunCheck(host, command, out);
  LOCKSTEP_EXPECT_OK(code.status());
  return {code.value_or(-1),
          absl::StrReplaceAll(out.str(), {{command.job.path(), "FILE"}})};
}

CheckCommand OfText(const std::string& text) {
  CheckCommand command;
  command.job.config = WriteText("check.toml", text);
  return command;
}

Outcome Check(const std::string& text) {
  const TestHost host;
  return Check(OfText(text), host);
}

constexpr char kRight[] = R"([loader.train]
dataset = {name = "words", size = 21}
sampler = {name = "native_shuffle", global_batch_size = 4, tail = "uneven"}

[trainer]
rate = 0.1
)";

constexpr char kUnchecked[] =
    "not checked: [trainer], whose settings only a program of yours knows\n";

TEST(Check, RightJob) {
  CheckCommand command = OfText(kRight);
  command.world = {"1", "2", "4"};
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, absl::StrCat("FILE is right\n", kUnchecked, R"(
loader  samples  ranks  rows  steps  parts  last rows  dropped  padded
train        21      1     4      6      1  1                0       0
train        21      2     2      6      1  0 to 1           0       0
train        21      4     1      6      1  0 to 1           0       0
)"));
}

TEST(Check, SaysAllThatIsWrongInTheOrderOfTheText) {
  const Outcome outcome = Check(R"([group]
deadlin = "2m"

[loader.train]
num_worker = 2
sampler = {name = "native_shufle", global_batch_size = 36}
dataset = {name = "cache", dataset = {name = "tar", files = "x", fields = [{field = "a", extension = ["jpg"]}]}}

[checkpoint]
path = "/no/folder/model"
keep = 0

[loader.test]
dataset = {name = "npy", files = [{field = "x", path = "/no/x.npy"}]}
sampler = {name = "sequential", global_batch_size = 7, tail = "paddd"}

[metrics.txt]
path = 3

[loader.last]
dataset = {name = "words", size = 21}
sampler = {name = "sequential", global_batch_size = 0}

[progress]
every = "-1s"
)");
  EXPECT_EQ(outcome.code, 1);
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(outcome.out, '\n')) {
    absl::StrAppend(
        &lines, absl::StripTrailingAsciiWhitespace(line.substr(0, 57)), "\n");
  }
  EXPECT_THAT(lines,
              StartsWith(
                  R"(FILE:2:1: communicator 'auto': there is no setting 'deadl
FILE:5:1: loader 'default': there is no setting 'num_work
FILE:6:12: there is no sampler 'native_shufle'; did you m
FILE:7:53: dataset 'tar': files should be a list, each of
FILE:7:90: dataset 'tar', fields[0]: there is no setting
FILE:10:1: checkpoint: there is no folder /no/folder for
FILE:11:1: checkpoint: keep should be 1 or more checkpoin
FILE:14:1: '/no/x.npy': can't open: No such file or direc
FILE:15:56: sampler 'sequential': tail should be one of "
FILE:17:10: there is no metrics sink 'txt'; did you mean
FILE:22:1: global_batch_size should be a positive multipl
FILE:25:1: progress.every is -1s; accepted are 0s, for no
FILE has 12 things that are wrong
)"));
}

TEST(Check, OtherFormats) {
  CheckCommand command = OfText("[group]\nslw = 2\n");
  command.format = "csv";
  const TestHost host;
  EXPECT_THAT(Check(command, host).out,
              StartsWith("file,line,column,message\n"
                         "FILE,2,1,\"communicator 'auto': there is no setting "
                         "'slw'; did you mean 'slow'? Known: "));
  command.format = "json";
  EXPECT_THAT(Check(command, host).out,
              AllOf(StartsWith("{\n  \"file\": \"FILE\",\n  \"ok\": false,\n"
                               "  \"findings\": [\n    {\"file\": \"FILE\", "
                               "\"line\": 2, \"column\": 1, \"message\": "),
                    HasSubstr("\"unchecked\": [\"batches, since there")));
  command = OfText(kRight);
  command.format = "json";
  EXPECT_THAT(Check(command, host).out,
              AllOf(HasSubstr("\"ok\": true,\n  \"findings\": []"),
                    HasSubstr("  \"batches\": [\n    {\"loader\": \"train\", "
                              "\"samples\": 21, \"ranks\": 1, \"rows\": 4")));
  command.format = "csv";
  EXPECT_EQ(Check(command, host).out, "file,line,column,message\n");
}

TEST(Check, TextThatIsNoToml) {
  const Outcome outcome = Check("[group\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("FILE:1:"),
                                 HasSubstr("FILE has 1 thing that is wrong")));
}

// Some errors of the parser have no column.
TEST(Check, LineWithoutAColumn) {
  CheckCommand command =
      OfText(absl::StrCat("a = ", std::string(100, '['), "\n"));
  command.format = "json";
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("\"line\": 1, \"column\": "));
}

TEST(Check, NumbersOfRanksThatDoNotFit) {
  CheckCommand command = OfText(kRight);
  command.world = {"2", "3", "8"};
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(
      outcome.out,
      AllOf(StartsWith(
                "FILE:3:1: global_batch_size should be a positive multiple of "
                "the number of ranks that get different data, 3, such as 3 or "
                "6, but got global_batch_size=4; or set shards to a number "
                "that divides it: 4; in sampler 'native_shuffle'; in loader "
                "'default'; in loader.train; on 3 ranks\n"),
            HasSubstr("; on 8 ranks\n"),
            HasSubstr("\ntrain        21      2")));
}

TEST(Check, ShardsOfAJob) {
  const std::string exact = absl::StrCat(
      absl::StrReplaceAll(kRight,
                          {{"global_batch_size = 4", "global_batch_size = 8"}}),
      "\n[gradients]\nexact = true\nshards = ");
  CheckCommand command = OfText(exact + "4\n");
  command.world = {"1", "3"};
  const Outcome right = Check(command, TestHost());
  EXPECT_EQ(right.code, 0) << right.out;
  EXPECT_THAT(right.out, HasSubstr("\ntrain        21      3     4      3 "));
  command = OfText(exact + "16\n");
  const Outcome large = Check(command, TestHost());
  EXPECT_EQ(large.code, 1);
  EXPECT_THAT(large.out, HasSubstr("multiple of gradients.shards=16, such as "
                                   "16 or 32, but got global_batch_size=8; or "
                                   "set gradients.shards to a number that "
                                   "divides it: 1, 2, 4 or 8"));
  // Loaders are checked without shards where their number is wrong.
  const Outcome wrong = Check(exact + "5\n");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out,
              AllOf(HasSubstr("gradients: shards should be 2^n or 3 * 2^n"),
                    HasSubstr("FILE has 1 thing that is wrong")));
}

TEST(Check, BatchesOfShards) {
  CheckCommand command = OfText(absl::StrReplaceAll(
      kRight,
      {{"global_batch_size = 4", "global_batch_size = 8, shards = 4"}}));
  command.world = {"1", "3"};
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr(R"(
train        21      1     8      3      4  5                0       0
train        21      3     4      3      2  1 to 3           0       0
)"));
}

TEST(Check, DataThatIsNotThere) {
  const std::string text =
      "[loader.train]\n"
      "dataset = {name = \"cache\", dataset = {name = \"npy\", files = [{field "
      "= \"x\", path = \"/no/x.npy\"}]}}\n"
      "sampler = {name = \"sequential\", global_batch_size = 2}\n";
  const Outcome outcome = Check(text);
  EXPECT_EQ(outcome.code, 1);
  // The place is that of the innermost part.
  EXPECT_THAT(outcome.out, StartsWith("FILE:2:28: '/no/x.npy': can't open: No "
                                      "such file or directory; in dataset "
                                      "'npy'; in dataset 'cache'\n"));
  CheckCommand sized = OfText(text);
  sized.size = 9;
  EXPECT_EQ(Check(sized, TestHost()).code, 0);
}

// An order that needs a column of the dataset can't be shown without it.
TEST(Check, DatasetThatStandsInHasNoColumns) {
  CheckCommand command = OfText(
      "[loader.train]\ndataset = {name = \"mine\"}\n"
      "sampler = {name = \"length_buckets\", global_batch_size = 2}\n");
  command.size = 9;
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 1);  // for the dataset that is not known
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("FILE has 1 thing that is wrong\n"),
                    HasSubstr("not checked: the loader 'train', whose order "
                              "needs more of the dataset than its\nsize: ")));
}

TEST(Check, WhatATrainerRefusesAtItsStart) {
  const auto expect = [](const std::string& more, const std::string& message) {
    const Outcome outcome = Check(absl::StrCat(kRight, more));
    EXPECT_EQ(outcome.code, 1) << more;
    EXPECT_THAT(outcome.out, HasSubstr(message));
  };
  expect(
      "[checkpoint]\npath = \"/tmp/x\"\nevery_steps = -1\n",
      "FILE:9:1: checkpoint: every_steps of checkpoints should be 0 or more");
  expect(
      "[checkpoint]\npath = \"/tmp/\"\n",
      "FILE:8:1: checkpoint: the path of checkpoints should be a folder and");
  expect("[metrics.tensorboard]\n",
         "folder should name the folder of the run, such as /data/runs/7; in "
         "metrics sink 'tensorboard'");
  expect("[rank_metrics.json_lines]\npath = \"x\"\nmax_bytes = 5\n",
         "max_bytes is 5; accepted are 65536 and more");
  expect("[group]\ndeadline = \"-3s\"\n",
         "deadline should be more than nothing, but got deadline=-3s");
  CheckCommand command =
      OfText(absl::StrCat(kRight, "[checkpoint]\npath = \"/tmp/x\"\n"));
  command.job.values = {"loader.train.delivery=as_ready"};
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("have no place to go on from; set delivery"));
}

TEST(Check, LoaderWithoutASampler) {
  CheckCommand command = OfText(kRight);
  command.job.values = {"loader.trian.num_workers=4"};
  const Outcome outcome = Check(command, TestHost());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("loader.trian: there is no sampler: set `sampler` to a "
                        "table with its name; or is `trian` misspelt?\n"));
  EXPECT_EQ(Check("").out,
            "FILE is right\n"
            "not checked: batches, since there is no [loader.NAME]\n");
}

TEST(Check, DataOfTheProgram) {
  const Outcome outcome = Check(
      "[loader.train]\n"
      "sampler = {name = \"sequential\", global_batch_size = 2}\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              HasSubstr("not checked: the loader 'train' reads a dataset of "
                        "the program's; --size=N shows\nits batches\n"));
}

struct TrainerOptions {
  double rate = 0;
};
void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("rate", &options.rate, "How fast it learns.");
}

TEST(Check, SettingsOfTheTrainer) {
  TrainerOptions options;
  const OptionTable table = TableOf(options);
  TestHost host;
  host.trainer = &table;
  const Outcome right = Check(OfText(kRight), host);
  EXPECT_EQ(right.code, 0);
  EXPECT_THAT(right.out, Not(HasSubstr("not checked")));
  CheckCommand command = OfText(kRight);
  command.job.values = {"trainer.rat=1"};
  const Outcome wrong = Check(command, host);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, StartsWith("--set trainer.rat: trainer: there is no "
                                    "setting 'rat'; did you mean 'rate'?"));
}

TEST(Check, NamesOfUnknownParts) {
  const Outcome outcome = Check(
      "[loader.train]\ndataset = {name = \"mine\"}\n"
      "sampler = {name = \"sequential\", global_batch_size = 2}\n");
  EXPECT_THAT(outcome.out,
              HasSubstr("not checked: names of your own parts, which only a "
                        "program of yours knows\n"));
}

TEST(Check, FolderOfCheckpoints) {
  const std::string text = absl::StrCat(kRight, "[checkpoint]\npath = \"",
                                        testing::TempDir(), "/model\"\n");
  EXPECT_EQ(Check(text).code, 0);
  EXPECT_EQ(
      Check(absl::StrCat(kRight, "[checkpoint]\npath = \"model\"\n")).code, 0);
}

TEST(Check, SaysWhatIsWrongWithFlags) {
  const TestHost host;
  const auto expect = [&host](const CheckCommand& command,
                              absl::StatusCode code,
                              const std::string& message) {
    std::ostringstream out;
    EXPECT_THAT(RunCheck(host, command, out),
                StatusIs(code, HasSubstr(message)));
    EXPECT_THAT(out.str(), IsEmpty());
  };
  expect(CheckCommand(), absl::StatusCode::kInvalidArgument,
         "give the job's text, as in lockstep check job.toml");
  CheckCommand command = OfText(kRight);
  command.world = {"1", "two"};
  expect(command, absl::StatusCode::kInvalidArgument,
         "--world should be numbers of ranks from 1 to 1000000, such as 1,2,8, "
         "but has 'two'");
  command.world = {};
  expect(command, absl::StatusCode::kInvalidArgument, "but is empty");
  command = OfText(kRight);
  command.job.file = command.job.config;
  expect(command, absl::StatusCode::kInvalidArgument, "is given twice");
  command = CheckCommand();
  command.job.config = "/no/such/job.toml";
  expect(command, absl::StatusCode::kNotFound, "/no/such/job.toml");
}

}  // namespace
}  // namespace lockstep
