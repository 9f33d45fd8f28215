// These tests end trainings and continue from their checkpoints.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSamples = 10;
constexpr int64_t kEpochs = 4;
constexpr int64_t kSteps = 2 * kEpochs;  // two in each epoch

using Counting = CountingTrainer;

class SessionCheckpoint : public SessionWithCheckpoints {
 protected:
  // Returns the job's text, with additional settings of [checkpoint].
  std::string Text(absl::string_view more = "") const {
    return absl::StrCat(
        absl::StrReplaceAll(kJob, {{"{name = \"sequential\", global_batch_size "
                                    "= 6, tail = \"uneven\"}",
                                    "{name = \"native_shuffle\", seed = 7, "
                                    "global_batch_size = 6, tail = "
                                    "\"uneven\"}"}}),
        "[checkpoint]\npath = \"", path_, "\"\n", more, "\n");
  }

  // Runs one trainer on each rank.
  std::vector<absl::Status> TrainAll(std::vector<Counting>& ranks,
                                     const std::string& text,
                                     const SessionOptions& options = {}) {
    return RunJobs(
        std::vector<std::string>(ranks.size(), text),
        [&](Session& session) { return ranks[session.rank()].Train(session); },
        options);
  }

  // Verifies a trainer on `size` ranks.
  std::vector<absl::Status> VerifyAll(int size, bool keeps_momentum,
                                      int64_t steps) {
    VerifyOptions options;
    options.steps = steps;
    options.change = [](Job& job) {
      job.loaders["train"].Set("num_workers", 2);
    };
    return UseSessions(
        std::vector<std::string>(size, Text()), [&](Session& session) {
          return VerifyRestart(
              session,
              [&](Session& session) {
                Counting trainer;
                trainer.keeps_momentum = keeps_momentum;
                // The best value follows from the weight, which
                // is told if both differ.
                trainer.in_step = [&](Session& session) {
                  return session
                      .SaveIfBest("best", trainer.weight[0], Best::kHighest)
                      .status();
                };
                return trainer.Train(session);
              },
              options);
        });
  }

  std::string PathOf(int64_t step) const {
    return absl::StrCat(path_, ".", absl::Dec(step, absl::kZeroPad12));
  }
};

// ---- Going on.

TEST_F(SessionCheckpoint, GoesOnWithTheSameBits) {
  std::vector<Counting> undisturbed(2);
  EXPECT_THAT(TrainAll(undisturbed, Text()), Each(IsOk()));
  for (int64_t stop_in = 0; stop_in < kSteps; ++stop_in) {
    path_ += "'";  // a new path
    std::vector<Counting> first(2), second(2);
    first[1].stop_in = stop_in;
    EXPECT_THAT(TrainAll(first, Text()), Each(IsOk()));
    EXPECT_EQ(first[0].ended_at == kSteps, stop_in == kSteps - 1);
    EXPECT_TRUE(Exists(stop_in + 1));
    EXPECT_THAT(TrainAll(second, Text()), Each(IsOk()));
    for (const Counting& rank : second) {
      EXPECT_EQ(rank.began_at, stop_in + 1);
      EXPECT_EQ(rank.ended_at, kSteps);
      EXPECT_THAT(rank.seen, Each(kEpochs));
      EXPECT_EQ(rank.weight, undisturbed[0].weight);
      EXPECT_EQ(rank.momentum, undisturbed[0].momentum);
    }
  }
}

// A trainer repeats the code that follows the steps of an epoch.
TEST_F(SessionCheckpoint, EvaluatesTheEpochAtWhoseEndItGoesOn) {
  std::vector<Counting> first(2), second(2);
  for (Counting& rank : first) {
    rank.in_step = [](Session& session) {
      return session.steps() < 4 ? absl::OkStatus()
                                 : absl::InternalError("the end");
    };
  }
  EXPECT_THAT(TrainAll(first, Text()), Each(Not(IsOk())));
  EXPECT_EQ(first[0].evaluations, 2);
  EXPECT_THAT(TrainAll(second, Text()), Each(IsOk()));
  EXPECT_EQ(second[0].began_at, 4);
  EXPECT_EQ(second[0].evaluations, 3);  // in epochs 1 to 3
  // A training that has ended repeats only that code.
  std::vector<Counting> third(2);
  EXPECT_THAT(TrainAll(third, Text()), Each(IsOk()));
  EXPECT_EQ(third[0].began_at, kSteps);
  EXPECT_EQ(third[0].evaluations, 1);
}

// An earlier release has saved these checkpoints, at the end of an epoch and in
// the middle of one.
TEST_F(SessionCheckpoint, GoesOnFromTheCheckpointsOfAnEarlierRelease) {
  std::vector<Counting> undisturbed(2);
  EXPECT_THAT(TrainAll(undisturbed, Text()), Each(IsOk()));
  for (const int64_t step : {4, 5}) {
    path_ += "'";
    const std::string name = absl::StrCat("testdata/checkpoint/model.",
                                          absl::Dec(step, absl::kZeroPad12));
    std::filesystem::copy_file(name, PathOf(step));
    std::vector<Counting> ranks(2);
    EXPECT_THAT(TrainAll(ranks, Text()), Each(IsOk()));
    EXPECT_EQ(ranks[0].began_at, step);
    EXPECT_EQ(ranks[0].evaluations, step == 4 ? 3 : 2);
    EXPECT_THAT(ranks[0].seen, Each(kEpochs));
    EXPECT_EQ(ranks[0].weight, undisturbed[0].weight);
    EXPECT_EQ(ranks[0].momentum, undisturbed[0].momentum);
  }
}

// These checkpoints do not say how many steps the loader has done.
TEST_F(SessionCheckpoint, CountsTheStepsOfAnEarlierRelease) {
  std::filesystem::copy_file("testdata/checkpoint/model.000000000005",
                             PathOf(5));
  Counting trainer;
  EXPECT_THAT(RunJobs({Text()},
                      [&](Session& session) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                                  session.MakeLoader("train"));
                        LOCKSTEP_ASSIGN_OR_RETURN(
                            Gradients* const gradients,
                            session.MakeGradients(
                                {{"seen", BufferOf(trainer.seen),
                                  BufferOf(trainer.seen_gradient)},
                                 {"weight", BufferOf(trainer.weight),
                                  BufferOf(trainer.weight_gradient)}}));
                        LOCKSTEP_RETURN_IF_ERROR(session.AddState(
                            "momentum", BufferOf(trainer.momentum)));
                        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                        StepsOptions by_steps;
                        by_steps.max_steps = 7;
                        for (Step& step : session.Steps(*train, by_steps)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
                        }
                        EXPECT_EQ(session.steps(), 7);
                        return absl::OkStatus();
                      }),
              Each(IsOk()));
}

TEST_F(SessionCheckpoint, SavesWhenItIsDue) {
  std::vector<Counting> ranks(2);
  EXPECT_THAT(TrainAll(ranks, Text("every_steps = 3\nkeep = 100")),
              Each(IsOk()));
  for (int64_t step = 0; step <= kSteps; ++step) {
    EXPECT_EQ(Exists(step), step == 3 || (step > 0 && step % 2 == 0)) << step;
  }
  path_ += "'";
  std::vector<Counting> others(2);
  EXPECT_THAT(TrainAll(others, Text("background = false")), Each(IsOk()));
  for (int64_t step = 0; step <= kSteps; ++step) {
    EXPECT_EQ(Exists(step), step > 2 && step % 2 == 0) << step;  // the last 3
  }
}

TEST_F(SessionCheckpoint, SavesWhenTheTrainerWantsIt) {
  const auto ended = RunJobs({Text()}, [](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    return session.Save();
  });
  EXPECT_THAT(ended, Each(IsOk()));
  EXPECT_TRUE(Exists(0));
}

TEST_F(SessionCheckpoint, KeepsSeveralModels) {
  for (int run = 0; run < 2; ++run) {
    std::vector<float> a = {0}, b = {0};
    const auto ended = RunJobs({Text()}, [&](Session& session) -> absl::Status {
      for (std::vector<float>* const values : {&a, &b}) {
        LOCKSTEP_RETURN_IF_ERROR(
            session.MakeGradients({{"weight", BufferOf(*values)}}).status());
      }
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      EXPECT_EQ(a[0], run * 1);
      EXPECT_EQ(b[0], run * 2);
      a[0] = 1;
      b[0] = 2;
      return session.Save();
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

TEST_F(SessionCheckpoint, KeepsTheLossScale) {
  for (const bool has_scale : {false, true, true}) {
    std::vector<float> a = {0};
    const auto ended = RunJobs({Text()}, [&](Session& session) -> absl::Status {
      GradientsOptions options;
      if (has_scale) options.loss_scale = LossScale();
      LOCKSTEP_ASSIGN_OR_RETURN(
          Gradients* const gradients,
          session.MakeGradients({{"weight", BufferOf(a)}}, options));
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      if (a[0] == 2) {
        EXPECT_EQ(gradients->loss_scale_state().scale, 48);
        EXPECT_EQ(gradients->loss_scale_state().good_steps, 7);
      }
      // The job has begun without a scale.
      EXPECT_TRUE(a[0] != 1 || gradients->loss_scale() == 65536);
      ++a[0];
      if (has_scale) {
        LOCKSTEP_RETURN_IF_ERROR(gradients->RestoreLossScale({48, 7}));
      }
      return session.Save();
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

// ---- Hooks.

TEST_F(SessionCheckpoint, CallsHooks) {
  std::vector<std::string> events;
  std::string fails;
  AtEvents hook([&](Session& session, absl::string_view event) {
    if (event == "OnStart" || event == "OnEpochBegin" ||
        event == "OnEvaluation" || event == "OnFailure" ||
        event == "OnShutdown") {
      return absl::OkStatus();
    }
    events.push_back(absl::StrCat(event, session.steps()));
    return events.back() == fails ? absl::InternalError("no more")
                                  : absl::OkStatus();
  });
  std::vector<Counting> first(1), second(1);
  first[0].stop_in = 3;
  EXPECT_THAT(TrainAll(first, Text("every_steps = 3"), WithHooks({&hook})),
              Each(IsOk()));
  EXPECT_THAT(events, ElementsAre("OnStep1", "OnStep2", "OnCheckpointSave2",
                                  "OnEpochEnd2", "OnStep3", "OnCheckpointSave3",
                                  "OnStep4", "OnCheckpointSave4"));
  events.clear();
  fails = "OnCheckpointSave6";
  EXPECT_THAT(TrainAll(second, Text("every_steps = 3"), WithHooks({&hook})),
              Each(StatusIs(absl::StatusCode::kInternal,
                            HasSubstr("'checkpoint save': no more"))));
  EXPECT_THAT(events, ElementsAre("OnCheckpointLoad4", "OnEpochEnd4", "OnStep5",
                                  "OnStep6", "OnCheckpointSave6"));
  EXPECT_FALSE(Exists(6));
}

// ---- How trainers are written.

TEST_F(SessionCheckpoint, SavesAtTheEndOfTheStepInWhichItIsTold) {
  std::vector<Counting> first(2), second(2);
  for (Counting& rank : first) {
    rank.in_step = [](Session& session) -> absl::Status {
      if (session.steps() == 4) return absl::InternalError("the end");
      return session.steps() == 2 ? session.Save() : absl::OkStatus();
    };
  }
  EXPECT_THAT(TrainAll(first, Text("keep = 100")), Each(Not(IsOk())));
  EXPECT_TRUE(Exists(3));
  EXPECT_EQ(unlink(PathOf(4).c_str()), 0);
  EXPECT_THAT(TrainAll(second, Text()), Each(IsOk()));
  EXPECT_EQ(second[0].began_at, 3);
  EXPECT_EQ(second[0].ended_at, kSteps);
  EXPECT_THAT(second[0].seen, Each(kEpochs));
}

TEST_F(SessionCheckpoint, GoesOnWithTwoLoadersOrAllEpochsInOne) {
  for (const bool is_one : {false, true}) {
    SessionOptions stops;
    for (const int64_t steps = is_one ? 8 : 12; stops.stop_after < steps;) {
      ++stops.stop_after;
      path_ += "'";
      const std::string text = absl::StrReplaceAll(
          absl::StrCat(kMore, Text()),
          {{"[loader.train]\n",
            is_one ? "[loader.train]\nadvance_epochs = true\nmax_steps = 8\n"
                   : "[loader.train]\n"}});
      for (const SessionOptions& options : {stops, SessionOptions()}) {
        ScriptedTrainer trainer;
        if (!is_one) trainer.loaders.push_back("more");
        trainer.trains = trainer.loaders.size();
        trainer.epochs = is_one ? 1 : 3;
        EXPECT_THAT(
            RunJobs(
                {text},
                [&](Session& session) { return trainer.Train(session); },
                options),
            Each(IsOk()));
        if (options.stop_after > 0) continue;
        EXPECT_THAT(trainer.seen, Each(is_one ? 4 : 2 * 3)) << stops.stop_after;
      }
    }
  }
}

TEST_F(SessionCheckpoint, RefusesEpochsThatItHasHad) {
  ScriptedTrainer first, second;
  SessionOptions options;
  options.stop_after = 4;
  LOCKSTEP_EXPECT_OK(RunJobs(
      {Text()}, [&](Session& session) { return first.Train(session); },
      options)[0]);
  EXPECT_THAT(
      RunJobs({Text()},
              [&](Session& session) -> absl::Status {
                LOCKSTEP_RETURN_IF_ERROR(second.Begin(session));
                return second.Read(session, 0, 0);
              }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("the checkpoint is in epoch 1"),
                          HasSubstr("take epochs from session.Epochs")))));
}

TEST_F(SessionCheckpoint, EvaluatesAfterTheLastOfMaxSteps) {
  const std::string text = absl::StrReplaceAll(
      Text(), {{"[loader.train]\n", "[loader.train]\nmax_steps = 4\n"}});
  std::vector<Counting> first(1), second(1);
  first[0].stop_in = 3;
  EXPECT_THAT(TrainAll(first, text), Each(IsOk()));
  EXPECT_EQ(first[0].evaluations, 1);
  EXPECT_THAT(TrainAll(second, text), Each(IsOk()));
  EXPECT_EQ(second[0].evaluations, 1);
}

TEST_F(SessionCheckpoint, SaysThatNoEpochIsLeft) {
  std::vector<Counting> first(1), second(1);
  EXPECT_THAT(TrainAll(first, Text()), Each(IsOk()));
  second[0].epochs = 2;
  EXPECT_THAT(TrainAll(second, Text()), Each(IsOk()));
  EXPECT_THAT(logged_, Contains(HasSubstr("no epoch is left: the checkpoint is "
                                          "in epoch 3, counted from 0, and the "
                                          "trainer wants 2")));
}

TEST_F(SessionCheckpoint, SaysThatATrainerLeftTheLastStep) {
  const auto ended = RunJobs({Text()}, [&](Session& session) -> absl::Status {
    Loader* const train = *session.MakeLoader("train");
    Gradients* const none = *session.MakeGradients({});
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, 0)) {
      session.RequestStop();
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
      if (session.stopping()) break;
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("there is no checkpoint"),
                                         HasSubstr("let the loop end by "
                                                   "itself")))));
  EXPECT_FALSE(Exists(1));
}

// ---- What is refused.

TEST_F(SessionCheckpoint, NeedsThePlaceOfTheLoader) {
  const auto ended = RunJobs({Text()}, [](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    Loader* const train = *session.MakeLoader("train");
    return ReadSteps(session, *train, 0);
  });
  EXPECT_THAT(
      ended[0],
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("session.MakeLoader, before session.Restore")));
}

TEST_F(SessionCheckpoint, NeedsBatchesInOrder) {
  const std::string text = absl::StrReplaceAll(
      Text(),
      {{"[loader.train]\n", "[loader.train]\ndelivery = \"as_ready\"\n"}});
  std::vector<Counting> ranks(1);
  EXPECT_THAT(TrainAll(ranks, text),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("delivery = \"in_order\""),
                                  HasSubstr("in loader.train")))));
}

TEST_F(SessionCheckpoint, RefusesAnotherJob) {
  std::vector<Counting> first(2);
  first[1].stop_in = 2;
  EXPECT_THAT(TrainAll(first, Text()), Each(IsOk()));

  std::vector<Counting> others(2);
  EXPECT_THAT(
      TrainAll(others, absl::StrReplaceAll(Text(), {{"seed = 7", "seed = 8"}})),
      Each(StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("section 'loader/train' of the checkpoint "),
                HasSubstr("loader.train.sampler.seed was 7, and is 8")))));

  Counting larger;
  larger.seen.resize(kSamples + 1);
  larger.seen_gradient.resize(kSamples + 1);
  others = {larger, larger};
  EXPECT_THAT(TrainAll(others, Text()),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("section 'parameters/seen'"),
                                  HasSubstr("has 10 elements of f32")))));

  others = std::vector<Counting>(2);
  for (Counting& rank : others) rank.keeps_momentum = false;
  EXPECT_THAT(TrainAll(others, Text()),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("section 'momentum'"))));
  EXPECT_TRUE(Exists(3));

  // A changed setting that may differ is reported, and the training continues.
  others = std::vector<Counting>(2);
  EXPECT_THAT(
      TrainAll(others, absl::StrCat(Text(), "[group]\ndeadline = \"5m\"\n")),
      Each(IsOk()));
  EXPECT_THAT(logged_,
              Contains(HasSubstr("group.deadline was not set, and is")));
}

// While it lives, no file can become longer than `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SmallFiles() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }

  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_;
};

// The checkpoint at the end of an epoch fails while it is being written.
TEST_F(SessionCheckpoint, EndsAfterTheNextStepWhereTheDiskIsFull) {
  for (const int64_t full_in : {3, 7}) {
    path_ += "'";
    std::unique_ptr<SmallFiles> limit;
    std::vector<Counting> ranks(2);
    for (Counting& rank : ranks) {
      rank.in_step = [&](Session& session) {
        if (session.steps() < full_in) return absl::OkStatus();
        // The step after the failed one has no batches.
        EXPECT_LE(session.steps(), full_in + 2);
        EXPECT_EQ(session.AwaitSaved().ok(), session.steps() == full_in);
        if (session.rank() == 0 && session.steps() == full_in) {
          limit = std::make_unique<SmallFiles>(100);
        }
        return absl::OkStatus();
      };
    }
    const auto ended = TrainAll(ranks, Text());
    limit = nullptr;
    for (const absl::Status& status : ended) {
      EXPECT_THAT(status.message(), HasSubstr("can't write"));
    }
    EXPECT_FALSE(Exists(full_in + 1));
    // The checkpoint before that one is there, and complete.
    std::vector<Counting> next(2);
    EXPECT_THAT(TrainAll(next, Text()), Each(IsOk()));
    EXPECT_EQ(next[0].began_at, full_in - 1);
    EXPECT_THAT(next[0].seen, Each(kEpochs));
  }
}

// ---- Verify.

TEST_F(SessionCheckpoint, VerifiesThatATrainingGoesOnExactly) {
  for (const bool keeps_momentum : {true, false}) {
    const auto ended = VerifyAll(2, keeps_momentum, /*steps=*/3);
    if (keeps_momentum) {
      EXPECT_THAT(ended, Each(IsOk()));
    } else {
      EXPECT_THAT(ended[0],
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("after 6 steps the two differ in "
                                     "parameters/weight, from "
                                     "element 0 on: ")));
      EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kAborted,
                                     HasSubstr("parameters/weight")));
    }
  }
}

TEST_F(SessionCheckpoint, TellsThatAStopSavedNothing) {
  AtEvents hook([](Session& session, absl::string_view event) {
    return event == "OnCheckpointSave" && session.stopping()
               ? absl::CancelledError("no")
               : absl::OkStatus();
  });
  std::vector<Counting> ranks(2);
  ranks[1].stop_in = 2;
  EXPECT_THAT(TrainAll(ranks, Text(), WithHooks({&hook})),
              Each(StatusIs(absl::StatusCode::kCancelled)));
}

// A verification that is asked to stop leaves nothing in the folder of
// temporary files.
TEST_F(SessionCheckpoint, VerificationsStop) {
  const std::string folder = std::filesystem::path(path_).parent_path() / "tmp";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(setenv("TMPDIR", folder.c_str(), 1), 0);
  VerifyOptions options;
  options.steps = 3;
  const auto ended =
      UseSessions(std::vector<std::string>(2, Text()), [&](Session& whole) {
        return VerifyRestart(
            whole,
            [&](Session& session) {
              Counting trainer;
              trainer.in_step = [&](Session& session) {
                if (session.steps() == 1 && session.rank() == 1) {
                  whole.RequestStop();
                }
                return absl::OkStatus();
              };
              return trainer.Train(session);
            },
            options);
      });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kCancelled,
                                   HasSubstr("has stopped after 2 steps"))));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  ASSERT_EQ(unsetenv("TMPDIR"), 0);
}

TEST_F(SessionCheckpoint, VerifiesNoTrainingWithoutState) {
  VerifyOptions options;
  options.steps = 2;
  const auto ended = UseSessions({Text()}, [&](Session& session) {
    return VerifyRestart(
        session,
        [](Session& session) -> absl::Status {
          Loader* const train = *session.MakeLoader("train");
          LOCKSTEP_RETURN_IF_ERROR(session.Restore());
          for (const int64_t epoch : session.Epochs(*train, kEpochs)) {
            LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, epoch));
          }
          return absl::OkStatus();
        },
        options);
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("there is nothing to verify"))));
}

TEST_F(SessionCheckpoint, VerifiesNoMoreStepsThanThereAre) {
  EXPECT_THAT(VerifyAll(1, true, /*steps=*/kSteps)[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ended after 8 steps, before the 16")));
  EXPECT_THAT(VerifyAll(1, true, /*steps=*/0)[0],
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
