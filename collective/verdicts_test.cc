#include "lockstep/collective/verdicts.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective::verdicts {
namespace {

using Cause = Blame::Cause;
using Code = absl::StatusCode;

// Rank `rank` of the group, which is rank 10 + `rank` of the job.
Party PartyOf(int rank, absl::string_view last = "") {
  Party party = {absl::StrCat("rank ", rank), {}};
  party.rank.rank = 10 + rank;
  party.rank.host = "trainer";
  party.rank.last = std::string(last);
  return party;
}

const Subject kThird = {"barrier() #3", 3};

// Expects these words, and this blame.
void ExpectVerdict(const absl::Status& status, absl::string_view message,
                   Code code, Cause cause, const std::vector<int>& ranks,
                   const Subject& subject = {}) {
  EXPECT_EQ(status.message(), message);
  EXPECT_THAT(status, Blames(code, cause, ranks));
  EXPECT_THAT(status, BlamesIn(subject.operation, subject.number));
  EXPECT_EQ(BlameOf(status)->code, code);
}

TEST(Verdicts, RanksThatDifferAreNamedWithWhatTheyIssued) {
  const std::vector<Issued> issued = {{PartyOf(0), "barrier()"},
                                      {PartyOf(2), ""}};
  const absl::Status differ = OperationsDiffer("world", 7, 7, issued, "");
  ExpectVerdict(differ,
                "the ranks of group 'world' differ at operation #7: rank 0 "
                "issued barrier(), and rank 2 issued something else",
                Code::kFailedPrecondition, Cause::kDiffer, {10, 12},
                {"barrier() #7 of group 'world'", 7});
  EXPECT_EQ(BlameOf(differ)->ranks[0].last, "barrier() #7 of group 'world'");
  EXPECT_EQ(BlameOf(differ)->ranks[1].last, "");
  ExpectVerdict(
      OperationsDiffer("world", 5, 7, issued, ResultsAreSuspect(5)),
      "the ranks of group 'world' differ at operation #5 or one after it, up "
      "to #7: rank 0 issued barrier(), and rank 2 issued something else; it "
      "may have ended all the same, and what came of the group's operations "
      "from #5 on is suspect",
      Code::kFailedPrecondition, Cause::kDiffer, {10, 12},
      {"barrier() #5 or one after it, up to #7 of group 'world'", 7});
  ExpectVerdict(OperationsDiffer("world", 0, 0, issued, ""),
                "the ranks of group 'world' differ: rank 0 issued barrier(), "
                "and rank 2 issued something else",
                Code::kFailedPrecondition, Cause::kDiffer, {10, 12},
                {"barrier() of group 'world'", 0});
  ExpectVerdict(
      CountsDiffer({"all_to_all(f32) #3", 3}, {PartyOf(0), PartyOf(1), 3, 4}),
      "all_to_all(f32) #3: rank 0 sends 3 elements to rank 1, which takes 4",
      Code::kFailedPrecondition, Cause::kDiffer, {10, 11},
      {"all_to_all(f32) #3", 3});
  ExpectVerdict(
      PropertiesDiffer("backend", "world", {PartyOf(1), "tcp"},
                       {PartyOf(0), "shm"}),
      "the ranks differ in the backend of group 'world': rank 1 has tcp, and "
      "rank 0 has shm",
      Code::kFailedPrecondition, Cause::kDiffer, {11, 10});
}

TEST(Verdicts, RanksThatAreMissingAreNamed) {
  const Missing first = {PartyOf(1), "rank 1 has issued nothing"};
  const Missing second = {PartyOf(2, "barrier()"),
                          "rank 2 last issued barrier()"};
  Missing silent = second;
  silent.answers = false;
  const char* const words =
      "barrier() #3: ranks 1, 2 did not come within 5s; rank 1 has issued "
      "nothing; rank 2 last issued barrier()";
  const absl::Status late = DidNotCome(kThird, ListRanks({1, 2}),
                                       absl::Seconds(5), {first, second}, 4);
  ExpectVerdict(late, words, Code::kDeadlineExceeded, Cause::kLate, {11, 12},
                kThird);
  EXPECT_EQ(BlameOf(late)->more, 4);
  EXPECT_EQ(BlameOf(late)->ranks[1].last, "barrier()");
  // Rank 1 may wait for rank 2.
  ExpectVerdict(DidNotCome(kThird, ListRanks({1, 2}), absl::Seconds(5),
                           {first, silent}, 0),
                words, Code::kDeadlineExceeded, Cause::kSilent, {12}, kThird);
  ExpectVerdict(WasNotDone(kThird, absl::Seconds(5), {}),
                "barrier() #3: all ranks came, and it was not done within 5s; "
                "its data does not get through, or is slow",
                Code::kDeadlineExceeded, Cause::kData, {}, kThird);
  ExpectVerdict(WasNotDone(kThird, absl::Seconds(5), {first}),
                "barrier() #3: all ranks came, and it was not done within 5s; "
                "rank 1 has issued nothing",
                Code::kDeadlineExceeded, Cause::kSilent, {11}, kThird);
  ExpectVerdict(MissingIsNotKnown(kThird, absl::Seconds(5),
                                  {PartyOf(0), "rank 0 is silent for 6s"}),
                "barrier() #3 did not end within 5s, and who is missing is not "
                "known: rank 0 is silent for 6s",
                Code::kDeadlineExceeded, Cause::kSilent, {10}, kThird);
  ExpectVerdict(HubIsSilent("world", PartyOf(0), absl::Seconds(5)),
                "group 'world': rank 0 did not answer within 5s",
                Code::kDeadlineExceeded, Cause::kSilent, {10});
  EXPECT_EQ(IsSlow("barrier() #3", ListRanks({1}), {first}),
            "barrier() #3 is slow: rank 1 has not come yet; rank 1 has "
            "issued nothing");
  EXPECT_EQ(IsSlow("barrier() #3", "", {}),
            "barrier() #3 is slow: all ranks have come, and its data is on the "
            "way");
}

TEST(Verdicts, AnErrorOfATransportNamesTheOperation) {
  const absl::Status known =
      WithBlame(absl::UnavailableError("it is lost"),
                BlameOn(7, Code::kUnavailable, Cause::kLost));
  EXPECT_THAT(TransportFailed(kThird, 1, known),
              Blames(Code::kUnavailable, Cause::kLost, {7}));
  ExpectVerdict(TransportFailed(kThird, 1, absl::UnavailableError("reset")),
                "barrier() #3 on rank 1: reset", Code::kUnavailable,
                Cause::kData, {}, kThird);
}

TEST(Verdicts, ALongListOfRanksIsCutOff) {
  EXPECT_EQ(ListRanks({10, 11, 12}, 16), "ranks 10, 11, 12");
  EXPECT_EQ(ListRanks({10, 11, 12}, 8), "3 ranks, ranks 10, ...");
}

TEST(Verdicts, WhatARankHasIssuedLastIsToldWithItsAge) {
  EXPECT_EQ(DescribeLastIssued("rank 2", "barrier() #3"),
            "rank 2 last issued barrier() #3");
  EXPECT_EQ(DescribeLastIssued("rank 2", ""), "rank 2 has issued nothing");
  const std::string words =
      DescribeLastWords("barrier() #3", absl::Microseconds(2500));
  EXPECT_EQ(words, "had last issued barrier() #3 as of 2ms ago");
  EXPECT_EQ(DescribeLastWords("", absl::Seconds(1)),
            "had issued nothing as of 1s ago");
  EXPECT_EQ(DescribeSilence(words, absl::Seconds(1)),
            words + ", and has been silent for 1s");
  EXPECT_EQ(DescribeSilence("", absl::Seconds(1)),
            "has not said yet what it has issued, and has been silent for 1s");
}

TEST(Verdicts, ARankThatHasLeftIsNamed) {
  const Party rank = PartyOf(2, "barrier() #2");
  ExpectVerdict(HasLeftGroup(kThird, PartyOf(2)),
                "barrier() #3: rank 2 has left the group", Code::kUnavailable,
                Cause::kLeft, {12}, kThird);
  ExpectVerdict(HasLeftGroup(kThird, rank),
                "barrier() #3: rank 2 has left the group; rank 2 last issued "
                "barrier() #2",
                Code::kUnavailable, Cause::kLeft, {12}, kThird);
  ExpectVerdict(HasDropped("world", rank),
                "rank 2 has dropped its communicator of group 'world'; rank 2 "
                "last issued barrier() #2",
                Code::kUnavailable, Cause::kLeft, {12});
  ExpectVerdict(LeftBeforeMaking("half", rank),
                "making the group 'half': rank 2 has left the group",
                Code::kUnavailable, Cause::kLeft, {12});
  ExpectVerdict(LeftBeforeJoining("world", rank),
                "rank 2 of group 'world' has left it before it joined this one",
                Code::kUnavailable, Cause::kLeft, {12});
  ExpectVerdict(CannotJoinAnyMore("world", rank, "half"),
                "rank 2 of group 'world' has left it, and so can't join the "
                "group 'half'",
                Code::kUnavailable, Cause::kLeft, {12});
  ExpectVerdict(HasClosedWorld(rank.rank),
                "rank 12 of the job has closed its world", Code::kUnavailable,
                Cause::kLeft, {12});
}

TEST(Verdicts, ARankThatIsGoneIsToldWithItsLastWords) {
  Party rank = PartyOf(2, "barrier() #3");
  rank.rank.age = absl::Milliseconds(2);
  const absl::Status told =
      WithBlame(absl::AbortedError("why"), BlameOn(1, Code::kInternal));
  const absl::Status left = IsGone(rank, absl::OkStatus(), told);
  EXPECT_EQ(left.message(),
            "rank 2 has left the job; it had last issued barrier() #3 as of "
            "2ms ago; it had been told: why");
  EXPECT_THAT(left, Blames(Code::kUnavailable, Cause::kFailed, {1}));
  EXPECT_EQ(BlameOf(left)->code, Code::kInternal);
  ExpectVerdict(IsGone(PartyOf(2), absl::OkStatus(), absl::OkStatus()),
                "rank 2 has left the job", Code::kUnavailable, Cause::kLeft,
                {12});
  // A rank that has aborted the job has told all itself.
  const absl::Status aborted = AbortedJob(PartyOf(2), absl::NotFoundError("x"));
  EXPECT_EQ(BlameText(IsGone(rank, aborted, absl::OkStatus())),
            BlameText(aborted));
  // The star knows how a rank was lost, and the hub what it issued last.
  const absl::Status lost =
      WithBlame(absl::UnavailableError("rank 2: connection lost"),
                BlameOn(12, Code::kUnavailable, Cause::kLost));
  const absl::Status gone = IsGone(rank, lost, told);
  ExpectVerdict(gone,
                "rank 2: connection lost; it had last issued barrier() #3 as "
                "of 2ms ago",
                Code::kUnavailable, Cause::kLost, {12});
  EXPECT_EQ(BlameOf(gone)->ranks[0].last, "barrier() #3");
  EXPECT_EQ(BlameOf(gone)->ranks[0].age, absl::Milliseconds(2));
  EXPECT_EQ(BlameOf(gone)->ranks[0].host, "trainer");
}

TEST(Verdicts, AnAbortBlamesTheRankWhoseErrorCameFirst) {
  const absl::Status why = absl::NotFoundError("no x");
  const absl::Status own = Aborted("half", PartyOf(1, "barrier() #2"), why);
  EXPECT_EQ(own.message(), "rank 1 aborted the group 'half': NOT_FOUND: no x");
  EXPECT_THAT(own, Blames(Code::kAborted, Cause::kFailed, {11}));
  EXPECT_EQ(BlameOf(own)->code, Code::kNotFound);
  EXPECT_EQ(BlameOf(own)->ranks[0].last, "barrier() #2");
  const absl::Status passed_on = Aborted("world", PartyOf(0), own);
  EXPECT_THAT(passed_on, Blames(Code::kAborted, Cause::kFailed, {11}));
  EXPECT_EQ(BlameOf(passed_on)->code, Code::kNotFound);
  const absl::Status job = AbortedJob(PartyOf(2), why);
  EXPECT_EQ(job.message(), "rank 2 has aborted the job: NOT_FOUND: no x");
  EXPECT_THAT(job, Blames(Code::kAborted, Cause::kFailed, {12}));
  const absl::Status broke =
      Broke("half", PartyOf(1), absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(broke.message(), "rank 1 of group 'half': no memory");
  EXPECT_THAT(broke, Blames(Code::kResourceExhausted, Cause::kFailed, {11}));
}

TEST(Verdicts, TheFirstLossIsToldWithWhatMayComeOfIt) {
  const absl::Status loss =
      WithBlame(absl::UnavailableError("rank 2 is lost"),
                BlameOn(2, Code::kUnavailable, Cause::kLost));
  const absl::Status left =
      WithBlame(absl::UnavailableError("rank 1 has left"),
                BlameOn(1, Code::kUnavailable, Cause::kLeft));
  const absl::Status after = AfterFirstLoss(left, loss);
  EXPECT_EQ(after.message(), "rank 1 has left; before that, rank 2 is lost");
  EXPECT_THAT(after, Blames(Code::kUnavailable, Cause::kLost, {2}));
  EXPECT_EQ(AfterFirstLoss(left, absl::OkStatus()), left);
  EXPECT_EQ(AfterFirstLoss(loss, loss), loss);
  const absl::Status differ = absl::FailedPreconditionError("they differ");
  EXPECT_EQ(AfterFirstLoss(differ, loss), differ);
}

TEST(Verdicts, ADeadlockIsToldAsTheWayRound) {
  const absl::Status deadlock =
      Deadlock({{"a", PartyOf(1), "b"}, {"b", PartyOf(0), "a"}});
  ExpectVerdict(deadlock,
                "ranks use groups in different orders, and wait for each "
                "other: a waits for rank 1, which waits for b; b waits for "
                "rank 0, which waits for a",
                Code::kFailedPrecondition, Cause::kDiffer, {11, 10});
  EXPECT_EQ(BlameOf(deadlock)->ranks[0].last, "b");
}

}  // namespace
}  // namespace lockstep::internal_collective::verdicts
