#include "lockstep/collective/control/mark_table.h"

#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/control/control_types.h"

namespace lockstep::internal_collective {
namespace {

using testing::ElementsAre;
using testing::Pair;

bool IsSame(MarkTable& table, int rank, uint64_t number, uint64_t digest) {
  return !table.Compare(rank, {number, digest, ""}).has_value();
}

TEST(MarkTable, RanksThatIssueTheSameAgree) {
  MarkTable table;
  EXPECT_TRUE(table.empty());
  EXPECT_TRUE(IsSame(table, 0, 1, 11));
  EXPECT_TRUE(IsSame(table, 0, 3, 13));
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.FirstUnknown(0, 1), 1u);
  EXPECT_TRUE(IsSame(table, 1, 3, 13));
  EXPECT_EQ(table.FirstUnknown(0, 1), 4u);
  EXPECT_EQ(table.FirstUnknown(0, 2), 1u);
}

TEST(MarkTable, RanksThatDifferAreNamed) {
  MarkTable table;
  EXPECT_TRUE(IsSame(table, 2, 5, 1));
  const auto difference = table.Compare(1, {5, 2, "barrier()"});
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->number, 5u);
  EXPECT_EQ(difference->rank, 1);
  EXPECT_EQ(difference->other, 2);
  EXPECT_THAT(difference->issued,
              ElementsAre(Pair(1, "barrier()"), Pair(2, "")));
}

TEST(MarkTable, OnlyWhatAllRanksHaveIssuedIsDropped) {
  MarkTable table;
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(IsSame(table, rank, 1, 11));
    EXPECT_TRUE(IsSame(table, rank, 2, 12));
  }
  table.Trim(3);
  EXPECT_TRUE(IsSame(table, 2, 1, 11));
  table.Trim(3);
  EXPECT_TRUE(IsSame(table, 2, 1, 0));
  EXPECT_FALSE(IsSame(table, 2, 2, 0));
}

// A rank that is far behind finds marks of the collectives that it comes to.
TEST(MarkTable, TrimKeepsOldAndNewMarksAlike) {
  MarkTable table;
  for (uint64_t number = 1; number <= 5000; ++number) {
    EXPECT_TRUE(IsSame(table, 0, number, 0));
  }
  table.Trim(3);
  int kept = 0, kept_of_first = 0;
  for (uint64_t number = 1; number <= 5000; ++number) {
    const bool found = !IsSame(table, 1, number, 1);
    kept += found ? 1 : 0;
    kept_of_first += found && number <= 500 ? 1 : 0;
  }
  EXPECT_EQ(kept, 1250);
  EXPECT_EQ(kept_of_first, 125);
}

}  // namespace
}  // namespace lockstep::internal_collective
