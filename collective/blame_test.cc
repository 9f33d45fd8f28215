#include "lockstep/collective/blame.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Blame::Cause kCauses[] = {
    Blame::Cause::kUnknown, Blame::Cause::kFailed, Blame::Cause::kAbsent,
    Blame::Cause::kLeft,    Blame::Cause::kLost,   Blame::Cause::kSilent,
    Blame::Cause::kLate,    Blame::Cause::kDiffer, Blame::Cause::kData};

Blame::Rank RankOf(int number) {
  Blame::Rank rank;
  rank.rank = number;
  rank.host = absl::StrCat("trainer-", number);
  rank.pid = 4000 + number;
  rank.last = absl::StrCat("barrier() #", number, " of group 'world'");
  rank.age = absl::Milliseconds(1250);
  return rank;
}

Blame FullBlame() {
  Blame blame;
  blame.cause = Blame::Cause::kLate;
  blame.code = absl::StatusCode::kDeadlineExceeded;
  blame.ranks = {RankOf(1), RankOf(2)};
  blame.more = 3;
  blame.operation = "all_reduce(4 x f32, sum, name 'a \"b\"') #7 of group 'w'";
  blame.number = 7;
  blame.has_begun = false;
  return blame;
}

TEST(BlameTest, IsReadBackFromAStatus) {
  const absl::Status status = WithBlame(absl::AbortedError("why"), FullBlame());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "why");
  const std::optional<Blame> blame = BlameOf(status);
  ASSERT_TRUE(blame.has_value());
  EXPECT_EQ(blame->cause, Blame::Cause::kLate);
  EXPECT_EQ(blame->code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(RanksOf(*blame), ElementsAre(1, 2));
  EXPECT_EQ(blame->ranks[1].host, "trainer-2");
  EXPECT_EQ(blame->ranks[1].pid, 4002);
  EXPECT_EQ(blame->ranks[1].last, "barrier() #2 of group 'world'");
  EXPECT_EQ(blame->ranks[1].age, absl::Milliseconds(1250));
  EXPECT_EQ(blame->more, 3);
  EXPECT_EQ(blame->operation, FullBlame().operation);
  EXPECT_EQ(blame->number, 7u);
  EXPECT_FALSE(blame->has_begun);
}

TEST(BlameTest, StandsInThePayloadAsJson) {
  Blame blame = BlameOn(2, absl::StatusCode::kUnavailable, Blame::Cause::kLost);
  blame.ranks = {RankOf(2)};
  constexpr absl::string_view kJson =
      R"({"cause":"lost","code":"UNAVAILABLE","ranks":[{"rank":2,)"
      R"("host":"trainer-2","pid":4002,"last":"barrier() #2 of group 'world'",)"
      R"("age":1.25}],"more":0,"operation":"","number":0,"has_begun":true})";
  EXPECT_EQ(ToJson(blame), kJson);
  const absl::Status status = WithBlame(absl::InternalError(""), blame);
  EXPECT_EQ(status.GetPayload("lockstep/blame"), absl::Cord(kJson));
  EXPECT_EQ(internal_collective::BlameText(status), kJson);
}

TEST(BlameTest, TakesEveryCauseAndCode) {
  for (const Blame::Cause cause : kCauses) {
    for (int number = 1; number <= 16; ++number) {
      const auto code = static_cast<absl::StatusCode>(number);
      const std::optional<Blame> read =
          BlameOf(WithBlame(absl::InternalError(""), BlameOn(1, code, cause)));
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(read->code, code);
      EXPECT_EQ(read->cause, cause);
    }
  }
}

TEST(BlameTest, ACauseOfANewerReleaseIsUnknown) {
  std::string json = ToJson(BlameOn(1, absl::StatusCode::kInternal));
  json.replace(json.find("failed"), 6, "melted");
  ASSERT_TRUE(ParseBlame(json).has_value());
  EXPECT_EQ(ParseBlame(json)->cause, Blame::Cause::kUnknown);
  EXPECT_EQ(ParseBlame(json)->rank(), 1);
}

TEST(BlameTest, KeysOfANewerReleaseArePassedOver) {
  std::string json = ToJson(FullBlame());
  json.replace(json.rfind('}'), 1,
               ",\"site\":\"a, }\",\"hops\":[2.5,{},{\"a\":null,\"b\":[]}]}");
  json.replace(json.find("},{"), 1, ",\"is_head\":true}");
  ASSERT_TRUE(ParseBlame(json).has_value()) << json;
  EXPECT_EQ(ToJson(*ParseBlame(json)), ToJson(FullBlame()));
}

TEST(BlameTest, HasARankIfOneIsToBlame) {
  EXPECT_EQ(BlameOn(3, absl::StatusCode::kInternal).rank(), 3);
  EXPECT_EQ(BlameOn(-1, absl::StatusCode::kInternal).rank(), -1);
  EXPECT_EQ(FullBlame().rank(), -1);
  Blame one = BlameOn(3, absl::StatusCode::kInternal);
  one.more = 1;
  EXPECT_EQ(one.rank(), -1);
}

TEST(BlameTest, TakesThePlaceOfAnEarlierOne) {
  absl::Status status = WithBlame(absl::InternalError(""),
                                  BlameOn(1, absl::StatusCode::kInternal));
  status = WithBlame(status, BlameOn(2, absl::StatusCode::kNotFound));
  EXPECT_EQ(BlameOf(status)->rank(), 2);
}

TEST(BlameTest, IsMissingWhereNobodyHasSetIt) {
  EXPECT_FALSE(BlameOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(BlameOf(absl::InternalError("rank 1 failed")).has_value());
  EXPECT_TRUE(WithBlame(absl::OkStatus(), Blame()).ok());
}

// A payload may come from another process.
TEST(BlameTest, IgnoresAPayloadThatIsNone) {
  const std::string json = ToJson(FullBlame());
  for (size_t size = 0; size < json.size(); ++size) {
    EXPECT_FALSE(ParseBlame(json.substr(0, size)).has_value()) << size;
  }
  EXPECT_TRUE(ParseBlame(json).has_value());
  EXPECT_FALSE(ParseBlame(json + " ").has_value());
  std::string large = json;
  large.replace(large.find("\"rank\":1,"), 9, "\"rank\":4294967297,");
  EXPECT_FALSE(ParseBlame(large).has_value());
  EXPECT_FALSE(ParseBlame(std::string(1 << 20, '{')).has_value());
  absl::Status status = absl::InternalError("");
  status.SetPayload("lockstep/blame", absl::Cord("rank 1 INTERNAL"));
  EXPECT_FALSE(BlameOf(status).has_value());
}

TEST(BlameTest, ALongTextIsCutOff) {
  Blame blame = BlameOn(1, absl::StatusCode::kInternal);
  blame.operation = std::string(100000, 'x');
  blame.ranks[0].last = std::string(100000, 'y');
  const std::optional<Blame> read =
      BlameOf(WithBlame(absl::InternalError(""), blame));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->operation, std::string(256, 'x'));
  EXPECT_EQ(read->ranks[0].last, std::string(256, 'y'));
}

// A name may end a line, or have bytes that are no characters.
TEST(BlameTest, IsOneLineOfText) {
  Blame blame = BlameOn(1, absl::StatusCode::kInternal);
  blame.operation = "barrier(name 'a\nlockstep launch: b\x1b[2J')";
  blame.ranks[0].host = std::string(300, '\xc3') + "\xa4";
  const std::optional<Blame> read =
      BlameOf(WithBlame(absl::InternalError(""), blame));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->operation, blame.operation);
  const std::string described = Describe(*read);
  EXPECT_EQ(described.find('\n'), std::string::npos);
  EXPECT_EQ(described.find('\x1b'), std::string::npos);
  // A text that was cut off once is not changed again.
  EXPECT_EQ(ToJson(*ParseBlame(ToJson(*read))), ToJson(*read));
  blame.operation = std::string(255, 'x') + "\xc3\xa4";
  EXPECT_EQ(ParseBlame(ToJson(blame))->operation, std::string(255, 'x'));
}

TEST(BlameTest, NamesSomeOfVeryManyRanks) {
  Blame blame = BlameOn(-1, absl::StatusCode::kInternal);
  for (int rank = 0; rank < 1000; ++rank) blame.ranks.push_back(RankOf(rank));
  blame.ranks[0].age = absl::InfiniteDuration();
  blame.ranks[1].age = -absl::InfiniteDuration();
  const std::optional<Blame> read =
      BlameOf(WithBlame(absl::InternalError(""), blame));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->ranks.size(), Blame::kMostRanks);
  EXPECT_EQ(read->more, 1000 - 16);
  EXPECT_EQ(read->ranks[0].age, absl::Hours(24 * 365));
  EXPECT_EQ(read->ranks[1].age, absl::ZeroDuration());
  // Nobody writes more ranks than that.
  std::string json = ToJson(*read);
  const std::string first = json.substr(json.find("{\"rank\""));
  json.insert(json.find("{\"rank\""),
              first.substr(0, first.find('}') + 1) + ",");
  EXPECT_FALSE(ParseBlame(json).has_value());
}

TEST(BlameTest, IsPrintedInALineBelowTheMessage) {
  EXPECT_EQ(ToLines(absl::NotFoundError("no file")), "NOT_FOUND: no file");
  Blame blame = BlameOn(2, absl::StatusCode::kUnavailable, Blame::Cause::kLost);
  blame.ranks = {RankOf(2)};
  EXPECT_EQ(ToLines(WithBlame(absl::UnavailableError("why"), blame)),
            absl::StrCat("UNAVAILABLE: why\n  ", Describe(blame)));
}

TEST(BlameTest, IsDescribedWithWhatToDo) {
  Blame blame = BlameOn(2, absl::StatusCode::kUnavailable, Blame::Cause::kLost);
  EXPECT_EQ(Describe(blame).substr(0, 26), "lost: rank 2; the process ");
  EXPECT_EQ(Describe(FullBlame()).substr(0, 106),
            "late: ranks 1 (trainer-1, pid 4001), 2 (trainer-2, pid 4002) and "
            "3 more, in all_reduce(4 x f32, sum, name ");
  EXPECT_EQ(
      Describe(BlameOn(-1, absl::StatusCode::kInternal, Blame::Cause::kDiffer)),
      "differ; the ranks do different things or have different options: "
      "correct the program or the options");
}

TEST(BlameTest, FallsOnTheFirstRankAndNotOnTheOnesThatFollow) {
  const absl::Status own = absl::NotFoundError("no such file");
  const Blame first = BlameFor(own, RankOf(3));
  EXPECT_EQ(first.rank(), 3);
  EXPECT_EQ(first.cause, Blame::Cause::kFailed);
  EXPECT_EQ(first.code, absl::StatusCode::kNotFound);
  const absl::Status told = WithBlame(absl::AbortedError("rank 3"), first);
  EXPECT_EQ(BlameFor(told, RankOf(5)).rank(), 3);
}

// A session does not always know its rank in the job.
TEST(BlameTest, FallsOnTheRankThatAborts) {
  Blame unknown = BlameOn(-1, absl::StatusCode::kNotFound);
  unknown.has_begun = false;
  const Blame blame = BlameFor(
      WithBlame(absl::NotFoundError("no such file"), unknown), RankOf(5));
  EXPECT_EQ(blame.rank(), 5);
  EXPECT_FALSE(blame.has_begun);
}

TEST(BlameTest, MayFallOnNobody) {
  const absl::Status differ = internal_collective::Blaming(
      Blame::Cause::kDiffer, absl::FailedPreconditionError("they differ"));
  EXPECT_THAT(differ, Blames(absl::StatusCode::kFailedPrecondition,
                             Blame::Cause::kDiffer, {}));
  EXPECT_THAT(BlameFor(differ, RankOf(3)).ranks, IsEmpty());
  const absl::Status own = WithBlame(absl::InternalError(""),
                                     BlameOn(1, absl::StatusCode::kInternal));
  EXPECT_EQ(internal_collective::Blaming(Blame::Cause::kDiffer, own), own);
}

}  // namespace
}  // namespace lockstep
