// Tests what ranks, as processes, say if they can't meet: which Status each
// returns, with which message, on both sides. tools/bench faults measures how
// soon.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {
namespace {

using internal_collective::kProtocolVersion;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The variable in which the test tells its ranks the join deadline of rank 0 in
// the patient roles.
constexpr char kPatience[] = "LOCKSTEP_TEST_PATIENT_JOIN";

constexpr char kTwoCame[] = "2 of 3 ranks came";
constexpr char kOneRefused[] = "refused: 1 client";

bool HasAll(const std::string& text, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return absl::StrContains(text, part);
  });
}

// Three ranks with a role, and the last line of each, or "" if it prints none.
// In a patient role, rank 0 says all of `heard` if the others came before its
// deadline. The deadline grows until they did.
// Thread-safety: thread-compatible.
class Meeting {
 public:
  explicit Meeting(const std::string& role, const std::string& argument = "",
                   const std::vector<std::string>& heard = {}) {
    auto patience = absl::Seconds(1);
    while (!Meet(role, argument, heard, patience)) patience *= 4;
  }

  const std::string& pid(int rank) const { return pids_[rank]; }
  const std::string& operator[](int rank) const { return said_[rank]; }

 private:
  // Returns true if the deadline was long enough, or should not grow any more.
  bool Meet(const std::string& role, const std::string& argument,
            const std::vector<std::string>& heard, absl::Duration patience) {
    setenv(kPatience, absl::FormatDuration(patience).c_str(), 1);
    RankProcesses ranks(role, 3, argument);
    for (int rank = 0; rank < 3; ++rank) {
      pids_[rank] = absl::StrCat("pid ", ranks.pid(rank), ")");
    }
    AwaitReady(ranks, 3);
    Go(ranks);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string printed = ranks.Wait(rank);
      said_[rank] = absl::StrContains(printed, " | ")
                        ? ParseFaultReport(printed).status
                        : "";
      // The other ranks may wait for rank 0 in vain in this case.
      if (!HasAll(said_[0], heard) && patience < absl::Minutes(1)) return false;
    }
    return true;
  }

  std::string pids_[3];
  std::string said_[3];
};

// Matches the Status of rank 0, and of ranks that came in vain.
testing::Matcher<std::string> Misses(int missing) {
  return AllOf(StartsWith("DEADLINE_EXCEEDED: "),
               HasSubstr(absl::StrCat(kTwoCame, "; ")),
               HasSubstr(absl::StrCat("missing: rank ", missing)));
}

// Matches rank 0's message that one client was refused for this reason.
testing::Matcher<std::string> Refused(const std::string& why) {
  return AllOf(HasSubstr(absl::StrCat(kOneRefused, " (127.0.0.1:")),
               HasSubstr(why));
}

TEST(RendezvousFaults, ARankIsAbsent) {
  const Meeting ranks("patient_absent", "2", {kTwoCame});
  EXPECT_THAT(ranks[0],
              AllOf(Misses(2), HasSubstr("there: rank 0 ("),
                    HasSubstr(ranks.pid(0)), HasSubstr("rank 1 ("),
                    HasSubstr(ranks.pid(1)), Not(HasSubstr("refused")),
                    HasSubstr("see that the missing ranks run")));
  EXPECT_THAT(ranks[1], Misses(2));
  EXPECT_EQ(ranks[2], "");
}

TEST(RendezvousFaults, TwoAreTheSameRank) {
  const Meeting ranks("patient_duplicate", "", {kTwoCame, kOneRefused});
  // Either rank may have come first.
  const int refused = absl::StartsWith(ranks[1], "ALREADY_EXISTS") ? 1 : 2;
  const int joined = 3 - refused;
  const std::string taken = "its rank is taken: rank 1 (";
  const std::string remedy = "start each rank once";
  EXPECT_THAT(ranks[refused],
              AllOf(StartsWith("ALREADY_EXISTS: "),
                    HasSubstr("rank 0 refused rank 1: "), HasSubstr(taken),
                    HasSubstr(ranks.pid(joined)), HasSubstr(remedy)));
  EXPECT_THAT(ranks[joined], Misses(2));
  EXPECT_THAT(ranks[0], AllOf(Misses(2), Refused(taken),
                              HasSubstr(ranks.pid(joined)), HasSubstr(remedy)));
}

// Rank 0 refuses rank 1, and the others miss it. Both sides have the reason.
TEST(RendezvousFaults, ARankOfAnotherJobIsRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {"patient_other_size",
       "it is one of 4 ranks, and rank 0 one of 3: tell all ranks the same "
       "size"},
      {"patient_other_job",
       "it belongs to job 'old', and rank 0 to job 'new': end what is left of "
       "the other one"},
      {"patient_other_version",
       absl::StrCat("it speaks version ", kProtocolVersion + 1,
                    " of the protocol, and rank 0 version ", kProtocolVersion,
                    ": run the same build of Lockstep")}};
  for (const auto& [role, why] : cases) {
    const Meeting ranks(role, "", {kTwoCame, kOneRefused});
    EXPECT_THAT(ranks[1],
                AllOf(StartsWith("FAILED_PRECONDITION: "), HasSubstr(why)));
    EXPECT_THAT(ranks[0], AllOf(Misses(1), Refused(why)));
    EXPECT_THAT(ranks[2], Misses(1));
  }
}

// No message contains a token.
TEST(RendezvousFaults, AnotherToken) {
  const Meeting ranks("patient_wrong_token", "", {kTwoCame, kOneRefused});
  const std::string remedy = "openssl rand -hex 32";
  EXPECT_THAT(ranks[1],
              AllOf(StartsWith("UNAUTHENTICATED: "),
                    HasSubstr("this rank's token is another one than rank 0's"),
                    HasSubstr(remedy)));
  EXPECT_THAT(ranks[0], AllOf(Misses(1),
                              Refused("its token is another one than rank 0's"),
                              HasSubstr(remedy)));
  EXPECT_THAT(ranks[2], Misses(1));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks[rank],
                AllOf(Not(HasSubstr("ours")), Not(HasSubstr("theirs"))));
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::FaultDeadlines deadlines;
  const char* const patience = std::getenv(lockstep::kPatience);
  if (patience != nullptr &&
      !absl::ParseDuration(patience, &deadlines.patient_join)) {
    return 2;
  }
  return lockstep::RankProcesses::Main(argc, argv,
                                       lockstep::FaultRoles(deadlines));
}
