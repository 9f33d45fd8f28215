// These tests check the parts of steps (LoaderOptions::micro_batch_size).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Tail kTails[] = {Tail::kPad, Tail::kDrop, Tail::kUneven, Tail::kMask};

std::unique_ptr<Loader> Make(const TestJob& job, const LoaderOptions& options,
                             std::shared_ptr<Dataset> dataset = nullptr) {
  if (dataset == nullptr) dataset = std::make_shared<TestDataset>(job.size);
  auto loader = Loader::Create(dataset, TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

LoaderOptions Parts(int64_t micro_batch_size, int num_workers = 2) {
  LoaderOptions options;
  options.micro_batch_size = micro_batch_size;
  options.num_workers = num_workers;
  return options;
}

// Most loaders have no workers, which a busy machine starts slowly.
LoaderOptions AnyParts(const TestJob& job, Random& random) {
  const int64_t workers = random.Below(8) == 0 ? random.Integer(1, 4) : 0;
  LoaderOptions options =
      Parts(random.Integer(0, job.batch_size + 1), static_cast<int>(workers));
  options.workers = static_cast<Workers>(random.Below(2));
  options.prefetch_batches = random.Integer(1, 9);
  return options;
}

// Reads the next step, and returns its batches; there is none at the end of
// the epoch.
std::vector<Batch> NextStep(Loader& loader) {
  std::vector<Batch> parts;
  do {
    Batch batch;
    const absl::StatusOr<bool> more = loader.Next(batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return parts;
    EXPECT_EQ(batch.part(), static_cast<int64_t>(parts.size()));
    parts.push_back(std::move(batch));
  } while (parts.back().part() + 1 < parts.back().parts());
  return parts;
}

std::vector<int64_t> RowsOf(const std::vector<Batch>& parts) {
  std::vector<int64_t> rows;
  for (const Batch& part : parts) rows.push_back(part.rows());
  return rows;
}

TEST(Parts, AStepsRowsAreSpreadEvenly) {
  TestJob job;
  job.size = 17;
  job.batch_size = 17;
  const auto loader = Make(job, Parts(8));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  EXPECT_THAT(RowsOf(NextStep(*loader)), ElementsAre(6, 6, 5));
}

TEST(Parts, AreTheRowsOfTheStepOnEachRank) {
  for (const Tail tail : kTails) {
    for (const int64_t micro : {1, 3, 4, 8}) {
      std::vector<std::unique_ptr<Loader>> ranks;
      std::vector<std::unique_ptr<Sampler>> samplers;
      TestJob job;
      job.world = 3;
      job.tail = tail;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        ranks.push_back(Make(job, [&] {
          LoaderOptions options = Parts(micro);
          options.prefetch_batches = 9;  // NextStep holds all parts
          return options;
        }()));
        samplers.push_back(TestSampler(job));
        LOCKSTEP_ASSERT_OK(ranks.back()->StartEpoch(1));
        LOCKSTEP_ASSERT_OK(samplers.back()->StartEpoch(1));
      }
      for (bool more = true; more;) {
        int64_t most = 0;
        std::vector<int64_t> numbers;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
          BatchIndices expected;
          more = *samplers[rank]->Next(expected);
          const std::vector<Batch> parts = NextStep(*ranks[rank]);
          ASSERT_EQ(!parts.empty(), more);
          if (!more) continue;
          std::vector<int64_t> indices, positions;
          int64_t valid = 0, fewest = micro, longest = 0;
          for (const Batch& part : parts) {
            EXPECT_EQ(part.step(), expected.step);
            EXPECT_EQ(part.epoch(), 1);
            EXPECT_EQ(part.parts(), static_cast<int64_t>(parts.size()));
            indices.insert(indices.end(), part.indices().begin(),
                           part.indices().end());
            positions.insert(positions.end(), part.positions().begin(),
                             part.positions().end());
            // Padding comes after the data of all parts.
            if (part.valid() > 0) {
              EXPECT_EQ(valid,
                        static_cast<int64_t>(indices.size()) - part.rows());
            }
            valid += part.valid();
            fewest = std::min(fewest, part.rows());
            longest = std::max(longest, part.rows());
          }
          EXPECT_EQ(indices, expected.indices);
          EXPECT_EQ(positions, expected.positions);
          EXPECT_EQ(valid, expected.valid);
          EXPECT_LE(longest - fewest, 1);
          EXPECT_LE(longest, micro);
          most = std::max(most, static_cast<int64_t>(indices.size()));
          numbers.push_back(static_cast<int64_t>(parts.size()));
        }
        if (!more) continue;
        EXPECT_THAT(numbers, testing::Each((most + micro - 1) / micro));
      }
    }
  }
}

TEST(Parts, AStateBetweenThemIsThatOfTheStepsBeginning) {
  TestJob job;
  const auto loader = Make(job, Parts(3));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int part = 0; part < 3; ++part) LOCKSTEP_ASSERT_OK(loader->Next(batch));
  const std::string after_one = *loader->SaveState();
  EXPECT_EQ(loader->progress().steps_taken, 1);
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(12));
  const auto first = [&] {
    LOCKSTEP_EXPECT_OK(loader->Next(batch));
    return BytesOf(batch);
  };
  const std::string bytes = first();
  EXPECT_EQ(*loader->SaveState(), after_one);
  EXPECT_EQ(loader->progress().steps_taken, 1);
  EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(12));
  first();
  EXPECT_EQ(*loader->SaveState(), after_one);
  LOCKSTEP_ASSERT_OK(loader->RestoreState(*loader->SaveState()));
  EXPECT_EQ(first(), bytes);
  EXPECT_EQ(batch.part(), 0);
}

// Jobs are killed between any parts, and go on with other micro-batch sizes.
// Each step that counts was read whole, and its bytes are those of a job that
// never ends and has no parts.
TEST(Parts, ChainsOfRestartsReadEachStepOnce) {
  Random random(RandomKey(8, 1, 8));
  for (int chain = 0; chain < 500; ++chain) {
    TestJob job;
    job.size = random.Integer(1, 120);
    job.batch_size = random.Integer(1, 12);
    job.world = random.Integer(1, 4);
    job.rank = random.Integer(0, job.world);
    job.tail = static_cast<Tail>(random.Below(4));
    const auto whole = TestSampler(job);
    auto loader = Make(job, AnyParts(job, random));
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      LOCKSTEP_ASSERT_OK(whole->StartEpoch(epoch));
      LOCKSTEP_ASSERT_OK(loader->GoToEpoch(epoch));
      std::vector<int64_t> indices;
      BatchIndices expected;
      bool more = *whole->Next(expected);
      for (;;) {
        Batch batch;
        const absl::StatusOr<bool> next = loader->Next(batch);
        LOCKSTEP_ASSERT_OK(next);
        ASSERT_EQ(*next, more);
        if (!more) break;
        ASSERT_EQ(batch.step(), expected.step);
        indices.insert(indices.end(), batch.indices().begin(),
                       batch.indices().end());
        if (batch.part() + 1 == batch.parts()) {
          ASSERT_EQ(indices, expected.indices);
          indices.clear();
          more = *whole->Next(expected);
        }
        if (random.Below(8) != 0) continue;
        const std::string state = *loader->SaveState();
        indices.clear();  // the step begins anew
        if (random.Below(4) != 0) loader = Make(job, AnyParts(job, random));
        LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
      }
    }
  }
}

// All ranks of a job are killed between any parts, and the job goes on with
// other numbers of ranks and other micro-batch sizes.
TEST(Parts, ChainsOverRanksReadEachSampleOnce) {
  Random random(RandomKey(3, 8, 1));
  for (int chain = 0; chain < 500; ++chain) {
    TestJob job;
    job.size = random.Integer(1, 80);
    job.tail = random.Below(2) == 0 ? Tail::kUneven : Tail::kMask;
    std::vector<int64_t> times(job.size);
    std::string state;
    for (bool is_over = false; !is_over;) {
      job.world = random.Integer(1, 5);
      job.batch_size = random.Integer(1, 7);
      const int64_t micro = random.Integer(0, job.batch_size + 1);
      std::vector<std::unique_ptr<Loader>> ranks;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        ranks.push_back(Make(job, Parts(micro, /*num_workers=*/0)));
        LOCKSTEP_ASSERT_OK(state.empty() ? ranks.back()->StartEpoch(0)
                                         : ranks.back()->RestoreState(state));
      }
      for (bool is_killed = false; !is_killed && !is_over;) {
        std::vector<int64_t> in_step;  // the samples of the step of all ranks
        const int64_t killed_at = random.Integer(0, 40);
        int64_t part = 0, parts = 1;
        for (; part < parts && !is_over && !is_killed; ++part) {
          for (const auto& rank : ranks) {
            Batch batch;
            const absl::StatusOr<bool> next = rank->Next(batch);
            LOCKSTEP_ASSERT_OK(next);
            is_over = !*next;
            if (is_over) continue;
            ASSERT_EQ(batch.part(), part);
            ASSERT_TRUE(part == 0 || batch.parts() == parts);
            parts = batch.parts();
            const auto read = batch.indices().first(batch.valid());
            in_step.insert(in_step.end(), read.begin(), read.end());
          }
          is_killed = part == killed_at;
        }
        if (part == parts) {
          for (const int64_t index : in_step) ++times[index];
        }
        state = *ranks[0]->SaveState();
        for (const auto& rank : ranks) ASSERT_EQ(*rank->SaveState(), state);
      }
    }
    EXPECT_THAT(times, testing::Each(1));
  }
}

TEST(Parts, MaxStepsAndDrainCountWholeSteps) {
  for (const int workers : {0, 1, 3}) {
    TestJob job;
    LoaderOptions options = Parts(3, workers);
    options.max_steps = 5;
    options.advance_epochs = true;
    const auto loader = Make(job, options);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    LOCKSTEP_ASSERT_OK(loader->Next(batch));
    loader->Drain();
    int64_t parts = 1;
    while (*loader->Next(batch)) ++parts;
    EXPECT_EQ(parts % 3, 0);
    EXPECT_EQ(loader->progress().steps_taken * 3, parts);
    while (*loader->Next(batch)) ++parts;
    EXPECT_EQ(parts, 5 * 3);
    EXPECT_TRUE(loader->over());
  }
}

// A part that is planned late must not be lost by a Drain.
TEST(Parts, ADrainGivesOutTheRestOfAStepThatIsNotPlannedYet) {
  for (const int workers : {0, 2}) {
    TestJob job;
    job.batch_size = 12;
    LoaderOptions options = Parts(1, workers);
    options.prefetch_batches = 1;
    const auto loader = Make(job, options);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    LOCKSTEP_ASSERT_OK(loader->Next(batch));
    loader->Drain();
    for (int part = 1; part < 12; ++part) {
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
      EXPECT_EQ(batch.part(), part);
    }
    // There was no memory to begin another step before the Drain.
    EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
    EXPECT_EQ(loader->progress().steps_taken, 1);
  }
}

TEST(Parts, AnErrorEndsTheStepInItsPart) {
  for (const int workers : {0, 3}) {
    TestJob job;
    job.size = 36;
    job.batch_size = 9;
    auto dataset = std::make_shared<TestDataset>(job.size);
    const auto sampler = TestSampler(job);
    LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
    BatchIndices step;
    ASSERT_TRUE(*sampler->Next(step));
    ASSERT_TRUE(*sampler->Next(step));
    const int64_t bad = step.indices[4];
    dataset->before = [bad](int64_t index, SampleContext&) {
      return index == bad ? absl::DataLossError("the file is torn")
                          : absl::OkStatus();
    };
    const auto loader = Make(job, Parts(3, workers), dataset);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    for (int i = 0; i < 4; ++i) LOCKSTEP_ASSERT_OK(loader->Next(batch));
    const NextResult failed = loader->Next(batch);
    EXPECT_EQ(failed.kind(), NextKind::kFailedStep);
    EXPECT_THAT(failed.status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("epoch 0, step 1, part 1, row 1: sample")));
    ASSERT_EQ(loader->errors().size(), 1u);
    EXPECT_EQ(loader->errors()[0].part, 1);
    EXPECT_EQ(loader->progress().steps_taken, 2);  // it counts
    EXPECT_THAT(loader->StepsLeft(), IsOkAndHolds(2));
    const std::string state = *loader->SaveState();
    LOCKSTEP_ASSERT_OK(loader->Next(batch));
    EXPECT_EQ(batch.step(), 2);
    EXPECT_EQ(batch.part(), 0);
    EXPECT_EQ(*loader->SaveState(), state);
  }
}

TEST(Parts, SkippedRowsCloseUpWithinTheirPart) {
  TestJob job;
  job.size = job.batch_size = 6;
  auto dataset = std::make_shared<TestDataset>(job.size);
  const auto sampler = TestSampler(job);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices step;
  ASSERT_TRUE(*sampler->Next(step));
  const std::vector<int64_t> all(step.indices.begin(), step.indices.end());
  dataset->before = [&](int64_t index, SampleContext&) {
    return index == all[1] ? absl::DataLossError("torn") : absl::OkStatus();
  };
  LoaderOptions options = Parts(3);
  options.on_error = OnError::kSkip;
  const auto loader = Make(job, options, dataset);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  const std::vector<Batch> parts = NextStep(*loader);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_THAT(parts[0].indices(), ElementsAre(all[0], all[2], -1));
  EXPECT_EQ(parts[0].valid(), 2);
  EXPECT_THAT(parts[1].indices(), ElementsAre(all[3], all[4], all[5]));
  EXPECT_EQ(parts[1].valid(), 3);
}

TEST(Parts, ALoopThatIsLeftInAStepReadsTheEpochAnew) {
  const auto loader = Make({}, Parts(3));
  std::string first;
  for (int loop = 0; loop < 2; ++loop) {
    for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      EXPECT_EQ(batch->step(), 0);
      EXPECT_EQ(batch->part(), 0);
      break;
    }
  }
  // A place that is kept is in the step.
  loader->KeepPlace();
  for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    EXPECT_EQ(batch->part(), 1);
    break;
  }
}

TEST(Parts, SkipBelongsBetweenSteps) {
  const auto loader = Make({}, Parts(3));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  LOCKSTEP_ASSERT_OK(loader->Next(batch));
  EXPECT_THAT(loader->Skip(50, 60),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("between the parts of step 0 of epoch 0")));
  LOCKSTEP_ASSERT_OK(loader->Next(batch));
  LOCKSTEP_ASSERT_OK(loader->Next(batch));
  EXPECT_EQ(batch.part(), 2);
  LOCKSTEP_EXPECT_OK(loader->Skip(50, 60));
}

TEST(Parts, RefusesSettingsThatMakeNoSense) {
  const auto make = [](const LoaderOptions& options) {
    return Loader::Create(std::make_shared<TestDataset>(103), TestSampler({}),
                          options)
        .status();
  };
  EXPECT_THAT(make(Parts(-1)), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("micro_batch_size=-1")));
  LoaderOptions as_ready = Parts(4);
  as_ready.delivery = Delivery::kAsReady;
  EXPECT_THAT(make(as_ready),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs the delivery in_order")));
}

// A job that goes on with more ranks has fewer rows on each.
TEST(Parts, MayBeLargerThanTheStep) {
  for (const int64_t micro : {8, 9, 1000000000}) {
    const auto loader = Make({}, Parts(micro));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    EXPECT_THAT(RowsOf(NextStep(*loader)), ElementsAre(8));
  }
}

TEST(Parts, FailuresOfPartsThatAreNotGivenOutCount) {
  TestJob job;
  auto dataset = std::make_shared<TestDataset>(job.size);
  dataset->before = [](int64_t, SampleContext&) {
    return absl::DataLossError("torn");
  };
  for (const int64_t micro : {0, 3}) {
    LoaderOptions options = Parts(micro);
    options.max_failures = 8;
    const auto loader = Make(job, options, dataset);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    EXPECT_EQ(loader->Next(batch).kind(), NextKind::kFailedStep);
    EXPECT_THAT(loader->Next(batch).status(),
                StatusIs(absl::StatusCode::kResourceExhausted));
  }
}

// With parts, the memory of a batch is that of a part.
TEST(Parts, TakeTheMemoryOfAPart) {
  TestJob job;
  job.batch_size = 64;
  LoaderOptions options = Parts(4);
  options.prefetch_bytes = 4000;  // too little for two batches of 64 rows
  const auto loader = Make(job, options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  for (int part = 0; part < 16; ++part) {
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    EXPECT_EQ(batch.part(), part);
    EXPECT_EQ(batch.parts(), 16);
  }
}

}  // namespace
}  // namespace lockstep
