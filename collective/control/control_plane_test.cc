// Engines over stars that the test runs by hand. So a rank's thread can stand
// still for as long as a test needs.
#include "lockstep/collective/control/control_plane.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <thread>  // NOLINT: ranks join while the stars run
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/engine_testing.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;

Work Barrier(Communicator& rank, absl::Duration deadline = absl::Hours(1)) {
  CallOptions options;
  options.deadline = deadline;
  absl::StatusOr<Work> work = rank.Barrier(options);
  EXPECT_TRUE(work.ok()) << work.status();
  return *std::move(work);
}

// Runs the stars of all ranks except those in `still`, until `done` returns
// true.
void RunUntil(EngineJob& job, const std::function<bool()>& done,
              const std::set<int>& still = {}) {
  while (!done()) {
    for (int rank = 0; rank < static_cast<int>(job.planes.size()); ++rank) {
      if (still.count(rank) == 0) job.stars.Run(rank);
    }
    absl::SleepFor(absl::Microseconds(100));
  }
}

// Makes a group of all ranks, which has done a barrier.
std::vector<std::unique_ptr<Communicator>> JoinAll(EngineJob& job) {
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::atomic<bool> joined{false};
  std::thread joins([&] {
    ranks = job.JoinAll();
    joined = true;
  });
  RunUntil(job, [&] { return joined.load(); });
  joins.join();
  std::vector<Work> works;
  for (const auto& rank : ranks) works.push_back(Barrier(*rank));
  for (const Work& work : works) {
    RunUntil(job, [&] { return work.Done(); });
    LOCKSTEP_EXPECT_OK(work.status());
  }
  RunUntil(job, [&] {
    return !job.stars.HasMail(0) && !job.stars.HasMail(1) &&
           !job.stars.HasMail(2);
  });
  return ranks;
}

// A transport whose barriers fail.
// Thread-safety: thread-safe.
class Broken : public Transport {
 public:
  absl::string_view name() const override { return "broken"; }
  absl::Status CheckSupported(const Operation&) const override { return {}; }
  absl::Status Connect() override { return {}; }
  absl::Status Run(const Operation&, uint64_t) override {
    return absl::UnavailableError("reset by peer");
  }
  absl::Status Send(int, const ConstBuffer&, uint64_t) override { return {}; }
  absl::Status Recv(int, const Buffer&, uint64_t) override { return {}; }
  void Cancel() override {}
};

TEST(ControlPlane, ATransportsErrorIsBelievedWhenAllRanksHaveAnswered) {
  EngineJob job(3, {absl::Hours(1), absl::Hours(1), absl::Hours(1)});
  job.options.make_transport = [](const TransportContext&) {
    return std::make_unique<Broken>();
  };
  const auto ranks = job.JoinAll();
  EXPECT_THAT(
      Barrier(*ranks[1]).Wait(),
      AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kData, {}),
            BlamesIn("barrier() #1 of group 'world'", 1)));
}

// The rank that waits does not wait for rank 0, and leaves.
TEST(ControlPlane, ASilentRank0StillNamesTheLateRankWhenItGoesOn) {
  EngineJob job(3, {absl::Hours(1), absl::Milliseconds(10), absl::Hours(1)},
                /*by_hand=*/true);
  auto ranks = JoinAll(job);
  const Work zero = Barrier(*ranks[0]);
  const Work one = Barrier(*ranks[1], absl::Milliseconds(10));
  RunUntil(job, [&] { return one.Done(); }, /*still=*/{0, 2});
  EXPECT_THAT(one.Wait(), AllOf(Blames(absl::StatusCode::kDeadlineExceeded,
                                       Blame::Cause::kSilent, {0}),
                                BlamesIn("barrier() #2 of group 'world'", 2)));
  ranks[1] = nullptr;
  RunUntil(job, [&] { return zero.Done(); });
  EXPECT_THAT(zero.Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                  Blame::Cause::kLate, {2}));
}

TEST(ControlPlane, ARankThatWasHeldUpHearsTheVerdictBeforeItBlamesRank0) {
  const absl::Duration patience = absl::Seconds(3);
  EngineJob job(3, {absl::Hours(1), patience, absl::Hours(1)},
                /*by_hand=*/true);
  job.options.slow = absl::Hours(1);
  const auto ranks = JoinAll(job);
  const Work zero = Barrier(*ranks[0]);
  const Work one = Barrier(*ranks[1], absl::Milliseconds(10));
  // Rank 1 reports that its operation has expired, and stands still until long
  // after rank 0 has given the verdict.
  RunUntil(job, [&] { return job.stars.HasMail(0); }, /*still=*/{0, 2});
  RunUntil(job, [&] { return zero.Done(); }, /*still=*/{1});
  EXPECT_TRUE(job.stars.HasMail(1));
  EXPECT_FALSE(one.Done());
  absl::SleepFor(patience);
  job.stars.Tick(1);
  RunUntil(job, [&] { return zero.Done() && one.Done(); });
  for (const Work* work : {&zero, &one}) {
    EXPECT_THAT(work->Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                     Blame::Cause::kLate, {2}));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
