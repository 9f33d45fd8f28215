#include "lockstep/sampler/block_shuffle.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order_conformance.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

BlockShuffleOptions RandomOptions(Random& random) {
  BlockShuffleOptions options;
  options.size = random.Integer(0, 500);
  options.chunk_size = random.Integer(1, 40);
  options.open_chunks = random.Integer(1, 12);
  options.seed = random();
  return options;
}

// A chunk is open from its first sample to its last one. At most open_chunks
// chunks are open at any time, and every sample comes once.
TEST(BlockShuffle, KeepsItsBoundAndLosesNothing) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const BlockShuffleOptions options = RandomOptions(random);
    const std::vector<int64_t> indices =
        ReadEpoch(**BlockShuffle::Create(options), round);
    std::map<int64_t, int64_t>
        left;  // the samples of each chunk that still come
    for (const int64_t index : indices) ++left[index / options.chunk_size];
    std::set<int64_t> open;
    std::vector<bool> seen(options.size);
    for (const int64_t index : indices) {
      ASSERT_FALSE(seen[index]);
      seen[index] = true;
      const int64_t chunk = index / options.chunk_size;
      open.insert(chunk);
      ASSERT_LE(static_cast<int64_t>(open.size()), options.open_chunks);
      if (--left[chunk] == 0) open.erase(chunk);
    }
    ASSERT_EQ(static_cast<int64_t>(indices.size()), options.size);
  }
}

TEST(BlockShuffle, Conforms) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    ExpectConforms(**BlockShuffle::Create(RandomOptions(random)), round);
  }
}

// The short chunk may be anywhere, and epochs differ.
TEST(BlockShuffle, ShufflesChunksAndSamples) {
  BlockShuffleOptions options;
  options.size = 95;
  options.chunk_size = 10;
  options.open_chunks = 2;
  const auto order = *BlockShuffle::Create(options);
  std::set<int64_t> places_of_last;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const std::vector<int64_t> indices = ReadEpoch(*order, epoch);
    const auto last = std::find(indices.begin(), indices.end(), 94);
    places_of_last.insert((last - indices.begin()) / 20);
  }
  EXPECT_EQ(places_of_last.size(), 5u);
}

TEST(BlockShuffle, SaysWhatIsWrong) {
  BlockShuffleOptions options;
  options.size = 10;
  options.chunk_size = 0;
  EXPECT_THAT(
      BlockShuffle::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chunk_size=0")));
  options.chunk_size = int64_t{1} << 61;
  options.open_chunks = int64_t{1} << 61;
  ExpectConforms(**BlockShuffle::Create(options), 0);
}

}  // namespace
}  // namespace lockstep
