#include "lockstep/collective/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace lockstep {
namespace {

TEST(BlameTest, IsReadBackFromAStatus) {
  const absl::Status status = WithBlame(
      absl::AbortedError("why"),
      {1234, absl::StatusCode::kInvalidArgument, /*has_begun=*/false});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "why");
  const std::optional<Blame> blame = BlameOf(status);
  ASSERT_TRUE(blame.has_value());
  EXPECT_EQ(blame->rank, 1234);
  EXPECT_EQ(blame->code, absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(blame->has_begun);
}

TEST(BlameTest, TakesEveryCode) {
  for (int code = 1; code <= 16; ++code) {
    const Blame blame = {0, static_cast<absl::StatusCode>(code)};
    const std::optional<Blame> read =
        BlameOf(WithBlame(absl::InternalError(""), blame));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->code, blame.code);
    EXPECT_TRUE(read->has_begun);
  }
}

TEST(BlameTest, TakesThePlaceOfAnEarlierOne) {
  absl::Status status =
      WithBlame(absl::InternalError(""), {1, absl::StatusCode::kInternal});
  status = WithBlame(status, {2, absl::StatusCode::kNotFound});
  EXPECT_EQ(BlameOf(status)->rank, 2);
}

TEST(BlameTest, IsMissingWhereNobodyHasSetIt) {
  EXPECT_FALSE(BlameOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(BlameOf(absl::InternalError("rank 1 INTERNAL")).has_value());
  EXPECT_TRUE(WithBlame(absl::OkStatus(), Blame()).ok());
}

TEST(BlameTest, IgnoresAPayloadThatIsNone) {
  for (const std::string text :
       {"", "rank", "rank 1", "rank x INTERNAL", "rank 1 HUGE"}) {
    absl::Status status = absl::InternalError("");
    status.SetPayload("lockstep/blame", absl::Cord(text));
    EXPECT_FALSE(BlameOf(status).has_value()) << text;
  }
}

TEST(BlameTest, FallsOnTheFirstRankAndNotOnTheOnesThatFollow) {
  const absl::Status own = absl::NotFoundError("no such file");
  const Blame first = internal_collective::BlameFor(own, 3);
  EXPECT_EQ(first.rank, 3);
  EXPECT_EQ(first.code, absl::StatusCode::kNotFound);
  const absl::Status told = WithBlame(absl::AbortedError("rank 3"), first);
  EXPECT_EQ(internal_collective::BlameFor(told, 5).rank, 3);
}

TEST(BlameTest, FallsOnTheRankThatAborts) {
  const absl::Status mine =
      WithBlame(absl::NotFoundError("no such file"),
                {internal_collective::kThisRank, absl::StatusCode::kNotFound,
                 /*has_begun=*/false});
  const Blame blame = internal_collective::BlameFor(mine, 5);
  EXPECT_EQ(blame.rank, 5);
  EXPECT_FALSE(blame.has_begun);
}

TEST(BlameTest, MayFallOnNobody) {
  const absl::Status differ = internal_collective::BlamingNobody(
      absl::FailedPreconditionError("they differ"));
  EXPECT_EQ(BlameOf(differ)->rank, -1);
  EXPECT_EQ(BlameOf(differ)->code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(internal_collective::BlameFor(differ, 3).rank, -1);
  const absl::Status own =
      WithBlame(absl::InternalError(""), {1, absl::StatusCode::kInternal});
  EXPECT_EQ(internal_collective::BlamingNobody(own), own);
}

}  // namespace
}  // namespace lockstep
