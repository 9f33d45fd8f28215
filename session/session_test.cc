#include "lockstep/session/session.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Steps and gradients.

TEST_F(SessionTest, AveragesOverTheSamplesOfAllRanks) {
  for (const int size : {1, 2, 3, 6}) {
    const auto ended = Run(size, [](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      std::vector<float> means;
      for (const int64_t epoch : session.Epochs(*train, 2)) {
        for (Step& step : session.Steps(*train, epoch)) {
          for (const Batch& batch : step) {
            model.AddGradients(batch);
            step.Add("x", SumOf(batch));
          }
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
          EXPECT_EQ(step.epoch(), epoch);
          EXPECT_EQ(step.total_weight(), step.number() == 0 ? 6 : 4);
          EXPECT_EQ(step.mean("x"), model.sum_gradient[0]);
          EXPECT_TRUE(std::isnan(step.mean("y")));
          EXPECT_EQ(model.sum_gradient[1], -model.sum_gradient[0]);
          EXPECT_EQ(model.count_gradient[0], 1);
          means.push_back(model.sum_gradient[0]);
        }
      }
      // The means of samples 0 to 5, and of samples 6 to 9.
      EXPECT_THAT(means, ElementsAre(2.5F, 7.5F, 2.5F, 7.5F));
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk())) << size << " ranks";
  }
}

TEST_F(SessionTest, NeedsNoRanksAtAll) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Job job, JobOf(kJob));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session,
                                Session::Create(std::move(job), registry_));
  EXPECT_EQ(session->size(), 1);
  int steps = 0;
  EXPECT_THAT(session->Run([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (const Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      ++steps;
    }
    return absl::OkStatus();
  }),
              IsOk());
  EXPECT_EQ(steps, 2);
  EXPECT_THAT(session->Run([](Session&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("make another session")));
}

TEST_F(SessionTest, DividesByTheWeightThatIsSet) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    for (Step& step : session.Steps(*train, 0)) {
      model.count_gradient[0] = 3;
      step.Add("x", 0);
      if (step.number() == 0) {
        // This is more than a float represents exactly.
        step.AddWeight(session.rank() == 0 ? (1 << 26) + 1 : 2);
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        EXPECT_EQ(step.total_weight(), (1 << 26) + 3);
      } else {
        step.AddWeight(0);
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        EXPECT_EQ(model.count_gradient[0], 0);
        EXPECT_TRUE(std::isnan(step.mean("x")));  // a mean over nothing
      }
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, RefusesAWeightBelowZero) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none, session.MakeGradients({}));
    for (Step& step : session.Steps(*train, 0)) {
      step.AddWeight(-1);
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(),
                HasSubstr("AddWeight(-1) in step 0 of epoch 0: a weight "
                          "should be from 0 to "));
  }
}

TEST_F(SessionTest, RefusesWhatComesAfterAverage) {
  const std::vector<
      std::pair<std::function<void(Step&, Gradients&)>, const char*>>
      late = {{[](Step& step, Gradients&) { step.Add("x", 1); },
               "Add(x) comes after Average in step 0 of epoch 0"},
              {[](Step& step, Gradients&) { step.AddWeight(1); },
               "AddWeight comes after Average"},
              {[](Step& step, Gradients& gradients) {
                 step.Average(gradients).IgnoreError();
               },
               "were averaged before"}};
  for (const auto& [call, words] : late) {
    const auto ended = Run(1, [&call = call](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      int steps = 0;
      for (Step& step : session.Steps(*train, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        call(step, *gradients);
        ++steps;
      }
      EXPECT_EQ(steps, 1);
      return absl::OkStatus();
    });
    EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr(words)));
  }
}

TEST_F(SessionTest, RefusesMoreSumsThanItMoves) {
  const auto ended = Run(2, [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (Step& step : session.Steps(*train, 0)) {
      for (int i = 0; i < 1001; ++i) step.Add(absl::StrCat(i), 1);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(),
                HasSubstr("step 0 of epoch 0, without Average has 1001 sums; "
                          "accepted are 1000"));
  }
}

TEST_F(SessionTest, AveragesSeveralModels) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model a, b;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const of_a,
                              session.MakeGradients(a.parameters()));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const of_b,
                              session.MakeGradients(b.parameters()));
    for (Step& step : session.Steps(*train, 0)) {
      for (const Batch& batch : step) {
        a.AddGradients(batch);
        b.AddGradients(batch);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*of_a));
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*of_b));
      EXPECT_EQ(b.sum_gradient[0], step.number() == 0 ? 2.5 : 7.5);
      EXPECT_EQ(a.sum_gradient[0], b.sum_gradient[0]);
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, GivesAllRanksTheParametersOfTheFirst) {
  const auto ended = Run(3, [](Session& session) -> absl::Status {
    Model model;
    model.sum = {static_cast<float>(session.rank() + 1), 5};
    model.count = {static_cast<float>(session.rank() + 7)};
    LOCKSTEP_RETURN_IF_ERROR(
        session.MakeGradients(model.parameters()).status());
    EXPECT_THAT(model.sum, ElementsAre(1, 5));
    EXPECT_THAT(model.count, ElementsAre(7));
    EXPECT_THAT(model.sum_gradient, ElementsAre(0, 0));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, ShowsParametersThatDiffer) {
  const auto ended = Run(3, [](Session& session) -> absl::Status {
    Model model;
    if (session.rank() == 2) {
      model.count.resize(4);
      model.count_gradient.resize(4);
    }
    return session.MakeGradients(model.parameters()).status();
  });
  EXPECT_THAT(
      ended,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("differ in the parameters: rank 2 of 3 in field "
                              "'count' (f32 of 4, gradient f32, and f32 of 1, "
                              "gradient f32 on rank 0)"))));
}

TEST_F(SessionTest, RefusesParametersOfOneName) {
  const auto ended = Run(1, [](Session& session) -> absl::Status {
    Model model;
    std::vector<Parameter> parameters = model.parameters();
    parameters[1].name = "sum";
    EXPECT_THAT(session.MakeGradients(parameters),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("two parameters have the name 'sum'")));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, TellsOfGradientsThatAreNotAveraged) {
  for (const bool averages : {false, true}) {
    logged_.clear();
    const auto ended = RunQuietly(2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      LOCKSTEP_RETURN_IF_ERROR(session.MakeLoader("test").status());
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      for (const int64_t epoch : session.Epochs(*train, 2)) {
        for (Step& step : session.Steps(*train, epoch)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
          if (!averages) continue;
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        }
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk()));
    if (averages) {
      EXPECT_THAT(logged_, ElementsAre());
    } else {
      EXPECT_THAT(logged_,
                  ElementsAre(HasSubstr("not called Average in epoch 0")));
    }
  }
}

TEST_F(SessionTest, TellsWhichRankHasNotAveraged) {
  const auto ended = Run(3, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    for (Step& step : session.Steps(*train, 0)) {
      if (session.rank() == 1) continue;
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   ContainsRegex("rank 1[^,]* issued .*name "
                                                 "'step 0 of epoch 0, without "
                                                 "Average'"))));
}

TEST_F(SessionTest, TellsSumsThatDiffer) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none, session.MakeGradients({}));
    for (Step& step : session.Steps(*train, 0)) {
      step.Add(session.rank() == 0 ? "loss" : "accuracy", 1);
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("step 0 of epoch 0: loss"),
                                  HasSubstr("step 0 of epoch 0: accuracy")))));
}

// ---- Loaders.

TEST_F(SessionTest, MakesALoaderOnce) {
  const auto ended = Run(1, [](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.MakeLoader("train").status());
    EXPECT_THAT(session.MakeLoader("train"),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("the loader 'train' was made before")));
    EXPECT_THAT(session.MakeLoader("trian"),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr("did you mean 'train'?")));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, TellsOfATableThatNoLoaderWasMadeOf) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    return ReadSteps(session, *train, 0);
  });
  EXPECT_THAT(ended, Each(IsOk()));
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("[loader.test]")));
}

// ---- Evaluation.

TEST_F(SessionTest, CountsEachSampleOnceInAnEvaluation) {
  for (const char* const tail : {"mask", "pad", "uneven"}) {
    std::string text = kJob;
    const size_t at = text.find("mask");
    text.replace(at, 4, tail);
    for (const int size : {1, 2, 3}) {
      const auto ended = RunJobs(
          std::vector<std::string>(size, text),
          [](Session& session) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test,
                                      session.MakeLoader("test"));
            for (int i = 0; i < 2; ++i) {
              LOCKSTEP_ASSIGN_OR_RETURN(
                  const Evaluation evaluation,
                  session.Evaluate(*test, [](const Batch& batch, Sums& sums) {
                    sums.Add("x", SumOf(batch));
                    return absl::OkStatus();
                  }));
              EXPECT_EQ(evaluation.samples, 5);
              EXPECT_EQ(evaluation.mean("x"), 2);
            }
            return absl::OkStatus();
          });
      EXPECT_THAT(ended, Each(IsOk())) << tail << " on " << size << " ranks";
    }
  }
}

// ---- Agreement and failures.

TEST_F(SessionTest, ShowsJobsThatDiffer) {
  std::vector<std::string> texts(3, kJob);
  texts[1] = absl::StrCat(kJob, "[checkpoint]\nevery_steps = 7\n");
  const auto ended = RunJobs(texts, [](Session&) { return absl::OkStatus(); });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("differ in the job"),
                                         HasSubstr("every_steps")))));
}

// Returns a trainer in which `end` ends one rank in its second step.
Train EndsEarly(const std::function<absl::Status()>& end) {
  return [end](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    for (Step& step : session.Steps(*train, 0)) {
      if (session.rank() == 1 && step.number() == 1) return end();
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
    }
    return absl::OkStatus();
  };
}

TEST_F(SessionTest, EndsAllRanksWithTheWordsOfTheOneThatFails) {
  const auto ended = Run(
      3, EndsEarly([] { return absl::DataLossError("the GPU is on fire"); }));
  EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("the GPU is on fire")));
  for (const int other : {0, 2}) {
    EXPECT_THAT(ended[other], StatusIs(absl::StatusCode::kAborted,
                                       AllOf(HasSubstr("rank 1"),
                                             HasSubstr("the GPU is on fire"))));
  }
}

TEST_F(SessionTest, EndsAllRanksWhenOneThrows) {
  const auto ended = Run(2, EndsEarly([]() -> absl::Status {
                           throw std::runtime_error("out of ideas");
                         }));
  EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kUnknown,
                                 AllOf(HasSubstr("the trainer"),
                                       HasSubstr("out of ideas"))));
  EXPECT_THAT(ended[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("out of ideas")));
}

TEST_F(SessionTest, TellsOfARankThatReturnsEarly) {
  const auto ended = Run(2, EndsEarly([] { return absl::OkStatus(); }));
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("the end of the training"),
                                         HasSubstr("step 1 of epoch 0")))));
}

TEST_F(SessionTest, DoesNotForgetAFailureThatTheTrainerOverlooks) {
  std::string text = kJob;
  text.replace(text.find("size = 10"), 9, "size = 10, broken = 7");
  const auto ended = RunJobs({text, text}, [](Session& session) {
    Loader* const train = *session.MakeLoader("train");
    Loader* const test = *session.MakeLoader("test");
    int steps = 0, batches = 0;
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (const Batch& batch : step) batches += batch.valid() > 0 ? 1 : 0;
        ++steps;
      }
    }
    // The rank whose second batch fails has two steps, of which the last has
    // failed. The other rank has three steps: it gets its second batch, but no
    // more.
    EXPECT_EQ(steps, batches + 1);
    EXPECT_LE(batches, 2);
    EXPECT_FALSE(session
                     .Evaluate(*test, [](const Batch&,
                                         Sums&) { return absl::OkStatus(); })
                     .ok());
    return absl::OkStatus();
  });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("a bad sector"), HasSubstr("in loader.train")));
  }
}

// Samples that on_error leaves out or replaces are told, since nobody would
// notice otherwise.
TEST_F(SessionTest, TellsOfSamplesThatCanNotBeRead) {
  for (const char* const on_error : {"skip", "substitute"}) {
    const std::string text = absl::StrReplaceAll(
        kJob, {{"[loader.train]", absl::StrCat("[progress]\nevery = \"0s\"\n"
                                               "[loader.train]\non_error = \"",
                                               on_error, "\"")},
               {"[loader.test]", "[loader.test]\non_error = \"skip\""},
               {"size = 10", "size = 10, broken = 7, also_broken = 2"},
               {"size = 5", "size = 5, broken = 4"}});
    logged_.clear();
    EXPECT_THAT(
        RunJobs({text},
                [](Session& session) -> absl::Status {
                  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                            session.MakeLoader("train"));
                  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test,
                                            session.MakeLoader("test"));
                  LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, 0));
                  return session.Evaluate(*test, Nothing).status();
                }),
        Each(IsOk()));
    EXPECT_THAT(
        logged_,
        ElementsAre(
            AllOf(HasSubstr("rank 0: the loader 'train' could not read sample "
                            "2, and "),
                  HasSubstr(*on_error == 's' && on_error[1] == 'k'
                                ? "left it out"
                                : "read another one in its place"),
                  HasSubstr("a bad sector")),
            HasSubstr("the loader 'train' could not read 2 samples"),
            HasSubstr("the loader 'test' could not read sample 4")));
  }
}

TEST_F(SessionTest, TellsRanksThatAreInDifferentSteps) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    if (session.rank() == 1) {
      LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(0));
      Batch batch;
      LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string place, train->SaveState());
      LOCKSTEP_RETURN_IF_ERROR(train->RestoreState(place));
    }
    return ReadSteps(session, *train, 0);
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("step 0 of epoch 0"),
                                         HasSubstr("step 1 of epoch 0")))));
}

TEST_F(SessionTest, TellsWhereSumsDiffer) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (Step& step : session.Steps(*train, 0)) {
      if (session.rank() == 1) step.Add("accuracy", 1);
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(
      ended,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("accuracy"), HasSubstr("Step::Add")))));
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status, Blames(absl::StatusCode::kFailedPrecondition,
                               Blame::Cause::kDiffer, {0, 1}));
  }
  // Each rank says where it was.
  for (const int rank : {0, 1}) {
    EXPECT_THAT(logged_, Contains(absl::StrCat("the last operations of rank ",
                                               rank, " in group 'world':")));
  }
  EXPECT_THAT(logged_, Contains(HasSubstr("all_reduce(")));
}

// A session that knows no world does not know its own rank in the job, but its
// group knows it.
TEST_F(SessionTest, BlamesTheRankWhoseErrorCameFirst) {
  const auto ended = Run(3, [&](Session& session) -> absl::Status {
    if (session.rank() == 1) return absl::DataLossError("it is torn");
    return Wait(session.host_group().Barrier());
  });
  EXPECT_THAT(ended[1],
              Blames(absl::StatusCode::kDataLoss, Blame::Cause::kFailed, {1}));
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(BlameOf(ended[rank]).has_value()) << ended[rank];
    EXPECT_EQ(BlameOf(ended[rank])->rank(), 1);
    EXPECT_EQ(BlameOf(ended[rank])->code, absl::StatusCode::kDataLoss);
    EXPECT_FALSE(BlameOf(ended[rank])->has_begun);
  }
}

// ---- Epochs.

// Trains the remaining epochs, and returns their steps; the first is "0.0".
absl::StatusOr<std::vector<std::string>> StepsOf(Session& session,
                                                 Loader& loader,
                                                 int64_t epochs) {
  std::vector<std::string> steps;
  for (const int64_t epoch : session.Epochs(loader, epochs)) {
    for (Step& step : session.Steps(loader, epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      steps.push_back(absl::StrCat(step.epoch(), ".", step.number()));
    }
  }
  return steps;
}

TEST_F(SessionTest, GoesOnWhereALoaderIs) {
  const auto ended = Run(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    EXPECT_THAT(StepsOf(session, *train, 1),
                IsOkAndHolds(ElementsAre("0.0", "0.1")));
    EXPECT_THAT(StepsOf(session, *train, 3),
                IsOkAndHolds(ElementsAre("1.0", "1.1", "2.0", "2.1")));
    EXPECT_THAT(StepsOf(session, *train, 3), IsOkAndHolds(ElementsAre()));
    LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(4));
    Batch batch;
    LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string place, train->SaveState());
    LOCKSTEP_RETURN_IF_ERROR(train->RestoreState(place));
    EXPECT_THAT(StepsOf(session, *train, 6),
                IsOkAndHolds(ElementsAre("4.1", "5.0", "5.1")));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, EndsWithTheStepsOfItsLoader) {
  std::string limited = kJob;
  limited.replace(limited.find("num_workers"), 0, "max_steps = 3\n");
  const auto ended = RunJobs({limited, limited}, [](Session& session) {
    EXPECT_THAT(StepsOf(session, **session.MakeLoader("train"), 1000000000),
                IsOkAndHolds(ElementsAre("0.0", "0.1", "1.0")));
    EXPECT_THAT(
        session.Evaluate(**session.MakeLoader("test"),
                         [](const Batch&, Sums&) { return absl::OkStatus(); }),
        IsOk());
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, EvaluatesALoaderOfOneEpochAlone) {
  for (const char* const setting :
       {"max_steps = 3\n", "advance_epochs = true\n"}) {
    std::string text = kJob;
    text.replace(text.rfind("num_workers"), 0, setting);
    const auto ended = RunJobs({text}, [](Session& session) {
      return session
          .Evaluate(**session.MakeLoader("test"),
                    [](const Batch&, Sums&) { return absl::OkStatus(); })
          .status();
    });
    EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("reads one epoch")));
  }
}

// ---- Stopping.

// Trains ten epochs of two steps, and returns the number of steps that it did.
absl::StatusOr<int> TrainUntilStopped(Session& session, bool averages,
                                      int request_in) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const none, session.MakeGradients({}));
  int steps = 0;
  for (const int64_t epoch : session.Epochs(*train, 10)) {
    for (Step& step : session.Steps(*train, epoch)) {
      if (session.rank() == session.size() - 1 && steps == request_in) {
        session.RequestStop();
      }
      if (averages) LOCKSTEP_RETURN_IF_ERROR(step.Average(*none));
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      ++steps;
    }
    if (session.stopping()) {
      EXPECT_THAT(
          session.Evaluate(
              *test, [](const Batch&, Sums&) { return absl::OkStatus(); }),
          StatusIs(absl::StatusCode::kCancelled));
    }
  }
  return steps;
}

TEST_F(SessionTest, StopsAllRanksAfterTheSameStep) {
  for (const int size : {1, 2, 3}) {
    for (const bool averages : {true, false}) {
      logged_.clear();
      std::vector<int> steps(size);
      const auto ended = Run(size, [&](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(steps[session.rank()],
                                  TrainUntilStopped(session, averages, 4));
        EXPECT_TRUE(session.stopping());
        // A trainer may return the status that Evaluate returned.
        return absl::CancelledError("the training stops");
      });
      EXPECT_THAT(ended, Each(IsOk()));
      EXPECT_THAT(steps, Each(5));
      EXPECT_THAT(logged_, testing::Contains(HasSubstr(absl::StrCat(
                               "as was asked on 1 of ", size, " ranks"))));
    }
  }
}

TEST_F(SessionTest, TakesNoBatchAfterAStop) {
  const auto ended = Run(1, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    session.RequestStop();
    int steps = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (Loader* const loader : {train, test}) {
        for (const Step& step : session.Steps(*loader, epoch)) {
          steps += step.status().ok() ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(train->progress().steps_in_total, 1);
    EXPECT_EQ(test->progress().steps_in_total, 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(SessionTest, CancelledIsAFailureWhereNobodyAskedToStop) {
  const auto ended = Run(1, [](Session&) -> absl::Status {
    return absl::CancelledError("the disk was cancelled");
  });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kCancelled));
}

// ---- Hooks.

// A hook that notes the events of rank 0, and fails or throws at one of them.
class Noting : public SessionHooks {
 public:
  explicit Noting(std::string failing = "", bool throws = false)
      : failing_(std::move(failing)), throws_(throws) {}

  absl::Status OnStart(Session& session) override {
    return Note(session, "start");
  }
  absl::Status OnEpochBegin(Session& session, int64_t epoch) override {
    return Note(session, absl::StrCat("epoch ", epoch, " begins"));
  }
  absl::Status OnStep(Session& session, const Step& step) override {
    return Note(session, absl::StrCat("step ", step.number(), " of ",
                                      step.total_weight()));
  }
  absl::Status OnEpochEnd(Session& session, int64_t epoch) override {
    return Note(session, absl::StrCat("epoch ", epoch, " ends"));
  }
  absl::Status OnEvaluation(Session& session,
                            const Evaluation& evaluation) override {
    return Note(session, absl::StrCat("evaluation of ", evaluation.samples));
  }
  absl::Status OnFailure(Session& session, const absl::Status& why) override {
    return Note(session, absl::StrCat("failure: ", why.message()));
  }
  absl::Status OnShutdown(Session& session) override {
    return Note(session, "shutdown");
  }

  std::vector<std::string> noted() const {
    MutexLock lock(mutex_);
    return noted_;
  }

 private:
  absl::Status Note(const Session& session, const std::string& event) {
    if (session.rank() == 0) {
      MutexLock lock(mutex_);
      noted_.push_back(event);
    }
    if (failing_.empty() || !absl::StartsWith(event, failing_) ||
        session.rank() + 1 != session.size()) {
      return absl::OkStatus();
    }
    if (throws_) throw std::runtime_error("the hook is tired");
    return absl::OutOfRangeError("the hook is tired");
  }

  const std::string failing_;
  const bool throws_;
  mutable Mutex mutex_;
  std::vector<std::string> noted_ ABSL_GUARDED_BY(mutex_);
};

absl::Status TrainAndEvaluate(Session& session) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
  for (const int64_t epoch : session.Epochs(*train, 2)) {
    LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, epoch));
  }
  return session
      .Evaluate(*test, [](const Batch&, Sums&) { return absl::OkStatus(); })
      .status();
}

TEST_F(SessionTest, CallsHooksAtTheEventsOfATraining) {
  Noting noting;
  EXPECT_THAT(Run(2, TrainAndEvaluate, WithHooks({&noting})), Each(IsOk()));
  EXPECT_THAT(noting.noted(),
              ElementsAre("start", "epoch 0 begins", "step 0 of 6",
                          "step 1 of 4", "epoch 0 ends", "epoch 1 begins",
                          "step 0 of 6", "step 1 of 4", "epoch 1 ends",
                          "evaluation of 5", "shutdown"));
}

TEST_F(SessionTest, AHookThatFailsEndsAllRanks) {
  for (const char* const event : {"start", "epoch 1 begins", "step 1",
                                  "epoch 1 ends", "evaluation", "shutdown"}) {
    for (const bool throws : {false, true}) {
      Noting noting(event, throws);
      const auto ended = Run(2, TrainAndEvaluate, WithHooks({&noting}));
      EXPECT_THAT(ended[1], StatusIs(throws ? absl::StatusCode::kUnknown
                                            : absl::StatusCode::kOutOfRange,
                                     AllOf(HasSubstr("the hook of the event"),
                                           HasSubstr("the hook is tired"))))
          << event;
      // In the event "shutdown", all ranks have already ended their training.
      const bool is_told = event != absl::string_view("shutdown");
      EXPECT_EQ(ended[0].ok(), !is_told) << event << ": " << ended[0];
      if (is_told) {
        EXPECT_THAT(ended[0].message(), HasSubstr("the hook is tired"));
        EXPECT_THAT(noting.noted(), testing::Contains(HasSubstr("failure: ")));
      }
      EXPECT_EQ(noting.noted().back(), "shutdown");
    }
  }
}

}  // namespace
}  // namespace lockstep
