// These tests check that the example trains, and continues after it was killed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kSamples = 1003;

// Returns the text between each `begin` in `printed` and the end of its line.
std::vector<std::string> LinesAfter(const std::string& printed,
                                    absl::string_view begin) {
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    const size_t at = line.find(begin);
    if (at != absl::string_view::npos) {
      found.emplace_back(line.substr(at + begin.size()));
    }
  }
  return found;
}

double LossOf(const std::string& printed, int epoch) {
  const std::vector<std::string> found =
      LinesAfter(printed, absl::StrCat("epoch ", epoch, ": loss "));
  EXPECT_THAT(found, SizeIs(1)) << printed;
  double loss = -1;
  EXPECT_TRUE(!found.empty() &&
              absl::SimpleAtod(found[0].substr(0, found[0].find(',')), &loss))
      << printed;
  return loss;
}

// Counts the samples that the ranks got in steps [first, end) of epoch 0.
void Count(const std::string& printed, int first, int end,
           std::vector<int>& counts) {
  for (int step = first; step < end; ++step) {
    for (const std::string& line :
         LinesAfter(printed, absl::StrCat("epoch 0 step ", step, ":"))) {
      for (const absl::string_view index :
           absl::StrSplit(line, ' ', absl::SkipEmpty())) {
        int64_t number = -1;
        ASSERT_TRUE(absl::SimpleAtoi(index, &number)) << line;
        ASSERT_TRUE(number >= 0 && number < kSamples) << line;
        ++counts[number];
      }
    }
  }
}

class Training : public testing::Test {
 protected:
  Training() {
    std::string folder = testing::TempDir() + "/trainingXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    path_ = folder + "/model";
  }

  Ended Train(int ranks, const std::string& flags) {
    return Launch(ranks, absl::StrCat("examples/training --backend=shm "
                                      "--checkpoint=",
                                      path_, " ", flags));
  }

  std::string FileOf(int64_t step) const {
    return absl::StrCat(path_, ".", absl::Dec(step, absl::kZeroPad12));
  }
  std::string GoesOnAfter(int64_t step) const {
    return absl::StrCat("goes on from ", FileOf(step), ", after step ", step);
  }

  std::string path_;
};

TEST_F(Training, Converges) {
  const Ended ended = Train(2, "--epochs=6");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_GT(LossOf(ended.printed, 0), 0.05);
  EXPECT_LT(LossOf(ended.printed, 5), 0.01);
}

// The last step has 43 samples: 22 and 21 on two ranks, or 15, 14 and 14 on
// three. Each sample that is held out is evaluated once.
TEST_F(Training, TheMeansAreOverSamples) {
  double loss = 0, held_out = 0;  // on one rank
  for (const int ranks : {1, 2, 3}) {
    const std::string printed =
        Launch(ranks, absl::StrCat("examples/training --backend=shm "
                                   "--epochs=1 --batch=",
                                   48 / ranks))
            .printed;
    const std::vector<std::string> found = LinesAfter(printed, ", held out ");
    ASSERT_THAT(found, SizeIs(1)) << printed;
    double mean = 0;
    EXPECT_TRUE(absl::SimpleAtod(found[0], &mean)) << printed;
    if (ranks == 1) {
      loss = LossOf(printed, 0);
      held_out = mean;
      EXPECT_GT(held_out, 0);
    }
    EXPECT_NEAR(LossOf(printed, 0), loss, 1e-4 * loss);
    EXPECT_NEAR(mean, held_out, 1e-4 * held_out);
  }
}

TEST_F(Training, KilledAndGoesOnWithMoreRanks) {
  const Ended killed = Train(2, "--epochs=1 --show --kill=17");
  EXPECT_EQ(killed.code, 128 + 9) << killed.printed;
  EXPECT_THAT(killed.printed, Not(HasSubstr("goes on")));
  EXPECT_THAT(killed.printed, HasSubstr("UNAVAILABLE: rank 1 ("));

  const Ended ended = Train(3, "--epochs=1 --show");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr(GoesOnAfter(10)));

  // The model contains nothing that the first job did after its checkpoint.
  std::vector<int> counts(kSamples);
  Count(killed.printed, 0, 10, counts);
  Count(ended.printed, 0, kSamples, counts);
  EXPECT_THAT(counts, Each(1));
}

// All ranks stop after the step in which one of them got the signal.
TEST_F(Training, StopsAndGoesOnToTheSameModel) {
  const Ended stopped = Train(3, "--epochs=2 --kill=13 --signal=15");
  EXPECT_EQ(stopped.code, 128 + 15) << stopped.printed;
  EXPECT_TRUE(std::ifstream(FileOf(14)).is_open());
  const Ended ended = Train(3, "--epochs=2");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr(GoesOnAfter(14)));
  const Ended whole = Launch(3, "examples/training --backend=shm --epochs=2");
  EXPECT_EQ(LossOf(ended.printed, 1), LossOf(whole.printed, 1));
}

TEST_F(Training, IsDoneOnce) {
  EXPECT_EQ(Train(2, "--epochs=1").code, 0);
  const Ended again = Train(3, "--epochs=1");
  EXPECT_EQ(again.code, 0) << again.printed;
  // Three ranks with the same batch size each train with larger steps.
  EXPECT_THAT(again.printed, HasSubstr("samples of a step was 32, and is 48"));
  const Ended third = Train(3, "--epochs=1");
  EXPECT_EQ(third.code, 0) << third.printed;
  EXPECT_THAT(third.printed, AllOf(HasSubstr("the job has finished after 32 "),
                                   Not(HasSubstr("epoch 0: loss"))));
  const Ended more = Train(3, "--epochs=2");
  EXPECT_EQ(more.code, 0) << more.printed;
  EXPECT_THAT(more.printed, AllOf(HasSubstr("epochs was 1, and is 2"),
                                  HasSubstr("epoch 1: loss")));
}

TEST_F(Training, GoesOnFromTheCheckpointBeforeADamagedOne) {
  EXPECT_EQ(Train(2, "--epochs=2 --kill=27").code, 128 + 9);
  std::ofstream(FileOf(20)).close();
  const Ended ended = Train(2, "--epochs=2");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, AllOf(HasSubstr(FileOf(10) + " is used"),
                                   HasSubstr(GoesOnAfter(10))));
  const Ended whole = Launch(2, "examples/training --backend=shm --epochs=2");
  EXPECT_EQ(LossOf(ended.printed, 1), LossOf(whole.printed, 1));
}

TEST_F(Training, RanksOfDifferentOptionsAreTold) {
  const Ended ended = Launch(
      2, "sh -c 'exec examples/training --backend=shm --epochs=$((RANK + 1))'");
  EXPECT_EQ(ended.code, 1) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("differ in the job"));
  EXPECT_THAT(ended.printed, HasSubstr("in field 'epochs'"));
}

}  // namespace
}  // namespace examples
