// This tests what a loader does where memory runs out. A loader that is made
// returns a Status. Later, only large memory and user code do, and without
// memory for anything small the process ends: no step is lost or repeated.
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/packed_testing.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

void NotYet() {}

// `before` is called before each sample is read.
absl::StatusOr<std::unique_ptr<Loader>> Make(int workers, const RunOut& run_out,
                                             const RunOut& before = NotYet) {
  const TestJob job;
  LoaderOptions options;
  options.num_workers = workers;
  options.workers = Workers::kThreads;
  const auto dataset = std::make_shared<TestDataset>(job.size);
  dataset->before = [before](int64_t /*index*/, SampleContext&) {
    before();
    return absl::Status(absl::StatusCode::kDataLoss, "");
  };
  auto sampler = TestSampler(job);
  run_out();
  return Loader::Create(dataset, std::move(sampler), options);
}

// Workers that pack have memory for a sample.
absl::Status MakePacked(int workers, const RunOut& run_out) {
  PackedJob job;
  job.loader.num_workers = workers;
  job.loader.workers = Workers::kThreads;
  const auto dataset = std::make_shared<RaggedDataset>(job.lengths);
  auto sampler = PackedSampler(job);
  run_out();
  return Loader::Create(dataset, std::move(sampler), job.loader).status();
}

absl::Status Start(int workers, const RunOut& run_out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, Make(workers, NotYet));
  run_out();
  return loader->StartEpoch(0);
}

// Memory runs out before a sample fails, so none is left for its error.
absl::Status Read(int workers, const RunOut& run_out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, Make(workers, NotYet, run_out));
  LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(0));
  Batch batch;
  return loader->Next(batch).status();
}

TEST(OutOfMemory, IsAStatusOrEndsTheProcess) {
  for (const int workers : {0, 2}) {
    SCOPED_TRACE(workers);
    const auto make = [=](const RunOut& run_out) {
      return Make(workers, run_out).status();
    };
    const auto make_packed = [=](const RunOut& run_out) {
      return MakePacked(workers, run_out);
    };
    const auto start = [=](const RunOut& run_out) {
      return Start(workers, run_out);
    };
    const auto read = [=](const RunOut& run_out) {
      return Read(workers, run_out);
    };
    ExpectWithoutMemory({
        {"Create", make, WithoutMemory::kStatus},
        {"Create, packed", make_packed, WithoutMemory::kStatus},
        {"StartEpoch", start, WithoutMemory::kEnds,
         "^StartEpoch, so Lockstep ends this process"},
        {"Next", read, WithoutMemory::kEnds,
         workers == 0 ? "^Next, so Lockstep ends this process"
                      : "^a worker of a loader, so Lockstep ends"},
    });
  }
}

}  // namespace
}  // namespace lockstep
