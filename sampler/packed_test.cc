#include "lockstep/sampler/packed.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/padding_waste.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_conformance.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/windowed.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::vector<int64_t>;

PackedOptions InOrder(std::vector<int64_t> lengths, int64_t row_length) {
  PackedOptions options;
  options.window.inner =
      *SequentialOrder::Create(static_cast<int64_t>(lengths.size()));
  options.window.global_batch = 4;
  options.lengths = std::move(lengths);
  options.row_length = row_length;
  return options;
}

// Returns lengths that are often 0, 1, a whole row, or more than that if `cut`.
std::vector<int64_t> RandomLengths(Random& random, int64_t size,
                                   int64_t row_length, bool cut) {
  std::vector<int64_t> lengths(static_cast<size_t>(size));
  for (int64_t& length : lengths) {
    switch (random.Below(8)) {
      case 0:
        length = 0;
        break;
      case 1:
        length = 1;
        break;
      case 2:
        length = row_length;
        break;
      case 3:
        length = row_length + (cut ? random.Integer(0, 9) : 0);
        break;
      default:
        length = random.Integer(0, row_length + 1);
    }
  }
  return lengths;
}

PackedOptions RandomOptions(Random& random) {
  const int64_t size =
      random.Below(8) == 0 ? random.Integer(0, 2) : random.Integer(0, 300);
  PackedOptions options;
  options.row_length = random.Below(4) == 0 ? 1 : random.Integer(1, 40);
  options.cut = random.Below(2) == 0;
  options.lengths =
      RandomLengths(random, size, options.row_length, options.cut);
  options.window.inner = *NativeShuffle::Create({size, random.Below(1000)});
  options.window.global_batch = random.Integer(1, 9);
  options.window.batches = random.Integer(1, random.Below(2) == 0 ? 2 : 30);
  options.window.seed = random.Below(1000);
  return options;
}

// Returns the length of a sample in its row, and at least 1.
int64_t RoomOf(const PackedOptions& options, int64_t index) {
  const int64_t length = options.lengths[static_cast<size_t>(index)];
  return std::max<int64_t>(1, std::min(length, options.row_length));
}

// Returns the samples of a window as the header says: as many as fill its rows
// by their mean length, and not fewer than rows.
int64_t WindowOf(const PackedOptions& options) {
  const auto size = static_cast<int64_t>(options.lengths.size());
  const int64_t rows = options.window.global_batch * options.window.batches;
  int64_t total = 0;
  for (int64_t i = 0; i < size; ++i) total += RoomOf(options, i);
  if (total == 0) return rows;
  return std::max(rows, rows * options.row_length * size / total);
}

// Puts each sample into the first row with room, and looks at all rows for it.
std::vector<Row> FirstFit(const PackedOptions& options,
                          absl::Span<const int64_t> indices) {
  std::vector<Row> rows;
  std::vector<int64_t> filled;
  for (const int64_t index : indices) {
    const int64_t room = RoomOf(options, index);
    size_t row = 0;
    while (row < rows.size() && filled[row] + room > options.row_length) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      filled.push_back(0);
    }
    rows[row].push_back(index);
    filled[row] += room;
  }
  return rows;
}

// Returns the rows of each window of an epoch.
std::vector<std::vector<Row>> WindowsOf(const Order& order, int64_t epoch) {
  const std::vector<int64_t> indices = ReadEpoch(order, epoch);
  const auto stream = *order.Open(epoch);
  std::vector<std::vector<Row>> windows;
  for (int64_t at = 0; at < stream->size();) {
    const auto segment = *stream->SegmentAt(at);
    windows.emplace_back();
    for (const int64_t end : segment.row_ends) {
      windows.back().emplace_back(indices.begin() + at, indices.begin() + end);
      at = end;
    }
    EXPECT_EQ(at, segment.end);
    if (at != segment.end || segment.row_ends.empty()) break;
  }
  return windows;
}

std::vector<Row> RowsOf(const Order& order, int64_t epoch) {
  std::vector<Row> rows;
  for (const std::vector<Row>& window : WindowsOf(order, epoch)) {
    rows.insert(rows.end(), window.begin(), window.end());
  }
  return rows;
}

template <typename T>
T Sorted(T values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(PackedOrder, EachWindowHasTheRowsOfAFirstFit) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    const PackedOptions options = RandomOptions(random);
    const int64_t size = options.window.inner->Describe().size;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto order,
                                  PackedOrder::Create(options));
    SCOPED_TRACE(order->Describe().ToString());
    const std::vector<int64_t> inner = ReadEpoch(*options.window.inner, 2);
    const int64_t window = WindowOf(options);
    int64_t begin = 0;
    for (const std::vector<Row>& rows : WindowsOf(*order, 2)) {
      const int64_t end = std::min(size, begin + window);
      ASSERT_EQ(Sorted(rows),
                Sorted(FirstFit(options, absl::MakeConstSpan(inner).subspan(
                                             begin, end - begin))));
      for (const Row& row : rows) {
        ASSERT_FALSE(row.empty());
        int64_t filled = 0;
        for (const int64_t index : row) filled += RoomOf(options, index);
        ASSERT_LE(filled, options.row_length);
      }
      begin = end;
    }
    ASSERT_EQ(begin, size);
    // Each sample comes once.
    const std::vector<int64_t> indices = Sorted(ReadEpoch(*order, 2));
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(indices[i], i);
  }
}

TEST(PackedOrder, Conforms) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    const auto order = *PackedOrder::Create(RandomOptions(random));
    for (const int64_t epoch : {0, 3}) ExpectConforms(*order, epoch);
  }
}

TEST(PackedOrder, ItsSamplersConform) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    const auto order = *PackedOrder::Create(RandomOptions(random));
    ExpectConforms([&order](int64_t rank, int64_t ranks) {
      SamplerOptions options;
      options.rank = rank;
      options.cut.world = ranks;
      options.cut.batch_size = 3;
      return Sampler::Create(order, options);
    });
  }
}

TEST(PackedOrder, RowsAreShuffledInAnotherWayInEachWindowEpochAndSeed) {
  PackedOptions options = InOrder(std::vector<int64_t>(200, 3), 7);
  options.window.batches = 10;
  const auto order = *PackedOrder::Create(options);
  // Each row has two samples, so a window has 93 of them.
  const auto windows = WindowsOf(*order, 0);
  ASSERT_EQ(windows.size(), 3u);
  std::vector<Row> moved = windows[1];
  for (Row& row : moved) {
    for (int64_t& index : row) index -= 93;
  }
  const auto in_order = Sorted(windows[0]);
  EXPECT_NE(windows[0], in_order);
  EXPECT_NE(windows[0], moved);
  EXPECT_EQ(in_order, Sorted(moved));
  EXPECT_NE(windows[0], WindowsOf(*order, 1)[0]);
  options.window.seed = 1;
  EXPECT_NE(windows[0], WindowsOf(**PackedOrder::Create(options), 0)[0]);
}

TEST(PackedOrder, ARowHasItsSamplesInTheOrderOfTheInnerStream) {
  PackedOptions options = InOrder({5, 4, 3, 5, 1, 0, 9}, 9);
  const auto order = *PackedOrder::Create(options);
  EXPECT_THAT(Sorted(RowsOf(*order, 0)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4),
                          ElementsAre(5), ElementsAre(6)));
}

// An empty sample takes one element: otherwise a row could have any number of
// them.
TEST(PackedOrder, ARowHasAtMostAsManySamplesAsElements) {
  const auto order =
      *PackedOrder::Create(InOrder(std::vector<int64_t>(10, 0), 4));
  const auto rows = RowsOf(*order, 0);
  ASSERT_EQ(rows.size(), 3u);
  for (const Row& row : rows) EXPECT_LE(row.size(), 4u);
}

TEST(PackedOrder, TheLongestRowThatThereCanBe) {
  PackedOptions options =
      InOrder({2147483647, 2147483646, 1, 0, 7}, 2147483647);
  EXPECT_THAT(
      Sorted(RowsOf(**PackedOrder::Create(options), 0)),
      ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3, 4)));
}

TEST(PackedOrder, AWindowOfTheMostRowsThatThereCanBe) {
  PackedOptions options = InOrder({0, 1, 2, 1}, 2147483647);
  options.window.global_batch = int64_t{1} << 16;
  options.window.batches = int64_t{1} << 16;
  EXPECT_THAT(RowsOf(**PackedOrder::Create(options), 0),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(PackedOrder, SaysHowItPacks) {
  PackedOptions options = InOrder({3, 4}, 5);
  const auto order = *PackedOrder::Create(options);
  ASSERT_TRUE(order->packing().has_value());
  EXPECT_EQ(order->packing()->row_length, 5);
  EXPECT_FALSE(order->packing()->cut);
  options.cut = true;
  EXPECT_TRUE((*PackedOrder::Create(options))->packing()->cut);
  EXPECT_FALSE(options.window.inner->packing().has_value());
}

// Whatever changes the stream is in the description, so that another stream is
// refused after a restart.
TEST(PackedOrder, DescribesAllThatChangesTheStream) {
  PackedOptions options = InOrder({3, 4, 4}, 5);
  const auto describe = [&options] {
    return (*PackedOrder::Create(options))->Describe().ToString();
  };
  std::vector<std::string> texts = {describe()};
  options.cut = true;
  texts.push_back(describe());
  options.row_length = 6;
  texts.push_back(describe());
  options.window.seed = 9;
  texts.push_back(describe());
  options.window.batches = 7;
  texts.push_back(describe());
  options.window.global_batch = 8;
  texts.push_back(describe());
  options.lengths[1] = 2;
  texts.push_back(describe());
  options.window.inner = *NativeShuffle::Create({3, 7});
  texts.push_back(describe());
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(texts[i], texts[j]);
  }
}

TEST(PackedOrder, TellsPeopleWhatStaysEmptyAndWhatIsLost) {
  PackedOptions options = InOrder({6, 6, 14, 25}, 10);
  options.cut = true;
  EXPECT_EQ((*PackedOrder::Create(options))->Explain(),
            "rows of 10 elements; 2 samples are longer and lose 19 elements at "
            "their ends; the first window packs 4 samples into 4 rows, of "
            "which 20 % stay empty");
  EXPECT_EQ((*PackedOrder::Create(InOrder({}, 10)))->Explain(),
            "rows of 10 elements");
}

absl::Status StatusOf(const PackedOptions& options) {
  return PackedOrder::Create(options).status();
}

TEST(PackedOrder, NamesWhatItRefuses) {
  const auto refuses = [](const auto& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, text);
  };
  EXPECT_THAT(StatusOf(InOrder({2, 12, 3, 20, 11}, 10)),
              refuses(AllOf(HasSubstr("packed: 3 of 5 samples are longer than "
                                      "row_length=10"),
                            HasSubstr("longest is sample 3 with 20"))));
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, int64_t{1} << 31}) {
    EXPECT_THAT(StatusOf(InOrder({}, wrong)),
                refuses(HasSubstr("row_length should be set to the elements of "
                                  "a row, from 1 to 2^31 - 1")));
  }
  EXPECT_THAT(StatusOf(InOrder({1, 2, -3}, 10)),
              refuses(HasSubstr("lengths[2] is -3")));
  PackedOptions options = InOrder({1, 2}, 10);
  options.lengths.pop_back();
  EXPECT_THAT(StatusOf(options),
              refuses(HasSubstr("walks 2 samples, but there are 1 lengths")));
  options = InOrder({1, 2}, 10);
  options.window.global_batch = 0;
  EXPECT_THAT(StatusOf(options), refuses(HasSubstr("global_batch=0")));
  options.window.inner = nullptr;
  EXPECT_THAT(StatusOf(options), refuses(HasSubstr("needs an inner order")));
}

// Packing, and the breaks of batches, are lost in an order around them.
TEST(PackedOrder, CannotBeAroundAnOrderThatGroups) {
  const PackedOptions plain = InOrder({1, 2}, 10);
  PackedOptions outer = plain;
  outer.window.inner = *LengthBuckets::Create({plain.window, plain.lengths});
  EXPECT_THAT(StatusOf(outer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rearranges too (length_buckets)")));
  const auto packed = *PackedOrder::Create(plain);
  outer.window.inner = packed;
  EXPECT_THAT(StatusOf(outer), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("too (packed)")));
  outer.window.inner = *SubsetOrder::Create(packed, {1, 0}, 2);
  EXPECT_THAT(StatusOf(outer), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("too (subset)")));
  EXPECT_THAT(RepeatedOrder::Create(packed, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'packed', packs several samples")));
}

TEST(PackedOrder, ASubsetOfADatasetIsPacked) {
  const auto packed = *PackedOrder::Create(InOrder({5, 4, 3, 5}, 9));
  const auto subset = *SubsetOrder::Create(packed, {70, 10, 20, 50}, 100);
  ASSERT_TRUE(subset->packing().has_value());
  EXPECT_EQ(subset->packing()->row_length, 9);
  ExpectConforms(*subset, 0);
  EXPECT_THAT(Sorted(RowsOf(*subset, 0)),
              ElementsAre(ElementsAre(20, 50), ElementsAre(70, 10)));
  EXPECT_EQ(subset->Explain(), packed->Explain());
}

TEST(PackedOrder, AMixtureIsPacked) {
  ContinuedMixtureOptions mixture;
  mixture.sources = {*NativeShuffle::Create({40, 7}),
                     *NativeShuffle::Create({9, 8})};
  mixture.phases = {{0, {0.7, 0.3}}};
  mixture.end = MixtureStop::kNumSamples;
  mixture.num_samples = 60;
  const auto mixed = *ContinuedMixture::Create(mixture);
  Random random(4);
  PackedOptions options = InOrder(RandomLengths(random, 49, 8, false), 8);
  options.window.inner = mixed;
  options.window.batches = 2;
  const auto order = *PackedOrder::Create(options);
  for (const int64_t epoch : {0, 1, 5}) {
    ExpectConforms(*order, epoch);
    EXPECT_EQ(Sorted(ReadEpoch(*order, epoch)),
              Sorted(ReadEpoch(*mixed, epoch)));
  }
  const auto parts = order->PartsAt(1, 10);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].drawn + parts[1].drawn, 70);
  EXPECT_THAT(order->Explain(), HasSubstr(", packed into rows of 8 elements"));
}

TEST(PackedOrder, TheWasteIsWhatStaysEmpty) {
  PackedOptions options = InOrder({6, 6, 14, 25}, 10);
  options.cut = true;
  SamplerOptions sampler;
  sampler.cut.batch_size = 3;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const PaddingWaste waste,
      MeasurePaddingWaste(*PackedOrder::Create(options), sampler,
                          options.lengths, 0));
  EXPECT_EQ(waste.data, 6 + 6 + 10 + 10);
  EXPECT_EQ(waste.tokens, 4 * 10);
}

}  // namespace
}  // namespace lockstep
