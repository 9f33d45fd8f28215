#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/conformance_parts.h"

namespace lockstep::internal_collective {
namespace {

// The numbers of elements. Backends treat small and large sums differently, and
// cut large ones into parts, which are uneven here.
constexpr int64_t kCounts[] = {0, 1, 63, 3001, 90'001};

// The values of all shards, by shard.
template <typename T>
using Values = std::vector<std::vector<T>>;

// Some large values cancel each other, so the sum depends on the order in which
// it is made.
template <typename T>
Values<T> MakeValues(int64_t shards, int64_t count) {
  Random random(RandomKey(/*seed=*/3, static_cast<uint64_t>(shards),
                          static_cast<uint64_t>(count)));
  Values<T> values(shards, std::vector<T>(count));
  for (auto& of_shard : values) {
    for (T& value : of_shard) value = static_cast<T>(random.Normal());
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t plus = random.Below(shards), minus = random.Below(shards);
    if (plus == minus) continue;
    const T large = static_cast<T>(0x1p20) * (values[0][i] + 2);
    values[plus][i] = large;
    values[minus][i] = -large;
  }
  return values;
}

// Returns the sum of the shards [begin, end) along the tree, by its definition.
template <typename T>
std::vector<T> SumOf(const Values<T>& values, int64_t begin, int64_t end) {
  if (end - begin == 1) return values[begin];
  const int64_t middle = end - begin == 3 ? begin + 2 : (begin + end) / 2;
  std::vector<T> sum = SumOf(values, begin, middle);
  const std::vector<T> second = SumOf(values, middle, end);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  return sum;
}

template <typename T>
bool SameBits(absl::Span<const T> a, absl::Span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Returns ways to deal the shards to ranks: evenly, and with the rest to the
// last rank.
std::vector<std::vector<int64_t>> Deals(int64_t shards, int size) {
  std::vector<std::vector<int64_t>> deals(2);
  for (int rank = 0; rank < size; ++rank) {
    deals[0].push_back(shards / size + (rank < shards % size ? 1 : 0));
    deals[1].push_back(rank + 1 < size ? 1 : shards - size + 1);
  }
  return deals;
}

// Returns what a rank gives: the sums that it can add up by itself.
template <typename T>
std::vector<T> InputOf(const Values<T>& values,
                       const std::vector<int64_t>& deal, int rank) {
  const int64_t begin =
      std::accumulate(deal.begin(), deal.begin() + rank, int64_t{0});
  std::vector<T> in;
  for (const ShardRange& sum : ShardSumsOf(static_cast<int64_t>(values.size()),
                                           {begin, begin + deal[rank]})) {
    const std::vector<T> part = SumOf(values, sum.begin, sum.end);
    in.insert(in.end(), part.begin(), part.end());
  }
  return in;
}

// All ranks call it at the same time.
template <typename T>
void ExpectSum(Communicator& rank, const Values<T>& values,
               const std::vector<T>& expected,
               const std::vector<int64_t>& deal) {
  const std::string what =
      absl::StrCat(expected.size(), " x ", Name(DTypeOf<T>()), ", ",
                   absl::StrJoin(deal, "+"), " shards, on rank ", rank.rank());
  std::vector<T> in = InputOf(values, deal, rank.rank());
  const std::vector<T> before = in;
  std::vector<T> out(expected.size());
  LOCKSTEP_EXPECT_OK(Wait(rank.AllReduceShards(
      BufferOf(absl::MakeSpan(in)), BufferOf(absl::MakeSpan(out)), deal)));
  EXPECT_TRUE(SameBits<T>(out, expected)) << what;
  EXPECT_TRUE(SameBits<T>(in, before)) << what << ": the input has changed";
  const absl::Span<T> first = absl::MakeSpan(in).first(expected.size());
  LOCKSTEP_EXPECT_OK(Wait(rank.AllReduceShards(BufferOf(absl::MakeSpan(in)),
                                               BufferOf(first), deal)));
  EXPECT_TRUE(SameBits<T>(first, expected)) << what << ", in place";
}

template <typename T>
void ExpectSumsOf(const Ranks& ranks) {
  const auto size = static_cast<int64_t>(ranks.size());
  for (const int64_t shards : {int64_t{8}, int64_t{12}, int64_t{24}}) {
    for (const int64_t count : kCounts) {
      const Values<T> values = MakeValues<T>(shards, count);
      const std::vector<T> expected = SumOf(values, 0, shards);
      if (count > 100) {  // or else this test would show nothing
        std::vector<T> in_order(count);
        for (const auto& of_shard : values) {
          for (int64_t i = 0; i < count; ++i) in_order[i] += of_shard[i];
        }
        EXPECT_FALSE(SameBits<T>(in_order, expected));
      }
      for (const auto& deal : Deals(shards, static_cast<int>(size))) {
        OnEachRank(ranks, [&](Communicator& rank) {
          ExpectSum(rank, values, expected, deal);
        });
      }
    }
  }
}

// Only the first rank makes these calls, which issue nothing.
void ExpectShardRefusals(Communicator& rank) {
  std::vector<float> four(4), other(4);
  const Buffer in = BufferOf(absl::MakeSpan(four));
  const Buffer out = BufferOf(absl::MakeSpan(other));
  const int size = rank.size();
  std::vector<int64_t> deal(size, 1);
  const auto refused = [&](const Buffer& from, const Buffer& to,
                           const std::string& text,
                           const CallOptions& options = {}) {
    EXPECT_THAT(
        rank.AllReduceShards(from, to, deal, options),
        StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(text)));
  };
  const auto with_all = [&](int64_t shards) {
    deal.assign(size, 1);
    deal[0] = shards - size + 1;
  };
  with_all(10);
  refused(in, out,
          "all ranks together should have 2^n or 3 * 2^n shards, at most "
          "65536, but have 10");
  deal.push_back(2);
  refused(in, out, "shards should have a number for each of");
  with_all(16);
  if (size > 1) {
    deal[1] += deal[0];
    deal[0] = 0;
    refused(in, out,
            "each rank should have a shard, but the numbers of shards by rank "
            "are 0, ");
  }
  with_all(16);
  if (size == 5) {  // shards 0 to 11 are the sums of 0 to 7 and of 8 to 11
    refused(in, out,
            "in should have 8 elements, those of out for each of the 2 sums "
            "that ShardSumsOf returns for this rank's shards, but has 4");
  }
  if (size == 5) {
    std::vector<float> eight(8);
    refused(BufferOf(absl::MakeSpan(eight)),
            BufferOf(absl::MakeSpan(eight).subspan(4)),
            "in and out overlap, and are not in place");
  }
  with_all(8);
  if (size > 1 && size < 8) return;
  CallOptions options;
  options.scale = 2;
  if (size == 8) {  // one sum each
    refused(in, out, "an all-reduce of shards has no scale, but got scale=2",
            options);
    const Buffer shifted = BufferOf(absl::MakeSpan(four).subspan(1));
    refused(BufferOf(absl::MakeSpan(four).first(3)), shifted, "overlap");
  }
  Buffer halves = in, sums = out;
  halves.dtype = sums.dtype = DType::kBF16;
  refused(halves, sums, "shards are added up as f32 or f64, but got bf16");
}

}  // namespace

void ExpectShardSums(const Ranks& ranks, bool adds_shards) {
  if (!adds_shards) {
    OnEachRank(ranks, [](Communicator& rank) {
      std::vector<float> in(4), out(4);
      const std::vector<int64_t> deal(rank.size(), 1);
      if (!IsShardCount(rank.size())) return;
      EXPECT_THAT(rank.AllReduceShards(BufferOf(absl::MakeSpan(in)),
                                       BufferOf(absl::MakeSpan(out)), deal),
                  StatusIs(absl::StatusCode::kUnimplemented));
    });
    return;
  }
  ExpectSumsOf<float>(ranks);
  ExpectSumsOf<double>(ranks);
  ExpectShardRefusals(*ranks[0]);
  OnEachRank(ranks, [](Communicator& rank) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
  });
}

}  // namespace lockstep::internal_collective
