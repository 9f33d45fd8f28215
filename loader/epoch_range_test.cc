// These tests read epochs by range-based for loops, and go on after loops that
// were left or have ended at an error.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>  // NOLINT: yield
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

constexpr int64_t kSize = 19;  // samples, of which each step takes 4

TestJob FiveSteps() {
  TestJob job;
  job.size = kSize;
  job.batch_size = 4;
  return job;
}

// Returns the number of steps.
int64_t ReadAll(Loader& loader, int64_t epoch) {
  int64_t steps = 0;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(epoch)) {
    EXPECT_THAT(batch, IsOk());
    ++steps;
  }
  return steps;
}

// A loop over an epoch reads what is left of it, or all of it, or is refused if
// it would lose or repeat steps that nobody has given up.
TEST(EpochRange, NoStepIsLostOrRepeatedUnasked) {
  const auto failing = std::make_shared<TestDataset>(kSize);
  failing->before = [](int64_t, SampleContext& context) {
    return context.epoch() == 1 && context.position() == 9
               ? absl::DataLossError("torn")
               : absl::OkStatus();
  };
  const auto make = [&](const std::shared_ptr<Dataset>& dataset) {
    // The order fails in epoch 9.
    const auto order = *CustomOrder::Create(
        {"failing", kSize},
        [](int64_t epoch) -> absl::StatusOr<std::vector<int64_t>> {
          if (epoch == 9) return absl::DataLossError("no order");
          std::vector<int64_t> indices(kSize);
          std::iota(indices.begin(), indices.end(), 0);
          return indices;
        });
    SamplerOptions cut;
    cut.cut.batch_size = 4;
    LoaderOptions options;
    options.num_workers = 1;
    return *Loader::Create(dataset, *Sampler::Create(order, cut), options);
  };
  const auto whole = std::make_shared<TestDataset>(kSize);
  const auto read_two = [](Loader& loader) {
    int64_t steps = 0;
    for (auto& batch : loader.Epoch(1)) {
      LOCKSTEP_EXPECT_OK(batch.status());
      if (++steps == 2) break;
    }
  };
  const auto read_to_error = [](Loader& loader) {
    for (auto& batch : loader.Epoch(1)) batch.status().IgnoreError();
  };
  struct Case {
    std::string name;
    std::function<void(Loader&)> go;
    std::string present, next;  // what Epoch(1) and Epoch(2) give
  };
  const std::vector<Case> cases = {
      {"new", [](Loader&) {}, "5 steps", "5 steps"},
      {"started",
       [](Loader& loader) { LOCKSTEP_EXPECT_OK(loader.StartEpoch(1)); },
       "5 steps", "5 steps"},
      {"left", read_two, "5 steps", "5 steps"},
      {"left and kept",
       [&](Loader& loader) {
         read_two(loader);
         loader.KeepPlace();
       },
       "3 steps", "refused"},
      {"drained",
       [&](Loader& loader) {
         read_two(loader);
         loader.Drain();
         Batch batch;
         while (*loader.Next(batch)) {
         }
       },
       "", ""},  // below
      {"restored",
       [&](Loader& loader) {
         read_two(loader);
         LOCKSTEP_EXPECT_OK(loader.RestoreState(*loader.SaveState()));
       },
       "3 steps", "refused"},
      {"restored at the end",
       [&](Loader& loader) {
         ReadAll(loader, 1);
         LOCKSTEP_EXPECT_OK(loader.RestoreState(*loader.SaveState()));
       },
       "0 steps", "5 steps"},
      {"ended", [](Loader& loader) { ReadAll(loader, 1); }, "5 steps",
       "5 steps"},
      {"an error", read_to_error, "refused", "refused"},
      {"an error, and kept",
       [&](Loader& loader) {
         read_to_error(loader);
         loader.KeepPlace();
       },
       "2 steps", "refused"},
      {"an error of the order",
       [&](Loader& loader) {
         read_two(loader);
         EXPECT_FALSE(loader.StartEpoch(9).ok());
       },
       "refused", "refused"},
  };
  for (const Case& each : cases) {
    for (const int64_t epoch : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(each.name, ", epoch ", epoch));
      const bool fails =
          each.name == "an error" || each.name == "an error, and kept";
      const auto loader = make(fails ? failing : whole);
      each.go(*loader);
      const int64_t before = loader->progress().steps_taken;
      EpochRange range = loader->Epoch(epoch);
      std::string given;
      int64_t steps = 0;
      for (auto& batch : range) {
        if (batch.ok()) {
          ++steps;
        } else {
          EXPECT_THAT(batch, StatusIs(absl::StatusCode::kFailedPrecondition));
          EXPECT_EQ(range.kind(), NextKind::kStopped);
          given = "refused";
        }
      }
      if (given.empty()) given = absl::StrCat(steps, " steps");
      std::string expected = epoch == 1 ? each.present : each.next;
      // A worker may have begun any number of steps before Drain.
      if (each.name == "drained") {
        expected = epoch == 1    ? absl::StrCat(5 - before, " steps")
                   : before == 5 ? "5 steps"
                                 : "refused";
      }
      EXPECT_EQ(given, expected);
      // StartEpoch gives the epoch that was refused.
      if (given == "refused" && !fails) {
        LOCKSTEP_EXPECT_OK(loader->StartEpoch(epoch));
        EXPECT_EQ(ReadAll(*loader, epoch), 5u);
      }
    }
  }
}

// A range of such a loader goes through all epochs.
TEST(EpochRange, WithAdvancedEpochsAnErrorIsPassed) {
  const auto dataset = std::make_shared<TestDataset>(kSize);
  dataset->before = [](int64_t, SampleContext& context) {
    return context.epoch() == 1 && context.position() == 9
               ? absl::DataLossError("torn")
               : absl::OkStatus();
  };
  LoaderOptions options;
  options.num_workers = 2;
  options.advance_epochs = true;
  options.max_steps = 15;
  const auto loader =
      *Loader::Create(dataset, TestSampler(FiveSteps()), options);
  int64_t good = 0;
  int64_t failed = 0;
  while (!loader->over()) {
    ASSERT_LE(failed, 1);
    for (auto& batch : loader->Epoch(0)) ++(batch.ok() ? good : failed);
    loader->KeepPlace();
  }
  EXPECT_EQ(good, 14);
  EXPECT_EQ(failed, 1);
}

TEST(EpochRange, WhatStartEpochHasReadIsNotReadAgain) {
  std::atomic<int64_t> reads = 0;
  const auto dataset = std::make_shared<TestDataset>(kSize);
  dataset->before = [&](int64_t, SampleContext&) {
    ++reads;
    return absl::OkStatus();
  };
  LoaderOptions options;
  options.num_workers = 1;
  options.prefetch_next_epoch = false;
  const auto loader =
      *Loader::Create(dataset, TestSampler(FiveSteps()), options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(3));
  while (reads < kSize) std::this_thread::yield();
  EXPECT_EQ(ReadAll(*loader, 3), 5u);
  EXPECT_EQ(reads, kSize);
}

// A second loop over a range goes on with the next batch.
TEST(EpochRange, ARangeMayHaveTwoLoops) {
  const auto loader = *Loader::Create(std::make_shared<TestDataset>(kSize),
                                      TestSampler(FiveSteps()));
  EpochRange range = loader->Epoch(0);
  std::vector<int64_t> steps;
  for (auto& batch : range) {
    steps.push_back(batch->step());
    if (steps.size() == 2) break;
  }
  for (auto& batch : range) steps.push_back(batch->step());
  EXPECT_THAT(steps, testing::ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace lockstep
