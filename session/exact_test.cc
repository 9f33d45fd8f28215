// Trains with exact gradients on many numbers of ranks, and compares digests of
// the results. exact_kill_test does the same with ranks that are killed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/session/exact_testing.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/step.h"
#include "lockstep/session/sums.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class ExactTest : public SessionWithCheckpoints {
 protected:
  ExactTest() { LOCKSTEP_EXPECT_OK(RegisterMade(registry_)); }

  // Trains on ranks that are threads, until so many steps have ended, or to
  // the end if that is 0. Returns the digest, or "" if there is none yet.
  std::string Train(const ExactJob& job, int ranks, int64_t until = 0,
                    const std::string& backend = "local",
                    const ExactTrainerOptions& options = {}) {
    std::vector<std::string> digests(ranks);
    const std::vector<absl::Status> ended =
        LocalWorld(ranks).Run([&](World& world) -> absl::Status {
          GroupOptions how;
          how.backend = backend;
          LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(how));
          SessionOptions own;
          own.group = group.get();
          own.log = [](absl::string_view) {};
          own.stop_after = until;
          return UseSession(job.Text(), own, [&](Session& session) {
            return session.Run([&](Session& running) {
              return TrainExactly(running, options, &digests[world.rank()]);
            });
          });
        });
    EXPECT_THAT(ended, Each(IsOk()));
    EXPECT_THAT(digests, Each(digests[0]));
    return digests[0];
  }

  // The same, in several starts on these numbers of ranks.
  std::string TrainInTurns(ExactJob job, const std::vector<int>& ranks,
                           Random& random, const std::string& backend,
                           const ExactTrainerOptions& options) {
    job.path = absl::StrCat(path_, ++paths_);
    int64_t steps = 0;
    for (size_t i = 0; i + 1 < ranks.size(); ++i) {
      steps += 1 + random.Below(200 / ranks.size());
      EXPECT_EQ(Train(job, ranks[i], steps, backend, options), "");
    }
    return Train(job, ranks.back(), 0, backend, options);
  }

  // Expects one digest of a job, whatever the ranks, the backend, the buckets
  // and the restarts are.
  void ExpectOneDigest(const ExactJob& job, Random& random) {
    const std::string wanted = Train(job, 1);
    // 19 epochs of 500 samples in batches of 48, or of 700 that are packed.
    EXPECT_THAT(wanted,
                HasSubstr(job.packed ? "after 245 steps" : "after 209 steps"));
    EXPECT_THAT(wanted, Not(HasSubstr(absl::StrCat("rate ", kExactRate, ","))))
        << "the rate should change on a plateau";
    const char* const backends[] = {"local", "shm", "tcp"};
    for (int ranks = 2; ranks <= 8 && ranks <= job.shards; ++ranks) {
      ExactTrainerOptions options;
      options.marks = random.Below(3) > 0;
      if (options.marks && random.Below(2) > 0) {
        options.overlap = GradientsOptions::Overlap::kOn;
      }
      if (random.Below(2) > 0) options.bucket_bytes = 32768;
      std::vector<int> turns;
      for (uint64_t i = random.Below(3); i > 0; --i) {
        turns.push_back(1 + static_cast<int>(
                                random.Below(std::min<int64_t>(8, job.shards))));
      }
      turns.push_back(ranks);
      const std::string backend = backends[random.Below(3)];
      EXPECT_EQ(TrainInTurns(job, turns, random, backend, options), wanted)
          << "on " << testing::PrintToString(turns) << " ranks over " << backend
          << ", marks " << options.marks << ", overlap "
          << static_cast<int>(options.overlap) << ", bucket_bytes "
          << options.bucket_bytes;
    }
  }

  int paths_ = 0;
};

TEST_F(ExactTest, OneDigestOnAnyNumberOfRanks) {
  Random random(RandomKey(1, 2, 3), 4);
  for (const int64_t shards : {4, 12, 24}) {
    for (const int64_t micro_batch_size : {0, 1, 5}) {
      // 48 rows are 12, 4 or 2 for each shard.
      if (micro_batch_size > 48 / shards) continue;
      SCOPED_TRACE(absl::StrCat(shards, " shards, micro_batch_size ",
                                micro_batch_size));
      ExactJob job;
      job.shards = shards;
      job.micro_batch_size = micro_batch_size;
      ExpectOneDigest(job, random);
    }
  }
}

TEST_F(ExactTest, OneDigestOfPackedDocuments) {
  Random random(RandomKey(4, 3, 2), 1);
  for (const int64_t shards : {4, 12, 24}) {
    SCOPED_TRACE(absl::StrCat(shards, " shards"));
    ExactJob job;
    job.shards = shards;
    job.packed = true;
    ExpectOneDigest(job, random);
  }
}

// The same trainings differ where sums are in the order of ranks.
TEST_F(ExactTest, ControlSumsInTheOrderOfRanksDiffer) {
  for (const bool packed : {false, true}) {
    ExactJob job;
    job.exact = false;
    job.packed = packed;
    EXPECT_NE(Train(job, 1), Train(job, 3)) << "VACUOUS: nothing is shown";
  }
}

}  // namespace
}  // namespace lockstep
