// These tests write trainers that make mistakes, or that do something unusual.
// Each of them would lose or repeat work in silence if the session did not
// refuse it or take care of it.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TrapsTest : public SessionWithCheckpoints {};

// ---- the end of the training.

// ---- an evaluation in a step in which a stop was agreed.

TEST_F(TrapsTest, AnEvaluationInTheLastStepDoesNotKeepItFromBeingSaved) {
  int64_t began_at = -1;
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none, session.MakeGradients({}));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    began_at = session.steps();
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        if (session.steps() == 2 && began_at == 0) session.RequestStop();
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
        LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
      }
      const absl::Status tested = session.Evaluate(*test, Nothing).status();
      EXPECT_EQ(absl::IsCancelled(tested), session.stopping());
      LOCKSTEP_RETURN_IF_ERROR(tested);
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_TRUE(Exists(3));
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_EQ(began_at, 3);
}

TEST_F(TrapsTest, AHookEvaluatesAfterTheLastStep) {
  Loader* test = nullptr;
  AtEvents hook([&](Session& session, absl::string_view event) {
    return event == "OnStep" ? session.Evaluate(*test, Nothing).status()
                             : absl::OkStatus();
  });
  LOCKSTEP_EXPECT_OK(RunAlone(
      [&](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_ASSIGN_OR_RETURN(test, session.MakeLoader("test"));
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        for (Step& step : session.Steps(*train, 0)) {
          session.RequestStop();
          LOCKSTEP_RETURN_IF_ERROR(step.status());
        }
        return absl::OkStatus();
      },
      "", WithHooks({&hook})));
  EXPECT_TRUE(Exists(1));
}

// ---- an evaluation of the loader that trains.

TEST_F(TrapsTest, AnEvaluationDoesNotMoveTheLoaderThatTrains) {
  ScriptedTrainer trainer;
  const auto is_refused = [&](Session& session) {
    EXPECT_THAT(
        session.Evaluate(*trainer.made[0], Nothing),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("destroy the place of the loader 'train'"),
                       HasSubstr("[loader.NAME]"))));
    return absl::OkStatus();
  };
  trainer.in_step = [&](Session& session, Step&) {
    return is_refused(session);
  };
  trainer.after_steps = is_refused;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(trainer.Begin(session));
    // It has not been read yet.
    LOCKSTEP_RETURN_IF_ERROR(
        session.Evaluate(*trainer.made[0], Nothing).status());
    return trainer.Continue(session);
  }));
  EXPECT_THAT(trainer.seen, Each(3));
}

TEST_F(TrapsTest, AnEvaluationDoesNotMoveALoaderThatTheTrainerReads) {
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(0));
    Batch batch;
    LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
    EXPECT_THAT(session.Evaluate(*train, Nothing),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("which the trainer itself reads")));
    LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
    EXPECT_EQ(batch.indices()[0], 6);
    return absl::OkStatus();
  }));
}

// Other ranks wait for the sums of this one.
TEST_F(TrapsTest, AnEvaluationThatFailsEndsTheTraining) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    session
        .Evaluate(*test,
                  [&](const Batch&, Sums&) {
                    return session.rank() == 1 ? absl::DataLossError("torn")
                                               : absl::OkStatus();
                  })
        .IgnoreError();
    return absl::OkStatus();
  });
  EXPECT_THAT(ended[1],
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("torn")));
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kAborted));
}

// ---- loops in loops.

TEST_F(TrapsTest, StepsInAStepAreRefused) {
  const absl::Status ended = RunAlone([](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, 0)) {
      for (const Batch& batch : step) model.AddGradients(batch);
      const float before = model.sum_gradient[0];
      for (Step& inner : session.Steps(*test, 0)) {
        EXPECT_FALSE(inner.status().ok());
        EXPECT_FALSE(inner.begin() != inner.end());
      }
      EXPECT_EQ(model.sum_gradient[0], before);
      EXPECT_FALSE(step.Average(*gradients).ok());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("Steps was called in a step: only one "
                                        "loop over steps may be open")));
}

TEST_F(TrapsTest, AnEpochIsReadOnce) {
  for (const bool leaves : {false, true}) {
    path_ += "'";
    const absl::Status ended = RunAlone([&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      for (int loop = 0; loop < 2; ++loop) {
        for (Step& step : session.Steps(*train, 0)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
          if (leaves) break;
        }
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(ended,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(leaves ? "has left a step of epoch 0"
                                          : "its samples would come twice")));
  }
}

TEST_F(TrapsTest, ARestoredEpochIsNotSkipped) {
  bool first = true;
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, first ? 0 : 1)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (first) session.RequestStop();
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  first = false;
  EXPECT_THAT(RunAlone(train),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("of which 1 steps are left")));
}

// A loader of the trainer's own may be destroyed, and another one may get its
// address.
TEST_F(TrapsTest, LoadersOfTheTrainerComeAndGo) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    PluginContext context;
    context.rank = session.rank();
    context.world_size = session.size();
    std::vector<int64_t> epochs;
    for (int i = 0; i < 3; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const std::unique_ptr<Loader> own,
          session.job().MakeLoader(session.registry(), "train", context));
      for (const int64_t upto : {1, 2}) {
        for (const int64_t epoch : session.Epochs(*own, upto)) {
          epochs.push_back(epoch);
          LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *own, epoch));
        }
      }
    }
    EXPECT_THAT(epochs, ElementsAre(0, 1, 0, 1, 0, 1));
    return ReadSteps(session, *train, 0);
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// ---- a training that ends in the middle of a loop.

TEST_F(TrapsTest, StepsThatAreNotSavedAreTold) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none, session.MakeGradients({}));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 10)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
        if (session.steps() == 4) {
          LOCKSTEP_RETURN_IF_ERROR(session.Save());
          return absl::OkStatus();
        }
      }
    }
    return absl::OkStatus();
  };
  const std::vector<std::string> texts(2, Text());
  EXPECT_THAT(
      RunJobs(texts, train),
      Contains(StatusIs(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("in step 5"),
                              HasSubstr("the last checkpoint is after 4 steps"),
                              HasSubstr("FinishAfterThisStep()")))));
}

TEST_F(TrapsTest, FinishesAfterAStep) {
  for (const bool after_average : {false, true}) {
    path_ += "'";
    std::vector<int64_t> steps(2);
    const std::vector<std::string> texts(2, Text("keep = 100\n"));
    EXPECT_THAT(
        RunJobs(texts,
                [&](Session& session) -> absl::Status {
                  Loader* const train = *session.MakeLoader("train");
                  Loader* const test = *session.MakeLoader("test");
                  Gradients* const none = *session.MakeGradients({});
                  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                  for (const int64_t epoch : session.Epochs(*train, 10)) {
                    for (Step& step : session.Steps(*train, epoch)) {
                      const bool is_last = session.steps() == 4;
                      // Before Average, one rank is enough.
                      if (is_last && !after_average && session.rank() == 1) {
                        session.FinishAfterThisStep();
                      }
                      LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
                      if (is_last && after_average) {
                        session.FinishAfterThisStep();
                      }
                    }
                    // Unlike a stop, this leaves an evaluation alone.
                    LOCKSTEP_RETURN_IF_ERROR(
                        session.Evaluate(*test, Nothing).status());
                  }
                  steps[session.rank()] = session.steps();
                  EXPECT_FALSE(session.stopping());
                  return absl::OkStatus();
                }),
        Each(IsOk()));
    EXPECT_THAT(steps, Each(5));
    EXPECT_TRUE(Exists(5));
  }
}

TEST_F(TrapsTest, RanksThatFinishAtDifferentStepsAreTold) {
  const std::vector<std::string> texts(2, Text());
  EXPECT_THAT(RunJobs(texts,
                      [&](Session& session) -> absl::Status {
                        Loader* const train = *session.MakeLoader("train");
                        Gradients* const none = *session.MakeGradients({});
                        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                        for (Step& step : session.Steps(*train, 0)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
                          if (session.rank() == 0)
                            session.FinishAfterThisStep();
                        }
                        return absl::OkStatus();
                      }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("step 1 of epoch 0"))));
}

// The trainer averages by itself, so the step that it has left may matter.
TEST_F(TrapsTest, StepsWithoutAverageAreSavedOrTold) {
  const absl::Status ended = RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        for (const Step& step : session.Steps(*train, 0)) {
          if (step.number() == 1) return absl::OkStatus();
        }
        return absl::OkStatus();
      },
      "every_steps = 1\n");
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("in step 2")));
}

TEST_F(TrapsTest, AFinishedEpochIsNotSavedInItsMiddle) {
  ScriptedTrainer first, second;
  first.saves = true;
  first.in_step = [](Session& session, Step&) {
    session.FinishAfterThisStep();
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return first.Train(session); }));
  EXPECT_EQ(first.bodies, 1);
  EXPECT_THAT(logged_, Contains(HasSubstr("the last checkpoint is after 1")));
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return second.Begin(session); }));
  EXPECT_EQ(second.rate[0], 1);
}

TEST_F(TrapsTest, AStepThatIsLeftForgetsItsRequests) {
  LOCKSTEP_EXPECT_OK(RunAlone([](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, 0)) {
      for (const Batch& batch : step) model.AddGradients(batch);
      LOCKSTEP_RETURN_IF_ERROR(session.Save());
      break;
    }
    for (Step& step : session.Steps(*train, 1)) {
      for (const Batch& batch : step) model.AddGradients(batch);
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      EXPECT_EQ(model.count_gradient[0], 1);
    }
    return absl::OkStatus();
  }));
  EXPECT_FALSE(Exists(1));
  EXPECT_TRUE(Exists(2));
}

TEST_F(TrapsTest, StopsAfterSoManySteps) {
  SessionOptions options;
  options.stop_after = 3;
  for (int run = 0; run < 2; ++run) {
    LOCKSTEP_EXPECT_OK(RunAlone(
        [](Session& session) -> absl::Status {
          LOCKSTEP_RETURN_IF_ERROR(ScriptedTrainer().Train(session));
          EXPECT_EQ(session.steps(), 3);
          EXPECT_TRUE(session.stopping());
          return absl::OkStatus();
        },
        "", options));
  }
}

// ---- gradients that are thrown away.

TEST_F(TrapsTest, GradientsThatAreNotAveragedAreTold) {
  for (const int64_t without : {0, 1}) {
    const auto ended = Run(2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      for (Step& step : session.Steps(*train, 0)) {
        for (const Batch& batch : step) model.AddGradients(batch);
        if (step.number() == without) continue;
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(
        ended,
        Contains(StatusIs(
            absl::StatusCode::kFailedPrecondition,
            AllOf(HasSubstr(absl::StrCat("in step ", without, " of epoch 0")),
                  HasSubstr("the gradient of parameter 'sum' is not 0"),
                  HasSubstr("gradients->Discard()")))));
  }
}

// The trainer sets gradients between two steps.
TEST_F(TrapsTest, GradientsBetweenStepsAreTold) {
  const auto ended = Run(1, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(
        session.MakeGradients(model.parameters()).status());
    model.count_gradient[0] = 1;
    for (Step& step : session.Steps(*train, 0)) {
      EXPECT_FALSE(step.status().ok());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended[0],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the gradient of parameter 'count'")));
}

TEST_F(TrapsTest, GradientsMayBeDiscarded) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model a, b;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const of_a,
                              session.MakeGradients(a.parameters()));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const of_b,
                              session.MakeGradients(b.parameters()));
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        // The models take turns, and one step is thrown away.
        const bool is_a = step.number() == 0;
        for (const Batch& batch : step) (is_a ? a : b).AddGradients(batch);
        if (epoch == 1 && is_a) {
          LOCKSTEP_RETURN_IF_ERROR(of_a->Discard());
          EXPECT_THAT(a.sum_gradient, Each(0));
          continue;
        }
        LOCKSTEP_RETURN_IF_ERROR(step.Average(is_a ? *of_a : *of_b));
      }
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// ---- names of sums.

std::string NameOfClass(int64_t number) {
  return absl::StrCat("accuracy of class ", number);
}

TEST_F(TrapsTest, SumsMayHaveManyLongNames) {
  for (const int64_t other : {0, 1}) {
    const auto ended = Run(2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
      const auto add = [&](const Batch& batch, auto& sums) {
        for (int64_t i = 0; i < 500; ++i) {
          sums.Add(NameOfClass(i), static_cast<double>(i * batch.valid()));
        }
        sums.Add(NameOfClass(500 + session.rank() * other), 0);
      };
      for (Step& step : session.Steps(*train, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) add(batch, step);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Evaluation evaluation,
          session.Evaluate(*test, [&](const Batch& batch, Sums& sums) {
            add(batch, sums);
            return absl::OkStatus();
          }));
      EXPECT_EQ(evaluation.mean(NameOfClass(499)), 499);
      return absl::OkStatus();
    });
    if (other == 0) {
      EXPECT_THAT(ended, Each(IsOk()));
    } else {
      EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("step 0 of epoch 0"))));
    }
  }
}

TEST_F(TrapsTest, TooManySumsOfAnEvaluationAreNotThoseOfAStep) {
  EXPECT_THAT(Run(1,
                  [&](Session& session) {
                    return session
                        .Evaluate(**session.MakeLoader("test"),
                                  [&](const Batch&, Sums& sums) {
                                    for (int64_t i = 0; i < 1001; ++i) {
                                      sums.Add(NameOfClass(i), 0);
                                    }
                                    return absl::OkStatus();
                                  })
                        .status();
                  })[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("an evaluation has 1001 sums")));
}

// ---- evaluations within steps, and weights of sums.

TEST_F(TrapsTest, AnEvaluationInAStepBelongsToThatStep) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (step.number() == 0) continue;
      LOCKSTEP_RETURN_IF_ERROR(
          session
              .Evaluate(*test,
                        [](const Batch& batch, Sums& sums) {
                          sums.Add("x", SumOf(batch));
                          return absl::OkStatus();
                        })
              .status());
    }
    return session.Evaluate(*test, Nothing).status();
  });
  EXPECT_THAT(ended, Each(IsOk()));
  EXPECT_THAT(logged_, Contains("test after 2 steps: x 2 over 5 samples"));
}

TEST_F(TrapsTest, SumsHaveWeightsOfTheirOwn) {
  for (const int size : {1, 2, 3}) {
    const auto ended = Run(size, [](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
      // Sample i has i tokens, whose loss is i each.
      const auto add = [](const Batch& batch, auto& sums) {
        const absl::Span<const float> x = *batch.Values<float>("x");
        for (int64_t row = 0; row < batch.valid(); ++row) {
          sums.Add("loss", x[row] * x[row], x[row]);
        }
        sums.Add("x", SumOf(batch));
        sums.Add("none", 0, 0);
      };
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none,
                                session.MakeGradients({}));
      for (Step& step : session.Steps(*train, 0)) {
        for (const Batch& batch : step) {
          if (batch.valid() == 0) step.Add("loss", 0, 0);
          add(batch, step);
        }
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
        // Samples 0 to 5, and 6 to 9.
        EXPECT_FLOAT_EQ(step.mean("loss"),
                        step.number() == 0 ? 55. / 15 : 230. / 30);
        EXPECT_FLOAT_EQ(step.mean("x"), step.number() == 0 ? 2.5 : 7.5);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Evaluation evaluation,
          session.Evaluate(*test, [&](const Batch& batch, Sums& sums) {
            if (batch.valid() == 0) sums.Add("loss", 0, 0);
            add(batch, sums);
            return absl::OkStatus();
          }));
      EXPECT_EQ(evaluation.mean("loss"), 3);
      EXPECT_EQ(evaluation.mean("x"), 2);
      EXPECT_EQ(evaluation.samples, 5);
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk())) << size;
    EXPECT_THAT(logged_,
                Contains("test after 2 steps: loss 3, x 2 over 5 samples"));
    // The mean of the epoch is over all tokens.
    EXPECT_THAT(logged_, Contains(HasSubstr("loss 6.333, x 4.5, ")));
  }
}

TEST_F(TrapsTest, WeightsThatMeanNothingAreRefused) {
  for (const double weight : {-1., std::nan(""), HUGE_VAL}) {
    const auto ended = Run(1, [&](Session& session) -> absl::Status {
      for (Step& step : session.Steps(**session.MakeLoader("train"), 0)) {
        step.Add("loss", 1, weight);
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("the weight of the sum 'loss'")));
  }
  const auto ended = Run(1, [&](Session& session) -> absl::Status {
    return session
        .Evaluate(**session.MakeLoader("test"),
                  [&](const Batch&, Sums& sums) {
                    sums.Add("loss", 1, 1);
                    sums.Add("loss", 1);
                    return absl::OkStatus();
                  })
        .status();
  });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("add it always in the same way")));
}

// ---- a training of nothing.

TEST_F(TrapsTest, ATrainingOfNothingIsTold) {
  for (const bool is_empty : {true, false}) {
    logged_.clear();
    std::string text = kJob;
    if (is_empty) text.replace(text.find("size = 10"), 9, "size = 0");
    EXPECT_THAT(
        RunJobs({text, text},
                [&](Session& session) -> absl::Status {
                  Loader* const train = *session.MakeLoader("train");
                  for (const int64_t epoch :
                       session.Epochs(*train, is_empty ? 2 : -3)) {
                    LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, epoch));
                  }
                  return absl::OkStatus();
                }),
        Each(IsOk()));
    EXPECT_THAT(logged_,
                Contains(is_empty ? "nothing was trained: epoch 1 of the "
                                    "loader 'train' has no step left"
                                  : "nothing was trained: Epochs was asked for "
                                    "-3 epochs, and the loader 'train' is in "
                                    "epoch 0, counted from 0"));
  }
}

// ---- a rank that works for long after the training.

TEST_F(TrapsTest, TheEndOfTheTrainingHasNoDeadline) {
  // The deadline grows until it is long enough for everything else.
  for (absl::Duration deadline = absl::Milliseconds(100);; deadline *= 4) {
    LocalGroupOptions group;
    group.size = 2;
    group.deadline = deadline;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(group));
    std::vector<absl::Status> ended(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        SessionOptions options;
        options.group = ranks[rank].get();
        options.log = [](absl::string_view) {};
        ended[rank] = UseSession(kJob, options, [&](Session& session) {
          return session.Run([&](Session& session) {
            if (session.rank() == 0) absl::SleepFor(3 * deadline);
            return absl::OkStatus();
          });
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (ended[0].ok() && ended[1].ok()) return;
    for (const absl::Status& status : ended) {
      ASSERT_THAT(status.message(), Not(HasSubstr("the end of the training")));
    }
  }
}

// Each rank waits in a collective of a group, or fails. With NCCL, the group of
// the job is another one than that of the host.
TEST_F(TrapsTest, AFailureEndsBothGroups) {
  for (const bool waits_in_group : {true, false}) {
    LocalGroupOptions two;
    two.size = 2;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto groups, MakeLocalGroup(two));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto host_groups, MakeLocalGroup(two));
    std::vector<absl::Status> ended(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        SessionOptions options;
        options.group = groups[rank].get();
        options.host_group = host_groups[rank].get();
        options.log = [](absl::string_view) {};
        ended[rank] = UseSession(kJob, options, [&](Session& session) {
          return session.Run([&](Session& session) -> absl::Status {
            if (session.rank() == 0) return absl::DataLossError("it is torn");
            CallOptions call;
            call.deadline = absl::InfiniteDuration();
            absl::Status waited =
                Wait((waits_in_group ? session.group() : session.host_group())
                         .Barrier(call));
            EXPECT_FALSE(waited.ok());
            return waited;
          });
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(ended[1].message(), HasSubstr("it is torn"));
  }
}

// ---- a log that blocks.

// Blocks the log until it is released.
// Thread-safety: thread-safe.
struct BlockedLog {
  Mutex mutex;
  CondVar changed;
  bool is_blocked ABSL_GUARDED_BY(mutex) = true;

  void Wait() {
    MutexLock lock(mutex);
    while (is_blocked) changed.Wait(mutex);
  }
  void Release() {
    MutexLock lock(mutex);
    is_blocked = false;
    changed.NotifyAll();
  }
};

TEST_F(TrapsTest, ALogThatBlocksHoldsNobodyUp) {
  const auto log = std::make_shared<BlockedLog>();
  LocalGroupOptions group;
  group.size = 2;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(group));
  const auto train = [&](Session& session) -> absl::Status {
    return session.Run([&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      for (int64_t epoch = 0; epoch < 5; ++epoch) {
        for (Step& step : session.Steps(*train, epoch)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
          session.Log("a line");
        }
      }
      return absl::OkStatus();
    });
  };
  std::vector<absl::Status> ended(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      SessionOptions options;
      options.group = ranks[rank].get();
      options.log_patience = absl::ZeroDuration();
      options.log = [log](absl::string_view) { log->Wait(); };
      ended[rank] = UseSession(kJob, options, train);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ended, Each(IsOk()));
  log->Release();
}

}  // namespace
}  // namespace lockstep
