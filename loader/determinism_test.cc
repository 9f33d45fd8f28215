// These tests expect the same bytes with any number and kind of workers, any
// prefetching and any compiler. The digests are a promise: a change of one is a
// bug.
#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

std::unique_ptr<Loader> Make(const TestJob& job, const LoaderOptions& options) {
  auto loader = Loader::Create(std::make_shared<TestDataset>(job.size),
                               TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

TEST(Determinism, SameBytesForAnyWorkersAndPrefetching) {
  TestJob job;
  job.size = 1003;
  job.batch_size = 16;
  job.world = 2;
  job.rank = 1;
  for (const int workers : {0, 1, 2, 3, 7, 8, 16, 32}) {
    for (const int64_t prefetch : {1, 2, 7, 64}) {
      for (const Workers kind : {Workers::kTbb, Workers::kThreads}) {
        LoaderOptions options;
        options.num_workers = workers;
        options.prefetch_batches = prefetch;
        options.workers = kind;
        options.seed = 11;
        const auto loader = Make(job, options);
        EXPECT_EQ(
            DigestOfEpoch(*loader, 3),
            "08c5c1de0f81ff201f93dceafc6c87c3f0d131e66a36a3cb1edaf2ef7ab76f11")
            << workers << " " << prefetch;
      }
    }
  }
}

TEST(Determinism, RandomConfigurations) {
  Random random(RandomKey(1, 2, 3));
  for (int i = 0; i < 1000; ++i) {
    TestJob job;
    job.size = random.Integer(1, 300);
    job.batch_size = random.Integer(1, 40);
    job.world = random.Integer(1, 4);
    job.rank = random.Integer(0, job.world);
    job.seed = random();
    job.tail = static_cast<Tail>(random.Below(4));
    LoaderOptions options;
    options.seed = random();
    options.num_workers = 0;
    const int64_t epoch = random.Integer(0, 100);
    const std::string expected = DigestOfEpoch(*Make(job, options), epoch);
    options.num_workers = random.Integer(1, 9);
    options.prefetch_batches = random.Integer(1, 20);
    options.workers = static_cast<Workers>(random.Below(2));
    const auto loader = Make(job, options);
    EXPECT_EQ(DigestOfEpoch(*loader, epoch), expected)
        << job.size << " " << job.batch_size << " " << job.world << " "
        << job.rank << " tail " << static_cast<int>(job.tail) << " workers "
        << *options.num_workers << " prefetch " << *options.prefetch_batches;
    // The next epoch was read ahead; other epochs were not.
    const int64_t other = random.Below(2) == 0 ? epoch + 1 : epoch;
    LoaderOptions alone = options;
    alone.num_workers = 0;
    EXPECT_EQ(DigestOfEpoch(*loader, other),
              DigestOfEpoch(*Make(job, alone), other));
  }
}

}  // namespace
}  // namespace lockstep
