// These tests train with steps that have several batches: the parts of a
// loader with micro_batch_size, or the shards of its sampler.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job in which an epoch has two steps, of 12 and of 8 samples.
std::string JobOfParts(int64_t micro_batch_size, absl::string_view more = "") {
  return absl::StrCat(R"(
[loader.train]
num_workers = 0
micro_batch_size = )",
                      micro_batch_size, R"(
dataset = {name = "numbers", size = 20}
sampler = {name = "sequential", global_batch_size = 12, tail = "uneven"}

[loader.test]
num_workers = 0
micro_batch_size = 2
dataset = {name = "numbers", size = 5}
sampler = {name = "sequential", global_batch_size = 6, tail = "mask"}
)",
                      more);
}

class PartsTest : public SessionWithCheckpoints {
 protected:
  std::vector<absl::Status> RunParts(int size, int64_t micro_batch_size,
                                     const Train& train,
                                     const SessionOptions& options = {},
                                     absl::string_view more = "") {
    return RunJobs(
        std::vector<std::string>(size, JobOfParts(micro_batch_size, more)),
        train, options);
  }
};

// Trains a model for an epoch. `in_step` is called in each step.
absl::Status TrainModel(
    Session& session,
    const std::function<absl::Status(Step&, Gradients&)>& in_step) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                            session.MakeGradients(model.parameters()));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (Step& step : session.Steps(*train, 0)) {
    LOCKSTEP_RETURN_IF_ERROR(in_step(step, *gradients));
  }
  return absl::OkStatus();
}

absl::Status AverageAll(Step& step, Gradients& gradients) {
  for (const Batch& batch : step) step.Add("x", SumOf(batch));
  return step.Average(gradients);
}

TEST_F(PartsTest, AddUpToTheSameStep) {
  for (const int size : {1, 2, 3}) {
    for (const int64_t micro : {0, 1, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, micro-batches of ", micro));
      const auto ended =
          RunParts(size, micro, [&](Session& session) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                      session.MakeLoader("train"));
            Model model;
            LOCKSTEP_ASSIGN_OR_RETURN(
                Gradients* const gradients,
                session.MakeGradients(model.parameters()));
            for (Step& step : session.Steps(*train, 0)) {
              int64_t parts = 0, rows = 0;
              for (const Batch& batch : step) {
                EXPECT_EQ(batch.part(), parts++);
                EXPECT_EQ(batch.parts(), step.parts());
                EXPECT_EQ(batch.step(), step.number());
                rows += batch.valid();
                EXPECT_EQ(step.weight(), rows);
                model.AddGradients(batch);
                step.Add("x", SumOf(batch));
              }
              EXPECT_EQ(parts, step.parts());
              LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
              const int64_t all = step.number() == 0 ? 12 : 8;
              const int64_t most = (all + size - 1) / size;
              EXPECT_EQ(parts, micro == 0 ? 1 : (most + micro - 1) / micro);
              EXPECT_EQ(step.total_weight(), all);
              // The means of samples 0 to 11, and 12 to 19.
              const float mean = step.number() == 0 ? 5.5F : 15.5F;
              EXPECT_EQ(step.mean("x"), mean);
              EXPECT_EQ(model.sum_gradient[0], mean);
              EXPECT_EQ(model.sum_gradient[1], -mean);
              EXPECT_EQ(model.count_gradient[0], 1);
            }
            EXPECT_EQ(session.steps(), 2);
            return absl::OkStatus();
          });
      EXPECT_THAT(ended, Each(IsOk()));
    }
  }
}

// A job in which an epoch has two steps, of 12 samples and of 8, and
// checkpoints after each one.
std::string JobOfShards(int64_t shards, absl::string_view path) {
  return absl::StrCat(R"(
[loader.train]
num_workers = 0
dataset = {name = "numbers", size = 20}
sampler = {name = "sequential", global_batch_size = 12, tail = "uneven", shards = )",
                      shards, R"(}

[checkpoint]
every_steps = 1
path = ")",
                      path, "\"\n");
}

TEST_F(PartsTest, ShardsAreTheSameOnAnyNumberOfRanks) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(size, " ranks"));
    const auto ended = RunJobs(
        std::vector<std::string>(size, JobOfShards(4, "")),
        [&](Session& session) -> absl::Status {
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                    session.MakeLoader("train"));
          Model model;
          LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                    session.MakeGradients(model.parameters()));
          for (Step& step : session.Steps(*train, 0)) {
            EXPECT_EQ(step.parts(), (4 + size - 1) / size);
            double shards = 0;
            for (const Batch& batch : step) {
              if (batch.shard() >= 0) {
                // Row i of shard v is position 4 * i + v of the step.
                EXPECT_EQ(batch.valid(), step.number() == 0 ? 3 : 2);
                EXPECT_EQ(batch.indices()[1],
                          12 * step.number() + 4 + batch.shard());
                shards += std::exp2(batch.shard());
              } else {
                EXPECT_EQ(batch.rows(), 0);
              }
              model.AddGradients(batch);
            }
            step.Add("shards", shards);
            LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
            EXPECT_EQ(model.sum_gradient[0], step.number() == 0 ? 5.5F : 15.5F);
            // Each of the four shards came once.
            EXPECT_EQ(step.mean("shards") * step.total_weight(), 15);
          }
          return absl::OkStatus();
        });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

// The weight of a step would else count rows and something else.
TEST_F(PartsTest, AWeightCountsOneThingOnAllRanks) {
  for (int i = 0; i < 4; ++i) {
    const bool differs = i % 2 > 0, averages = i < 2;
    const auto ended = RunParts(2, 2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      for (Step& step : session.Steps(*train, 0)) {
        for (const Batch& batch : step) {
          if (averages) model.AddGradients(batch);
          // One call is for all batches of the rank.
          if (batch.part() == 1 && (!differs || session.rank() == 1)) {
            step.AddWeight(5);
          }
        }
        if (!averages) continue;
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        EXPECT_EQ(step.total_weight(), 10);
      }
      return absl::OkStatus();
    });
    if (differs) {
      EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("AddWeight was called for "
                                                 "some batches that have rows "
                                                 "and not for others"))));
    } else {
      EXPECT_THAT(ended, Each(IsOk()));
    }
  }
}

TEST_F(PartsTest, ACheckpointGoesOnWithAsManyShards) {
  const auto one_step = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 4)) {
      for (Step& step : session.Steps(*train, epoch)) {
        session.RequestStop();
        LOCKSTEP_RETURN_IF_ERROR(AverageAll(step, *gradients));
      }
    }
    return absl::OkStatus();
  };
  const auto run = [&](int size, int64_t shards) {
    return RunJobs(std::vector<std::string>(size, JobOfShards(shards, path_)),
                   one_step);
  };
  // A job without shards may begin to have them.
  EXPECT_THAT(run(3, 0), Each(IsOk()));
  EXPECT_TRUE(Exists(1));
  EXPECT_THAT(run(3, 4), Each(IsOk()));
  EXPECT_TRUE(Exists(2));
  EXPECT_THAT(run(2, 2), Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("shards"))));
  EXPECT_THAT(run(2, 0), Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("shards"))));
  EXPECT_THAT(run(1, 4), Each(IsOk()));
  EXPECT_TRUE(Exists(3));
}

TEST_F(PartsTest, AnEvaluationSeesEachSampleOnce) {
  const auto ended = RunParts(2, 2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Evaluation evaluation,
        session.Evaluate(*test, [](const Batch& batch, Sums& sums) {
          sums.Add("x", SumOf(batch));
          return absl::OkStatus();
        }));
    EXPECT_EQ(evaluation.samples, 5);
    EXPECT_EQ(evaluation.mean("x"), 2);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(PartsTest, WeightsOfBatchesAreAddedUp) {
  const auto ended = RunParts(2, 2, [](Session& session) {
    return TrainModel(session, [](Step& step, Gradients& gradients) {
      for (const Batch& batch : step) {
        step.Add("x", SumOf(batch));
        step.AddWeight(10 * batch.valid());
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(gradients));
      EXPECT_EQ(step.total_weight(), step.number() == 0 ? 120 : 80);
      return absl::OkStatus();
    });
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// ---- Mistakes.

TEST_F(PartsTest, AverageComesAfterTheLastBatch) {
  const auto ended = RunParts(2, 2, [](Session& session) {
    return TrainModel(session, [](Step& step, Gradients& gradients) {
      for (const Batch& batch : step) {
        if (batch.part() + 1 == batch.parts()) continue;
        EXPECT_THAT(
            step.Average(gradients),
            StatusIs(absl::StatusCode::kFailedPrecondition,
                     HasSubstr(absl::StrCat(
                         "the trainer has read ", batch.part() + 1, " of the ",
                         batch.parts(), " batches of step ", step.number(),
                         " of epoch 0 before Average: loop over the batches "
                         "of each step to the end"))));
      }
      // Nothing was sent, so the step goes on.
      return step.Average(gradients);
    });
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(PartsTest, AStepThatIsNotReadCanNotBeAveraged) {
  const auto ended = RunParts(1, 2, [](Session& session) {
    return TrainModel(session, [](Step& step, Gradients& gradients) {
      return step.Average(gradients);
    });
  });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("has read 0 of the 6 batches")));
}

TEST_F(PartsTest, ALoopOverBatchesGoesToItsEnd) {
  const auto ended = RunParts(2, 2, [](Session& session) {
    return TrainModel(session, [](Step& step, Gradients&) {
      for (const Batch& batch : step) {
        EXPECT_EQ(batch.part(), 0);
        break;
      }
      return step.status();
    });
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("has read 1 of the 3 batches of "
                                             "step 0 of epoch 0 before the "
                                             "next step"))));
}

TEST_F(PartsTest, ALoopOverBatchesIsBegunOnce) {
  for (const int64_t micro : {0, 2}) {
    const auto ended = RunParts(2, micro, [](Session& session) {
      return TrainModel(session, [](Step& step, Gradients& gradients) {
        int batches = 0;
        for (int loop = 0; loop < 2; ++loop) {
          for (const Batch& batch : step) batches += batch.empty() ? 0 : 1;
        }
        EXPECT_EQ(batches, step.parts());
        return step.Average(gradients);
      });
    });
    EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("was begun twice"))));
  }
}

TEST_F(PartsTest, TakeNoBatchesAsTheyAreReady) {
  const auto ended = RunJobs(
      {R"([loader.train]
num_workers = 1
micro_batch_size = 2
delivery = "as_ready"
dataset = {name = "numbers", size = 20}
sampler = {name = "sequential", global_batch_size = 12})"},
      [](Session& session) { return session.MakeLoader("train").status(); });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("loader.train"),
                                       HasSubstr("micro_batch_size=2 "
                                                 "needs the delivery "
                                                 "in_order"))));
}

// A loader is read by one loop within a step.
TEST_F(PartsTest, APartThatIsReadElsewhereIsMissed) {
  for (const bool restarts : {false, true}) {
    const auto ended = RunParts(1, 4, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      for (Step& step : session.Steps(*train, 0)) {
        for (const Batch& batch : step) {
          if (batch.part() > 0) continue;
          if (restarts) {
            LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(0));
          } else {
            Batch other;
            LOCKSTEP_RETURN_IF_ERROR(train->Next(other).status());
          }
        }
        LOCKSTEP_RETURN_IF_ERROR(step.status());
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(
        ended[0],
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr(absl::StrCat(
                     "the loader 'train' was read elsewhere within step 0 of "
                     "epoch 0, since part ",
                     restarts ? 0 : 2,
                     " of 3 came where part 1 of 3 was "
                     "due"))));
  }
}

TEST_F(PartsTest, ALoaderThatTheTrainerReadsInPartsIsNoOtherLoop) {
  const std::string checkpoint =
      absl::StrCat("[checkpoint]\npath = \"", path_, "\"\n");
  const auto stop = [](Session& session) {
    return TrainModel(session, [&](Step& step, Gradients& gradients) {
      session.RequestStop();
      return AverageAll(step, gradients);
    });
  };
  EXPECT_THAT(RunParts(1, 4, stop, {}, checkpoint), Each(IsOk()));
  const auto ended = RunParts(
      1, 4,
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test,
                                  session.MakeLoader("test"));
        Model model;
        LOCKSTEP_RETURN_IF_ERROR(
            session.MakeGradients(model.parameters()).status());
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        Batch batch;
        LOCKSTEP_RETURN_IF_ERROR(train->Next(batch).status());
        LOCKSTEP_RETURN_IF_ERROR(test->StartEpoch(0));
        LOCKSTEP_RETURN_IF_ERROR(test->Next(batch).status());
        EXPECT_THAT(session.Evaluate(*test, Nothing),
                    StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("would destroy the place")));
        for (Step& step : session.Steps(*train, 0)) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
        }
        return absl::OkStatus();
      },
      {}, checkpoint);
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("the trainer itself has read")));
}

// The place of a second loader is saved between its steps.
TEST_F(PartsTest, ASecondLoaderIsReadToTheEndOfItsStep) {
  const std::string more = absl::StrCat(R"(
[loader.more]
num_workers = 0
micro_batch_size = 2
dataset = {name = "numbers", size = 20}
sampler = {name = "sequential", global_batch_size = 4, tail = "uneven"}
[checkpoint]
every_steps = 1
path = ")",
                                        path_, "\"\n");
  for (const int64_t parts : {1, 2}) {
    const auto ended = RunParts(
        1, 0,
        [&](Session& session) -> absl::Status {
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const second,
                                    session.MakeLoader("more"));
          LOCKSTEP_RETURN_IF_ERROR(second->StartEpoch(0));
          return TrainModel(session, [&](Step& step, Gradients& gradients) {
            Batch batch;
            for (int64_t part = 0; part < parts; ++part) {
              LOCKSTEP_RETURN_IF_ERROR(second->Next(batch).status());
            }
            return AverageAll(step, gradients);
          });
        },
        {}, more);
    EXPECT_EQ(ended[0].ok(), parts == 2) << ended[0];
    if (parts == 2) continue;
    EXPECT_THAT(ended[0],
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("only some parts of a step of the loader "
                                   "'more'")));
  }
}

// A step that is left between two parts is left as any other step.
TEST_F(PartsTest, AStepThatIsLeftInAPartDoesNotCount) {
  const std::string checkpoint =
      absl::StrCat("[checkpoint]\npath = \"", path_, "\"\n");
  std::vector<std::string> steps;
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (const Batch& batch : step) {
          if (epoch == 0 && step.number() == 1 && batch.part() == 1) break;
        }
        if (epoch == 0 && step.number() == 1) break;
        const MutexLock lock(mutex_);
        steps.push_back(absl::StrCat(epoch, ".", step.number()));
      }
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunParts(2, 2, train, {}, checkpoint), Each(IsOk()));
  EXPECT_THAT(steps, testing::UnorderedElementsAre("0.0", "0.0", "1.0", "1.0",
                                                   "1.1", "1.1"));
}

// ---- A sample that can't be read.

TEST_F(PartsTest, AnErrorEndsTheStepInItsPart) {
  std::vector<int> batches(2);
  const std::string job = absl::StrCat(JobOfParts(2), R"(
[loader.bad]
num_workers = 0
micro_batch_size = 2
dataset = {name = "numbers", size = 20, broken = 4}
sampler = {name = "sequential", global_batch_size = 12, tail = "uneven"}
)");
  const auto ended = RunJobs({job, job}, [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const bad, session.MakeLoader("bad"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    for (Step& step : session.Steps(*bad, 0)) {
      for (const Batch& batch : step) {
        model.AddGradients(batch);
        ++batches[session.rank()];
      }
      const absl::Status averaged = step.Average(*gradients);
      EXPECT_EQ(averaged.ok(), step.status().ok());
      LOCKSTEP_RETURN_IF_ERROR(averaged);
    }
    return absl::OkStatus();
  });
  // Sample 4 is in the second part of rank 0.
  EXPECT_THAT(batches, ElementsAre(1, 3));
  EXPECT_THAT(ended[0],
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("epoch 0, step 0, part 1, row 0: sample 4")));
  EXPECT_FALSE(ended[1].ok());
  EXPECT_THAT(ended[1].message(), HasSubstr("sample 4"));
}

// ---- What belongs to steps.

// Notes the batches and steps that a hook sees.
// Thread-safety: thread-compatible.
class Seen : public SessionHooks {
 public:
  absl::Status OnBatch(Session&, const Step& step,
                       const Batch& batch) override {
    EXPECT_EQ(step.total_weight(), 0);  // the step before has another one
    EXPECT_TRUE(step.means().empty());
    events.push_back(absl::StrCat(step.number(), ".", batch.part(), ": ",
                                  batch.valid(), " rows"));
    return fails_at == static_cast<int>(events.size())
               ? absl::InternalError("seen enough")
               : absl::OkStatus();
  }
  absl::Status OnStep(Session& session, const Step&) override {
    events.push_back(absl::StrCat(session.steps(), " steps"));
    return absl::OkStatus();
  }

  int fails_at = 0;
  std::vector<std::string> events;
};

TEST_F(PartsTest, HooksSeeEachBatch) {
  Seen seen;
  const auto train = [](Session& session) {
    return TrainModel(session, AverageAll);
  };
  EXPECT_THAT(RunParts(1, 5, train, WithHooks({&seen})), Each(IsOk()));
  EXPECT_THAT(seen.events,
              ElementsAre("0.0: 4 rows", "0.1: 4 rows", "0.2: 4 rows",
                          "1 steps", "1.0: 4 rows", "1.1: 4 rows", "2 steps"));
  for (const int fails_at : {1, 2}) {
    seen.events.clear();
    seen.fails_at = fails_at;
    EXPECT_THAT(RunParts(1, 5, train, WithHooks({&seen})),
                Each(StatusIs(absl::StatusCode::kInternal,
                              HasSubstr("the hook of the event 'batch'"))));
    EXPECT_EQ(static_cast<int>(seen.events.size()), fails_at);
  }
}

TEST_F(PartsTest, AStopAndASaveEndTheStepFirst) {
  const std::string checkpoint =
      absl::StrCat("[checkpoint]\npath = \"", path_, "\"\n");
  int batches = 0;
  const auto train = [&](Session& session) {
    return TrainModel(session, [&](Step& step, Gradients& gradients) {
      for (const Batch& batch : step) {
        ++batches;
        if (batch.part() > 0) continue;
        LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("named"));
        session.RequestStop();
      }
      EXPECT_FALSE(Exists(session.steps() + 1));
      return step.Average(gradients);
    });
  };
  EXPECT_THAT(RunParts(1, 3, train, {}, checkpoint), Each(IsOk()));
  EXPECT_EQ(batches, 4);  // those of the first step
  EXPECT_TRUE(Exists(1));
  // The job goes on with the second step, in other parts.
  batches = 0;
  EXPECT_THAT(RunParts(1, 2, train, {}, checkpoint), Each(IsOk()));
  EXPECT_EQ(batches, 4);
  EXPECT_TRUE(Exists(2));
}

}  // namespace
}  // namespace lockstep
