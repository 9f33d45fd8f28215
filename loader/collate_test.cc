// These tests check that LoaderOptions::collate changes batches in the same way
// in every run.
#include "lockstep/loader/collate.h"

#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TestJob Job() {
  TestJob job;
  job.size = 64;
  job.batch_size = 8;
  return job;
}

std::unique_ptr<Loader> Make(const TestJob& job, Collate collate,
                             int workers = 0, Workers kind = Workers::kTbb,
                             uint64_t seed = 11) {
  LoaderOptions options;
  options.num_workers = workers;
  options.workers = kind;
  options.seed = seed;
  options.collate = std::move(collate);
  auto loader = Loader::Create(std::make_shared<TestDataset>(job.size),
                               TestSampler(job), options);
  EXPECT_THAT(loader, IsOk());
  return std::move(loader).value();
}

// Shuffles the ids of the rows, and mixes each row with the row whose id is
// then at its place.
absl::Status Mix(BatchView& batch, Random& random) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> ids,
                            batch.Values<int64_t>("id"));
  random.Shuffle(ids);
  const float share = static_cast<float>(random.Uniform());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x,
                            batch.Values<float>("x"));
  for (size_t i = 0; i < x.size() / 2; ++i) {
    x[i] = share * x[i] + (1 - share) * x[x.size() - 1 - i];
  }
  return batch.PadToLongest<int32_t>("tokens", -1).status();
}

TEST(Collate, TheSameForAnyWorkers) {
  const std::string expected = DigestOfEpoch(*Make(Job(), Mix), 2);
  EXPECT_NE(DigestOfEpoch(*Make(Job(), nullptr), 2), expected);
  EXPECT_NE(DigestOfEpoch(*Make(Job(), Mix, 0, Workers::kTbb, 12), 2),
            expected);
  for (const Workers kind : {Workers::kTbb, Workers::kThreads}) {
    for (const int workers : {0, 1, 3}) {
      EXPECT_EQ(DigestOfEpoch(*Make(Job(), Mix, workers, kind), 2), expected)
          << workers << " of kind " << static_cast<int>(kind);
    }
  }
}

TEST(Collate, NumbersAreOtherOnesForEachRankStepAndEpoch) {
  std::set<uint64_t> numbers;
  for (int64_t rank = 0; rank < 2; ++rank) {
    TestJob job = Job();
    job.world = 2;
    job.rank = rank;
    const auto loader = Make(job, [&numbers](BatchView&, Random& random) {
      numbers.insert(random());
      return absl::OkStatus();
    });
    DigestOfEpoch(*loader, 0);
    DigestOfEpoch(*loader, 1);
  }
  EXPECT_EQ(numbers.size(), 2u * 2 * 4);  // ranks, epochs, steps
}

TEST(Collate, SeesTheWholeBatch) {
  std::vector<std::string> seen;
  TestJob job = Job();
  job.size = 12;
  job.tail = Tail::kMask;
  const auto loader = Make(job, [&seen](BatchView& batch, Random&) {
    seen.push_back(absl::StrCat(batch.epoch(), " ", batch.step(), " ",
                                batch.rows(), " ", batch.valid()));
    return absl::OkStatus();
  });
  DigestOfEpoch(*loader, 3);
  EXPECT_THAT(seen, ElementsAre("3 0 8 8", "3 1 8 4"));
}

// Returns the results of Next for each step of epoch 0.
std::vector<absl::Status> Steps(Loader& loader) {
  std::vector<absl::Status> steps;
  LOCKSTEP_EXPECT_OK(loader.StartEpoch(0));
  Batch batch;
  while (true) {
    const NextResult next = loader.Next(batch);
    if (next.kind() == NextKind::kEnd) return steps;
    steps.push_back(next.status());
    if (next.ok()) {
      EXPECT_EQ(batch.step(), static_cast<int64_t>(steps.size()) - 1);
    } else {
      EXPECT_EQ(next.kind(), NextKind::kFailedStep);
      if (next.kind() != NextKind::kFailedStep) return steps;
    }
  }
}

// Expects that step 3 of 8 fails with `text`, and no other step.
void ExpectOneFails(const Collate& at_three, absl::StatusCode code,
                    const std::string& text) {
  const Collate collate = [&](BatchView& batch, Random& random) {
    return batch.step() == 3 ? at_three(batch, random) : absl::OkStatus();
  };
  for (const Workers kind : {Workers::kTbb, Workers::kThreads}) {
    for (const int workers : {0, 1, 3}) {
      const auto loader = Make(Job(), collate, workers, kind);
      const std::vector<absl::Status> steps = Steps(*loader);
      ASSERT_EQ(steps.size(), 8u);
      for (int step = 0; step < 8; ++step) {
        EXPECT_EQ(steps[step].ok(), step != 3) << steps[step];
      }
      EXPECT_THAT(steps[3],
                  StatusIs(code, AllOf(HasSubstr("epoch 0, step 3"),
                                       HasSubstr("collate"), HasSubstr(text))));
      EXPECT_TRUE(loader->ok());
      EXPECT_EQ(loader->Metrics().batches, 7);
    }
  }
}

TEST(Collate, AnErrorFailsItsStepAlone) {
  ExpectOneFails(
      [](BatchView&, Random&) { return absl::DataLossError("no mixing"); },
      absl::StatusCode::kDataLoss, "no mixing");
}

TEST(Collate, AnExceptionFailsItsStepAlone) {
  ExpectOneFails(
      [](BatchView&, Random&) -> absl::Status {
        throw std::runtime_error("boom");
      },
      absl::StatusCode::kUnknown, "threw std::runtime_error: boom");
  ExpectOneFails(
      [](BatchView&, Random&) -> absl::Status { throw std::bad_alloc(); },
      absl::StatusCode::kResourceExhausted, "std::bad_alloc");
  ExpectOneFails([](BatchView&, Random&) -> absl::Status { throw 5; },
                 absl::StatusCode::kUnknown, "no std::exception");
}

TEST(Collate, IsNotCalledForAStepThatFailedBefore) {
  auto dataset = std::make_shared<TestDataset>(8);
  dataset->before = [](int64_t, SampleContext&) {
    return absl::DataLossError("torn");
  };
  int calls = 0;
  LoaderOptions options;
  options.num_workers = 0;
  options.collate = [&calls](BatchView&, Random&) {
    ++calls;
    return absl::OkStatus();
  };
  TestJob job = Job();
  job.size = 8;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Loader> loader,
      Loader::Create(dataset, TestSampler(job), options));
  EXPECT_THAT(Steps(*loader),
              ElementsAre(StatusIs(absl::StatusCode::kDataLoss)));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace lockstep
