// Tests of samplers over packed orders: rows are dealt, dropped, padded and
// masked as a sampler does with samples, and each sample comes once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/iteration_sampler.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/state.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

using ::testing::ElementsAreArray;

constexpr int64_t kEpoch = 5;

CutOptions RandomCut(Random& random) {
  CutOptions cut;
  cut.batch_size = random.Integer(1, 7);
  cut.world = random.Integer(1, 6);
  cut.tail = static_cast<Tail>(random.Below(4));
  cut.layout = static_cast<Layout>(random.Below(2));
  cut.drop_last = random.Below(4) == 0;
  if (random.Below(2) == 0) {
    cut.min_last_batch = random.Integer(0, cut.batch_size + 1);
    cut.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
  }
  return cut;
}

std::shared_ptr<const Order> RandomOrder(Random& random) {
  const int64_t size = random.Integer(0, 250);
  PackedOptions options;
  options.window.inner = *NativeShuffle::Create({size, 7});
  options.window.global_batch = random.Integer(1, 9);
  options.window.batches = random.Integer(1, 9);
  options.row_length = random.Integer(1, 12);
  options.cut = true;
  for (int64_t i = 0; i < size; ++i) {
    options.lengths.push_back(random.Integer(0, 14));
  }
  return *PackedOrder::Create(std::move(options));
}

// The rows of an epoch, and an order that has the number of a row where the
// packed one has the row.
struct Rows {
  explicit Rows(const Order& packed) : indices(ReadEpoch(packed, kEpoch)) {
    const auto stream = *packed.Open(kEpoch);
    std::vector<std::vector<int64_t>> windows;
    while (size() < stream->size()) {
      const IndexStream::Segment segment = *stream->SegmentAt(size());
      windows.emplace_back();
      for (const int64_t end : segment.row_ends) {
        windows.back().push_back(static_cast<int64_t>(begins.size()) - 1);
        begins.push_back(end);
      }
    }
    skipped.resize(indices.size());
    numbers = *CustomOrder::CreateBatches(
        {"rows", static_cast<int64_t>(begins.size()) - 1},
        [windows](
            int64_t) -> absl::StatusOr<std::vector<std::vector<int64_t>>> {
          return windows;
        });
  }

  int64_t size() const { return begins.back(); }

  // Returns the positions of a row that are not skipped.
  std::vector<int64_t> PositionsOf(int64_t row) const {
    std::vector<int64_t> positions;
    for (int64_t at = begins[row]; at < begins[row + 1]; ++at) {
      if (!skipped[at]) positions.push_back(at);
    }
    return positions;
  }

  // Skips positions. Returns the rows of which nothing is left now.
  std::pair<int64_t, int64_t> Skip(int64_t begin, int64_t end) {
    std::pair<int64_t, int64_t> lost = {0, 0};
    for (int64_t row = 0; row + 1 < static_cast<int64_t>(begins.size());
         ++row) {
      if (PositionsOf(row).empty()) continue;
      for (int64_t at = begins[row]; at < begins[row + 1]; ++at) {
        if (at >= begin && at < end) skipped[at] = true;
      }
      if (!PositionsOf(row).empty()) continue;
      if (lost.second == 0) lost.first = row;
      lost.second = row + 1;
    }
    return lost;
  }

  std::vector<int64_t> indices;
  std::vector<int64_t> begins = {0};
  std::vector<bool> skipped;
  std::shared_ptr<const Order> numbers;
};

// Expects the rows of which `plain` has the numbers.
void ExpectRows(const Rows& rows, const BatchIndices& plain,
                const BatchIndices& packed) {
  ASSERT_EQ(packed.rows(), plain.rows());
  ASSERT_EQ(packed.valid, plain.valid);
  ASSERT_EQ(packed.most_rows, plain.most_rows);
  ASSERT_EQ(packed.step, plain.step);
  ASSERT_EQ(packed.epoch, plain.epoch);
  ASSERT_EQ(packed.splits.size(), plain.indices.size() + 1);
  ASSERT_EQ(packed.indices.size(), packed.positions.size());
  const auto count = static_cast<int64_t>(plain.indices.size());
  std::vector<int64_t> splits = {0}, positions, indices;
  int64_t samples = 0;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t number = plain.indices[row];
    const int64_t round = plain.positions[row] / rows.numbers->Describe().size;
    ASSERT_EQ(round == 0, row < plain.valid);
    if (number >= 0) {
      for (const int64_t at : rows.PositionsOf(number)) {
        positions.push_back(at + round * rows.size());
        indices.push_back(rows.indices[at]);
      }
    }
    splits.push_back(static_cast<int64_t>(positions.size()));
    if (row < plain.valid) samples = splits.back();
  }
  ASSERT_THAT(packed.splits, ElementsAreArray(splits));
  ASSERT_THAT(packed.positions, ElementsAreArray(positions));
  ASSERT_THAT(packed.indices, ElementsAreArray(indices));
  ASSERT_EQ(packed.samples(), samples);
}

using Ranks = std::vector<std::unique_ptr<Sampler>>;

Ranks MakeRanks(const std::shared_ptr<const Order>& order,
                const CutOptions& cut, const std::string& state) {
  Ranks ranks;
  SamplerOptions options;
  options.cut = cut;
  for (options.rank = 0; options.rank < cut.world; ++options.rank) {
    ranks.push_back(*Sampler::Create(order, options));
    EXPECT_THAT(state.empty() ? ranks.back()->StartEpoch(kEpoch)
                              : ranks.back()->RestoreState(state),
                IsOk());
  }
  return ranks;
}

// A life of a job over the packed order, beside one over the numbers of rows.
class Life {
 public:
  Life(const std::shared_ptr<const Order>& packed, Rows& rows,
       const CutOptions& cut, const std::string& packed_state,
       const std::string& plain_state)
      : rows_(rows),
        packed_(MakeRanks(packed, cut, packed_state)),
        plain_(MakeRanks(rows.numbers, cut, plain_state)) {}

  void Skip(Random& random) {
    const int64_t position = packed_[0]->progress().position;
    if (position == rows_.size()) return;
    const int64_t begin = random.Integer(position, rows_.size());
    const int64_t end =
        random.Integer(begin + 1, std::min(begin + 40, rows_.size() + 1) + 1);
    if (end > rows_.size()) return;
    const auto [first, last] = rows_.Skip(begin, end);
    for (const auto& rank : packed_) {
      ASSERT_THAT(rank->Skip(begin, end), IsOk());
    }
    if (last == 0) return;
    for (const auto& rank : plain_) {
      ASSERT_THAT(rank->Skip(first, last), IsOk());
    }
  }

  // Takes a step on each rank. Returns false at the end of the epoch.
  bool Step(std::map<int64_t, int>& times) {
    EXPECT_EQ(*packed_[0]->StepsLeft(), *plain_[0]->StepsLeft());
    int64_t stepped = 0;
    for (size_t rank = 0; rank < packed_.size(); ++rank) {
      BatchIndices packed, plain;
      const absl::StatusOr<bool> more = packed_[rank]->Next(packed);
      EXPECT_THAT(more, IsOk());
      EXPECT_EQ(*plain_[rank]->Next(plain), more.value_or(false));
      if (!more.value_or(false)) continue;
      ++stepped;
      ExpectRows(rows_, plain, packed);
      for (int64_t i = 0; i < packed.samples(); ++i) {
        ++times[packed.positions[i]];
      }
      delivered_ += packed.samples();
    }
    EXPECT_TRUE(stepped == 0 ||
                stepped == static_cast<int64_t>(packed_.size()));
    return stepped > 0;
  }

  // Compares the counts, and adds up those of positions that did not come.
  void CountLost(int64_t& dropped, int64_t& skipped) const {
    for (const auto& rank : packed_) {
      const SamplerStats& stats = rank->stats();
      EXPECT_EQ(stats.delivered, delivered_);
      EXPECT_EQ(stats.padded, plain_[0]->stats().padded);
      EXPECT_EQ(stats.dropped == 0, plain_[0]->stats().dropped == 0);
      EXPECT_EQ(stats.dropped, packed_[0]->stats().dropped);
      EXPECT_EQ(stats.skipped, packed_[0]->stats().skipped);
      EXPECT_EQ(rank->SaveState(), packed_[0]->SaveState());
    }
    dropped += packed_[0]->stats().dropped;
    skipped += packed_[0]->stats().skipped;
  }

  std::string PackedState() const { return packed_.back()->SaveState(); }
  std::string PlainState() const { return plain_.back()->SaveState(); }

 private:
  Rows& rows_;
  Ranks packed_, plain_;
  int64_t delivered_ = 0;
};

TEST(PackedSampler, DealsRowsAsOthersDealSamplesOverAnyHistory) {
  Random random(1);
  for (int chain = 0; chain < 400; ++chain) {
    SCOPED_TRACE(chain);
    const auto order = RandomOrder(random);
    Rows rows(*order);
    std::map<int64_t, int> times;
    int64_t dropped = 0, skipped = 0;
    std::string packed_state, plain_state;
    const int64_t lives = random.Integer(1, 8);
    for (int64_t life = 0; life < lives; ++life) {
      const bool is_last = life + 1 == lives;
      Life job(order, rows, RandomCut(random), packed_state, plain_state);
      int64_t steps = is_last ? rows.size() + 1 : random.Integer(0, 6);
      for (; steps > 0; --steps) {
        if (random.Below(10) == 0) job.Skip(random);
        if (!job.Step(times)) break;
        if (HasFatalFailure()) return;
      }
      job.CountLost(dropped, skipped);
      packed_state = job.PackedState();
      plain_state = job.PlainState();
    }
    for (const auto& [position, count] : times) {
      ASSERT_EQ(count, 1) << "position " << position;
      ASSERT_FALSE(rows.skipped[position]) << "position " << position;
    }
    EXPECT_EQ(skipped,
              std::count(rows.skipped.begin(), rows.skipped.end(), true));
    EXPECT_EQ(static_cast<int64_t>(times.size()) + dropped + skipped,
              rows.size());
  }
}

// Returns the indices of each step, from where the sampler is.
std::vector<std::vector<int64_t>> StepsOf(Sampler& sampler) {
  std::vector<std::vector<int64_t>> steps;
  BatchIndices batch;
  while (*sampler.Next(batch)) {
    steps.emplace_back(batch.indices.begin(), batch.indices.end());
  }
  return steps;
}

TEST(PackedSampler, GoesOnAfterAnyStepOfTheEpoch) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const auto order = RandomOrder(random);
    SamplerOptions options;
    options.cut = RandomCut(random);
    options.rank = random.Integer(0, options.cut.world);
    const auto sampler = *Sampler::Create(order, options);
    LOCKSTEP_ASSERT_OK(sampler->StartEpoch(kEpoch));
    std::vector<std::string> states = {sampler->SaveState()};
    std::vector<std::vector<int64_t>> steps;
    BatchIndices batch;
    while (*sampler->Next(batch)) {
      steps.emplace_back(batch.indices.begin(), batch.indices.end());
      states.push_back(sampler->SaveState(batch.progress));
    }
    const auto other = *Sampler::Create(order, options);
    for (size_t step = 0; step < states.size(); ++step) {
      EXPECT_EQ(*other->StepsLeftFrom(states[step]),
                static_cast<int64_t>(steps.size() - step));
      LOCKSTEP_ASSERT_OK(other->RestoreState(states[step]));
      ASSERT_THAT(StepsOf(*other),
                  ElementsAreArray(steps.begin() + step, steps.end()));
    }
  }
}

TEST(PackedSampler, IterationsPassStepsAsTheyTakeThem) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    const auto order = RandomOrder(random);
    SamplerOptions options;
    options.cut = RandomCut(random);
    options.rank = random.Integer(0, options.cut.world);
    const auto sampler = *Sampler::Create(order, options);
    std::vector<std::vector<int64_t>> expected;
    for (const int64_t epoch : {0, 1}) {
      LOCKSTEP_ASSERT_OK(sampler->StartEpoch(epoch));
      for (auto& step : StepsOf(*sampler)) expected.push_back(std::move(step));
    }
    const auto count = static_cast<int64_t>(expected.size());
    for (int64_t start = 0; start < count; ++start) {
      const auto iterations = *IterationSampler::Create(
          *Sampler::Create(order, options), count, start);
      BatchIndices batch;
      for (int64_t i = start; i < std::min(count, start + 3); ++i) {
        ASSERT_THAT(iterations->Next(batch), IsOkAndHolds(true));
        ASSERT_THAT(batch.indices, ElementsAreArray(expected[i]));
      }
    }
  }
}

// A state of another order may be in the middle of a row.
TEST(PackedSampler, ARowThatHasBegunGoesOnWithTheRest) {
  PackedOptions packed;
  packed.window.inner = *SequentialOrder::Create(7);
  packed.window.global_batch = 4;
  packed.lengths = {1, 1, 1, 1, 1, 1, 1};
  packed.row_length = 3;
  const auto order = *PackedOrder::Create(packed);
  Rows rows(*order);
  SamplerOptions options;
  options.cut.batch_size = 1;
  options.cut.world = 2;
  for (int64_t begun = 0; begun <= 7; ++begun) {
    std::vector<int64_t> delivered;
    for (options.rank = 0; options.rank < 2; ++options.rank) {
      const auto sampler = *Sampler::Create(order, options);
      SamplerState state;
      state.progress = {kEpoch, begun, 1, 1};
      state.order_digests = OrderDigests(order->Describe());
      LOCKSTEP_ASSERT_OK(sampler->RestoreState(state));
      BatchIndices batch;
      int64_t before = 0;
      while (*sampler->Next(batch)) {
        delivered.insert(delivered.end(), batch.positions.begin(),
                         batch.positions.begin() + batch.samples());
        EXPECT_GT(sampler->stats().delivered, before);
        before = sampler->stats().delivered;
        for (int64_t row = 0; row < batch.rows(); ++row) {
          EXPECT_LE(batch.splits[row + 1] - batch.splits[row], 3);
          EXPECT_LT(batch.splits[row], batch.splits[row + 1]);
        }
      }
      EXPECT_EQ(sampler->stats().delivered, 7 - begun);
    }
    std::sort(delivered.begin(), delivered.end());
    std::vector<int64_t> expected;
    for (int64_t at = begun; at < 7; ++at) expected.push_back(at);
    EXPECT_EQ(delivered, expected);
  }
}

TEST(PackedSampler, PaddingRepeatsWholeRowsAndMasksAreEmpty) {
  PackedOptions packed;
  packed.window.inner = *SequentialOrder::Create(6);
  packed.window.global_batch = 4;
  packed.lengths = {3, 1, 2, 2, 4, 4};
  packed.row_length = 4;
  const auto order = *PackedOrder::Create(packed);  // 4 rows in a window
  SamplerOptions options;
  options.cut.batch_size = 3;
  options.cut.world = 2;
  options.rank = 1;
  const auto padded = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(padded->StartEpoch(0));
  BatchIndices batch;
  EXPECT_THAT(padded->StepsLeft(), IsOkAndHolds(1));
  ASSERT_THAT(padded->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.rows(), 2);
  EXPECT_EQ(batch.valid, 2);
  options.cut.tail = Tail::kMask;
  const auto masked = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(masked->StartEpoch(0));
  ASSERT_THAT(masked->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.valid, 2);
  EXPECT_EQ(batch.splits[2], batch.splits[3]);
  EXPECT_EQ(batch.samples(), static_cast<int64_t>(batch.indices.size()));
  EXPECT_THAT(masked->Next(batch), IsOkAndHolds(false));
  EXPECT_EQ(masked->stats().padded, 2);
  EXPECT_EQ(masked->stats().delivered, 6);
  options.cut.tail = Tail::kPad;
  options.cut.world = 7;
  options.rank = 6;
  const auto wide = *Sampler::Create(order, options);
  LOCKSTEP_ASSERT_OK(wide->StartEpoch(0));
  ASSERT_THAT(wide->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.rows(), 1);
  EXPECT_EQ(batch.valid, 0);
  EXPECT_EQ(batch.samples(), 0);
  EXPECT_FALSE(batch.indices.empty());
  for (const int64_t position : batch.positions) EXPECT_GE(position, 6);
}

}  // namespace
}  // namespace lockstep
