#include "lockstep/collective/operation_log.h"

#include <algorithm>
#include <chrono>  // NOLINT: what the steady clock speaks
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::StartsWith;

std::string DescribeLogged(const Operation& op) {
  OperationLog log;
  log.End(log.Begin(op), absl::StatusCode::kOk);
  return log.Recent().back().Describe();
}

Operation Make(OpKind kind, int64_t in_count, int64_t out_count) {
  Operation op;
  op.kind = kind;
  op.in.count = in_count;
  op.out.count = out_count;
  return op;
}

TEST(OperationLog, SaysWhatWasIssued) {
  Operation reduce = Make(OpKind::kAllReduce, 1000, 1000);
  reduce.sequence = 41;
  reduce.op = ReduceOp::kMax;
  reduce.name = "bucket 3";
  EXPECT_THAT(DescribeLogged(reduce),
              StartsWith("#41 all_reduce(1000 x f32, max, name 'bucket 3'): OK "
                         "after "));
  Operation barrier;
  barrier.sequence = 42;
  EXPECT_THAT(DescribeLogged(barrier), StartsWith("#42 barrier(): OK"));
  Operation broadcast = Make(OpKind::kBroadcast, 0, 7);
  broadcast.root = 40000;
  EXPECT_THAT(DescribeLogged(broadcast),
              StartsWith("broadcast(7 x f32, root 40000)"));
}

TEST(OperationLog, SaysBothCountsWhereTheyDiffer) {
  EXPECT_THAT(DescribeLogged(Make(OpKind::kAllGather, 3, 12)),
              StartsWith("all_gather(3 into 12 x f32)"));
  EXPECT_THAT(DescribeLogged(Make(OpKind::kReduceScatter, 12, 3)),
              StartsWith("reduce_scatter(12 into 3 x f32, sum)"));
  // A rank that is not the root of a gather has no output.
  EXPECT_THAT(DescribeLogged(Make(OpKind::kGather, 3, 0)),
              StartsWith("gather(3 x f32)"));
}

TEST(OperationLog, SaysWithWhom) {
  Operation both = Make(OpKind::kSendRecv, 5, 9);
  both.to = 1;
  both.from = 2;
  EXPECT_THAT(DescribeLogged(both),
              StartsWith("send_recv(5 x f32 to rank 1, 9 x f32 from rank 2)"));
  Operation send = Make(OpKind::kSend, 5, 0);
  send.to = 3;
  EXPECT_THAT(DescribeLogged(send), StartsWith("send(5 x f32) to rank 3"));
  Operation receive = Make(OpKind::kRecv, 0, 9);
  receive.from = 0;
  EXPECT_THAT(DescribeLogged(receive), StartsWith("recv(9 x f32) from rank 0"));
}

TEST(OperationLog, KnowsTimesOfTheSteadyClock) {
  OperationLog log;
  const SteadyTime issued = SteadyNow();
  const SteadyTime ended = issued + std::chrono::microseconds(70);
  log.End(log.Begin(Make(OpKind::kBarrier, 0, 0), issued),
          absl::StatusCode::kOk, ended);
  for (int i = 0; i < 2; ++i) {
    const std::vector<OperationRecord> recent = log.Recent();
    EXPECT_EQ(recent[0].steady_issued(), issued);
    EXPECT_EQ(recent[0].steady_ended(), ended);
  }
}

// An operation from one second to another one.
OperationRecord During(int issued, int ended) {
  OperationRecord record;
  record.issued = absl::FromUnixSeconds(issued);
  if (ended >= 0) record.ended = absl::FromUnixSeconds(ended);
  return record;
}

TEST(OperationLog, OperationsAtTheSameTimeCountOnce) {
  EXPECT_EQ(TimeIn({}), absl::ZeroDuration());
  EXPECT_EQ(TimeIn({During(5, 7)}), absl::Seconds(2));
  EXPECT_EQ(TimeIn({During(5, 7), During(7, 8), During(10, 14)}),
            absl::Seconds(7));
  // One in another, two that overlap, and one that is pending.
  EXPECT_EQ(TimeIn({During(12, 13), During(3, -1), During(20, 25),
                    During(10, 14), During(22, 28), During(11, 14)}),
            absl::Seconds(12));
}

// Issues an operation of each of these numbers of elements, and ends it.
void Issue(OperationLog& log, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    log.End(log.Begin(Make(OpKind::kAllReduce, i, i)), absl::StatusCode::kOk);
  }
}

void ExpectKept(const OperationLog& log, uint64_t most, int64_t first,
                int64_t last) {
  const std::vector<OperationRecord> recent = log.Recent(most);
  ASSERT_EQ(recent.size(), static_cast<size_t>(last - first + 1));
  for (int64_t i = first; i <= last; ++i) {
    const OperationRecord& record = recent[static_cast<size_t>(i - first)];
    EXPECT_EQ(record.in_count, i);
    EXPECT_FALSE(record.pending()) << i;
  }
}

TEST(OperationLog, KeepsAsManyAsItIsAskedFor) {
  for (const int64_t before : {0, 5, 1024, 3000}) {
    OperationLog log;
    Issue(log, 1, before);
    log.Keep(2500);
    log.Keep(2000);  // changes nothing
    const int64_t kept = std::min<int64_t>(before, 1024);
    ExpectKept(log, 9999, before - kept + 1, before);
    const uint64_t pending = log.Begin(Make(OpKind::kAllReduce, before + 1, 1));
    Issue(log, before + 2, before + 400);
    log.End(pending, absl::StatusCode::kOk);
    ExpectKept(log, 9999, before - kept + 1, before + 400);
    Issue(log, before + 401, before + 7000);
    ExpectKept(log, 9999, before + 4501, before + 7000);
    ExpectKept(log, 3, before + 6998, before + 7000);
    log.End(pending, absl::StatusCode::kAborted);  // overwritten long ago
    ExpectKept(log, 9999, before + 4501, before + 7000);
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
