// These tests check CutOptions::shards: what a shard gets is the same on any
// number of ranks, for every policy.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/padding_waste.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/state.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSize = 211;

// The rows of a shard in a step: the samples, their positions and the ends of
// its rows, first of the data and then of the padding.
struct Rows {
  std::vector<int64_t> indices;
  std::vector<int64_t> positions;
  std::vector<int64_t> row_ends;
  int64_t valid = 0;
  int64_t most_rows = 0;

  bool operator==(const Rows& other) const {
    return indices == other.indices && positions == other.positions &&
           row_ends == other.row_ends && valid == other.valid &&
           most_rows == other.most_rows;
  }
};

// By epoch, step and shard.
using AllRows = std::map<std::tuple<int64_t, int64_t, int64_t>, Rows>;

void Append(const BatchIndices& batch, int64_t begin, int64_t count,
            Rows& rows) {
  for (int64_t row = begin; row < begin + count; ++row) {
    const int64_t last = batch.SamplesBefore(row + 1);
    for (int64_t i = batch.SamplesBefore(row); i < last; ++i) {
      rows.indices.push_back(batch.indices[i]);
      rows.positions.push_back(batch.positions[i]);
    }
    rows.row_ends.push_back(static_cast<int64_t>(rows.indices.size()));
  }
}

// Adds the rows of each shard of a batch, and checks that the shards are all of
// the batch.
void AddShards(const BatchIndices& batch, AllRows& all) {
  std::vector<int> times(batch.rows());
  int64_t valid = 0, before = -1;
  for (const ShardRows& shard : batch.shards) {
    Rows rows;
    Append(batch, shard.begin, shard.valid, rows);
    Append(batch, shard.padding_begin, shard.padding, rows);
    rows.valid = shard.valid;
    rows.most_rows = batch.most_rows;
    EXPECT_LE(shard.valid + shard.padding, batch.most_rows);
    for (int64_t i = 0; i < shard.valid; ++i) ++times.at(shard.begin + i);
    for (int64_t i = 0; i < shard.padding; ++i) {
      ++times.at(shard.padding_begin + i);
    }
    valid += shard.valid;
    EXPECT_TRUE(before < 0 || shard.shard == before + 1);
    before = shard.shard;
    EXPECT_TRUE(
        all.emplace(std::make_tuple(batch.epoch, batch.step, shard.shard),
                    std::move(rows))
            .second)
        << "shard " << shard.shard << " came twice";
  }
  EXPECT_EQ(valid, batch.valid);
  for (const int each : times) EXPECT_EQ(each, 1);
  EXPECT_LE(static_cast<int64_t>(batch.shards.size()), batch.most_shards);
  EXPECT_GE(static_cast<int64_t>(batch.shards.size()), batch.most_shards - 1);
}

// Takes steps on all ranks until the epoch ends, or `most` of them. Returns the
// state of the last rank, and the counts of positions in `counts`.
std::string Take(const std::shared_ptr<const Order>& order,
                 const SamplerOptions& options, int64_t epoch,
                 const std::string& state, int64_t most, AllRows& all,
                 std::vector<int64_t>* counts = nullptr) {
  std::string last;
  std::vector<int64_t> first_counts;
  for (int64_t rank = 0; rank < options.cut.world; ++rank) {
    SamplerOptions own = options;
    own.rank = rank;
    auto sampler = Sampler::Create(order, own);
    EXPECT_THAT(sampler, IsOk());
    if (!sampler.ok()) return "";
    LOCKSTEP_EXPECT_OK(state.empty() ? (*sampler)->StartEpoch(epoch)
                                     : (*sampler)->RestoreState(state));
    if (state.empty() && epoch == 1) {
      LOCKSTEP_EXPECT_OK((*sampler)->Skip(5, 11));
      LOCKSTEP_EXPECT_OK((*sampler)->Skip(100, 101));
    }
    BatchIndices batch;
    for (int64_t step = 0; step < most; ++step) {
      const absl::StatusOr<bool> more = (*sampler)->Next(batch);
      EXPECT_THAT(more, IsOk());
      if (!more.ok() || !*more) break;
      AddShards(batch, all);
    }
    const std::string own_state = (*sampler)->SaveState();
    const SamplerStats& stats = (*sampler)->stats();
    const std::vector<int64_t> own_counts = {stats.delivered, stats.dropped,
                                             stats.skipped, stats.padded};
    if (rank == 0) first_counts = own_counts;
    EXPECT_EQ(own_counts, first_counts);
    EXPECT_TRUE(rank == 0 || own_state == last);
    last = own_state;
  }
  if (counts != nullptr) *counts = first_counts;
  return last;
}

std::vector<int64_t> Lengths() {
  Random random(3);
  std::vector<int64_t> lengths(kSize);
  for (int64_t& length : lengths) length = random.Integer(0, 40);
  return lengths;
}

std::shared_ptr<const Order> Native() {
  return *NativeShuffle::Create({kSize, 7});
}

std::vector<std::shared_ptr<const Order>> Orders(int64_t global_batch,
                                                 int64_t shards) {
  WindowOptions window;
  window.inner = Native();
  window.global_batch = global_batch;
  window.batches = 3;
  GroupedOptions grouped;
  grouped.window = window;
  for (const int64_t length : Lengths()) grouped.groups.push_back(length % 3);
  TokenBudgetOptions budget;
  budget.window = window;
  budget.lengths = Lengths();
  budget.max_tokens = 80;
  budget.world = shards;
  PackedOptions packed;
  packed.window = window;
  packed.lengths = Lengths();
  packed.row_length = 64;
  TorchShuffleOptions torch;
  torch.size = kSize;
  return {Native(), *TorchShuffle::Create(torch),
          *GroupedOrder::Create(grouped), *TokenBudget::Create(budget),
          *PackedOrder::Create(packed)};
}

// As many ranks as shards, without the option, are the reference.
TEST(Shards, AreTheRowsOfAsManyRanksOnAnyNumberOfRanks) {
  Random random(5);
  for (int trial = 0; trial < 60; ++trial) {
    constexpr int64_t kCounts[] = {1, 2, 3, 4, 6, 8, 12, 24};
    SamplerOptions options;
    CutOptions& cut = options.cut;
    const int64_t shards = kCounts[random.Below(8)];
    cut.batch_size = random.Integer(1, 5);
    cut.tail = static_cast<Tail>(random.Below(4));
    cut.layout = static_cast<Layout>(random.Below(2));
    cut.drop_last = random.Below(4) == 0;
    cut.min_last_batch = random.Integer(0, 2);
    cut.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
    for (const auto& order : Orders(cut.batch_size * shards, shards)) {
      SCOPED_TRACE(testing::Message()
                   << order->Describe().ToString() << " trial " << trial
                   << " shards " << shards << " batch " << cut.batch_size);
      cut.world = shards;
      cut.shards = 0;
      AllRows expected;
      std::vector<int64_t> expected_counts, counts;
      Take(order, options, 0, "", kSize, expected, &expected_counts);
      Take(order, options, 1, "", kSize, expected);
      EXPECT_FALSE(expected.empty() && !cut.drop_last);
      cut.shards = shards;
      for (const int64_t world :
           std::set<int64_t>{1, shards, 1 + random.Integer(0, shards),
                             1 + random.Integer(0, shards)}) {
        cut.world = world;
        AllRows all;
        Take(order, options, 0, "", kSize, all, &counts);
        EXPECT_EQ(counts, expected_counts);
        // Another number of ranks goes on in the middle of the epoch.
        const std::string state =
            Take(order, options, 1, "", random.Integer(0, 4), all);
        cut.world = 1 + random.Integer(0, shards);
        Take(order, options, 1, state, kSize, all);
        EXPECT_TRUE(all == expected) << world << " ranks";
      }
      cut.shards = 0;
    }
  }
}

TEST(Shards, AreDealtInRunsAsEvenlyAsPossible) {
  CutOptions options;
  options.shards = 24;
  options.world = 5;
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t rank = 0; rank < 5; ++rank) {
    const ShardRange run = ShardsOf(options, rank);
    runs.emplace_back(run.begin, run.end);
  }
  using Run = std::pair<int64_t, int64_t>;
  EXPECT_THAT(runs, ElementsAre(Run(0, 5), Run(5, 10), Run(10, 15), Run(15, 20),
                                Run(20, 24)));
  options.shards = 0;
  EXPECT_EQ(ShardsOf(options, 3).begin, 3);
  EXPECT_EQ(ShardsOf(options, 3).end, 4);
}

TEST(Shards, RanksThatShareDataGetTheSameShards) {
  SamplerOptions options;
  options.cut.shards = 4;
  options.cut.world = 2;
  options.replicas = 2;
  options.data_stride = 2;
  std::vector<std::vector<int64_t>> indices;
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    auto sampler = *Sampler::Create(*SequentialOrder::Create(8), options);
    LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
    BatchIndices batch;
    ASSERT_THAT(sampler->Next(batch), IsOkAndHolds(true));
    indices.emplace_back(batch.indices.begin(), batch.indices.end());
  }
  EXPECT_THAT(indices, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1),
                                   ElementsAre(2, 3), ElementsAre(2, 3)));
}

TEST(Shards, PaddingWasteIsThatOfAsManyRanks) {
  SamplerOptions options;
  options.cut.batch_size = 3;
  options.cut.world = 8;
  const std::vector<int64_t> lengths = Lengths();
  for (const auto& order : Orders(24, 8)) {
    options.cut.world = 8;
    options.cut.shards = 0;
    const auto expected = MeasurePaddingWaste(order, options, lengths, 0);
    LOCKSTEP_ASSERT_OK(expected.status());
    options.cut.shards = 8;
    for (const int64_t world : {1, 3, 8}) {
      options.cut.world = world;
      const auto waste = MeasurePaddingWaste(order, options, lengths, 0);
      LOCKSTEP_ASSERT_OK(waste.status());
      EXPECT_EQ(waste->tokens, expected->tokens);
      EXPECT_EQ(waste->data, expected->data);
    }
  }
}

TEST(Shards, OnlyPowersOfTwoAndThreeTimesThemAreAccepted) {
  for (const int64_t shards : {1, 2, 3, 4, 6, 8, 24, 48, 49152, 65536}) {
    EXPECT_TRUE(IsShardCount(shards)) << shards;
    CutOptions options;
    options.shards = shards;
    LOCKSTEP_EXPECT_OK(Validate(options));
  }
  for (const int64_t shards : {-4, 5, 9, 18, 36, 98304, 131072}) {
    EXPECT_FALSE(IsShardCount(shards)) << shards;
    CutOptions options;
    options.shards = shards;
    EXPECT_THAT(Validate(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("shards should be 0 (as many as ranks), 2^n "
                                   "or 3 * 2^n, such as 8, 12, 16 or 24, and "
                                   "at most 65536, but got shards=")))
        << shards;
  }
  EXPECT_FALSE(IsShardCount(0));
}

TEST(Shards, MoreRowsThanARankMayHaveAreRefused) {
  CutOptions options;
  options.shards = 65536;
  options.batch_size = 256;
  LOCKSTEP_EXPECT_OK(Validate(options));
  options.batch_size = 257;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 2^24 rows together, but got "
                                 "batch_size=257 for each of shards=65536")));
}

TEST(Shards, MoreRanksThanShardsAreRefused) {
  SamplerOptions options;
  options.cut.shards = 4;
  options.cut.world = 5;
  EXPECT_THAT(
      Sampler::Create(Native(), options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("at least as many shards as ranks with different "
                         "data, 5, but got shards=4: set more shards, or use "
                         "fewer ranks")));
}

std::string StateWith(int64_t shards) {
  SamplerOptions options;
  options.cut.shards = shards;
  auto sampler = *Sampler::Create(Native(), options);
  EXPECT_THAT(sampler->StartEpoch(2), IsOk());
  return sampler->SaveState();
}

TEST(Shards, AStateOfAnotherNumberIsRefused) {
  SamplerOptions options;
  options.cut.shards = 8;
  auto sampler = *Sampler::Create(Native(), options);
  LOCKSTEP_EXPECT_OK(sampler->RestoreState(StateWith(8)));
  EXPECT_THAT(
      sampler->RestoreState(StateWith(24)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("the state is of a sampler with shards=24, and this "
                         "one has shards=8")));
  // A job without shards may begin to have them.
  LOCKSTEP_EXPECT_OK(sampler->RestoreState(StateWith(0)));
  SamplerOptions without;
  EXPECT_THAT(
      (*Sampler::Create(Native(), without))->RestoreState(StateWith(24)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("set shards=24 to go on, on at most 24 "
                         "ranks with different data")));
  RestoreOptions allowed;
  allowed.allow_different = {"shards"};
  LOCKSTEP_EXPECT_OK(sampler->RestoreState(StateWith(24), allowed));
  EXPECT_EQ(sampler->progress().epoch, 2);
  allowed.allow_different = {"shard"};
  EXPECT_THAT(sampler->RestoreState(StateWith(24), allowed),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("details, data and shards")));
}

TEST(Shards, AStateHasThemInVersion2) {
  EXPECT_EQ(StateWith(0)[4], 1);
  std::string bytes = StateWith(24);
  EXPECT_EQ(bytes[4], 2);
  EXPECT_EQ(bytes.size(), 128);
  EXPECT_EQ(bytes[88], 24);
  absl::StatusOr<SamplerState> state = DecodeState(bytes);
  LOCKSTEP_ASSERT_OK(state.status());
  EXPECT_EQ(state->shards, 24);
  state->shards = 25;
  EXPECT_THAT(DecodeState(EncodeState(*state)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shards=25")));
}

TEST(Shards, TheFingerprintsHaveThem) {
  SamplerOptions options;
  options.cut.batch_size = 2;
  options.cut.world = 4;
  const auto data_of = [&options] {
    return (*Sampler::Create(Native(), options))->DataFingerprint();
  };
  const Fingerprint plain = data_of();
  options.cut.shards = 4;
  const Fingerprint four = data_of();
  options.cut.world = 1;
  EXPECT_TRUE(data_of().summary() == four.summary());
  EXPECT_FALSE(plain.summary() == four.summary());
  options.cut.shards = 8;
  options.cut.batch_size = 1;
  EXPECT_FALSE(data_of().summary() == four.summary());
}

}  // namespace
}  // namespace lockstep
