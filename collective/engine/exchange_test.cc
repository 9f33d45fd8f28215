#include "lockstep/collective/engine/exchange.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// One rank's operations of one kind, and what the exchange says of them.
// Thread-safety: use it on one thread.
class TestedSeat : public Exchange::Seat {
 public:
  void OnJoined() override { joined = true; }
  void OnDone(uint64_t number) override { done.push_back(number); }
  void OnError(uint64_t number, const absl::Status& why) override {
    EXPECT_EQ(number, done.size() + 1);
    error = why;
  }

  // Returns the next operation, which sums `value` over the ranks.
  Exchange::Part Sum(float& value, uint64_t fingerprint = 1) {
    Operation op;
    op.kind = OpKind::kAllReduce;
    op.in = ConstBuffer(&value, 1, DType::kF32, {});
    op.out = {&value, 1, DType::kF32, {}};
    return PartOf(op, fingerprint);
  }
  Exchange::Part Send(float& value, uint64_t fingerprint = 1) {
    Operation op;
    op.kind = OpKind::kSend;
    op.in = ConstBuffer(&value, 1, DType::kF32, {});
    return PartOf(op, fingerprint);
  }
  Exchange::Part Recv(float& value, uint64_t fingerprint = 1) {
    Operation op;
    op.kind = OpKind::kRecv;
    op.out = {&value, 1, DType::kF32, {}};
    return PartOf(op, fingerprint);
  }

  void OnLeft(int rank, const LaneCounts&) override { left.push_back(rank); }

  bool joined = false;
  std::vector<int> left;
  std::vector<uint64_t> done;
  absl::Status error;
  std::weak_ptr<const void> last;  // the owner of the last part

 private:
  Exchange::Part PartOf(const Operation& op, uint64_t fingerprint) {
    const auto owner = std::make_shared<const Operation>(op);
    last = owner;
    return {this, owner, owner.get(), ++issued_, fingerprint};
  }

  uint64_t issued_ = 0;
};

TEST(Exchange, TellsWhenAllHaveJoined) {
  Exchange exchange(3);
  TestedSeat seats[3];
  const auto owner = std::make_shared<int>();
  exchange.Join(1, seats[1], owner);
  exchange.Join(0, seats[0], owner);
  exchange.Drop(0);
  EXPECT_FALSE(seats[1].joined);
  EXPECT_EQ(owner.use_count(), 2);
  exchange.Join(2, seats[2], owner);
  EXPECT_TRUE(seats[1].joined && seats[2].joined);
  // A rank that was dropped may be gone.
  EXPECT_FALSE(seats[0].joined);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Exchange, TheLastRankDoesItForAll) {
  Exchange exchange(3);
  TestedSeat seats[3];
  float values[] = {1, 2, 4};
  for (int rank = 0; rank < 2; ++rank) {
    exchange.Meet(rank, seats[rank].Sum(values[rank]));
  }
  EXPECT_EQ(exchange.done(), 0u);
  EXPECT_THAT(seats[0].done, IsEmpty());
  exchange.Meet(2, seats[2].Sum(values[2]));
  EXPECT_EQ(exchange.done(), 1u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(values[rank], 7);
    EXPECT_THAT(seats[rank].done, ElementsAre(1));
    EXPECT_TRUE(seats[rank].last.expired());
  }
}

TEST(Exchange, ARankMayBeAhead) {
  Exchange exchange(2);
  TestedSeat ahead, behind;
  float values[] = {1, 10, 2, 20};
  exchange.Meet(0, ahead.Sum(values[0]));
  exchange.Meet(0, ahead.Sum(values[1]));
  exchange.Meet(1, behind.Sum(values[2]));
  EXPECT_THAT(ahead.done, ElementsAre(1));
  exchange.Meet(1, behind.Sum(values[3]));
  EXPECT_THAT(ahead.done, ElementsAre(1, 2));
  EXPECT_THAT(values, ElementsAre(3, 30, 3, 30));
}

TEST(Exchange, RanksThatDifferAreTold) {
  Exchange exchange(3);
  TestedSeat seats[3];
  float values[] = {1, 2, 4};
  exchange.Meet(0, seats[0].Sum(values[0]));
  // The third rank need not come.
  exchange.Meet(1, seats[1].Sum(values[1], /*fingerprint=*/2));
  EXPECT_THAT(seats[1].error, StatusIs(absl::StatusCode::kFailedPrecondition));
  exchange.Meet(2, seats[2].Sum(values[2]));
  EXPECT_EQ(exchange.done(), 0u);
  EXPECT_THAT(values, ElementsAre(1, 2, 4));
}

// Operations end in their order, so an earlier one that all ranks share ends
// first.
TEST(Exchange, RanksThatDifferLaterAreToldLater) {
  Exchange exchange(2);
  TestedSeat ahead, behind;
  float values[] = {1, 10, 2, 20};
  exchange.Meet(0, ahead.Sum(values[0]));
  exchange.Meet(0, ahead.Sum(values[1]));
  exchange.Meet(1, behind.Sum(values[2]));
  exchange.Meet(1, behind.Sum(values[3], /*fingerprint=*/2));
  EXPECT_THAT(ahead.done, ElementsAre(1));
  EXPECT_FALSE(ahead.error.ok() && behind.error.ok());
  EXPECT_THAT(values, ElementsAre(3, 10, 3, 20));
}

TEST(Exchange, TheOperationsOfADroppedRankAreNotDone) {
  Exchange exchange(2);
  TestedSeat dropped, sends, other, recvs;
  float values[] = {1, 2};
  exchange.Meet(0, dropped.Sum(values[0]));
  exchange.Send(0, 1, sends.Send(values[0]));
  exchange.Drop(0);
  exchange.Drop(0);
  EXPECT_TRUE(dropped.last.expired());
  EXPECT_TRUE(sends.last.expired());
  exchange.Meet(1, other.Sum(values[1]));
  exchange.Recv(0, 1, recvs.Recv(values[1]));
  EXPECT_EQ(exchange.done(), 0u);
  EXPECT_EQ(exchange.done(0, 1), 0u);
  EXPECT_THAT(values, ElementsAre(1, 2));
}

TEST(Exchange, ARankThatWasDroppedBringsNothing) {
  Exchange exchange(2);
  TestedSeat dropped, sends, other, recvs;
  float values[] = {1, 2};
  exchange.Drop(0);
  exchange.Meet(1, other.Sum(values[1]));
  exchange.Recv(0, 1, recvs.Recv(values[1]));
  exchange.Meet(0, dropped.Sum(values[0]));
  exchange.Send(0, 1, sends.Send(values[0]));
  EXPECT_EQ(exchange.done(), 0u);
  EXPECT_EQ(exchange.done(0, 1), 0u);
  EXPECT_THAT(values, ElementsAre(1, 2));
}

TEST(Exchange, TellsWhoNeedsARankThatHasLeft) {
  Exchange exchange(3);
  TestedSeat seats[3], sends;
  float values[] = {1, 2, 4, 8};
  for (int rank = 0; rank < 3; ++rank) {
    exchange.Meet(rank, seats[rank].Sum(values[rank]));
  }
  exchange.Leave(2, {{LaneId(), 1}});
  EXPECT_THAT(seats[0].left, IsEmpty());
  exchange.Meet(0, seats[0].Sum(values[0]));
  exchange.Send(1, 2, sends.Send(values[3]));
  EXPECT_THAT(seats[0].left, ElementsAre(2));
  EXPECT_THAT(seats[1].left, IsEmpty());
  EXPECT_THAT(sends.left, ElementsAre(2));
}

TEST(Exchange, TellsWhoWaitsForARankThatLeaves) {
  Exchange exchange(3);
  TestedSeat seats[3], recvs, other;
  float values[] = {1, 2, 4, 8};
  exchange.Meet(0, seats[0].Sum(values[0]));
  exchange.Recv(2, 0, recvs.Recv(values[1]));
  exchange.Recv(1, 0, other.Recv(values[2]));
  exchange.Leave(2, {});
  EXPECT_THAT(seats[0].left, ElementsAre(2));
  EXPECT_THAT(recvs.left, ElementsAre(2));
  EXPECT_THAT(other.left, IsEmpty());
}

TEST(Exchange, MovesMessagesInTheirOrder) {
  Exchange exchange(2);
  TestedSeat sends, recvs;
  float in[] = {1, 2}, out[] = {0, 0};
  exchange.Send(0, 1, sends.Send(in[0]));
  exchange.Send(0, 1, sends.Send(in[1]));
  exchange.Recv(0, 1, recvs.Recv(out[0]));
  EXPECT_EQ(exchange.done(0, 1), 1u);
  exchange.Recv(0, 1, recvs.Recv(out[1]));
  EXPECT_THAT(sends.done, ElementsAre(1, 2));
  EXPECT_THAT(recvs.done, ElementsAre(1, 2));
  EXPECT_THAT(out, ElementsAre(1, 2));
  // The other direction is a pair of its own.
  EXPECT_EQ(exchange.done(1, 0), 0u);
}

TEST(Exchange, MessagesThatDifferAreNotMoved) {
  Exchange exchange(1);
  TestedSeat sends, recvs;
  float in = 1, out = 0;
  exchange.Recv(0, 0, recvs.Recv(out, /*fingerprint=*/2));
  exchange.Send(0, 0, sends.Send(in));
  EXPECT_FALSE(sends.error.ok() && recvs.error.ok());
  EXPECT_EQ(out, 0);
}

TEST(Exchanges, RanksOfAGroupGetTheSame) {
  Exchanges exchanges;
  const std::shared_ptr<Exchange> first = exchanges.Of("world", 2);
  EXPECT_EQ(exchanges.Of("world", 2), first);
  EXPECT_NE(exchanges.Of("other", 2), first);
}

}  // namespace
}  // namespace lockstep::internal_collective
