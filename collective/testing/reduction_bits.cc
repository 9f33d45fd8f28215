#include "lockstep/collective/testing/reduction_bits.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>  // NOLINT: ranks
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduce.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {
namespace {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// The inputs by rank.
template <typename T>
using Inputs = std::vector<std::vector<T>>;

// The bytes of all ranks' inputs together. Backends treat small and large
// reductions differently. Those of Lockstep cut reductions above 256 KiB into
// parts, which are uneven here (except for TCP between two ranks, which has
// none).
constexpr int64_t kBytes[] = {20'000, 300'000};

constexpr OpKind kReductions[] = {OpKind::kAllReduce, OpKind::kReduce,
                                  OpKind::kReduceScatter};

// A sum of this and another input loses bits. f16 can still hold this.
template <typename T>
constexpr double kLarge = std::is_same_v<T, Float16> ? 0x1p14 : 0x1p20;

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Makes inputs. Integers are random. Floats are small, except for a large one
// on some rank and its negative on another. Values that are added between these
// two lose bits, and values that are added after them do not.
template <typename T>
Inputs<T> MakeInputs(int size, int64_t count) {
  Random random(RandomKey(/*seed=*/1, static_cast<uint64_t>(DTypeOf<T>()),
                          static_cast<uint64_t>(size)));
  Inputs<T> inputs(size, std::vector<T>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (auto& input : inputs) {
      if constexpr (std::is_integral_v<T>) {
        input[i] = static_cast<T>(random());
      } else if constexpr (std::is_same_v<T, double>) {
        input[i] = random.Normal();
      } else {
        input[i] = T(static_cast<float>(random.Normal()));
      }
    }
    if constexpr (!std::is_integral_v<T>) {
      const uint64_t plus = random.Below(size), minus = random.Below(size);
      const float large = static_cast<float>(kLarge<T> * random.Uniform(1, 2));
      if (plus == minus) continue;
      inputs[plus][i] = T(large);
      inputs[minus][i] = T(-large);
    }
  }
  return inputs;
}

template <typename T>
std::vector<T> ReducedInOrder(const Inputs<T>& inputs, ReduceOp op) {
  std::vector<T> result(inputs[0].size());
  std::vector<const void*> ins;
  for (const auto& input : inputs) ins.push_back(input.data());
  void* const outs[] = {result.data()};
  ReduceInOrder(DTypeOf<T>(), op, /*scale=*/1, ins,
                static_cast<int64_t>(result.size()), outs);
  return result;
}

// Expects that the sum changes if any rank but the last comes last, or if the
// order is reversed.
template <typename T>
void ExpectOrderMatters(const Inputs<T>& inputs) {
  const std::vector<T> sum = ReducedInOrder(inputs, ReduceOp::kSum);
  const Inputs<T> reversed(inputs.rbegin(), inputs.rend());
  EXPECT_FALSE(SameBits(ReducedInOrder(reversed, ReduceOp::kSum), sum));
  for (size_t last = 0; last + 1 < inputs.size(); ++last) {
    Inputs<T> other = inputs;
    std::rotate(other.begin() + last, other.begin() + last + 1, other.end());
    EXPECT_FALSE(SameBits(ReducedInOrder(other, ReduceOp::kSum), sum)) << last;
  }
}

// Returns orders in which ranks come.
std::vector<std::vector<int>> Orders(int size) {
  std::vector<std::vector<int>> orders(4, std::vector<int>(size));
  for (auto& order : orders) std::iota(order.begin(), order.end(), 0);
  std::reverse(orders[1].begin(), orders[1].end());
  Random random(RandomKey(/*seed=*/2, static_cast<uint64_t>(size), 0));
  random.Shuffle(absl::MakeSpan(orders[2]));
  random.Shuffle(absl::MakeSpan(orders[3]));
  return orders;
}

// A kind of reduction with its inputs, on the ranks of a group.
// Thread-safety: thread-compatible.
template <typename T>
class Reduction {
 public:
  Reduction(const Ranks& ranks, OpKind kind, ReduceOp op, Inputs<T> inputs)
      : ranks_(ranks),
        size_(static_cast<int>(ranks.size())),
        kind_(kind),
        op_(op),
        inputs_(std::move(inputs)) {
    if (kind_ != OpKind::kReduceScatter) return;
    for (auto& input : inputs_) input.resize(input.size() / size_ * size_);
  }

  // Runs in every order, and in place every other time.
  void ExpectSame(bool in_rank_order) const {
    std::vector<T> expected;
    if (in_rank_order || std::is_integral_v<T>) {
      expected = ReducedInOrder(inputs_, op_);
    }
    bool in_place = false;
    for (const std::vector<int>& order : Orders(size_)) {
      const std::string what = absl::StrCat(
          Name(kind_), "(", inputs_[0].size(), " x ", Name(DTypeOf<T>()), ", ",
          Name(op_), in_place ? ") in place" : ")", ", where ranks come as ",
          absl::StrJoin(order, ", "));
      const std::vector<T> result = Run(order, in_place, what);
      if (expected.empty()) expected = result;
      EXPECT_TRUE(SameBits(result, expected)) << what;
      in_place = !in_place;
    }
  }

 private:
  int root() const { return size_ / 2; }

  // Returns the whole result, gathered from the ranks that have it.
  std::vector<T> Run(const std::vector<int>& order, bool in_place,
                     const std::string& what) const {
    const size_t count = inputs_[0].size();
    const bool scatters = kind_ == OpKind::kReduceScatter;
    const size_t part = scatters ? count / size_ : count;
    Inputs<T> ins = inputs_;
    Inputs<T> others(size_, std::vector<T>(in_place ? 0 : part));
    const auto out = [&](int rank) {
      if (!in_place) return absl::MakeSpan(others[rank]);
      return absl::MakeSpan(ins[rank]).subspan(scatters ? rank * part : 0,
                                               part);
    };
    std::vector<Work> works;
    for (const int rank : order) {
      absl::StatusOr<Work> work =
          Issue(*ranks_[rank], BufferOf(absl::MakeSpan(ins[rank])),
                BufferOf(out(rank)));
      LOCKSTEP_EXPECT_OK(work);
      if (work.ok()) works.push_back(*std::move(work));
      std::this_thread::yield();  // lets the threads run that continue it
    }
    for (const Work& work : works) LOCKSTEP_EXPECT_OK(work.Wait());

    std::vector<T> whole;
    for (int rank = 0; rank < size_; ++rank) {
      if (kind_ == OpKind::kReduce && rank != root()) continue;
      const std::vector<T> own(out(rank).begin(), out(rank).end());
      if (kind_ == OpKind::kAllReduce && rank > 0) {
        EXPECT_TRUE(SameBits(own, whole)) << what << ": rank " << rank;
      } else {
        whole.insert(whole.end(), own.begin(), own.end());
      }
    }
    return whole;
  }

  absl::StatusOr<Work> Issue(Communicator& rank, const Buffer& in,
                             const Buffer& out) const {
    switch (kind_) {
      case OpKind::kReduce:
        return rank.Reduce(in, out, op_, root());
      case OpKind::kReduceScatter:
        return rank.ReduceScatter(in, out, op_);
      default:
        return rank.AllReduce(in, out, op_);
    }
  }

  const Ranks& ranks_;
  const int size_;
  const OpKind kind_;
  const ReduceOp op_;
  Inputs<T> inputs_;
};

template <typename T>
void ExpectSameBitsOf(const Ranks& ranks, bool in_rank_order) {
  const int size = static_cast<int>(ranks.size());
  for (const int64_t bytes : kBytes) {
    const int64_t count = (bytes / size / static_cast<int64_t>(sizeof(T))) | 1;
    const Inputs<T> inputs = MakeInputs<T>(size, count);
    // The sum of two numbers does not depend on their order.
    if (size > 2 && !std::is_integral_v<T>) ExpectOrderMatters(inputs);
    for (const OpKind kind : kReductions) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        if (std::is_integral_v<T> && op == ReduceOp::kAvg) continue;
        Reduction<T>(ranks, kind, op, inputs).ExpectSame(in_rank_order);
      }
    }
  }
}

}  // namespace

void ExpectSameBits(const Ranks& ranks, bool in_rank_order) {
  ExpectSameBitsOf<double>(ranks, in_rank_order);
  ExpectSameBitsOf<float>(ranks, in_rank_order);
  ExpectSameBitsOf<Float16>(ranks, in_rank_order);
  ExpectSameBitsOf<BFloat16>(ranks, in_rank_order);
  ExpectSameBitsOf<int32_t>(ranks, in_rank_order);
}

}  // namespace lockstep::internal_collective
