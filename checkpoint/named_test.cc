// Checkpoints that are saved by name, and the best ones.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_testing.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Use = std::function<absl::Status(Checkpoint&, std::vector<float>&)>;

class NamedTest : public CheckpointTest {
 protected:
  // Calls `use` on each rank with a restored checkpoint, whose section
  // "weights" has one element.
  std::vector<absl::Status> UseAll(int size, const Use& use) {
    return Run(size, [&](Communicator& group) -> absl::Status {
      std::vector<float> weights(1);
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", &weights));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
      LOCKSTEP_RETURN_IF_ERROR(use(checkpoint, weights));
      return checkpoint.Wait();
    });
  }

  // Saves the values as weights if they are the best, and returns which were.
  std::vector<bool> SaveBest(const std::vector<double>& values, Best best) {
    std::vector<bool> were;
    const auto ended =
        UseAll(2,
               [&](Checkpoint& checkpoint,
                   std::vector<float>& weights) -> absl::Status {
                 std::vector<bool> own;
                 int64_t step = 0;
                 for (const double value : values) {
                   weights[0] = static_cast<float>(value);
                   LOCKSTEP_ASSIGN_OR_RETURN(
                       const bool is_best,
                       checkpoint.SaveIfBest("best", ++step, value, best));
                   own.push_back(is_best);
                 }
                 MutexLock lock(mutex_);
                 were = own;
                 return absl::OkStatus();
               });
    EXPECT_THAT(ended, Each(IsOk()));
    return were;
  }

  // Returns the weights of the file PATH.NAME.
  absl::StatusOr<float> WeightOf(absl::string_view name) const {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto reader,
        CheckpointReader::Open(absl::StrCat(options_.path, ".", name)));
    const CheckpointSection* const section = reader->Find("weights");
    if (section == nullptr) return absl::NotFoundError("no weights");
    float weight = 0;
    LOCKSTEP_RETURN_IF_ERROR(reader->Read(
        *section, 0, absl::MakeSpan(reinterpret_cast<char*>(&weight), 4)));
    return weight;
  }
};

TEST_F(NamedTest, AFileIsReplacedAndNeverRemoved) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.keep = 1;
    options_.path += "'";
    EXPECT_THAT(
        UseAll(2,
               [&](Checkpoint& checkpoint,
                   std::vector<float>& weights) -> absl::Status {
                 weights[0] = 1;
                 LOCKSTEP_RETURN_IF_ERROR(checkpoint.SaveAs("first", 100));
                 LOCKSTEP_RETURN_IF_ERROR(checkpoint.SaveAs("last", 200));
                 for (int64_t step = 1; step <= 3; ++step) {
                   weights[0] = 2;
                   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
                 }
                 weights[0] = 3;
                 return checkpoint.SaveAs("last", 2);
               }),
        Each(IsOk()));
    EXPECT_THAT(WeightOf("first"), IsOkAndHolds(1));
    EXPECT_THAT(WeightOf("last"), IsOkAndHolds(3));
    // The job goes on from the last one that has a number.
    EXPECT_THAT(Load("weights", 1), IsOkAndHolds(std::vector<float>{2}));
    EXPECT_NE(access(PathOf(2).c_str(), F_OK), 0);
  }
}

TEST_F(NamedTest, TheBestIsKept) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    EXPECT_THAT(SaveBest({3, 2, 2, 5, 1, 1.5}, Best::kLowest),
                ElementsAre(true, true, false, false, true, false));
    EXPECT_THAT(WeightOf("best"), IsOkAndHolds(1));
    // The value of the file is known after a restart. The job, which begins
    // anew, gets the same answers as at first.
    EXPECT_THAT(SaveBest({1.25, 1}, Best::kLowest), ElementsAre(true, true));
    EXPECT_THAT(WeightOf("best"), IsOkAndHolds(1));
    EXPECT_THAT(SaveBest({1.25, 1, -0.5, 0.5}, Best::kLowest),
                ElementsAre(true, true, true, false));
    EXPECT_THAT(WeightOf("best"), IsOkAndHolds(-0.5));
    EXPECT_THAT(logged_, Contains(AllOf(HasSubstr("the lowest value so far, 1"),
                                        HasSubstr("begin anew, remove it"))));
  }
}

// A job that goes on knows the values up to its checkpoint, and not those of
// later steps, which come again.
TEST_F(NamedTest, RepeatedStepsGetTheSameAnswers) {
  const double values[] = {5, 3, 4, 2, 2, 1};
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    const auto run = [&](int64_t from, int64_t to, std::vector<bool>& were) {
      EXPECT_THAT(
          Run(2,
              [&](Communicator& group) -> absl::Status {
                std::vector<float> weights(1);
                Checkpoint checkpoint(group, options_, Log());
                LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", &weights));
                LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                                          checkpoint.Restore());
                EXPECT_EQ(restored.value_or(0), from);
                for (int64_t step = from + 1; step <= to; ++step) {
                  LOCKSTEP_ASSIGN_OR_RETURN(
                      const bool is_best,
                      checkpoint.SaveIfBest("best", step, values[step - 1],
                                            Best::kLowest));
                  if (group.rank() == 0) were.push_back(is_best);
                  if (step == 3) {
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
                  }
                }
                return checkpoint.Wait();
              }),
          Each(IsOk()));
    };
    std::vector<bool> first, second;
    run(0, 5, first);
    EXPECT_THAT(first, ElementsAre(true, true, false, true, false));
    run(3, 6, second);
    EXPECT_THAT(second, ElementsAre(true, false, true));
  }
}

TEST_F(NamedTest, TheHighestMayBeTheBest) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(SaveBest({-infinity, 0.0, -0.0, 0.5, 0.25, infinity, infinity},
                       Best::kHighest),
              ElementsAre(true, true, false, true, false, true, false));
  // All ranks know the value of the file after a restart.
  EXPECT_THAT(SaveBest({5}, Best::kHighest), ElementsAre(true));
  EXPECT_THAT(WeightOf("best"), IsOkAndHolds(infinity));
}

TEST_F(NamedTest, WorksWithoutAPath) {
  options_.path.clear();
  EXPECT_THAT(SaveBest({2, 3, 1}, Best::kLowest),
              ElementsAre(true, false, true));
}

TEST_F(NamedTest, SaveAsForgetsTheValue) {
  EXPECT_THAT(SaveBest({1}, Best::kLowest), ElementsAre(true));
  EXPECT_THAT(UseAll(2,
                     [&](Checkpoint& checkpoint, std::vector<float>&) {
                       const auto note = [&](double value) {
                         return checkpoint.NoteValue("best", value,
                                                     Best::kLowest);
                       };
                       EXPECT_THAT(note(2), IsOkAndHolds(true));
                       EXPECT_THAT(note(3), IsOkAndHolds(false));
                       LOCKSTEP_EXPECT_OK(checkpoint.SaveAs("best", 1));
                       EXPECT_THAT(note(3), IsOkAndHolds(true));
                       return absl::OkStatus();
                     }),
              Each(IsOk()));
  EXPECT_THAT(SaveBest({5}, Best::kHighest), ElementsAre(true));
}

TEST_F(NamedTest, SavesToSeveralFilesFromOneCopy) {
  int reads = 0;
  EXPECT_THAT(Run(1,
                  [&](Communicator& group) -> absl::Status {
                    CheckpointMemory memory;
                    memory.count = 1;
                    memory.read = [&](int64_t, absl::Span<char> to) {
                      ++reads;
                      std::fill(to.begin(), to.end(), 'x');
                      return absl::OkStatus();
                    };
                    memory.write = [](int64_t, absl::string_view) {
                      return absl::OkStatus();
                    };
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", memory));
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.SaveTo(
                        3, {CheckpointTarget(),
                            {"best", BestValue{1, Best::kLowest}},
                            {"named", std::nullopt}}));
                    return checkpoint.Wait();
                  })[0],
              IsOk());
  EXPECT_EQ(reads, 1);
  EXPECT_THAT(WeightOf("best"), IsOk());
  EXPECT_THAT(WeightOf("named"), IsOk());
  EXPECT_THAT(WeightOf("000000000003"), IsOk());
}

TEST_F(NamedTest, SavesInTheOrderOfTargets) {
  // The second file can't be written.
  EXPECT_EQ(mkdir((options_.path + ".second.new").c_str(), 0777), 0);
  for (const bool background : {true, false}) {
    options_.background = background;
    EXPECT_THAT(UseAll(1,
                       [&](Checkpoint& checkpoint, std::vector<float>&) {
                         LOCKSTEP_RETURN_IF_ERROR(
                             checkpoint.SaveTo(3, {{"first", std::nullopt},
                                                   {"second", std::nullopt},
                                                   CheckpointTarget()}));
                         return checkpoint.Wait();
                       })[0],
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("can't create ")));
    EXPECT_THAT(WeightOf("first"), IsOk());
    EXPECT_NE(access(PathOf(3).c_str(), F_OK), 0);
    std::remove((options_.path + ".first").c_str());
  }
}

TEST_F(NamedTest, RanksSaveByTheSameName) {
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                    return checkpoint.SaveAs(group.rank() == 0 ? "a" : "b", 1);
                  }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("'checkpoint save 1, a'"),
                                  HasSubstr("'checkpoint save 1, b'")))));
}

// ---- What is refused.

TEST_F(NamedTest, RefusesNan) {
  EXPECT_THAT(
      UseAll(2,
             [&](Checkpoint& checkpoint, std::vector<float>&) {
               EXPECT_THAT(checkpoint.SaveIfBest("best", 1, std::nan(""),
                                                 Best::kLowest),
                           StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("SaveIfBest(best) is NaN")));
               EXPECT_THAT(checkpoint.SaveIfBest("best", 1, 9, Best::kLowest),
                           IsOkAndHolds(true));
               LOCKSTEP_EXPECT_OK(checkpoint.SaveTo(1, {}));
               EXPECT_THAT(
                   checkpoint.SaveTo(1, {{"best", BestValue{std::nan("")}}}),
                   StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("is NaN")));
               return absl::OkStatus();
             }),
      Each(IsOk()));
}

TEST_F(NamedTest, RefusesValuesThatDiffer) {
  EXPECT_THAT(
      Run(3,
          [&](Communicator& group) -> absl::Status {
            Checkpoint checkpoint(group, options_, Log());
            LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
            for (const double value : {2.5, std::nan("")}) {
              EXPECT_THAT(
                  checkpoint.SaveIfBest("best", 1,
                                        group.rank() == 2 ? value : 0.5,
                                        Best::kLowest),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("the value of SaveIfBest(best)"),
                                 HasSubstr("rank 2 of 3"),
                                 HasSubstr("and 0.5 on rank 0"))));
            }
            EXPECT_THAT(checkpoint.SaveIfBest("best", 1, 1, Best::kLowest),
                        IsOkAndHolds(true));
            return checkpoint.Wait();
          }),
      Each(IsOk()));
}

// The value of another model would keep a worse checkpoint of this one away.
TEST_F(NamedTest, RefusesTheBestOfAnotherModel) {
  EXPECT_THAT(SaveBest({1}, Best::kLowest), ElementsAre(true));
  for (const char* const name : {"weights", "others"}) {
    EXPECT_THAT(
        Run(2,
            [&](Communicator& group) -> absl::Status {
              std::vector<float> values(2);
              Checkpoint checkpoint(group, options_, Log());
              LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add(name, &values));
              return checkpoint.Restore().status();
            }),
        Each(StatusIs(
            absl::StatusCode::kFailedPrecondition,
            AllOf(HasSubstr(".best is that of another model: section '"),
                  HasSubstr(name),
                  HasSubstr("move it away, or give the job another path")))));
  }
}

TEST_F(NamedTest, RefusesTheOtherKindOfBest) {
  EXPECT_THAT(SaveBest({1}, Best::kLowest), ElementsAre(true));
  EXPECT_THAT(
      UseAll(
          2,
          [&](Checkpoint& checkpoint, std::vector<float>&) {
            return checkpoint.SaveIfBest("best", 1, 2, Best::kHighest).status();
          }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("asks for the highest value, and until now, the "
                              "best value of that name is the lowest one, "
                              "1"))));
  EXPECT_THAT(WeightOf("best"), IsOkAndHolds(1));
}

TEST_F(NamedTest, RefusesNamesAndFilesOfOthers) {
  std::ofstream(options_.path + ".toml") << "seed = 7, and more of the job";
  EXPECT_THAT(
      UseAll(2,
             [&](Checkpoint& checkpoint, std::vector<float>&) {
               EXPECT_THAT(checkpoint.SaveAs("a.b", 1),
                           StatusIs(absl::StatusCode::kInvalidArgument));
               EXPECT_THAT(checkpoint.SaveAs("", 1),
                           StatusIs(absl::StatusCode::kInvalidArgument));
               EXPECT_THAT(
                   checkpoint.SaveIfBest("1", 1, 1, Best::kLowest).status(),
                   StatusIs(absl::StatusCode::kInvalidArgument));
               EXPECT_THAT(checkpoint.SaveAs("toml", 1),
                           StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("is no checkpoint")));
               return checkpoint.Save(1);
             }),
      Each(IsOk()));
  std::ifstream file(options_.path + ".toml");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}),
            "seed = 7, and more of the job");
}

TEST_F(NamedTest, IsSavedAfterRestore) {
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    Checkpoint checkpoint(group, options_, Log());
    EXPECT_THAT(checkpoint.SaveAs("a", 1),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("call Restore first")));
    EXPECT_THAT(checkpoint.NoteValue("a", 1, Best::kLowest),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("call Restore first")));
    return absl::OkStatus();
  })[0]);
}

}  // namespace
}  // namespace lockstep
