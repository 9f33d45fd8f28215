#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/testing/conformance_parts.h"

namespace lockstep::internal_collective {
namespace {

using testing::HasSubstr;

constexpr int64_t kCounts[] = {0, 1, 3, 1000, 5000};
constexpr ReduceOp kOps[] = {
    ReduceOp::kSum,  ReduceOp::kAvg,    ReduceOp::kMin,  ReduceOp::kMax,
    ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr};

// Returns element i of a rank's input. It is so small that every dtype holds
// every result, or wraps as all dtypes do.
int ValueOf(ReduceOp op, int rank, int64_t i, bool is_bool) {
  const int value = static_cast<int>((i * 7 + rank * 3 + i / 5 * rank) % 5);
  if (is_bool) return value % 2;
  return op == ReduceOp::kProd ? 1 + value % 2 : value;
}

// Returns the reduction of element i over `size` ranks, computed in a type that
// holds every result.
double Expected(ReduceOp op, int size, int64_t i, bool is_bool) {
  double result = ValueOf(op, 0, i, is_bool);
  for (int rank = 1; rank < size; ++rank) {
    const double next = ValueOf(op, rank, i, is_bool);
    switch (op) {
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kProd:
        result *= next;
        break;
      case ReduceOp::kBitAnd:
        result = static_cast<int>(result) & static_cast<int>(next);
        break;
      case ReduceOp::kBitOr:
        result = static_cast<int>(result) | static_cast<int>(next);
        break;
      default:
        result += next;
    }
  }
  return op == ReduceOp::kAvg ? result / size : result;
}

// Converts a value; integers wrap.
template <typename T>
T Converted(double value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<T>(static_cast<uint64_t>(value));
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

template <typename T>
double NumberOf(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<float>(value);
  }
}

// An array of elements. It is no std::vector, since a std::vector<bool> has no
// elements to point to.
template <typename T>
struct Array {
  explicit Array(int64_t size)
      : values(new T[static_cast<size_t>(std::max<int64_t>(size, 0))]()),
        size(size) {}
  absl::Span<T> span() { return {values.get(), static_cast<size_t>(size)}; }
  Buffer buffer() { return BufferOf(span()); }
  Buffer part(int64_t first, int64_t count) {
    return BufferOf(span().subspan(first, count));
  }
  std::unique_ptr<T[]> values;
  int64_t size;
};

template <typename T>
void ExpectReduced(absl::Span<const T> got, int64_t first, ReduceOp op,
                   int size) {
  constexpr bool kBool = std::is_same_v<T, bool>;
  for (size_t i = 0; i < got.size(); ++i) {
    // Values such as 1/3 are rounded as a float is.
    double expected = Expected(op, size, first + i, kBool);
    if (op == ReduceOp::kAvg && !std::is_same_v<T, double>) {
      expected = static_cast<float>(expected * size) / static_cast<float>(size);
    }
    const T wanted = std::is_same_v<T, double> ? static_cast<T>(expected)
                                               : Converted<T>(expected);
    ASSERT_EQ(NumberOf(got[i]), NumberOf(wanted))
        << Name(op) << " of " << Name(DTypeOf<T>()) << " at " << first + i
        << " of " << size << " ranks";
  }
}

template <typename T>
void ExpectReductions(Communicator& rank, int64_t count, ReduceOp op) {
  constexpr bool kBool = std::is_same_v<T, bool>;
  const int size = rank.size();
  const auto fill = [&](Array<T>& in) {
    for (int64_t i = 0; i < in.size; ++i) {
      in.span()[i] = Converted<T>(ValueOf(op, rank.rank(), i, kBool));
    }
  };
  Array<T> in(count), out(count);
  fill(in);
  LOCKSTEP_ASSERT_OK(Wait(rank.AllReduce(in.buffer(), out.buffer(), op)));
  ExpectReduced<T>(out.span(), 0, op, size);
  Array<T> in_place(count);
  fill(in_place);
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllReduce(in_place.buffer(), in_place.buffer(), op)));
  ExpectReduced<T>(in_place.span(), 0, op, size);

  const int root = static_cast<int>(count % size);
  Array<T> rooted(count);
  LOCKSTEP_ASSERT_OK(Wait(
      rank.Reduce(in.buffer(), rank.rank() == root ? rooted.buffer() : Buffer(),
                  op, root)));
  if (rank.rank() == root) ExpectReduced<T>(rooted.span(), 0, op, size);

  Array<T> parts(count * size), part(count);
  fill(parts);
  LOCKSTEP_ASSERT_OK(
      Wait(rank.ReduceScatter(parts.buffer(), part.buffer(), op)));
  ExpectReduced<T>(part.span(), rank.rank() * count, op, size);
  LOCKSTEP_ASSERT_OK(Wait(rank.ReduceScatter(
      parts.buffer(), parts.part(rank.rank() * count, count), op)));
  ExpectReduced<T>(parts.span().subspan(rank.rank() * count, count),
                   rank.rank() * count, op, size);
}

// Returns element i of the data that rank `from` gives to rank `to`.
template <typename T>
T Given(int from, int to, int64_t i) {
  // It is not zero, since memory begins with zeros; but bool needs both values.
  const int64_t value = from * 31 + to * 17 + i;
  return Converted<T>(std::is_same_v<T, bool> ? value % 2 : 1 + value % 97);
}

// The operations that move elements of type T between ranks. Where the parts of
// ranks differ, that of rank r has count + r elements.
// Thread-safety: thread-compatible.
template <typename T>
class Moves {
 public:
  Moves(Communicator& rank, int64_t count)
      : rank_(rank),
        me_(rank.rank()),
        size_(rank.size()),
        count_(count),
        root_(static_cast<int>((count + 1) % size_)),
        mine_(count),
        out_(count) {
    for (int64_t i = 0; i < count; ++i) mine_.span()[i] = Given<T>(me_, 0, i);
    for (int r = 0; r < size_; ++r) {
      counts_.push_back(count + r);
      if (r < me_) before_ += counts_[r];
      total_ += counts_[r];
    }
  }

  void ExpectAll() {
    ExpectBroadcasts();
    ExpectGathersOfUnequalParts();
    ExpectGathersOfEqualParts();
    ExpectDealsOfUnequalParts();
    ExpectDealsOfEqualParts();
    ExpectMessages();
  }

 private:
  bool is_root() const { return me_ == root_; }

  // Expects what rank `from` gave to rank `to`.
  void Expect(absl::Span<const T> got, int from, int to) {
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(NumberOf(got[i]), NumberOf(Given<T>(from, to, i)))
          << "from " << from << " to " << to << " at " << i;
    }
  }
  // Expects a part from each rank, which gave it to rank `to`.
  void ExpectParts(Array<T>& got, const std::vector<int64_t>& counts, int to) {
    int64_t first = 0;
    for (int r = 0; r < size_; ++r) {
      Expect(got.span().subspan(first, counts[r]), r, to);
      first += counts[r];
    }
  }
  void ExpectEqualParts(Array<T>& got, int to) {
    ExpectParts(got, std::vector<int64_t>(size_, count_), to);
  }
  static void Clear(Array<T>& array) {
    std::fill(array.span().begin(), array.span().end(), T());
  }

  void ExpectBroadcasts() {
    LOCKSTEP_ASSERT_OK(Wait(
        rank_.Broadcast(is_root() ? ConstBuffer(mine_.buffer()) : ConstBuffer(),
                        out_.buffer(), root_)));
    Expect(out_.span(), root_, 0);
    Array<T> same(count_);
    for (int64_t i = 0; i < count_; ++i) same.span()[i] = Given<T>(me_, 0, i);
    LOCKSTEP_ASSERT_OK(
        Wait(rank_.Broadcast(same.buffer(), same.buffer(), root_)));
    Expect(same.span(), root_, 0);
  }

  void ExpectGathersOfUnequalParts() {
    Array<T> part(counts_[me_]), all(total_);
    for (int64_t i = 0; i < part.size; ++i) {
      part.span()[i] = Given<T>(me_, 0, i);
    }
    LOCKSTEP_ASSERT_OK(
        Wait(rank_.AllGatherV(part.buffer(), all.buffer(), counts_)));
    ExpectParts(all, counts_, 0);
    for (int64_t i = 0; i < total_; ++i) {
      if (i < before_ || i >= before_ + counts_[me_]) all.span()[i] = T();
    }
    LOCKSTEP_ASSERT_OK(Wait(rank_.AllGatherV(all.part(before_, counts_[me_]),
                                             all.buffer(), counts_)));
    ExpectParts(all, counts_, 0);
    Clear(all);
    LOCKSTEP_ASSERT_OK(Wait(rank_.GatherV(
        part.buffer(), is_root() ? all.buffer() : Buffer(), counts_, root_)));
    if (is_root()) ExpectParts(all, counts_, 0);
  }

  void ExpectGathersOfEqualParts() {
    Array<T> all(count_ * size_);
    LOCKSTEP_ASSERT_OK(Wait(rank_.AllGather(mine_.buffer(), all.buffer())));
    ExpectEqualParts(all, 0);
    Clear(all);
    LOCKSTEP_ASSERT_OK(Wait(rank_.Gather(
        mine_.buffer(), is_root() ? all.buffer() : Buffer(), root_)));
    if (is_root()) ExpectEqualParts(all, 0);
  }

  // Each rank gives count + r elements to rank r, and so gets count + me_ from
  // each.
  void ExpectDealsOfUnequalParts() {
    Array<T> dealt(total_), got(counts_[me_]);
    for (int64_t r = 0, first = 0; r < size_; first += counts_[r++]) {
      for (int64_t i = 0; i < counts_[r]; ++i) {
        dealt.span()[first + i] = Given<T>(me_, static_cast<int>(r), i);
      }
    }
    LOCKSTEP_ASSERT_OK(Wait(
        rank_.ScatterV(is_root() ? ConstBuffer(dealt.buffer()) : ConstBuffer(),
                       got.buffer(), counts_, root_)));
    Expect(got.span(), root_, me_);
    Array<T> taken(counts_[me_] * size_);
    const std::vector<int64_t> takes(size_, counts_[me_]);
    LOCKSTEP_ASSERT_OK(
        Wait(rank_.AllToAllV(dealt.buffer(), counts_, taken.buffer(), takes)));
    ExpectParts(taken, takes, me_);
  }

  void ExpectDealsOfEqualParts() {
    Array<T> cards(count_ * size_), hand(count_), taken(count_ * size_);
    for (int64_t i = 0; i < cards.size; ++i) {
      const int to = static_cast<int>(i / std::max<int64_t>(count_, 1));
      cards.span()[i] = Given<T>(me_, to, i - to * count_);
    }
    LOCKSTEP_ASSERT_OK(Wait(
        rank_.Scatter(is_root() ? ConstBuffer(cards.buffer()) : ConstBuffer(),
                      hand.buffer(), root_)));
    Expect(hand.span(), root_, me_);
    LOCKSTEP_ASSERT_OK(Wait(rank_.AllToAll(cards.buffer(), taken.buffer())));
    ExpectEqualParts(taken, me_);
  }

  void ExpectMessages() {
    const int next = (me_ + 1) % size_, last = (me_ + size_ - 1) % size_;
    LOCKSTEP_ASSERT_OK(
        Wait(rank_.SendRecv(mine_.buffer(), next, out_.buffer(), last)));
    Expect(out_.span(), last, 0);
    // A rank sends to itself, and sends before another rank receives.
    Clear(out_);
    LOCKSTEP_ASSERT_OK(
        Wait(rank_.SendRecv(mine_.buffer(), me_, out_.buffer(), me_)));
    Expect(out_.span(), me_, 0);
    Clear(out_);
    const absl::StatusOr<Work> send = rank_.Send(mine_.buffer(), next);
    LOCKSTEP_ASSERT_OK(Wait(rank_.Recv(out_.buffer(), last)));
    LOCKSTEP_ASSERT_OK(Wait(send));
    Expect(out_.span(), last, 0);
  }

  Communicator& rank_;
  const int me_;
  const int size_;
  const int64_t count_;
  const int root_;
  Array<T> mine_, out_;
  std::vector<int64_t> counts_;  // of the parts, by rank
  int64_t before_ = 0;           // elements of the parts before this rank's
  int64_t total_ = 0;            // elements of all parts
};

// Returns true if not all devices can do this.
template <typename T>
bool IsOptional(ReduceOp op) {
  return std::is_same_v<T, int16_t> || std::is_same_v<T, uint16_t> ||
         std::is_same_v<T, bool> || op == ReduceOp::kBitAnd ||
         op == ReduceOp::kBitOr;
}

template <typename T>
void ExpectNoReductions(Communicator& rank, ReduceOp op) {
  const auto unimplemented = StatusIs(absl::StatusCode::kUnimplemented);
  Array<T> in(rank.size()), out(rank.size());
  EXPECT_THAT(rank.AllReduce(in.buffer(), out.buffer(), op), unimplemented);
  EXPECT_THAT(rank.Reduce(in.buffer(), out.buffer(), op, 0), unimplemented);
  EXPECT_THAT(rank.ReduceScatter(in.buffer(), out.part(0, 1), op),
              unimplemented);
}

template <typename T>
void ExpectDType(Communicator& rank, bool reduces_all) {
  for (const int64_t count : kCounts) {
    for (const ReduceOp op : kOps) {
      if (CheckReduction(DTypeOf<T>(), op, 1).ok()) {
        if (reduces_all || !IsOptional<T>(op)) {
          ExpectReductions<T>(rank, count, op);
        } else {
          ExpectNoReductions<T>(rank, op);
        }
      } else {
        T value{};
        const Buffer one = BufferOf(absl::Span<T>(&value, 1));
        EXPECT_THAT(rank.AllReduce(one, one, op),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("is not defined for")));
      }
    }
    Moves<T>(rank, count).ExpectAll();
  }
}

}  // namespace

void ExpectEveryDType(Communicator& rank, bool reduces_all) {
  ExpectDType<double>(rank, reduces_all);
  ExpectDType<float>(rank, reduces_all);
  ExpectDType<Float16>(rank, reduces_all);
  ExpectDType<BFloat16>(rank, reduces_all);
  ExpectDType<int8_t>(rank, reduces_all);
  ExpectDType<int16_t>(rank, reduces_all);
  ExpectDType<int32_t>(rank, reduces_all);
  ExpectDType<int64_t>(rank, reduces_all);
  ExpectDType<uint8_t>(rank, reduces_all);
  ExpectDType<uint16_t>(rank, reduces_all);
  ExpectDType<uint32_t>(rank, reduces_all);
  ExpectDType<uint64_t>(rank, reduces_all);
  ExpectDType<bool>(rank, reduces_all);
}

}  // namespace lockstep::internal_collective
