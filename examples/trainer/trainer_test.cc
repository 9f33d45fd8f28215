// These tests run the reference trainer and the quickstart as a user would.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace trainer {
namespace {

using ::examples::Ended;
using ::examples::Execute;
using ::examples::Launch;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrainer[] =
    "examples/trainer/trainer --config=examples/trainer/digits.toml ";
constexpr char kQuickstart[] =
    "examples/trainer/quickstart --config=examples/trainer/digits.toml ";

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/trainerXXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

std::string Content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

void ExpectChecksPassed(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(
      ended.printed,
      AllOf(HasSubstr("rank 0 got 18 samples in the first step: "),
            HasSubstr("rank 1 got 18 samples in the first step: "),
            HasSubstr("epoch 11: 40 steps in "),
            HasSubstr("% waiting for data"),
            HasSubstr("check: each of 1438 samples came exactly once an epoch; "
                      "epochs: 12\n"),
            ContainsRegex("check: 9[0-9.]+ % of 359 digits that were held out "
                          "are read right\n")));
  // The run that failed before has printed no check.
  const std::vector<std::string> parts =
      absl::StrSplit(ended.printed, "check: ");
  EXPECT_EQ(parts.size(), 3) << ended.printed;
}

TEST(Trainer, GoesOnExactlyWithEachOptimizer) {
  for (const char* const optimizer : {"sgd", "adam"}) {
    const Ended ended = Launch(
        2, absl::StrCat(kTrainer, "--verify=45 --set trainer.optimizer.kind=",
                        optimizer));
    EXPECT_EQ(ended.code, 0) << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr("goes on exactly: after 90 steps"));
  }
}

// The checkpoints at the end are the same files.
TEST(Trainer, HasTheSameBitsOnAnyNumberOfRanks) {
  const auto train = [](int ranks, const std::string& settings) {
    const std::string path = NewFolder() + "/digits";
    const Ended ended =
        Launch(ranks, absl::StrCat(kTrainer,
                                   "--set trainer.epochs=3 --set "
                                   "checkpoint.path=",
                                   path, settings));
    EXPECT_EQ(ended.code, 0) << ended.printed;
    return Content(path + ".000000000120") + Content(path + ".best");
  };
  const std::string exact = " --set gradients.exact=true";
  const std::string wanted = train(1, exact);
  EXPECT_GT(wanted.size(), 400'000);
  for (const int ranks : {2, 3, 5, 8}) {
    EXPECT_TRUE(train(ranks, exact) == wanted) << "on " << ranks << " ranks";
  }
  const std::string other = train(3, "");
  EXPECT_EQ(other.size(), train(2, "").size());
  EXPECT_FALSE(other == train(2, "")) << "VACUOUS: sums have no order";
}

TEST(Trainer, VerifiesOnFewerRanks) {
  const std::string verify = absl::StrCat(kTrainer, "--verify=45 ");
  const std::string exact = "--set gradients.exact=true ";
  const Ended same = Launch(4, verify + exact + "--verify_ranks=3");
  EXPECT_EQ(same.code, 0) << same.printed;
  EXPECT_THAT(same.printed,
              HasSubstr("goes on exactly: after 90 steps, with and without a "
                        "restart on 3 of 4 ranks, all is the same"));
  const Ended other = Launch(4, verify + "--verify_ranks=3");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.printed,
              HasSubstr("or depends on the number of ranks, as sums do unless "
                        "the job has gradients.exact = true"));
  for (const auto& [flags, told] :
       {std::make_pair("--verify=2 --verify_ranks=5",
                       "with 1 to 4 ranks, the present number, and not with 5"),
        std::make_pair("--verify_ranks=2", "give --verify, too"),
        std::make_pair("--verify --verify_ranks",
                       "--verify_ranks should be a number of ranks from 1 on"),
        std::make_pair("--verify --verify_ranks=0", "but is '0'")}) {
    const Ended wrong = Launch(4, absl::StrCat(kTrainer, flags));
    EXPECT_EQ(wrong.code, 2) << wrong.printed;
    EXPECT_THAT(wrong.printed, HasSubstr(told));
  }
}

TEST(Trainer, GoesOnOnOtherNumbersOfRanks) {
  const std::string folder = NewFolder();
  const std::string command =
      absl::StrCat(kTrainer, "--set checkpoint.path=", folder,
                   "/digits --set trainer.epochs=");
  const Ended first = Launch(2, command + "1");
  EXPECT_EQ(first.code, 0) << first.printed;
  EXPECT_THAT(first.printed, HasSubstr("test after 40 steps: loss "));
  const Ended second = Launch(3, command + "2");
  EXPECT_EQ(second.code, 0) << second.printed;
  EXPECT_THAT(second.printed, AllOf(HasSubstr("goes on from "),
                                    HasSubstr("test after 80 steps: loss ")));
  const Ended third = Execute(command + "3");
  EXPECT_EQ(third.code, 0) << third.printed;
  EXPECT_THAT(third.printed,
              AllOf(HasSubstr("goes on from "),
                    HasSubstr("test after 120 steps: loss "),
                    HasSubstr(" over 359 samples\n"), Not(HasSubstr("nan"))));
  const Ended again = Launch(2, command + "3");
  EXPECT_EQ(again.code, 0) << again.printed;
  EXPECT_THAT(again.printed,
              AllOf(HasSubstr("the job has finished after 120 steps, as " +
                              folder + "/digits.finished says"),
                    Not(HasSubstr("goes on from "))));
}

TEST(Trainer, SaysWhichSettingIsWrong) {
  for (const auto& [setting, told] :
       {std::make_pair("trainer.hidden=[0]", "but are 64, 0, 10"),
        std::make_pair("trainer.optimizer.momentum=1",
                       "momentum should be from 0 to below 1, but is 1"),
        std::make_pair("trainer.optimizer.kind=adagrad", "\"sgd\""),
        std::make_pair("loader.test.dataset.path=nowhere.csv",
                       "nowhere.csv")}) {
    const Ended ended = Execute(absl::StrCat(kTrainer, "--set ", setting));
    EXPECT_EQ(ended.code, 2) << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr(told));
  }
}

TEST(Trainer, EndsWhereTheLossIsNoNumber) {
  const Ended ended = Launch(
      2, absl::StrCat(kTrainer, "--set trainer.optimizer.learning_rate=1e38"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("take a smaller learning rate"));
}

TEST(Trainer, HelpsWithSettingsInTables) {
  const Ended ended = Execute("examples/trainer/trainer --help");
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.printed, AllOf(HasSubstr("  optimizer\n"),
                                   HasSubstr("  optimizer.kind = \"adam\"\n"),
                                   Not(HasSubstr("(unset)"))));
}

TEST(Quickstart, TrainsThreads) {
  ExpectChecksPassed(Execute(absl::StrCat(kQuickstart, "--local=2")));
}

class QuickstartProcesses : public testing::TestWithParam<const char*> {};

TEST_P(QuickstartProcesses, TrainAndCheck) {
  ExpectChecksPassed(
      Launch(2, absl::StrCat(kQuickstart, "--set group.name=", GetParam())));
}

TEST_P(QuickstartProcesses, EndWithTheSameBitsWhereARankWasKilled) {
  const std::string folder = NewFolder();
  const std::string command =
      absl::StrCat(kQuickstart, "--set group.name=", GetParam(),
                   " --set checkpoint.path=", folder);
  ExpectChecksPassed(Launch(2, command + "/undisturbed"));
  const Ended ended =
      Launch(2, command + "/digits --kill=1", "--max_restarts=1");
  ExpectChecksPassed(ended);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("rank 1 died first: killed by signal 9"),
                    ContainsRegex("\\[rank 0\\] UNAVAILABLE: [^\n]*rank 1 \\("),
                    HasSubstr("goes on from " + folder + "/digits.000000000"),
                    HasSubstr("after step 285\n")));
  for (const char* const name : {".000000000480", ".best"}) {
    const std::string undisturbed = Content(folder + "/undisturbed" + name);
    EXPECT_GT(undisturbed.size(), 200'000);
    EXPECT_TRUE(Content(folder + "/digits" + name) == undisturbed) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuickstartProcesses,
                         testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST(Quickstart, FailsWhereTheModelDoesNotLearn) {
  const std::string settings = "--set trainer.epochs=1";
  for (const Ended& ended : {Launch(2, kQuickstart + settings),
                             Execute(kQuickstart + settings + " --local=2")}) {
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.printed,
                AllOf(HasSubstr("are read right; more than 95 % should be"),
                      HasSubstr("check: each"), Not(HasSubstr("check: 9"))));
  }
  const Ended none =
      Execute(absl::StrCat(kQuickstart, "--set trainer.epochs=0"));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.printed, AllOf(HasSubstr("should have an epoch or more"),
                                  Not(HasSubstr("check: "))));
}

TEST(Quickstart, VerifiesAsTheTrainerDoes) {
  const Ended ended = Launch(2, absl::StrCat(kQuickstart, "--verify=45"));
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("goes on exactly: after 90 steps"));
}

TEST(Quickstart, SaysWhatItCanNotKill) {
  const Ended beyond = Launch(2, absl::StrCat(kQuickstart, "--kill=2"));
  EXPECT_EQ(beyond.code, 2) << beyond.printed;
  EXPECT_THAT(beyond.printed,
              HasSubstr("--kill should be a rank, 0 to 1, but is 2"));
  const Ended thread = Execute(absl::StrCat(kQuickstart, "--local=2 --kill=1"));
  EXPECT_EQ(thread.code, 2);
  EXPECT_THAT(thread.printed, HasSubstr("threads of one"));
  const Ended word = Execute(absl::StrCat(kQuickstart, "--kill=one"));
  EXPECT_EQ(word.code, 2);
  EXPECT_THAT(word.printed, HasSubstr("but is --kill=one"));
}

// The command sees the trainer's own parts and settings.
TEST(Command, ChecksTheJob) {
  const Ended right = Execute(
      "examples/trainer/command check examples/trainer/digits.toml "
      "--world=1,2,3");
  EXPECT_EQ(right.code, 0) << right.printed;
  EXPECT_THAT(right.printed,
              AllOf(HasSubstr("examples/trainer/digits.toml is right\n"),
                    Not(HasSubstr("not checked")),
                    HasSubstr("\ntrain     1,438      3    12     40 ")));
  const Ended wrong = Execute(
      "examples/trainer/command check examples/trainer/digits.toml "
      "--set trainer.optimizer.learning_rat=1");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.printed, HasSubstr("did you mean 'learning_rate'?"));
  const Ended verified = Execute(
      "examples/trainer/command verify --config=examples/trainer/digits.toml "
      "--loader=train --world=2");
  EXPECT_EQ(verified.code, 0) << verified.printed;
  EXPECT_THAT(verified.printed, HasSubstr("nothing is lost or comes twice"));
}

}  // namespace
}  // namespace trainer
