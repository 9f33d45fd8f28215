#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/conformance_parts.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void ExpectGoodSplits(const MakeRanks& make) {
  const Ranks ranks = make(5);
  OnEachRank(ranks, [](Communicator& rank) {
    const bool odd = rank.rank() % 2 == 1;
    // Members may be in any order; it becomes the order of the new ranks.
    const std::vector<int> members =
        odd ? std::vector<int>{3, 1} : std::vector<int>{0, 2, 4};
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  rank.Split(odd ? "odd" : "even", members));
    EXPECT_EQ(part->size(), odd ? 2 : 3);
    EXPECT_EQ(members[part->rank()], rank.rank());
    std::vector<int32_t> value = {rank.rank()};
    const Buffer buffer = BufferOf(absl::MakeSpan(value));
    LOCKSTEP_ASSERT_OK(Wait(part->AllReduce(buffer, buffer, ReduceOp::kSum)));
    EXPECT_EQ(value[0], odd ? 4 : 6);
    EXPECT_THAT(rank.Split(odd ? "odd" : "even", members),
                StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_THAT(rank.Split("others", {(rank.rank() + 1) % 5}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(rank.Split("others", {rank.rank(), 7}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
  });
}

// Groups that can't become complete fail, and do not wait for ever.
void ExpectFailingSplits(const MakeRanks& make) {
  {  // The members differ between ranks.
    const Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    const absl::Status status = ranks[1]->Split("part", {1, 0}).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("has 1, 0"), HasSubstr("has 0, 1"))));
    ExpectSame(work.Wait(), status);
    ExpectSame(Wait(ranks[0]->Barrier()), status);
  }
  {  // A member leaves before it has joined.
    Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    ranks[1] = nullptr;
    EXPECT_THAT(work.Wait(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1")));
  }
  {  // The parent group is aborted.
    const Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    ranks[1]->Abort(absl::InternalError("no"));
    EXPECT_THAT(work.Wait(), StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(ranks[1]->Split("part", {0, 1}),
                StatusIs(absl::StatusCode::kAborted));
  }
  const Ranks ranks = make(1);
  LOCKSTEP_EXPECT_OK(ranks[0]->Close());
  EXPECT_THAT(ranks[0]->Split("part", {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace

void ExpectSplits(const MakeRanks& make) {
  ExpectGoodSplits(make);
  ExpectFailingSplits(make);
}

}  // namespace lockstep::internal_collective
