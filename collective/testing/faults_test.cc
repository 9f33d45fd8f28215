// Tests what ranks, as processes, say of each other's faults: which Status each
// returns, and with which blame. tools/bench faults measures how soon.
#include <signal.h>
#include <sys/types.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// Returns the processes of three ranks. One that has ended has no number.
std::vector<pid_t> PidsOf(const RankProcesses& ranks) {
  return {ranks.pid(0), ranks.pid(1), ranks.pid(2)};
}

// Matches the failure after rank 1 has called Abort, with its reason.
testing::Matcher<absl::Status> IsAbortOfRank1() {
  return AllOf(
      StatusIs(absl::StatusCode::kAborted, HasSubstr("INTERNAL: loss is NaN")),
      Blames(absl::StatusCode::kAborted, Blame::Cause::kFailed, {1}));
}

class Faults : public testing::TestWithParam<std::string> {};

TEST_P(Faults, AKilledRankIsNamedOnAll) {
  for (const int killed : {3, 0}) {
    RankProcesses ranks("barriers", 4, GetParam());
    for (int rank = 0; rank < 4; ++rank) ranks.AwaitLine(rank, "joined");
    const pid_t pid = ranks.pid(killed);
    ranks.Signal(killed, SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == killed) continue;
      const absl::Status status = StatusIn(ranks.Wait(rank));
      ASSERT_THAT(status, Blames(absl::StatusCode::kUnavailable,
                                 Blame::Cause::kLost, {killed}));
      EXPECT_EQ(BlameOf(status)->ranks[0].pid, pid);
    }
  }
}

TEST_P(Faults, AStoppedRankIsNamedAtTheDeadline) {
  for (const int stopped : {2, 0}) {
    // Unless rank 0 is stopped itself, it gives its verdict, however late.
    RankProcesses ranks(stopped == 0 ? "deadline_barrier" : "patient_barrier",
                        3, GetParam());
    AwaitReady(ranks, 3);
    ranks.Signal(stopped, SIGSTOP);
    Go(ranks);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == stopped) continue;
      ranks.AwaitLine(rank, " | ");
    }
    const pid_t pid = ranks.pid(stopped);
    ranks.Signal(stopped, SIGCONT);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string printed = ranks.Wait(rank);
      if (rank == stopped) continue;
      const absl::Status status = StatusIn(printed);
      ASSERT_THAT(status, Blames(absl::StatusCode::kDeadlineExceeded,
                                 Blame::Cause::kSilent, {stopped}));
      EXPECT_THAT(status, BlamesIn("barrier() #101 of group 'world'", 101));
      EXPECT_EQ(BlameOf(status)->ranks[0].pid, pid);
      EXPECT_THAT(BlameOf(status)->ranks[0].last, HasSubstr("barrier() #"));
    }
  }
}

// No rank is left to pass the abort on.
TEST_P(Faults, AnAbortThatIsNotHeardOfEndsAllByTheDeadline) {
  RankProcesses ranks("abort_unheard", 3, GetParam());
  AwaitReady(ranks, 3);
  ranks.Signal(0, SIGSTOP);
  Go(ranks);
  EXPECT_THAT(StatusIn(ranks.AwaitLine(1, " | ")), IsAbortOfRank1());
  const absl::Status status = StatusIn(ranks.AwaitLine(2, " | "));
  ASSERT_THAT(status, Blames(absl::StatusCode::kDeadlineExceeded,
                             Blame::Cause::kSilent, {0}));
  EXPECT_THAT(status, BlamesIn("barrier() #101 of group 'world'", 101));
  EXPECT_EQ(BlameOf(status)->ranks[0].pid, ranks.pid(0));
}

TEST_P(Faults, AbortEndsAll) {
  RankProcesses ranks("aborts", 3, GetParam());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(StatusIn(ranks.Wait(rank)), IsAbortOfRank1());
  }
}

TEST_P(Faults, ARankThatHasLeftIsNamed) {
  RankProcesses ranks("leaves", 3, GetParam());
  EXPECT_THAT(ranks.Wait(1), HasSubstr("OK"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(
        StatusIn(ranks.Wait(rank)),
        Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {1}));
  }
}

TEST_P(Faults, AGroupIsMadeAgain) {
  RankProcesses ranks("again", 2, GetParam());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), "nothing is left over\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Faults,
                         testing::Values("shm", "tcp", "nccl"),
                         [](const auto& info) { return info.param; });

// An operation in which rank 0 differs from the others.
struct Difference {
  std::string role;
  std::string first;  // the operation of rank 0
  std::string other;
};

void ExpectTold(RankProcesses& ranks, const Difference& difference,
                bool is_suspect) {
  const std::vector<pid_t> pids = PidsOf(ranks);
  const testing::Matcher<std::string> suspect =
      HasSubstr("what came of the group's operations from #1 on is suspect");
  for (int rank = 0; rank < 3; ++rank) {
    const absl::Status status = StatusIn(ranks.Wait(rank));
    EXPECT_THAT(std::string(status.message()),
                is_suspect ? suspect : Not(suspect));
    constexpr auto kCode = absl::StatusCode::kFailedPrecondition;
    ASSERT_THAT(status, AnyOf(Blames(kCode, Blame::Cause::kDiffer, {0, 1}),
                              Blames(kCode, Blame::Cause::kDiffer, {0, 2})));
    const std::optional<Blame> blame = BlameOf(status);
    EXPECT_EQ(blame->number, 1u);
    for (const Blame::Rank& each : blame->ranks) {
      EXPECT_EQ(each.last, absl::StrCat(each.rank == 0 ? difference.first
                                                       : difference.other,
                                        " #1 of group 'world'"));
      EXPECT_EQ(each.pid, pids[each.rank]);
    }
  }
}

class Mismatches
    : public testing::TestWithParam<std::tuple<std::string, Difference>> {};

TEST_P(Mismatches, AreToldToAllWithBothSides) {
  const auto& [backend, difference] = GetParam();
  RankProcesses ranks(difference.role, 3, backend);
  ExpectTold(ranks, difference, /*is_suspect=*/backend == "nccl");
}

INSTANTIATE_TEST_SUITE_P(
    All, Mismatches,
    testing::Combine(
        testing::Values("shm", "tcp", "nccl"),
        testing::Values(
            Difference{"kind", "broadcast(2000 x f32, root 0)",
                       "all_reduce(2000 x f32, sum)"},
            Difference{"dtype", "all_reduce(2000 x i32, sum)",
                       "all_reduce(2000 x f32, sum)"},
            Difference{"counts", "all_reduce(1000 x f32, sum)",
                       "all_reduce(2000 x f32, sum)"},
            Difference{"reduce_op", "all_reduce(2000 x f32, max)",
                       "all_reduce(2000 x f32, sum)"},
            Difference{"root", "broadcast(2000 x f32, root 0)",
                       "broadcast(2000 x f32, root 1)"},
            Difference{"name", "all_reduce(2000 x f32, sum, name 'weights')",
                       "all_reduce(2000 x f32, sum, name 'biases')"})),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param), "_",
                          std::get<1>(info.param).role);
    });

// Like the real NCCL, the fake of these ranks lets operations of the same
// number of bytes meet.
class UncheckedMismatches : public testing::TestWithParam<Difference> {
 protected:
  UncheckedMismatches() { setenv("FAKE_GPU_MEETS_BY_BYTES", "1", 1); }
  ~UncheckedMismatches() override { unsetenv("FAKE_GPU_MEETS_BY_BYTES"); }
};

TEST_P(UncheckedMismatches, AreToldToAllWithBothSides) {
  RankProcesses ranks(GetParam().role, 3, "nccl");
  ExpectTold(ranks, GetParam(), /*is_suspect=*/true);
}

// This also holds for the last operation of a group.
TEST_P(UncheckedMismatches, AreToldWhenAllHasEnded) {
  RankProcesses ranks(absl::StrCat("ended_", GetParam().role), 3, "nccl");
  AwaitReady(ranks, 3);
  Go(ranks);
  ExpectTold(ranks, GetParam(), /*is_suspect=*/true);
}

INSTANTIATE_TEST_SUITE_P(
    All, UncheckedMismatches,
    testing::Values(Difference{"dtype", "all_reduce(2000 x i32, sum)",
                               "all_reduce(2000 x f32, sum)"},
                    Difference{"reduce_op", "all_reduce(2000 x f32, max)",
                               "all_reduce(2000 x f32, sum)"},
                    Difference{"name",
                               "all_reduce(2000 x f32, sum, name 'weights')",
                               "all_reduce(2000 x f32, sum, name 'biases')"}),
    [](const auto& info) { return info.param.role; });

TEST_P(Faults, GroupsInDifferentOrdersAreToldToAll) {
  RankProcesses ranks("group_order", 3, GetParam());
  const std::vector<pid_t> pids = PidsOf(ranks);
  for (int rank = 0; rank < 3; ++rank) {
    const absl::Status status = StatusIn(ranks.Wait(rank));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
    const Blame blame = BlameOf(status).value_or(Blame());
    EXPECT_EQ(blame.cause, Blame::Cause::kDiffer) << status;
    ASSERT_THAT(blame.ranks, testing::SizeIs(2)) << status;
    EXPECT_EQ(RanksOf(blame)[0], 0);
    for (const Blame::Rank& each : blame.ranks) {
      EXPECT_EQ(each.last, each.rank == 0 ? "barrier() #1 of group 'a'"
                                          : "barrier() #1 of group 'b'");
      EXPECT_EQ(each.pid, pids[each.rank]);
    }
  }
}

TEST(SharedMemory, ThatMayNotBeOpenedIsToldToAll) {
  RankProcesses ranks("hidden_memory", 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(
        ranks.Wait(rank),
        AllOf(HasSubstr("PERMISSION_DENIED: making the group 'world' "
                        "(shm) on rank "),
              HasSubstr("the shared memory of rank "),
              HasSubstr("no permission to open /proc/"),
              HasSubstr("for processes of one user"), HasSubstr("take 'tcp'")));
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::FaultDeadlines deadlines;
  deadlines.barrier = absl::Milliseconds(250);  // only this deadline can end it
  return lockstep::RankProcesses::Main(argc, argv,
                                       lockstep::FaultRoles(deadlines));
}
