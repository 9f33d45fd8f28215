// These tests start jobs again that have finished.
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::string_view kFails = "fails";
constexpr absl::string_view kFailsAfterEpoch0 = "fails after epoch 0";
constexpr absl::string_view kFinishesEarly = "finishes early";
constexpr absl::string_view kOnlyEvaluates = "only evaluates";

class FinishedTest : public SessionWithCheckpoints {
 protected:
  // Trains as Main does. Returns the number of steps on rank 0, or -1 if the
  // trainer was not called on any rank.
  int64_t TrainOn(int size, absl::string_view how = "",
                  const SessionOptions& options = {}) {
    std::vector<int64_t> steps(size, -1);
    for (const absl::Status& status : UseSessions(
             std::vector<std::string>(size, text_),
             [&](Session& session) -> absl::Status {
               LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> finished,
                                         session.FindFinished());
               if (finished.has_value()) return absl::OkStatus();
               return session.Run([&](Session& session) {
                 absl::Status trained = Train(session, how);
                 steps[session.rank()] = session.steps();
                 return trained;
               });
             },
             options)) {
      EXPECT_EQ(status.ok(), how != kFails && how != kFailsAfterEpoch0)
          << status;
    }
    EXPECT_THAT(steps, Each(steps[0]));
    return steps[0];
  }

  static absl::Status Train(Session& session, absl::string_view how) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    if (how == kOnlyEvaluates) return session.Evaluate(*test, Nothing).status();
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        if (how == kFinishesEarly && step.global_number() == 3) {
          session.FinishAfterThisStep();
        }
      }
      if (how != kFailsAfterEpoch0) continue;
      LOCKSTEP_RETURN_IF_ERROR(session.Save());
      LOCKSTEP_RETURN_IF_ERROR(session.AwaitSaved());
      return absl::InternalError("fails");
    }
    return how == kFails ? absl::InternalError("fails") : absl::OkStatus();
  }

  std::string Mark() const {
    std::stringstream text;
    text << std::ifstream(MarkPath()).rdbuf();
    return text.str();
  }
  bool HasMark() const { return std::filesystem::exists(MarkPath()); }
  std::string MarkPath() const { return path_ + ".finished"; }

  std::string text_ = Text();
};

TEST_F(FinishedTest, IsNotTrainedAgain) {
  for (int size = 1; size <= 3; ++size) {
    path_ += "'";
    text_ = Text();
    EXPECT_EQ(TrainOn(size), 4);
    EXPECT_THAT(Mark(), HasSubstr("lockstep finished 1\nsteps 4\njob "));
    logged_.clear();
    // Another number of ranks is the same job.
    EXPECT_EQ(TrainOn(4 - size), -1);
    EXPECT_EQ(TrainOn(size), -1);
    EXPECT_THAT(logged_,
                Contains(AllOf(
                    HasSubstr("the job has finished after 4 steps, as " +
                              MarkPath() + " says, and nothing is left to do"),
                    HasSubstr("remove that file"))));
    EXPECT_THAT(logged_, Not(Contains(HasSubstr("nothing was trained"))));
  }
}

TEST_F(FinishedTest, MayFinishEarly) {
  EXPECT_EQ(TrainOn(2, kFinishesEarly), 3);
  EXPECT_EQ(TrainOn(2, kFinishesEarly), -1);
}

TEST_F(FinishedTest, GoesOnWithOtherSettings) {
  EXPECT_EQ(TrainOn(2, kFinishesEarly), 3);
  const std::string mark = Mark();
  text_ = absl::StrReplaceAll(text_, {{"num_workers = 0", "num_workers = 1"}});
  EXPECT_EQ(TrainOn(1, kFails), 4);
  EXPECT_FALSE(HasMark());
  EXPECT_THAT(logged_, Contains("the job had finished after 3 steps, but "
                                "with other settings, so it goes on"));
  EXPECT_EQ(TrainOn(1), 4);
  EXPECT_NE(Mark(), mark);
  EXPECT_EQ(TrainOn(1), -1);
}

TEST_F(FinishedTest, OnlyTrainingsFinish) {
  EXPECT_EQ(TrainOn(2, kOnlyEvaluates), 0);
  EXPECT_FALSE(HasMark());
  SessionOptions stops;
  stops.stop_after = 4;
  EXPECT_EQ(TrainOn(2, "", stops), 4);
  EXPECT_FALSE(HasMark());
  EXPECT_EQ(TrainOn(2, kFails), 4);
  EXPECT_FALSE(HasMark());
  EXPECT_EQ(TrainOn(2, kOnlyEvaluates), 4);
  EXPECT_FALSE(HasMark());
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_TRUE(HasMark());
}

// If a host calls the trainer of a finished job all the same, the mark stays
// until the job has gone on.
TEST_F(FinishedTest, IsFinishedUntilItGoesOn) {
  EXPECT_EQ(TrainOn(2, kFinishesEarly), 3);
  for (const absl::string_view how : {kOnlyEvaluates, absl::string_view()}) {
    LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) {
      absl::Status trained = Train(session, how);
      EXPECT_EQ(HasMark(), how == kOnlyEvaluates);
      return trained;
    }));
    EXPECT_TRUE(HasMark());
    EXPECT_EQ(TrainOn(2), -1);
  }
  EXPECT_THAT(Mark(), HasSubstr("steps 4\n"));
}

TEST_F(FinishedTest, TheMarkBelongsToACheckpoint) {
  EXPECT_EQ(TrainOn(2), 4);
  std::filesystem::resize_file(absl::StrCat(path_, ".000000000004"), 100);
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_THAT(logged_, Contains(HasSubstr("the newest checkpoint was saved "
                                          "after 2 steps, so the job is "
                                          "trained again")));
  EXPECT_EQ(TrainOn(2), -1);
  for (const int64_t step : {2, 4}) {
    std::filesystem::remove(
        absl::StrCat(path_, ".", absl::Dec(step, absl::kZeroPad12)));
  }
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_THAT(logged_, Contains(HasSubstr("there is no checkpoint, so the job "
                                          "is trained again")));
}

TEST_F(FinishedTest, OtherFilesAreKept) {
  for (const absl::string_view text :
       {"", "done", "lockstep finished 1\nsteps x\njob y\n",
        "lockstep finished 2\nsteps 4\njob y\n"}) {
    path_ += "'";
    text_ = Text();
    std::ofstream(MarkPath()) << text;
    logged_.clear();
    EXPECT_EQ(TrainOn(2), 4);
    EXPECT_EQ(Mark(), text);
    EXPECT_THAT(logged_,
                Contains(AllOf(HasSubstr("is not the mark of a finished job"),
                               HasSubstr("; it is ignored"))));
    EXPECT_THAT(logged_, Contains(HasSubstr("can't be marked as finished")));
  }
  path_ += "'";
  text_ = Text();
  std::filesystem::create_directory(MarkPath());
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_TRUE(std::filesystem::is_directory(MarkPath()));
}

// A process that was killed may have left a part of the mark.
TEST_F(FinishedTest, PartsOfMarksAreReplaced) {
  std::ofstream(MarkPath() + ".new") << "lockstep fin";
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_FALSE(std::filesystem::exists(MarkPath() + ".new"));
  EXPECT_EQ(TrainOn(2), -1);
}

TEST_F(FinishedTest, IsAskedFirst) {
  const auto ask = [&](Session& session, absl::string_view when) {
    EXPECT_THAT(session.FindFinished(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("FindFinished comes after Run")))
        << when;
    return absl::OkStatus();
  };
  AtEvents hook(ask);
  EXPECT_THAT(UseSessions(
                  {text_},
                  [&](Session& session) -> absl::Status {
                    EXPECT_THAT(session.FindFinished(), IsOk());
                    EXPECT_THAT(session.FindFinished(), IsOk());
                    LOCKSTEP_RETURN_IF_ERROR(session.Run([&](Session& session) {
                      ask(session, "before Restore").IgnoreError();
                      return Train(session, "");
                    }));
                    return ask(session, "after Run");
                  },
                  WithHooks({&hook})),
              Each(IsOk()));
}

// No hook is called if nothing is left to do.
TEST_F(FinishedTest, CallsNoHooks) {
  int events = 0;
  AtEvents hook([&](Session&, absl::string_view) {
    ++events;
    return absl::OkStatus();
  });
  const SessionOptions options = WithHooks({&hook});
  EXPECT_EQ(TrainOn(1, "", options), 4);
  EXPECT_EQ(std::exchange(events, 0), 12);
  EXPECT_EQ(TrainOn(1, "", options), -1);
  EXPECT_EQ(events, 0);
}

// A job has not finished if a hook fails at its end.
TEST_F(FinishedTest, HooksMayFail) {
  AtEvents hook([](Session&, absl::string_view event) {
    return event == "OnShutdown" ? absl::InternalError("no upload")
                                 : absl::OkStatus();
  });
  EXPECT_THAT(RunJobs(
                  {text_}, [](Session& session) { return Train(session, ""); },
                  WithHooks({&hook})),
              Each(StatusIs(absl::StatusCode::kInternal, HasSubstr("upload"))));
  EXPECT_FALSE(HasMark());
}

// On too many ranks, an epoch may have no step. The job is not finished.
TEST_F(FinishedTest, EmptyEpochsFinishNothing) {
  const auto with_batch = [&](int64_t rows) {
    text_ = absl::StrReplaceAll(
        Text(), {{"global_batch_size = 6, tail = \"uneven\"",
                  absl::StrCat("rank_batch_size = ", rows,
                               ", drop_last = true, tail = \"drop\"")}});
  };
  with_batch(4);  // 2 steps on one rank, and none on three
  SessionOptions stops;
  stops.stop_after = 1;
  EXPECT_EQ(TrainOn(1, "", stops), 1);
  EXPECT_EQ(TrainOn(3), 1);
  EXPECT_FALSE(HasMark());
  EXPECT_EQ(TrainOn(1), 4);
  EXPECT_TRUE(HasMark());
  // The same, where the epoch before was done.
  path_ += "'";
  with_batch(4);
  EXPECT_EQ(TrainOn(1, kFailsAfterEpoch0), 2);
  EXPECT_EQ(TrainOn(3), 2);
  EXPECT_FALSE(HasMark());
  EXPECT_EQ(TrainOn(1), 4);
  EXPECT_TRUE(HasMark());
}

TEST_F(FinishedTest, NeedsAPath) {
  text_ = kJob;
  EXPECT_EQ(TrainOn(2), 4);
  EXPECT_EQ(TrainOn(2), 4);
}

// If no checkpoint can be read, FindFinished returns the error of Restore on
// all ranks.
TEST_F(FinishedTest, CheckpointsThatCanNotBeReadAreTold) {
  EXPECT_EQ(TrainOn(1), 4);
  for (const int64_t step : {2, 4}) {
    std::filesystem::resize_file(
        absl::StrCat(path_, ".", absl::Dec(step, absl::kZeroPad12)), 100);
  }
  for (const absl::Status& status :
       UseSessions({text_, text_}, [](Session& session) {
         absl::Status found = session.FindFinished().status();
         EXPECT_THAT(session.Run([](Session&) { return absl::OkStatus(); }),
                     StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("after an error of FindFinished")));
         return found;
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("to begin anew")));
  }
}

// A checkpoint of another model is refused, and the mark stays. A trainer that
// overlooks it is told why it can't train.
TEST_F(FinishedTest, AnotherModelLeavesTheMark) {
  EXPECT_EQ(TrainOn(1), 4);
  EXPECT_THAT(RunAlone([&](Session& session) -> absl::Status {
                LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                          session.MakeLoader("train"));
                std::vector<float> state = {1};
                LOCKSTEP_RETURN_IF_ERROR(session.AddState("state", &state));
                session.Restore().IgnoreError();
                for (Step& step : session.Steps(*train, 0)) {
                  return step.status();
                }
                return absl::OkStatus();
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("section 'state'")));
  std::vector<float> state = {1};
  EXPECT_FALSE(RunAlone([&](Session& session) -> absl::Status {
                 LOCKSTEP_RETURN_IF_ERROR(session.AddState("state", &state));
                 return session.Restore();
               }).ok());
  EXPECT_TRUE(HasMark());
}

}  // namespace
}  // namespace lockstep
