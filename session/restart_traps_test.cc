// These tests restart trainings whose code between the loops over steps
// matters, and trainings that read several loaders.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RestartTrapsTest : public SessionWithCheckpoints {};

// ---- the code that follows the steps of an epoch.

// A trainer that halves its rate after each epoch.
struct Halving {
  bool saves = false;        // calls Save afterwards
  int64_t fails_after = -1;  // steps
  int bodies = 0;
  std::vector<float> rate = {1};
  std::vector<float> seen = std::vector<float>(10);

  absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 3)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) {
          for (const int64_t index : batch.indices()) seen[index] += 1;
        }
        if (session.steps() == fails_after) return absl::InternalError("fails");
      }
      rate[0] /= 2;
      ++bodies;
      if (saves) LOCKSTEP_RETURN_IF_ERROR(session.Save());
    }
    return absl::OkStatus();
  }
};

TEST_F(RestartTrapsTest, CodeWhoseEffectIsSavedIsNotRepeated) {
  for (const bool saves : {false, true}) {
    for (int64_t fails_after = 0; fails_after < 6; ++fails_after) {
      path_ += "'";
      Halving first, second;
      first.saves = second.saves = saves;
      first.fails_after = fails_after;
      EXPECT_FALSE(RunAlone([&](Session& session) {
                     return first.Train(session);
                   }).ok());
      LOCKSTEP_EXPECT_OK(
          RunAlone([&](Session& session) { return second.Train(session); }));
      EXPECT_EQ(second.rate[0], 1.F / 8) << saves << " " << fails_after;
      EXPECT_THAT(second.seen, Each(3));
    }
  }
}

TEST_F(RestartTrapsTest, CodeIsNotRepeatedAfterTheEnd) {
  for (const bool saves : {false, true}) {
    path_ += "'";
    Halving first, second;
    first.saves = second.saves = saves;
    LOCKSTEP_EXPECT_OK(
        RunAlone([&](Session& session) { return first.Train(session); }));
    LOCKSTEP_EXPECT_OK(
        RunAlone([&](Session& session) { return second.Train(session); }));
    EXPECT_EQ(second.rate[0], 1.F / 8);
    EXPECT_EQ(second.bodies, saves ? 0 : 1);
  }
}

// A hook that saves at the beginning of epochs, when the loop has gone on.
TEST_F(RestartTrapsTest, CodeIsDoneWhenTheLoopGoesOn) {
  AtEvents hook([](Session& session, absl::string_view event) {
    return event == "OnEpochBegin" ? session.Save() : absl::OkStatus();
  });
  SessionOptions options;
  options.hooks = {&hook};
  Halving first, second;
  first.fails_after = 2;
  EXPECT_FALSE(RunAlone([&](Session& session) { return first.Train(session); },
                        "", options)
                   .ok());
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return second.Train(session); }));
  EXPECT_EQ(second.bodies, 2);
  EXPECT_EQ(second.rate[0], 1.F / 8);
}

// Trains with one loader and then with another one.
TEST_F(RestartTrapsTest, CodeIsDoneWhenAnotherLoaderTrains) {
  for (const bool uses_epochs : {true, false}) {
    path_ += "'";
    std::vector<float> rate = {1};
    bool fails = true;
    const auto train = [&](Session& session) -> absl::Status {
      rate[0] = 1;
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
      LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      for (const int64_t epoch : session.Epochs(*train, 1)) {
        for (Step& step : session.Steps(*train, epoch)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
        }
        rate[0] /= 2;
        if (!uses_epochs) break;
      }
      for (Step& step : session.Steps(*more, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        if (fails && step.number() == 1) return absl::InternalError("fails");
      }
      return absl::OkStatus();
    };
    const std::string settings = absl::StrCat("every_steps = 3\n", kMore);
    EXPECT_FALSE(RunAlone(train, settings).ok());
    fails = false;
    LOCKSTEP_EXPECT_OK(RunAlone(train, settings));
    EXPECT_EQ(rate[0], 0.5F);
  }
}

// Code of the body has run, and other code has not.
TEST_F(RestartTrapsTest, AHookSavesNothingInTheMiddleOfABody) {
  int refused = 0;
  AtEvents hook([&](Session& session, absl::string_view event) {
    if (event != "OnEvaluation" && event != "OnEpochEnd") {
      return absl::OkStatus();
    }
    EXPECT_THAT(session.Save(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr(event)));
    ++refused;
    return absl::OkStatus();
  });
  SessionOptions options;
  options.hooks = {&hook};
  LOCKSTEP_EXPECT_OK(RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test,
                                  session.MakeLoader("test"));
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        for (const int64_t epoch : session.Epochs(*train, 1)) {
          for (Step& step : session.Steps(*train, epoch)) {
            LOCKSTEP_RETURN_IF_ERROR(step.status());
          }
          LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
        }
        return absl::OkStatus();
      },
      "", options));
  EXPECT_EQ(refused, 2);
}

TEST_F(RestartTrapsTest, AHookSavesWhatTheOtherHooksDo) {
  std::vector<float> count;
  AtEvents saver([](Session& session, absl::string_view event) {
    return event == "OnStep" ? session.Save() : absl::OkStatus();
  });
  AtEvents counter([&](Session&, absl::string_view event) {
    if (event == "OnStep") count[0] += 1;
    return absl::OkStatus();
  });
  SessionOptions options;
  options.hooks = {&saver, &counter};
  bool fails = true;
  const auto train = [&](Session& session) -> absl::Status {
    count = {0};
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("count", BufferOf(count)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    EXPECT_EQ(session.steps(), fails ? 0 : 1);
    EXPECT_EQ(count[0], session.steps());
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (fails && step.number() == 1) return absl::InternalError("fails");
    }
    return absl::OkStatus();
  };
  EXPECT_FALSE(RunAlone(train, "", options).ok());
  fails = false;
  LOCKSTEP_EXPECT_OK(RunAlone(train, "", options));
}

// In each epoch, the steps of a second loader follow, and the checkpoints of
// these steps contain what the hook has done.
TEST_F(RestartTrapsTest, HooksAreToldOfTheEndOfAnEpochOnce) {
  for (int64_t fails_after = 0; fails_after < 8; ++fails_after) {
    path_ += "'";
    std::vector<float> rate;
    AtEvents hook([&](Session&, absl::string_view event) {
      if (event == "OnEpochEnd") rate[0] /= 2;
      return absl::OkStatus();
    });
    SessionOptions options;
    options.hooks = {&hook};
    bool fails = true;
    const auto train = [&](Session& session) -> absl::Status {
      rate = {1};
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
      LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      for (const int64_t epoch : session.Epochs(*train, 2)) {
        for (Loader* const loader : {train, more}) {
          for (Step& step : session.Steps(*loader, epoch)) {
            LOCKSTEP_RETURN_IF_ERROR(step.status());
            if (fails && session.steps() == fails_after) {
              return absl::InternalError("fails");
            }
          }
        }
      }
      return absl::OkStatus();
    };
    const std::string settings = absl::StrCat("every_steps = 1\n", kMore);
    EXPECT_FALSE(RunAlone(train, settings, options).ok());
    fails = false;
    LOCKSTEP_EXPECT_OK(RunAlone(train, settings, options));
    EXPECT_EQ(rate[0], 1.F / 16) << fails_after;
  }
}

TEST_F(RestartTrapsTest, NoEvaluationFollowsASaveInTheSameEpoch) {
  LOCKSTEP_EXPECT_OK(RunAlone([](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 1)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
      }
      LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
      LOCKSTEP_RETURN_IF_ERROR(session.Save());
      EXPECT_THAT(session.Evaluate(*test, Nothing),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("and now an evaluation follows")));
    }
    return session.Evaluate(*test, Nothing).status();
  }));
}

// The epoch was over after max_steps, and is not with a larger one.
TEST_F(RestartTrapsTest, MoreStepsOfAnEpochThatWasOver) {
  std::vector<float> seen;
  const auto train = [&](Session& session) -> absl::Status {
    seen.assign(10, 0);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 100)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) {
          for (const int64_t index : batch.indices()) seen[index] += 1;
        }
      }
      LOCKSTEP_RETURN_IF_ERROR(session.Save());
    }
    return absl::OkStatus();
  };
  for (const bool advances : {false, true}) {
    path_ += "'";
    for (const int most : {3, 3, 8}) {
      std::string text = Text();
      text.replace(text.find("num_workers"), 0,
                   absl::StrCat("max_steps = ", most, "\nadvance_epochs = ",
                                advances ? "true" : "false", "\n"));
      EXPECT_THAT(RunJobs({text}, train), Each(IsOk()));
    }
    EXPECT_THAT(seen, Each(4)) << advances;
  }
}

// The trainer leaves an epoch, and trains with another loader.
TEST_F(RestartTrapsTest, AnEpochThatWasLeftStaysLeft) {
  std::vector<float> seen;
  int run = 0;
  const auto train = [&](Session& session) -> absl::Status {
    seen.assign(10, 0);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        if (run == 0) break;
        for (const Batch& batch : step) {
          for (const int64_t index : batch.indices()) seen[index] += 1;
        }
      }
      for (Step& step : session.Steps(*more, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) {
          for (const int64_t index : batch.indices()) seen[index] += 1;
        }
        if (run == 0) session.RequestStop();
      }
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
  ++run;
  LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
  EXPECT_THAT(seen, Each(3));  // not with epoch 0 of the first loader
}

TEST_F(RestartTrapsTest, AfterALeftEpochComesTheNext) {
  LOCKSTEP_EXPECT_OK(RunAlone([](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    std::vector<int64_t> epochs;
    for (int loop = 0; loop < 2; ++loop) {
      for (const int64_t epoch : session.Epochs(*train, 3)) {
        epochs.push_back(epoch);
        for (Step& step : session.Steps(*train, epoch)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
          if (loop == 0) break;
        }
        if (loop == 0) break;
      }
    }
    EXPECT_THAT(epochs, ElementsAre(0, 1, 2));
    return absl::OkStatus();
  }));
}

TEST_F(RestartTrapsTest, NoStepsFollowASaveInTheSameEpoch) {
  const absl::Status ended = RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                  session.MakeLoader("more"));
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        for (const int64_t epoch : session.Epochs(*train, 2)) {
          for (Loader* const loader : {train, more}) {
            for (Step& step : session.Steps(*loader, epoch)) {
              LOCKSTEP_RETURN_IF_ERROR(step.status());
            }
            LOCKSTEP_RETURN_IF_ERROR(session.Save());
          }
        }
        return absl::OkStatus();
      },
      kMore);
  EXPECT_THAT(
      ended,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("after the steps of epoch 0 of the loader "
                               "'train'"),
                     HasSubstr("now steps of the loader 'more' follow"))));
}

// A stop ends an epoch in its middle, and the code that follows has run.
TEST_F(RestartTrapsTest, ASaveAfterAStopIsCancelled) {
  Halving first, second;
  first.saves = true;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) {
    session.RequestStop();
    return first.Train(session);
  }));
  EXPECT_EQ(first.bodies, 1);
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return second.Train(session); }));
  EXPECT_EQ(second.rate[0], 1.F / 8);
  EXPECT_THAT(second.seen, Each(3));
}

// The same with a loop of the trainer's own over epochs.
TEST_F(RestartTrapsTest, ASaveAfterAStopIsCancelledInEachLoop) {
  std::vector<float> rate = {1};
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      session.RequestStop();
    }
    rate[0] /= 2;
    absl::Status saved = session.Save();
    EXPECT_THAT(saved, StatusIs(absl::StatusCode::kCancelled));
    return saved;
  }));
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.MakeLoader("train").status());
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    EXPECT_EQ(rate[0], 1);
    return absl::OkStatus();
  }));
}

// ---- a second loader that the trainer reads itself.

TEST_F(RestartTrapsTest, ALoaderThatIsReadInStepsIsSaved) {
  std::vector<float> seen;
  bool stops = true;
  const auto train = [&](Session& session) -> absl::Status {
    seen.assign(10, 0);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    if (session.steps() == 0) LOCKSTEP_RETURN_IF_ERROR(more->StartEpoch(0));
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      Batch batch;
      LOCKSTEP_RETURN_IF_ERROR(more->Next(batch).status());
      for (const int64_t index : batch.indices()) seen[index] += 1;
      if (stops) session.RequestStop();
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
  stops = false;
  LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
  EXPECT_THAT(seen, Each(1));
}

// The loader was restored, and is not read before the next stop.
TEST_F(RestartTrapsTest, ARestoredLoaderStaysInCheckpoints) {
  std::vector<float> seen;
  int run = 0;
  const auto train = [&](Session& session) -> absl::Status {
    seen.assign(10, 0);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    // Run 0 stops in the loop over `more`, and run 1 in one over `train`.
    const std::vector<Loader*> order = run == 0
                                           ? std::vector<Loader*>{more}
                                           : std::vector<Loader*>{train, more};
    for (Loader* const loader : order) {
      for (Step& step : session.Steps(*loader, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) {
          if (loader == train) continue;
          for (const int64_t index : batch.indices()) seen[index] += 1;
        }
        if (run < 2) session.RequestStop();
      }
    }
    return absl::OkStatus();
  };
  for (; run < 3; ++run) LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
  EXPECT_THAT(seen, Each(1));
}

// The trainer evaluates by itself, in a loop over the batches of an epoch.
TEST_F(RestartTrapsTest, ALoopOfTheTrainerBeginsItsEpochAnew) {
  int read = 0;
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        if (session.steps() == 2) session.RequestStop();
      }
      for (absl::StatusOr<Batch>& batch : test->Epoch(0)) {
        LOCKSTEP_RETURN_IF_ERROR(batch.status());
        read += static_cast<int>(batch->valid());
      }
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_EQ(read, 10);
  read = 0;
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_EQ(read, 5);
  EXPECT_THAT(logged_, Contains(HasSubstr("the trainer itself reads the loader "
                                          "'test', which continues in epoch "
                                          "0, counted from 0, with 0 steps")));
}

// Some checkpoints are saved when the trainer has had the last batch of the
// second loader, and before it is told of the end of that epoch.
TEST_F(RestartTrapsTest, ALoaderThatIsReadInStepsContinuesAtAnEnd) {
  std::vector<float> seen;
  int64_t stop_in = 0;
  int run = 0;
  const auto train = [&](Session& session) -> absl::Status {
    seen.assign(10, 0);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more, session.MakeLoader("more"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    if (session.steps() == 0) LOCKSTEP_RETURN_IF_ERROR(more->StartEpoch(0));
    for (const int64_t epoch : session.Epochs(*train, 3)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        Batch batch;
        LOCKSTEP_ASSIGN_OR_RETURN(bool is_batch, more->Next(batch));
        if (!is_batch) {
          LOCKSTEP_RETURN_IF_ERROR(
              more->StartEpoch(more->progress().epoch + 1));
          LOCKSTEP_ASSIGN_OR_RETURN(is_batch, more->Next(batch));
        }
        for (const int64_t index : batch.indices()) seen[index] += 1;
        if (run == 0 && session.steps() == stop_in) session.RequestStop();
      }
    }
    return absl::OkStatus();
  };
  for (; stop_in < 6; ++stop_in) {
    path_ += "'";
    for (run = 0; run < 2; ++run) {
      LOCKSTEP_EXPECT_OK(RunAlone(train, kMore));
    }
    EXPECT_THAT(seen, Each(3)) << stop_in;
  }
}

TEST_F(RestartTrapsTest, ALoaderThatWasMadeTooLateIsTold) {
  const absl::Status ended = RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                  session.MakeLoader("more"));
        LOCKSTEP_RETURN_IF_ERROR(more->StartEpoch(0));
        for (Step& step : session.Steps(*train, 0)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
          Batch batch;
          LOCKSTEP_RETURN_IF_ERROR(more->Next(batch).status());
        }
        return absl::OkStatus();
      },
      kMore);
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("make it before Restore")));
}

// The trainer looks at a batch before it trains, also after a restart.
TEST_F(RestartTrapsTest, ARestoredLoaderThatTheTrainerMovesIsRefused) {
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(0));
    Batch batch;
    LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
    batch.Release();
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      session.RequestStop();
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_THAT(RunAlone(train),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("its place in the checkpoint is lost")));
}

TEST_F(RestartTrapsTest, ALoaderOfEvaluationsIsNotSaved) {
  std::string other = Text();
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch :
         session.Epochs(*train, session.steps() / 2 + 1)) {
      LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
      }
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunJobs({other}, train), Each(IsOk()));
  // The samples of evaluations may be other ones after a restart.
  other.replace(other.find("size = 5"), 8, "size = 7");
  EXPECT_THAT(RunJobs({other}, train), Each(IsOk()));
}

}  // namespace
}  // namespace lockstep
