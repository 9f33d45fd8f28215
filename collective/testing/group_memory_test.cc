// Tests memory of a group whose ranks are processes: faults while ranks read
// each other's memory, and memory that can't be shared.
// collective/testing/conformance_memory.cc tests all backends, and
// collective/shm/lent_memory_test.cc the way over shm.
#include <signal.h>

#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/memory_roles.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 3;
constexpr int kFaulty = 2;

// Rank 2 gets a signal where it is about to read the others' memory.
class GroupMemoryFaults : public testing::TestWithParam<std::string> {
 protected:
  void Start(const std::string& argument) {
    ranks_.emplace(absl::StrCat("stands_in_", GetParam()), kRanks, argument);
    for (int rank = 0; rank < kRanks; ++rank) ranks_->AwaitLine(rank, "joined");
  }

  // Expects that the others end with this status.
  void ExpectOthers(const testing::Matcher<absl::Status>& due) {
    for (int rank = 0; rank < kFaulty; ++rank) {
      EXPECT_THAT(StatusIn(ranks_->AwaitLine(rank, " | ")), due);
    }
  }

  std::optional<RankProcesses> ranks_;
};

INSTANTIATE_TEST_SUITE_P(Phases, GroupMemoryFaults,
                         testing::Values("reduce", "copy"),
                         [](const auto& info) { return info.param; });

TEST_P(GroupMemoryFaults, AKilledRankIsNamed) {
  Start("patient");
  ranks_->Signal(kFaulty, SIGKILL);
  ExpectOthers(
      Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLost, {kFaulty}));
}

TEST_P(GroupMemoryFaults, AStoppedRankHasNoResult) {
  Start("abort");
  ranks_->Signal(kFaulty, SIGSTOP);
  Go(*ranks_);
  ExpectOthers(StatusIs(absl::StatusCode::kAborted));
  // By now, they have overwritten their memory.
  ranks_->Signal(kFaulty, SIGCONT);
  const std::string printed = ranks_->Wait(kFaulty);
  EXPECT_THAT(ParseFaultReport(printed).status,
              AllOf(Not(HasSubstr("OK")), Not(HasSubstr("DATA_LOSS"))));
}

TEST(GroupMemory, IsNotSharedIfARankHasNoDescriptor) {
  RankProcesses ranks("no_memory_files", kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(
        ranks.Wait(rank),
        AllOf(HasSubstr(
                  "not shared, RESOURCE_EXHAUSTED: rank 1: could not make 62"),
              HasSubstr("ulimit -n")));
  }
}

TEST(GroupMemory, IsNotSharedIfARankHasNoAddresses) {
  RankProcesses ranks("no_addresses", kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(ranks.Wait(rank),
                AllOf(HasSubstr("not shared, RESOURCE_EXHAUSTED: rank 0: the "
                                "memory of rank 1: "),
                      HasSubstr("Cannot allocate memory")));
  }
}

TEST(GroupMemory, LeavesNothingBehind) {
  RankProcesses ranks("allocates", kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), "nothing is left over\n");
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(
      argc, argv, lockstep::MemoryRoles(absl::Milliseconds(250)));
}
