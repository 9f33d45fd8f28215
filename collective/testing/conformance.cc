#include "lockstep/collective/testing/conformance.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/testing/reduction_bits.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Ranks = std::vector<std::unique_ptr<Communicator>>;

constexpr int kSizes[] = {1, 2, 3, 5, 8};
constexpr int64_t kCounts[] = {0, 1, 3, 1000, 5000};
constexpr ReduceOp kOps[] = {
    ReduceOp::kSum,  ReduceOp::kAvg,    ReduceOp::kMin,  ReduceOp::kMax,
    ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr};

// Expects that ranks fail with the same message. (The payload has each rank's
// own operations.)
void ExpectSame(const absl::Status& status, const absl::Status& other) {
  EXPECT_EQ(status.code(), other.code());
  EXPECT_EQ(status.message(), other.message());
}

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

template <typename T>
void ExpectMoves(Communicator& rank, int64_t count) {
  const int me = rank.rank(), size = rank.size();
  const int root = static_cast<int>((count + 1) % size);
  const auto expect = [&](absl::Span<const T> got, int from, int to) {
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(NumberOf(got[i]), NumberOf(Given<T>(from, to, i)))
          << "from " << from << " to " << to << " at " << i;
    }
  };
  Array<T> mine(count);
  for (int64_t i = 0; i < count; ++i) mine.span()[i] = Given<T>(me, 0, i);

  Array<T> out(count);
  LOCKSTEP_ASSERT_OK(Wait(
      rank.Broadcast(me == root ? ConstBuffer(mine.buffer()) : ConstBuffer(),
                     out.buffer(), root)));
  expect(out.span(), root, 0);

  // If parts differ, rank r has count + r elements.
  std::vector<int64_t> counts(size);
  int64_t total = 0, before = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = count + r;
    if (r < me) before += counts[r];
    total += counts[r];
  }
  Array<T> part(counts[me]), all(total);
  for (int64_t i = 0; i < part.size; ++i) part.span()[i] = Given<T>(me, 0, i);
  const auto expect_all = [&] {
    int64_t first = 0;
    for (int r = 0; r < size; ++r) {
      expect(all.span().subspan(first, counts[r]), r, 0);
      first += counts[r];
    }
  };
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllGatherV(part.buffer(), all.buffer(), counts)));
  expect_all();
  for (int64_t i = 0; i < total; ++i) {
    if (i < before || i >= before + counts[me]) all.span()[i] = T();
  }
  LOCKSTEP_ASSERT_OK(Wait(
      rank.AllGatherV(all.part(before, counts[me]), all.buffer(), counts)));
  expect_all();
  Array<T> equal(count * size);
  LOCKSTEP_ASSERT_OK(Wait(rank.AllGather(mine.buffer(), equal.buffer())));
  for (int r = 0; r < size; ++r) {
    expect(equal.span().subspan(r * count, count), r, 0);
  }
  std::fill(all.span().begin(), all.span().end(), T());
  LOCKSTEP_ASSERT_OK(Wait(rank.GatherV(
      part.buffer(), me == root ? all.buffer() : Buffer(), counts, root)));
  if (me == root) expect_all();
  std::fill(equal.span().begin(), equal.span().end(), T());
  LOCKSTEP_ASSERT_OK(Wait(rank.Gather(
      mine.buffer(), me == root ? equal.buffer() : Buffer(), root)));

  if (me == root) {
    for (int r = 0; r < size; ++r) {
      expect(equal.span().subspan(r * count, count), r, 0);
    }
  }

  Array<T> dealt(total), got(counts[me]);
  for (int64_t r = 0, first = 0; r < size; first += counts[r++]) {
    for (int64_t i = 0; i < counts[r]; ++i) {
      dealt.span()[first + i] = Given<T>(me, static_cast<int>(r), i);
    }
  }
  LOCKSTEP_ASSERT_OK(Wait(
      rank.ScatterV(me == root ? ConstBuffer(dealt.buffer()) : ConstBuffer(),
                    got.buffer(), counts, root)));
  expect(got.span(), root, me);

  // Each rank gives count + r elements to rank r, and so gets count + me from
  // each.
  Array<T> taken((count + me) * size);
  const std::vector<int64_t> takes(size, count + me);
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllToAllV(dealt.buffer(), counts, taken.buffer(), takes)));
  for (int r = 0; r < size; ++r) {
    expect(taken.span().subspan(r * (count + me), count + me), r, me);
  }

  // Equal parts.
  Array<T> cards(count * size), hand(count), taken_equal(count * size);
  for (int64_t i = 0; i < cards.size; ++i) {
    const int to = static_cast<int>(i / std::max<int64_t>(count, 1));
    cards.span()[i] = Given<T>(me, to, i - to * count);
  }
  LOCKSTEP_ASSERT_OK(Wait(
      rank.Scatter(me == root ? ConstBuffer(cards.buffer()) : ConstBuffer(),
                   hand.buffer(), root)));
  expect(hand.span(), root, me);
  LOCKSTEP_ASSERT_OK(Wait(rank.AllToAll(cards.buffer(), taken_equal.buffer())));
  for (int r = 0; r < size; ++r) {
    expect(taken_equal.span().subspan(r * count, count), r, me);
  }
  // In place.
  Array<T> same(count);
  for (int64_t i = 0; i < count; ++i) same.span()[i] = Given<T>(me, 0, i);
  LOCKSTEP_ASSERT_OK(Wait(rank.Broadcast(same.buffer(), same.buffer(), root)));
  expect(same.span(), root, 0);

  const int next = (me + 1) % size, last = (me + size - 1) % size;
  LOCKSTEP_ASSERT_OK(
      Wait(rank.SendRecv(mine.buffer(), next, out.buffer(), last)));
  expect(out.span(), last, 0);
  // A rank sends to itself, and sends before another rank receives.
  std::fill(out.span().begin(), out.span().end(), T());
  LOCKSTEP_ASSERT_OK(Wait(rank.SendRecv(mine.buffer(), me, out.buffer(), me)));
  expect(out.span(), me, 0);
  std::fill(out.span().begin(), out.span().end(), T());
  const absl::StatusOr<Work> send = rank.Send(mine.buffer(), next);
  LOCKSTEP_ASSERT_OK(Wait(rank.Recv(out.buffer(), last)));
  LOCKSTEP_ASSERT_OK(Wait(send));
  expect(out.span(), last, 0);
}

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
      if (internal_collective::CheckReduction(DTypeOf<T>(), op, 1).ok()) {
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
    ExpectMoves<T>(rank, count);
  }
}

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

void ExpectScales(Communicator& rank) {
  std::vector<float> values = {1, 2};
  CallOptions options;
  options.scale = 0.5;
  const Buffer buffer = BufferOf(absl::MakeSpan(values));
  LOCKSTEP_ASSERT_OK(
      Wait(rank.AllReduce(buffer, buffer, ReduceOp::kSum, options)));
  EXPECT_THAT(values,
              testing::ElementsAre(0.5f * rank.size(), 1.0f * rank.size()));
}

// If a later operation is done, the earlier ones are, too (seed 002).
void ExpectOrder(Communicator& rank) {
  std::vector<Work> works;
  std::vector<std::vector<float>> values(20, std::vector<float>(100, 1));
  for (auto& each : values) {
    const Buffer buffer = BufferOf(absl::MakeSpan(each));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.AllReduce(buffer, buffer, ReduceOp::kSum));
    works.push_back(std::move(work));
  }
  LOCKSTEP_ASSERT_OK(works.back().Wait());
  for (size_t i = 0; i < works.size(); ++i) {
    EXPECT_TRUE(works[i].Done());
    LOCKSTEP_EXPECT_OK(works[i].status());
    EXPECT_EQ(values[i][99], rank.size());
  }
}

// Any number of messages may be on their way from one rank to another.
void ExpectMessagesInOrder(Communicator& rank) {
  const int me = rank.rank(), size = rank.size();
  const int next = (me + 1) % size, last = (me + size - 1) % size;
  std::vector<Work> works;
  std::vector<std::vector<float>> sent(20), got(20);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i].assign(100 * i + 1, static_cast<float>(20 * me + i));
    got[i].resize(sent[i].size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.Send(BufferOf(absl::MakeSpan(sent[i])), next));
    works.push_back(std::move(work));
  }
  for (auto& each : got) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, rank.Recv(BufferOf(absl::MakeSpan(each)), last));
    works.push_back(std::move(work));
  }
  for (const Work& work : works) LOCKSTEP_EXPECT_OK(work.Wait());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_THAT(got[i], testing::Each(static_cast<float>(20 * last + i)));
  }
}

// Only one rank makes these calls. If a refused call got a number, the ranks
// would differ.
void ExpectRefusals(Communicator& rank) {
  if (rank.rank() != 0) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    return;
  }
  std::vector<float> four(4), other(4);
  const Buffer in = BufferOf(absl::MakeSpan(four));
  const Buffer out = BufferOf(absl::MakeSpan(other));
  const auto refused = [](const absl::StatusOr<Work>& work,
                          const std::string& text) {
    EXPECT_THAT(work,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  Buffer wrong = out;
  wrong.count = 3;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum),
          "out should have 4 elements, as in has, but has 3");
  wrong = out;
  wrong.dtype = DType::kI32;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum), "the same dtype");
  wrong.count = -1;
  refused(rank.AllReduce(wrong, wrong, ReduceOp::kSum), "count=-1");
  wrong = out;
  wrong.data = nullptr;
  refused(rank.AllReduce(in, wrong, ReduceOp::kSum), "data=nullptr");
  refused(rank.Broadcast(in, out, rank.size()), "root should be a rank");
  refused(rank.Send(in, -1), "to should be a rank");
  refused(rank.AllGatherV(in, out, {}), "a number for each of");
  refused(rank.AllToAllV(in, std::vector<int64_t>(rank.size(), 100), out,
                         std::vector<int64_t>(rank.size(), 1)),
          "elements, the sum of");
  {
    std::vector<int64_t> gives(rank.size()), takes(rank.size());
    gives[0] = 4;
    takes[rank.size() - 1] = 4;
    if (rank.size() > 1) {
      refused(rank.AllToAllV(in, gives, out, takes),
              "what a rank gives itself");
    }
  }
  const Buffer shifted = BufferOf(absl::MakeSpan(four).subspan(1));
  refused(rank.AllReduce(BufferOf(absl::MakeSpan(four).first(3)), shifted,
                         ReduceOp::kSum),
          "overlap");
  CallOptions options;
  options.scale = 2;
  refused(rank.Barrier(options), "scale is for reductions");
  options.scale = 1e300;
  refused(rank.AllReduce(in, out, ReduceOp::kSum, options), "scale=1e+300");
  options = {};
  options.deadline = -absl::Seconds(1);
  refused(rank.Barrier(options), "deadline=-1s");
  // These calls have issued nothing.
  LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
}

// Two ranks issue different operations. Errors on both name both, and so do
// those of later calls.
void ExpectMismatch(
    const MakeGroup& make, bool compares, const std::string& first,
    const std::string& second,
    const std::function<absl::StatusOr<Work>(Communicator&, bool)>& issue) {
  const Ranks ranks = make(2);
  OnAllRanks(ranks, [&](Communicator& rank) {
    absl::Status status = Wait(issue(rank, rank.rank() == 0));
    while (status.ok() && !compares) status = Wait(rank.Barrier());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr(first), HasSubstr(second))));
    ExpectSame(Wait(rank.Barrier()), status);
  });
}

void ExpectMismatches(const MakeGroup& make, bool compares) {
  std::vector<float> memory[2] = {std::vector<float>(8), std::vector<float>(8)};
  const auto floats = [&](Communicator& rank, int64_t count) {
    return BufferOf(absl::MakeSpan(memory[rank.rank()]).first(count));
  };
  const auto all_reduce = [&](Communicator& rank, int64_t count, ReduceOp op,
                              const CallOptions& options) {
    const Buffer buffer = floats(rank, count);
    return rank.AllReduce(buffer, buffer, op, options);
  };
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)", "barrier()",
                 [&](Communicator& rank, bool first) {
                   return first ? all_reduce(rank, 4, ReduceOp::kSum, {})
                                : rank.Barrier();
                 });
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)",
                 "all_reduce(5 x f32, sum)",
                 [&](Communicator& rank, bool first) {
                   return all_reduce(rank, first ? 4 : 5, ReduceOp::kSum, {});
                 });
  ExpectMismatch(
      make, compares, "all_reduce(4 x f32, sum)", "all_reduce(4 x f32, max)",
      [&](Communicator& rank, bool first) {
        return all_reduce(rank, 4, first ? ReduceOp::kSum : ReduceOp::kMax, {});
      });
  ExpectMismatch(make, compares, "all_reduce(4 x f32, sum)",
                 "all_reduce(4 x i32, sum)",
                 [&](Communicator& rank, bool first) {
                   Buffer buffer = floats(rank, 4);
                   if (!first) buffer.dtype = DType::kI32;
                   return rank.AllReduce(buffer, buffer, ReduceOp::kSum);
                 });
  ExpectMismatch(
      make, compares, "root 0", "root 1", [&](Communicator& rank, bool first) {
        return rank.Broadcast(floats(rank, 4), floats(rank, 4), first ? 0 : 1);
      });
  ExpectMismatch(make, compares, "name 'a'", "name 'b'",
                 [&](Communicator& rank, bool first) {
                   CallOptions options;
                   options.name = first ? "a" : "b";
                   return all_reduce(rank, 4, ReduceOp::kSum, options);
                 });
  ExpectMismatch(
      make, compares, "sends 3", "takes 4",
      [&](Communicator& rank, bool first) {
        const std::vector<int64_t> gives =
            first ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{2, 2};
        const std::vector<int64_t> takes =
            first ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{4, 2};
        Buffer out = floats(rank, 0);
        static std::vector<float> taken[2] = {std::vector<float>(8),
                                              std::vector<float>(8)};
        out = BufferOf(
            absl::MakeSpan(taken[rank.rank()]).first(takes[0] + takes[1]));
        return rank.AllToAllV(floats(rank, 4), gives, out, takes);
      });
  {  // A send may be done before it is received.
    const Ranks ranks = make(2);
    OnAllRanks(ranks, [&](Communicator& rank) {
      const auto differ = StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("send(4 x f32)"), HasSubstr("recv(5 x f32)")));
      if (rank.rank() == 0) {
        // Or the send meets the other rank's operation, and fails with it.
        const absl::Status sent = rank.Send(floats(rank, 4), 1).status();
        if (!sent.ok()) {
          EXPECT_THAT(sent, differ);
        }
      } else {
        EXPECT_THAT(Wait(rank.Recv(floats(rank, 5), 0)), differ);
      }
      EXPECT_THAT(Wait(rank.Barrier()), differ);
    });
  }
}

// Expects that an operation that can't succeed ends at its deadline with a
// message that matches `says`. Until the deadline, the ranks tell each other
// where they are. So the deadline grows until it was long enough for everything
// in the message.
void ExpectExpires(const std::function<absl::Status(absl::Duration)>& run,
                   const testing::Matcher<std::string>& says) {
  absl::Duration deadline = absl::Milliseconds(20);
  absl::Status status = run(deadline);
  while (absl::IsDeadlineExceeded(status) && deadline < absl::Seconds(20) &&
         !testing::Value(std::string(status.message()), says)) {
    deadline *= 4;
    status = run(deadline);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, says));
}

void ExpectFailures(const MakeGroup& make) {
  {  // Abort ends pending operations on every rank.
    const Ranks ranks = make(3);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
    ranks[1]->Abort(absl::InternalError("loss is NaN"));
    const absl::Status status = work.Wait();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                 AllOf(HasSubstr("rank 1"),
                                       HasSubstr("INTERNAL: loss is NaN"))));
    for (const auto& rank : ranks) ExpectSame(Wait(rank->Barrier()), status);
  }
  {  // The first operation that needs a rank that left names it.
    const Ranks ranks = make(3);
    OnAllRanks(ranks, [](Communicator& rank) {
      LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
      if (rank.rank() == 2) {
        LOCKSTEP_EXPECT_OK(rank.Close());
        EXPECT_FALSE(rank.Barrier().ok());
        return;
      }
      EXPECT_THAT(Wait(rank.Barrier()),
                  StatusIs(absl::StatusCode::kUnavailable,
                           HasSubstr("rank 2 has left the group")));
    });
  }
  // The error names a rank that does not come, with its last operation.
  ExpectExpires(
      [&make](absl::Duration deadline) {
        const Ranks ranks = make(3);
        OnAllRanks(ranks, [](Communicator& rank) {
          LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
        });
        LOCKSTEP_EXPECT_OK(ranks[2]->Barrier().status());
        CallOptions options;
        options.deadline = deadline;
        absl::Status status = Wait(ranks[0]->Barrier(options));
        EXPECT_THAT(status.message(), HasSubstr("barrier() #2"));
        // Rank 1 may still meet the others' parts before it hears of their
        // failure.
        while (Wait(ranks[1]->Barrier()).ok()) {
        }
        return status;
      },
      AllOf(HasSubstr("ranks 1 did"), HasSubstr("rank 1"),
            HasSubstr("last issued barrier() #1")));
  // The error names the one of two peers that does not come.
  ExpectExpires(
      [&make](absl::Duration deadline) {
        const Ranks ranks = make(3);
        std::vector<float> sent(4), got(4), other(4);
        const Buffer to = BufferOf(absl::MakeSpan(sent));
        const Buffer from = BufferOf(absl::MakeSpan(got));
        CallOptions options;
        options.deadline = deadline;
        const absl::StatusOr<Work> received =
            ranks[1]->Recv(BufferOf(absl::MakeSpan(other)), 0);
        LOCKSTEP_EXPECT_OK(received.status());
        absl::Status status = Wait(ranks[0]->SendRecv(to, 1, from, 2, options));
        // The receive may have ended before, or failed, too.
        Wait(received).IgnoreError();
        return status;
      },
      HasSubstr("ranks 2 did not come"));
  {  // A send to the rank itself waits for its receive.
    const Ranks ranks = make(2);
    std::vector<float> sent = {1, 2}, got(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Work send, ranks[1]->Send(BufferOf(absl::MakeSpan(sent)), 1));
    EXPECT_EQ(send.WaitUntil(absl::Now() + absl::Milliseconds(100)).code(),
              absl::StatusCode::kDeadlineExceeded);
    LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Recv(BufferOf(absl::MakeSpan(got)), 1)));
    LOCKSTEP_EXPECT_OK(send.Wait());
    EXPECT_EQ(got, sent);
  }
  {  // A message can be received after its sender has left.
    const Ranks ranks = make(2);
    std::vector<float> sent = {1, 2}, got(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Work send, ranks[0]->Send(BufferOf(absl::MakeSpan(sent)), 1));
    LOCKSTEP_EXPECT_OK(ranks[0]->Close());
    const Buffer to = BufferOf(absl::MakeSpan(got));
    LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Recv(to, 0)));
    LOCKSTEP_EXPECT_OK(send.Wait());
    EXPECT_EQ(got, sent);
    EXPECT_THAT(Wait(ranks[1]->Recv(to, 0)),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("rank 0 has left the group")));
  }
  {  // An operation does not fail if a rank leaves after its part.
    const Ranks ranks = make(3);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work first, ranks[2]->Barrier());
    LOCKSTEP_EXPECT_OK(ranks[2]->Close());
    LOCKSTEP_EXPECT_OK(ranks[0]->Barrier().status());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work second, ranks[0]->Barrier());
    LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
    LOCKSTEP_EXPECT_OK(first.Wait());
    EXPECT_EQ(Wait(ranks[1]->Barrier()).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(second.Wait(), StatusIs(absl::StatusCode::kUnavailable,
                                        HasSubstr("barrier() #2")));
  }
  {  // A message may go out when its sender has issued a collective that its
     // receiver has not issued.
    const Ranks ranks = make(2);
    OnAllRanks(ranks, [](Communicator& rank) {
      std::vector<float> sent = {1, 2}, got(2);
      const Buffer from = BufferOf(absl::MakeSpan(sent));
      const Buffer to = BufferOf(absl::MakeSpan(got));
      if (rank.rank() == 0) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, rank.Barrier());
        LOCKSTEP_EXPECT_OK(Wait(rank.Send(from, 1)));
        LOCKSTEP_EXPECT_OK(work.Wait());
      } else {
        LOCKSTEP_EXPECT_OK(Wait(rank.Recv(to, 0)));
        LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
        EXPECT_EQ(got, sent);
      }
    });
  }
  {  // The time limit of a wait does not end the operation.
    const Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
    EXPECT_THAT(
        work.WaitUntil(absl::Now()),
        StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("it goes on")));
    EXPECT_THAT(work.WaitUntil(absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_FALSE(work.Done());
    LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
    LOCKSTEP_EXPECT_OK(work.Wait());
    EXPECT_TRUE(work.Done());
  }
}

void ExpectSplits(const MakeGroup& make) {
  const Ranks ranks = make(5);
  OnAllRanks(ranks, [](Communicator& rank) {
    const bool odd = rank.rank() % 2 == 1;
    // Members may be in any order; it becomes the order of the new ranks.
    const std::vector<int> members =
        odd ? std::vector<int>{3, 1} : std::vector<int>{0, 2, 4};
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  rank.Split(odd ? "odd" : "even", members));
    EXPECT_EQ(part->size(), odd ? 2 : 3);
    EXPECT_EQ(members[part->rank()], rank.rank());
    std::vector<int32_t> value = {rank.rank()};
    const Buffer buffer = BufferOf(absl::MakeSpan(value));
    LOCKSTEP_ASSERT_OK(Wait(part->AllReduce(buffer, buffer, ReduceOp::kSum)));
    EXPECT_EQ(value[0], odd ? 4 : 6);
    EXPECT_THAT(rank.Split(odd ? "odd" : "even", members),
                StatusIs(absl::StatusCode::kAlreadyExists));
    EXPECT_THAT(rank.Split("others", {(rank.rank() + 1) % 5}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(rank.Split("others", {rank.rank(), 7}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
  });
}

// Groups that can't become complete fail, and do not wait for ever.
void ExpectFailingSplits(const MakeGroup& make) {
  {  // The members differ between ranks.
    const Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    const absl::Status status = ranks[1]->Split("part", {1, 0}).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("has 1, 0"), HasSubstr("has 0, 1"))));
    ExpectSame(work.Wait(), status);
    ExpectSame(Wait(ranks[0]->Barrier()), status);
  }
  {  // A member leaves before it has joined.
    Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    ranks[1] = nullptr;
    EXPECT_THAT(work.Wait(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1")));
  }
  {  // The parent group is aborted.
    const Ranks ranks = make(2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto part,
                                  ranks[0]->Split("part", {0, 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, part->Barrier());
    ranks[1]->Abort(absl::InternalError("no"));
    EXPECT_THAT(work.Wait(), StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(ranks[1]->Split("part", {0, 1}),
                StatusIs(absl::StatusCode::kAborted));
  }
  const Ranks ranks = make(1);
  LOCKSTEP_EXPECT_OK(ranks[0]->Close());
  EXPECT_THAT(ranks[0]->Split("part", {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace

void OnAllRanks(const Ranks& ranks,
                const std::function<void(Communicator&)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) {
    threads.emplace_back([&run, &rank] { run(*rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

void ExpectConforms(const MakeGroup& make, const ConformanceOptions& options) {
  for (const int size : kSizes) {
    if (options.alone && size > 1) return;
    const Ranks ranks = make(size);
    OnAllRanks(ranks, [&options](Communicator& rank) {
      ExpectEveryDType(rank, options.reduces_all);
      ExpectScales(rank);
      ExpectOrder(rank);
      ExpectMessagesInOrder(rank);
      ExpectRefusals(rank);
    });
    internal_collective::ExpectSameBits(ranks, options.reduces_in_rank_order);
  }
  ExpectMismatches(make, options.compares);
  ExpectFailures(make);
  ExpectSplits(make);
  ExpectFailingSplits(make);
}

namespace {

void InThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

// The worlds of a job's ranks. They outlive their groups.
// Thread-safety: thread-compatible.
class Job {
 public:
  explicit Job(int size) : worlds_(size) {
    MemoryStore store;
    InThreads(size, [&](int rank) {
      WorldOptions options;
      options.rank = rank;
      options.size = size;
      options.store = &store;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(worlds_[rank], World::Join(options));
    });
  }
  // All ranks leave at the same time, since rank 0 waits for the others.
  ~Job() {
    InThreads(static_cast<int>(worlds_.size()),
              [this](int rank) { worlds_[rank] = nullptr; });
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Ranks MakeRanks(const GroupOptions& options) {
    Ranks ranks(worlds_.size());
    InThreads(static_cast<int>(worlds_.size()), [&](int rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(ranks[rank],
                                    worlds_[rank]->MakeGroup(options));
    });
    return ranks;
  }

 private:
  std::vector<std::unique_ptr<World>> worlds_;
};

}  // namespace

void ExpectConforms(const TransportFactory& transport,
                    const ConformanceOptions& options) {
  std::unique_ptr<Job> job;
  ExpectConforms(
      [&](int size) {
        job = nullptr;
        job = std::make_unique<Job>(size);
        GroupOptions group;
        group.backend = "the transport that is tested";
        group.transport = transport;
        group.slow = absl::Milliseconds(50);
        return job->MakeRanks(group);
      },
      options);
}

}  // namespace lockstep
