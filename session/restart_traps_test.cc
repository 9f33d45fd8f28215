// These tests restart trainings whose code between the loops over steps
// matters, and trainings that read several loaders.
#include <cstddef>
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
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
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

using Trainer = ScriptedTrainer;

// Both loaders are read in each epoch.
Trainer TrainerOfTwo() {
  Trainer trainer;
  trainer.loaders = {"train", "more"};
  trainer.trains = 2;
  return trainer;
}

class RestartTrapsTest : public SessionWithCheckpoints {
 protected:
  absl::Status Run(Trainer& trainer, absl::string_view more = "",
                   SessionHooks* hook = nullptr) {
    SessionOptions options;
    if (hook != nullptr) options.hooks = {hook};
    return RunAlone([&](Session& session) { return trainer.Train(session); },
                    more, options);
  }
};

// ---- the code that follows the steps of an epoch.

TEST_F(RestartTrapsTest, CodeWhoseEffectIsSavedIsNotRepeated) {
  for (const bool saves : {false, true}) {
    for (int64_t fails_after = -1; fails_after < 6; ++fails_after) {
      path_ += "'";
      Trainer first, second;
      first.saves = second.saves = saves;
      first.fails_after = fails_after;
      EXPECT_EQ(Run(first).ok(), fails_after < 0);
      LOCKSTEP_EXPECT_OK(Run(second));
      EXPECT_EQ(second.rate[0], 1.F / 8) << saves << " " << fails_after;
      EXPECT_THAT(second.seen, Each(3));
      if (fails_after < 0) {
        EXPECT_EQ(second.bodies, saves ? 0 : 1);
      }
    }
  }
}

// A hook that saves at the beginning of epochs, when the loop has gone on.
TEST_F(RestartTrapsTest, CodeIsDoneWhenTheLoopGoesOn) {
  AtEvents hook([](Session& session, absl::string_view event) {
    return event == "OnEpochBegin" ? session.Save() : absl::OkStatus();
  });
  Trainer first, second;
  first.fails_after = 2;
  EXPECT_FALSE(Run(first, "", &hook).ok());
  LOCKSTEP_EXPECT_OK(Run(second));
  EXPECT_EQ(second.bodies, 2);
  EXPECT_EQ(second.rate[0], 1.F / 8);
}

// Trains with one loader and then with another one.
TEST_F(RestartTrapsTest, CodeIsDoneWhenAnotherLoaderTrains) {
  for (const bool uses_epochs : {true, false}) {
    path_ += "'";
    for (const bool fails : {true, false}) {
      Trainer trainer = TrainerOfTwo();
      const auto train = [&](Session& session) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
        for (const int64_t epoch : session.Epochs(*trainer.made[0], 1)) {
          LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, 0, epoch));
          trainer.rate[0] /= 2;
          if (!uses_epochs) break;
        }
        if (fails) trainer.fails_after = 3;
        return trainer.Read(session, 1, 0);
      };
      EXPECT_EQ(RunAlone(train, absl::StrCat("every_steps = 3\n", kMore)).ok(),
                !fails);
      EXPECT_EQ(trainer.rate[0], 0.5F);
    }
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
  Trainer trainer;
  trainer.loaders = {"train", "test"};
  trainer.epochs = 1;
  trainer.after_steps = [&](Session& session) {
    return session.Evaluate(*trainer.made[1], Nothing).status();
  };
  LOCKSTEP_EXPECT_OK(Run(trainer, "", &hook));
  EXPECT_EQ(refused, 2);
}

TEST_F(RestartTrapsTest, AHookSavesWhatTheOtherHooksDo) {
  Trainer* trainer = nullptr;
  AtEvents saver([](Session& session, absl::string_view event) {
    return event == "OnStep" ? session.Save() : absl::OkStatus();
  });
  AtEvents counter([&](Session&, absl::string_view event) {
    if (event == "OnStep") trainer->rate[0] += 1;
    return absl::OkStatus();
  });
  for (const bool fails : {true, false}) {
    Trainer own;
    trainer = &own;
    own.fails_after = fails ? 1 : -1;
    EXPECT_EQ(RunAlone(
                  [&](Session& session) -> absl::Status {
                    LOCKSTEP_RETURN_IF_ERROR(own.Begin(session));
                    EXPECT_EQ(session.steps(), fails ? 0 : 1);
                    EXPECT_EQ(own.rate[0], 1 + session.steps());
                    return own.Read(session, 0, 0);
                  },
                  "", WithHooks({&saver, &counter}))
                  .ok(),
              !fails);
  }
}

// In each epoch, the steps of a second loader follow, and the checkpoints of
// these steps contain what the hook has done.
TEST_F(RestartTrapsTest, HooksAreToldOfTheEndOfAnEpochOnce) {
  for (int64_t fails_after = 0; fails_after < 8; ++fails_after) {
    path_ += "'";
    for (const bool fails : {true, false}) {
      Trainer trainer = TrainerOfTwo();
      trainer.epochs = 2;
      trainer.factor = 1;
      if (fails) trainer.fails_after = fails_after;
      AtEvents hook([&](Session&, absl::string_view event) {
        if (event == "OnEpochEnd") trainer.rate[0] /= 2;
        return absl::OkStatus();
      });
      EXPECT_EQ(
          Run(trainer, absl::StrCat("every_steps = 1\n", kMore), &hook).ok(),
          !fails);
      if (!fails) {
        EXPECT_EQ(trainer.rate[0], 1.F / 16) << fails_after;
      }
    }
  }
}

TEST_F(RestartTrapsTest, NoEvaluationFollowsASaveInTheSameEpoch) {
  Trainer trainer;
  trainer.loaders = {"train", "test"};
  trainer.epochs = 1;
  trainer.after_steps = [&](Session& session) -> absl::Status {
    Loader& test = *trainer.made[1];
    LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(test, Nothing).status());
    LOCKSTEP_RETURN_IF_ERROR(session.Save());
    EXPECT_THAT(session.Evaluate(test, Nothing),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("and now an evaluation follows")));
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(trainer.Train(session));
    return session.Evaluate(*trainer.made[1], Nothing).status();
  }));
}

// The epoch was over after max_steps, and is not with a larger one.
TEST_F(RestartTrapsTest, MoreStepsOfAnEpochThatWasOver) {
  for (const bool advances : {false, true}) {
    path_ += "'";
    for (const int most : {3, 3, 8}) {
      std::string text = Text();
      text.replace(text.find("num_workers"), 0,
                   absl::StrCat("max_steps = ", most, "\nadvance_epochs = ",
                                advances ? "true" : "false", "\n"));
      Trainer trainer;
      trainer.epochs = 100;
      trainer.saves = true;
      EXPECT_THAT(
          RunJobs({text},
                  [&](Session& session) { return trainer.Train(session); }),
          Each(IsOk()));
      if (most == 8) {
        EXPECT_THAT(trainer.seen, Each(4)) << advances;
      }
    }
  }
}

// The trainer leaves an epoch, and trains with another loader.
TEST_F(RestartTrapsTest, AnEpochThatWasLeftStaysLeft) {
  for (const bool leaves : {true, false}) {
    Trainer trainer = TrainerOfTwo();
    trainer.stops = leaves;
    LOCKSTEP_EXPECT_OK(RunAlone(
        [&](Session& session) -> absl::Status {
          LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
          for (const int64_t epoch : session.Epochs(*trainer.made[0], 2)) {
            if (leaves) {
              for (Step& step : session.Steps(*trainer.made[0], epoch)) {
                LOCKSTEP_RETURN_IF_ERROR(step.status());
                break;
              }
            } else {
              LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, 0, epoch));
            }
            LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, 1, epoch));
          }
          return absl::OkStatus();
        },
        kMore));
    // Without epoch 0 of the first loader.
    if (!leaves) {
      EXPECT_THAT(trainer.seen, Each(3));
    }
  }
}

TEST_F(RestartTrapsTest, AfterALeftEpochComesTheNext) {
  Trainer trainer;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
    std::vector<int64_t> epochs;
    for (int loop = 0; loop < 2; ++loop) {
      for (const int64_t epoch : session.Epochs(*trainer.made[0], 3)) {
        epochs.push_back(epoch);
        for (Step& step : session.Steps(*trainer.made[0], epoch)) {
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
  Trainer trainer = TrainerOfTwo();
  EXPECT_THAT(
      RunAlone(
          [&](Session& session) -> absl::Status {
            LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
            for (const int64_t epoch : session.Epochs(*trainer.made[0], 2)) {
              for (const size_t which : {0, 1}) {
                LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, which, epoch));
                LOCKSTEP_RETURN_IF_ERROR(session.Save());
              }
            }
            return absl::OkStatus();
          },
          kMore),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("after the steps of epoch 0 of the loader "
                               "'train'"),
                     HasSubstr("now steps of the loader 'more' follow"))));
}

// A stop ends an epoch in its middle, and the code that follows has run.
TEST_F(RestartTrapsTest, ASaveAfterAStopIsCancelled) {
  Trainer first, second;
  first.saves = true;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) {
    session.RequestStop();
    return first.Train(session);
  }));
  EXPECT_EQ(first.bodies, 1);
  LOCKSTEP_EXPECT_OK(Run(second));
  EXPECT_EQ(second.rate[0], 1.F / 8);
  EXPECT_THAT(second.seen, Each(3));
}

// The same with a loop of the trainer's own over epochs.
TEST_F(RestartTrapsTest, ASaveAfterAStopIsCancelledInEachLoop) {
  Trainer first, second;
  first.stops = true;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(first.Begin(session));
    LOCKSTEP_RETURN_IF_ERROR(first.Read(session, 0, 0));
    first.rate[0] /= 2;
    absl::Status saved = session.Save();
    EXPECT_THAT(saved, StatusIs(absl::StatusCode::kCancelled));
    return saved;
  }));
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return second.Begin(session); }));
  EXPECT_EQ(second.rate[0], 1);
}

// ---- a second loader that the trainer reads itself.

// The loader was restored, and is not read before the next stop.
TEST_F(RestartTrapsTest, ARestoredLoaderStaysInCheckpoints) {
  for (int run = 0; run < 3; ++run) {
    Trainer trainer = TrainerOfTwo();
    trainer.stops = run < 2;
    LOCKSTEP_EXPECT_OK(RunAlone(
        [&](Session& session) -> absl::Status {
          LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
          // Run 0 stops in the steps of `more`, and run 1 in those of `train`.
          if (run > 0) LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, 0, 0));
          return trainer.Read(session, 1, 0);
        },
        kMore));
    if (run == 2) {
      EXPECT_THAT(trainer.seen, Each(2));
    }
  }
}

// The trainer evaluates by itself, in a loop over the batches of an epoch.
TEST_F(RestartTrapsTest, ALoopOfTheTrainerBeginsItsEpochAnew) {
  for (const bool restarted : {false, true}) {
    int read = 0;
    Trainer trainer;
    trainer.loaders = {"train", "test"};
    trainer.epochs = 2;
    trainer.in_step = [](Session& session, Step&) {
      if (session.steps() == 2) session.RequestStop();
      return absl::OkStatus();
    };
    trainer.after_steps = [&](Session&) -> absl::Status {
      for (absl::StatusOr<Batch>& batch : trainer.made[1]->Epoch(0)) {
        LOCKSTEP_RETURN_IF_ERROR(batch.status());
        read += static_cast<int>(batch->valid());
      }
      return absl::OkStatus();
    };
    LOCKSTEP_EXPECT_OK(Run(trainer));
    EXPECT_EQ(read, restarted ? 5 : 10);
  }
  EXPECT_THAT(logged_, Contains(HasSubstr("the trainer itself reads the loader "
                                          "'test', which continues in epoch "
                                          "0, counted from 0, with 0 steps")));
}

// Some checkpoints are saved when the trainer has had the last batch of the
// second loader, and before it is told of the end of that epoch.
TEST_F(RestartTrapsTest, ALoaderThatIsReadInStepsContinuesAtAnEnd) {
  for (int64_t stop_in = 0; stop_in < 6; ++stop_in) {
    path_ += "'";
    for (const bool restarted : {false, true}) {
      Trainer trainer = TrainerOfTwo();
      trainer.trains = 1;
      trainer.in_step = [&](Session& session, Step&) -> absl::Status {
        Loader& more = *trainer.made[1];
        if (session.steps() == 0) LOCKSTEP_RETURN_IF_ERROR(more.StartEpoch(0));
        Batch batch;
        LOCKSTEP_ASSIGN_OR_RETURN(bool is_batch, more.Next(batch));
        if (!is_batch) {
          LOCKSTEP_RETURN_IF_ERROR(more.StartEpoch(more.progress().epoch + 1));
          LOCKSTEP_ASSIGN_OR_RETURN(is_batch, more.Next(batch));
        }
        trainer.Count(batch);
        if (!restarted && session.steps() == stop_in) session.RequestStop();
        return absl::OkStatus();
      };
      LOCKSTEP_EXPECT_OK(Run(trainer, kMore));
      if (restarted) {
        EXPECT_THAT(trainer.seen, Each(2 * 3)) << stop_in;
      }
    }
  }
}

TEST_F(RestartTrapsTest, ALoaderThatWasMadeTooLateIsTold) {
  Trainer trainer;
  Loader* more = nullptr;
  trainer.in_step = [&](Session&, Step&) {
    Batch batch;
    return more->Next(batch).status();
  };
  EXPECT_THAT(RunAlone(
                  [&](Session& session) -> absl::Status {
                    LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
                    LOCKSTEP_ASSIGN_OR_RETURN(more, session.MakeLoader("more"));
                    LOCKSTEP_RETURN_IF_ERROR(more->StartEpoch(0));
                    return trainer.Read(session, 0, 0);
                  },
                  kMore),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("make it before Restore")));
}

// The trainer looks at a batch before it trains, also after a restart.
TEST_F(RestartTrapsTest, ARestoredLoaderThatTheTrainerMovesIsRefused) {
  const auto train = [&](Session& session) -> absl::Status {
    Trainer trainer;
    trainer.stops = true;
    LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
    LOCKSTEP_RETURN_IF_ERROR(trainer.made[0]->StartEpoch(0));
    Batch batch;
    LOCKSTEP_RETURN_IF_ERROR(trainer.made[0]->Next(batch).status());
    batch.Release();
    return trainer.Read(session, 0, 0);
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_THAT(RunAlone(train),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("its place in the checkpoint is lost")));
}

TEST_F(RestartTrapsTest, ALoaderOfEvaluationsIsNotSaved) {
  const auto train = [&](Session& session) -> absl::Status {
    Trainer trainer;
    trainer.loaders = {"train", "test"};
    LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
    for (const int64_t epoch :
         session.Epochs(*trainer.made[0], session.steps() / 2 + 1)) {
      LOCKSTEP_RETURN_IF_ERROR(
          session.Evaluate(*trainer.made[1], Nothing).status());
      LOCKSTEP_RETURN_IF_ERROR(trainer.Read(session, 0, epoch));
    }
    return absl::OkStatus();
  };
  std::string text = Text();
  EXPECT_THAT(RunJobs({text}, train), Each(IsOk()));
  // The samples of evaluations may be other ones after a restart.
  text.replace(text.find("size = 5"), 8, "size = 7");
  EXPECT_THAT(RunJobs({text}, train), Each(IsOk()));
}

}  // namespace
}  // namespace lockstep
