#include "lockstep/sampler/cut.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CutOptions RandomOptions(Random& random) {
  CutOptions options;
  options.batch_size = random.Integer(1, 9);
  options.world = random.Integer(1, 9);
  options.drop_last = random.Below(4) == 0;
  options.min_last_batch = random.Integer(0, options.batch_size + 1);
  options.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
  options.tail = static_cast<Tail>(random.Below(4));
  options.layout = static_cast<Layout>(random.Below(2));
  return options;
}

// Returns the steps in `size` positions.
std::vector<Cut> AllCuts(const CutOptions& options, int64_t size) {
  std::vector<Cut> cuts;
  while (size > 0) {
    cuts.push_back(NextCut(options, size));
    const int64_t taken = cuts.back().data + cuts.back().dropped;
    EXPECT_GT(taken, 0);
    if (taken <= 0) break;
    size -= taken;
  }
  return cuts;
}

TEST(Cut, AccountsForEveryPositionOnce) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const CutOptions options = RandomOptions(random);
    LOCKSTEP_ASSERT_OK(Validate(options));
    const int64_t size = random.Integer(0, 300);
    int64_t accounted = 0, steps = 0;
    for (const Cut& cut : AllCuts(options, size)) {
      accounted += cut.data + cut.dropped;
      if (cut.data == 0) continue;
      ++steps;
      std::vector<int> dealt(cut.data);
      for (int64_t rank = 0; rank < options.world; ++rank) {
        const Share share = ShareOf(options, cut, rank);
        ASSERT_LE(share.valid, share.rows);
        ASSERT_LE(share.rows, MaxRows(options));
        for (int64_t row = 0; row < share.valid; ++row) {
          ++dealt.at(share.first + row * share.stride);
        }
        if (options.tail == Tail::kPad) {
          for (int64_t row = share.valid; row < share.rows; ++row) {
            ASSERT_GE(share.first + row * share.stride, cut.data);
          }
        }
        if (options.tail == Tail::kMask) {
          ASSERT_GE(share.rows, options.batch_size);
        }
        if (options.tail == Tail::kDrop || options.tail == Tail::kUneven) {
          ASSERT_EQ(share.valid, share.rows);
        }
      }
      ASSERT_EQ(std::count(dealt.begin(), dealt.end(), 1), cut.data);
    }
    ASSERT_EQ(accounted, size);
    ASSERT_EQ(steps, CountSteps(options, size));
  }
}

// Apart from padding and masks, ranks differ by at most one row.
TEST(Cut, DealsEvenly) {
  Random random(2);
  for (int i = 0; i < 20000; ++i) {
    CutOptions options = RandomOptions(random);
    if (options.tail == Tail::kPad) options.layout = Layout::kStrided;
    for (const Cut& cut : AllCuts(options, random.Integer(0, 300))) {
      int64_t fewest = std::numeric_limits<int64_t>::max(), most = 0;
      int64_t rows = -1;
      for (int64_t rank = 0; rank < options.world; ++rank) {
        const Share share = ShareOf(options, cut, rank);
        fewest = std::min(fewest, share.valid);
        most = std::max(most, share.valid);
        if (options.tail != Tail::kUneven) {
          ASSERT_TRUE(rows == -1 || rows == share.rows);
          rows = share.rows;
        }
      }
      ASSERT_LE(most - fewest, options.tail == Tail::kDrop ? 0 : 1);
    }
  }
}

// No rank gets a batch below min_last_batch, or with drop_last below
// batch_size. Masked rows do not count.
TEST(Cut, NeverLeavesASmallerBatch) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const CutOptions options = RandomOptions(random);
    const int64_t least =
        options.drop_last ? options.batch_size : options.min_last_batch;
    for (const Cut& cut : AllCuts(options, random.Integer(0, 300))) {
      if (cut.data == 0) continue;
      for (int64_t rank = 0; rank < options.world; ++rank) {
        const Share share = ShareOf(options, cut, rank);
        const bool masked = options.tail == Tail::kMask;
        ASSERT_GE(masked ? share.valid : share.rows, least);
      }
    }
  }
}

std::vector<int64_t> BatchSizes(const CutOptions& options, int64_t size) {
  std::vector<int64_t> sizes;
  for (const Cut& cut : AllCuts(options, size)) sizes.push_back(cut.data);
  return sizes;
}

TEST(Cut, SmallLastBatchPolicies) {
  CutOptions options;
  options.batch_size = 4;
  options.min_last_batch = 2;
  EXPECT_THAT(BatchSizes(options, 10), ElementsAre(4, 4, 2));
  EXPECT_THAT(BatchSizes(options, 9), ElementsAre(4, 4, 0));
  options.small_last_batch = SmallLastBatch::kMerge;
  EXPECT_THAT(BatchSizes(options, 10), ElementsAre(4, 4, 2));
  EXPECT_THAT(BatchSizes(options, 9), ElementsAre(4, 5));
  options.small_last_batch = SmallLastBatch::kSpread;
  EXPECT_THAT(BatchSizes(options, 9), ElementsAre(4, 3, 2));
  EXPECT_THAT(BatchSizes(options, 1), ElementsAre(0));
  options.min_last_batch =
      4;  // both halves of 5 are too small, so it is one batch
  EXPECT_THAT(BatchSizes(options, 5), ElementsAre(5));
}

TEST(Cut, JoinsUpToMaxRows) {
  CutOptions options;
  options.batch_size = 4;
  options.world = 2;
  options.min_last_batch = 2;
  options.small_last_batch = SmallLastBatch::kMerge;
  options.max_rows = 5;
  EXPECT_THAT(BatchSizes(options, 10), ElementsAre(10));
  options.max_rows = 4;
  EXPECT_THAT(BatchSizes(options, 10), ElementsAre(8, 0));
}

TEST(Cut, PartsSpreadTheRowsOfEachRank) {
  EXPECT_EQ(CountParts(17, 0), 1);
  EXPECT_EQ(CountParts(17, 8), 3);
  EXPECT_EQ(CountParts(16, 8), 2);
  EXPECT_EQ(CountParts(0, 8), 1);  // a step has a part even without rows
  for (int64_t rows = 0; rows < 20; ++rows) {
    for (int64_t parts = 1; parts < 9; ++parts) {
      int64_t end = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const PartRows own = RowsOfPart(rows, parts, part);
        EXPECT_EQ(own.begin, end);
        end = own.end;
        EXPECT_GE(own.end - own.begin, rows / parts);
        EXPECT_LE(own.end - own.begin, (rows + parts - 1) / parts);
      }
      EXPECT_EQ(end, rows);
    }
  }
}

TEST(Cut, HugeStreamsNeedNoTime) {
  CutOptions options;
  options.batch_size = 256;
  options.world = 8;
  EXPECT_EQ(CountSteps(options, int64_t{1} << 62), int64_t{1} << 51);
  EXPECT_EQ(CountSteps(options, (int64_t{1} << 40) + 1),
            (int64_t{1} << 29) + 1);
}

TEST(Cut, ValidateUsesPyTorchsWords) {
  CutOptions options;
  options.batch_size = 0;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch_size should be a positive integer "
                                 "value, but got batch_size=0")));
  options = CutOptions();
  options.world = 0;
  EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("world=0")));
  options = CutOptions();
  options.tail = static_cast<Tail>(7);
  EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("are 7, 0 and 0")));
  options = CutOptions();
  options.min_last_batch = 2;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("min_last_batch must be from 0 to "
                                 "batch_size=1, but got min_last_batch=2")));
}

}  // namespace
}  // namespace lockstep
