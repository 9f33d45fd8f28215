#include "lockstep/collective/verdicts.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective::verdicts {
namespace {

const std::vector<std::string> kSaid = {"rank 1 has issued nothing",
                                        "rank 2 last issued barrier()"};

TEST(Verdicts, RanksThatDifferAreNamedWithWhatTheyIssued) {
  const std::vector<Issued> issued = {{"rank 0", "barrier()"}, {"rank 2", ""}};
  EXPECT_EQ(OperationsDiffer("world", 7, 7, issued, ""),
            absl::FailedPreconditionError(
                "the ranks of group 'world' differ at operation #7: rank 0 "
                "issued barrier(), and rank 2 issued something else"));
  EXPECT_EQ(OperationsDiffer("world", 5, 7, issued, ResultsAreSuspect(5)),
            absl::FailedPreconditionError(
                "the ranks of group 'world' differ at operation #5 or one "
                "after it, up to #7: rank 0 issued barrier(), and rank 2 "
                "issued something else; it may have ended all the same, and "
                "what came of the group's operations from #5 on is suspect"));
  EXPECT_EQ(OperationsDiffer("world", 0, 0, issued, ""),
            absl::FailedPreconditionError(
                "the ranks of group 'world' differ: rank 0 issued barrier(), "
                "and rank 2 issued something else"));
}

TEST(Verdicts, RanksThatAreMissingAreNamed) {
  EXPECT_EQ(
      DidNotCome("barrier() #3", ListRanks({1, 2}), absl::Seconds(5), kSaid),
      absl::DeadlineExceededError(
          "barrier() #3: ranks 1, 2 did not come within 5s; rank 1 has issued "
          "nothing; rank 2 last issued barrier()"));
  EXPECT_EQ(WasNotDone("barrier() #3", absl::Seconds(5), {}),
            absl::DeadlineExceededError(
                "barrier() #3: all ranks came, and it was not done within 5s; "
                "its data does not get through, or is slow"));
  EXPECT_EQ(WasNotDone("barrier() #3", absl::Seconds(5), {kSaid[0]}),
            absl::DeadlineExceededError(
                "barrier() #3: all ranks came, and it was not done within 5s; "
                "rank 1 has issued nothing"));
  EXPECT_EQ(MissingIsNotKnown("barrier() #3", absl::Seconds(5),
                              "rank 0 is silent for 6s"),
            absl::DeadlineExceededError(
                "barrier() #3 did not end within 5s, and who is missing is not "
                "known: rank 0 is silent for 6s"));
  EXPECT_EQ(IsSlow("barrier() #3", ListRanks({1}), {kSaid[0]}),
            "barrier() #3 is slow: ranks 1 have not come yet; rank 1 has "
            "issued nothing");
  EXPECT_EQ(IsSlow("barrier() #3", "", {}),
            "barrier() #3 is slow: all ranks have come, and its data is on the "
            "way");
}

TEST(Verdicts, ALongListOfRanksIsCutOff) {
  EXPECT_EQ(ListRanks({10, 11, 12}, 16), "ranks 10, 11, 12");
  EXPECT_EQ(ListRanks({10, 11, 12}, 8), "3 ranks, ranks 10, ...");
}

TEST(Verdicts, ARankThatIsGoneIsToldWithItsLastWords) {
  const std::string words =
      DescribeLastWords("barrier() #3", absl::Microseconds(2500));
  EXPECT_EQ(words, "had last issued barrier() #3 as of 2ms ago");
  EXPECT_EQ(DescribeLastWords("", absl::Seconds(1)),
            "had issued nothing as of 1s ago");
  EXPECT_EQ(DescribeSilence("", absl::Seconds(1)),
            "has not told yet what it has issued, and is silent for 1s");
  const absl::Status told =
      WithBlame(absl::AbortedError("why"), {1, absl::StatusCode::kInternal});
  EXPECT_EQ(
      IsGone("rank 2", 2, absl::OkStatus(), words, told),
      WithBlame(absl::UnavailableError(
                    "rank 2 has left the job; it had last issued barrier() #3 "
                    "as of 2ms ago; it had been told: why"),
                {1, absl::StatusCode::kInternal}));
  EXPECT_EQ(IsGone("rank 2", 2, absl::OkStatus(), "", absl::OkStatus()),
            WithBlame(absl::UnavailableError("rank 2 has left the job"),
                      {2, absl::StatusCode::kUnavailable}));
  EXPECT_EQ(BlameOf(IsGone("rank 2", 2, absl::OkStatus(), "",
                           absl::FailedPreconditionError("they differ")))
                ->rank,
            -1);
  const absl::Status lost = absl::UnavailableError("rank 2: connection lost");
  EXPECT_EQ(IsGone("rank 2", 2, lost, "", told),
            WithBlame(lost, {2, absl::StatusCode::kUnavailable}));
}

TEST(Verdicts, AnAbortBlamesTheRankWhoseErrorCameFirst) {
  const absl::Status own = Aborted("half", 1, 3, absl::NotFoundError("no x"));
  EXPECT_EQ(own,
            WithBlame(absl::AbortedError(
                          "rank 1 aborted the group 'half': NOT_FOUND: no x"),
                      {3, absl::StatusCode::kNotFound}));
  const absl::Status passed_on = Aborted("world", 0, 0, own);
  EXPECT_EQ(BlameOf(passed_on)->rank, 3);
  EXPECT_EQ(BlameOf(passed_on)->code, absl::StatusCode::kNotFound);
  EXPECT_EQ(AbortedJob("rank 2 (host)", 2, absl::NotFoundError("no x")),
            WithBlame(absl::AbortedError("rank 2 (host) has aborted the job: "
                                         "NOT_FOUND: no x"),
                      {2, absl::StatusCode::kNotFound}));
}

TEST(Verdicts, TheFirstLossIsToldWithWhatMayComeOfIt) {
  const absl::Status loss = WithBlame(absl::UnavailableError("rank 2 is lost"),
                                      {2, absl::StatusCode::kUnavailable});
  const absl::Status left = absl::UnavailableError("rank 1 has left");
  EXPECT_EQ(AfterFirstLoss(left, loss),
            WithBlame(absl::UnavailableError(
                          "rank 1 has left; before that, rank 2 is "
                          "lost"),
                      {2, absl::StatusCode::kUnavailable}));
  EXPECT_EQ(AfterFirstLoss(left, absl::OkStatus()), left);
  EXPECT_EQ(AfterFirstLoss(loss, loss), loss);
  const absl::Status differ = absl::FailedPreconditionError("they differ");
  EXPECT_EQ(AfterFirstLoss(differ, loss), differ);
}

TEST(Verdicts, ADeadlockIsToldAsTheWayRound) {
  EXPECT_EQ(Deadlock({{"a", "rank 1", "b"}, {"b", "rank 0", "a"}}),
            absl::FailedPreconditionError(
                "ranks use groups in different orders, and wait for each "
                "other: a waits for rank 1, which waits for b; b waits for "
                "rank 0, which waits for a"));
}

}  // namespace
}  // namespace lockstep::internal_collective::verdicts
