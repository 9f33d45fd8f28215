// These tests train with loaders of the trainer's own, of which ranks have
// different numbers of steps.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Makes a loader of the samples 0 to size - 1, of which this rank reads all.
absl::StatusOr<std::unique_ptr<Loader>> MakeOwn(int64_t size,
                                                LoaderOptions options = {}) {
  NumbersOptions numbers;
  numbers.size = size;
  LOCKSTEP_ASSIGN_OR_RETURN(auto order, SequentialOrder::Create(size));
  SamplerOptions cut;
  cut.cut.batch_size = 2;
  cut.cut.tail = Tail::kUneven;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            Sampler::Create(std::move(order), cut));
  options.num_workers = 0;
  return Loader::Create(std::make_shared<Numbers>(numbers), std::move(sampler),
                        options);
}

// Returns the mean of the samples of a step over the ranks that have these
// numbers of samples, or -1 if none has any.
float MeanOfStep(const std::vector<int64_t>& sizes, int64_t step) {
  float sum = 0;
  int64_t rows = 0;
  for (const int64_t size : sizes) {
    for (int64_t i = 2 * step; i < std::min(size, 2 * step + 2); ++i, ++rows) {
      sum += static_cast<float>(i);
    }
  }
  return rows == 0 ? -1 : sum / static_cast<float>(rows);
}

class UnevenStepsTest : public SessionTest {};

// Does a step, and returns the mean of its samples.
absl::StatusOr<float> DoStep(Step& step, Model& model, Gradients& gradients) {
  for (const Batch& batch : step) {
    LOCKSTEP_RETURN_IF_ERROR(batch.Values<float>("x").status());
    EXPECT_EQ(batch.step(), step.number());
    EXPECT_EQ(batch.epoch(), step.epoch());
    model.AddGradients(batch);
    step.Add("x", SumOf(batch));
  }
  LOCKSTEP_RETURN_IF_ERROR(step.Average(gradients));
  EXPECT_EQ(static_cast<float>(step.mean("x")), model.sum_gradient[0]);
  EXPECT_EQ(model.count_gradient[0], 1);
  return model.sum_gradient[0];
}

TEST_F(UnevenStepsTest, EpochsHaveTheStepsOfTheRankWithTheMost) {
  const std::vector<std::vector<int64_t>> all_sizes = {
      {7}, {0, 5}, {5, 0}, {1, 4, 11}, {6, 6}, {0, 0}};
  for (const std::vector<int64_t>& sizes : all_sizes) {
    SCOPED_TRACE(absl::StrCat(sizes.size(), " ranks, first ", sizes[0]));
    const int ranks = static_cast<int>(sizes.size());
    const int64_t most =
        (*std::max_element(sizes.begin(), sizes.end()) + 1) / 2;
    const auto ended = RunQuietly(ranks, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto own, MakeOwn(sizes[session.rank()]));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      for (const int64_t epoch : session.Epochs(*own, 2)) {
        int64_t number = 0;
        for (Step& step : session.Steps(*own, epoch)) {
          EXPECT_EQ(step.epoch(), epoch);
          EXPECT_EQ(step.number(), number);
          LOCKSTEP_ASSIGN_OR_RETURN(const float mean,
                                    DoStep(step, model, *gradients));
          EXPECT_EQ(mean, MeanOfStep(sizes, number++));
        }
        EXPECT_EQ(number, most);
      }
      EXPECT_EQ(session.steps(), 2 * most);
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

// A step has no collective more than with the session's own loaders, and an
// epoch has one.
TEST_F(UnevenStepsTest, StepsTakeNoFurtherCollective) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 3 : 8));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    const auto issued = [&] {
      return session.group().issued_operations() +
             gradients->groups()[0]->issued_operations();
    };
    for (const int64_t epoch : session.Epochs(*own, 2)) {
      const int64_t before = issued();
      for (Step& step : session.Steps(*own, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(DoStep(step, model, *gradients).status());
      }
      // The first loop calls Restore.
      if (epoch == 0) continue;
      EXPECT_EQ(issued() - before, 4 * gradients->collectives() + 1);
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// The loop goes through epochs of three steps, of which rank 0 has one, and
// ends within one of them. A later loop goes on there.
TEST_F(UnevenStepsTest, ALoopThroughEpochsCountsTheSameSteps) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 2 : 6));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    std::vector<std::string> places;
    for (const int64_t most : {5, 8}) {
      StepsOptions options;
      options.max_steps = most;
      for (Step& step : session.Steps(*own, options)) {
        LOCKSTEP_ASSIGN_OR_RETURN(const float mean,
                                  DoStep(step, model, *gradients));
        EXPECT_EQ(mean, MeanOfStep({2, 6}, step.number()));
        places.push_back(absl::StrCat(step.epoch(), ".", step.number()));
      }
      EXPECT_EQ(session.steps(), most);
    }
    EXPECT_THAT(places, ElementsAre("0.0", "0.1", "0.2", "1.0", "1.1", "1.2",
                                    "2.0", "2.1"));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(UnevenStepsTest, AnEpochMayBeReadAgain) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 2 : 6));
    int64_t steps = 0;
    for (int loop = 0; loop < 2; ++loop) {
      for (Step& step : session.Steps(*own, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        ++steps;
      }
    }
    EXPECT_EQ(steps, 6);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// An epoch that was left is read anew by all ranks, also by those that had had
// their data.
TEST_F(UnevenStepsTest, AnEpochThatWasLeftBeginsAnewOnAllRanks) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 1 : 6));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    for (Step& step : session.Steps(*own, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (step.number() == 1) break;
    }
    int64_t number = 0;
    for (Step& step : session.Steps(*own, 0)) {
      EXPECT_EQ(step.number(), number);
      LOCKSTEP_ASSIGN_OR_RETURN(const float mean,
                                DoStep(step, model, *gradients));
      EXPECT_EQ(mean, MeanOfStep({1, 6}, number++));
    }
    EXPECT_EQ(number, 3);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// max_steps of the loaders ends each rank's data, and the loop where the last
// one has ended.
TEST_F(UnevenStepsTest, LoadersMayHaveMaxSteps) {
  for (const bool by_epochs : {false, true}) {
    const auto ended = RunQuietly(2, [&](Session& session) -> absl::Status {
      LoaderOptions options;
      options.max_steps = session.rank() == 0 ? 2 : 5;
      LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                                MakeOwn(session.rank() == 0 ? 4 : 6, options));
      Model model;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(model.parameters()));
      std::vector<std::string> places;
      const auto train = [&](Step& step) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(DoStep(step, model, *gradients).status());
        places.push_back(absl::StrCat(step.epoch(), ".", step.number(), ": ",
                                      step.total_weight()));
        return absl::OkStatus();
      };
      if (by_epochs) {
        for (const int64_t epoch : session.Epochs(*own, 3)) {
          for (Step& step : session.Steps(*own, epoch)) {
            LOCKSTEP_RETURN_IF_ERROR(train(step));
          }
        }
      } else {
        for (Step& step : session.Steps(*own, StepsOptions())) {
          LOCKSTEP_RETURN_IF_ERROR(train(step));
        }
      }
      EXPECT_THAT(places, ElementsAre("0.0: 4", "0.1: 4", "0.2: 2", "1.0: 2",
                                      "1.1: 2"));
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

TEST_F(UnevenStepsTest, AStepThatIsReadElsewhereIsMissed) {
  for (const bool drains : {false, true}) {
    const auto ended = RunQuietly(2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto own, MakeOwn(6));
      for (Step& step : session.Steps(*own, 0)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        if (session.rank() > 0 || step.number() > 0) continue;
        if (drains) {
          own->Drain();
        } else {
          Batch batch;
          LOCKSTEP_RETURN_IF_ERROR(own->Next(batch).status());
        }
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(ended[0],
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("let the loop alone read a loader")));
    EXPECT_FALSE(ended[1].ok());
  }
}

// The memory of a batch without rows is used again.
TEST_F(UnevenStepsTest, BatchesWithoutDataShareTheirMemory) {
  // Thread-safety: thread-safe.
  class Counted : public HeapMemory {
   public:
    absl::StatusOr<void*> Allocate(int64_t bytes) override {
      ++allocated;
      return HeapMemory::Allocate(bytes);
    }
    std::atomic<int> allocated{0};
  };
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LoaderOptions options;
    const auto memory = std::make_shared<Counted>();
    options.memory = memory;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 0 : 20, options));
    const int before = memory->allocated;
    for (Step& step : session.Steps(*own, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
    EXPECT_EQ(memory->allocated - before, session.rank() == 0 ? 1 : 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(UnevenStepsTest, ABatchWithoutDataIsThatOfTheLoader) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LoaderOptions options;
    int collated = 0;
    options.collate = [&collated](BatchView& batch, Random&) {
      collated += batch.rows() == 0 ? 1 : 0;
      return absl::OkStatus();
    };
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 0 : 6, options));
    for (Step& step : session.Steps(*own, 0)) {
      for (const Batch& batch : step) {
        if (session.rank() > 0) continue;
        EXPECT_FALSE(batch.empty());
        EXPECT_EQ(batch.rows(), 0);
        EXPECT_EQ(batch.valid(), 0);
        EXPECT_EQ(batch.fields().size(), 1u);
      }
    }
    EXPECT_EQ(collated, session.rank() == 0 ? 3 : 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST_F(UnevenStepsTest, ACollateThatFailsForNoRowsIsTold) {
  const auto ended = RunQuietly(2, [](Session& session) -> absl::Status {
    LoaderOptions options;
    options.collate = [](BatchView& batch, Random&) {
      return batch.rows() == 0 ? absl::InvalidArgumentError("no rows")
                               : absl::OkStatus();
    };
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own,
                              MakeOwn(session.rank() == 0 ? 0 : 6, options));
    for (Step& step : session.Steps(*own, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("collate failed: no rows")));
  EXPECT_FALSE(ended[1].ok());
}

}  // namespace
}  // namespace lockstep
