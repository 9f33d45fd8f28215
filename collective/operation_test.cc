#include "lockstep/collective/operation.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_collective {
namespace {

constexpr OpKind kAllKinds[] = {
    OpKind::kAllReduce,      OpKind::kReduce,  OpKind::kBroadcast,
    OpKind::kAllGather,      OpKind::kGather,  OpKind::kScatter,
    OpKind::kReduceScatter,  OpKind::kSend,    OpKind::kRecv,
    OpKind::kSendRecv,       OpKind::kBarrier, OpKind::kAllToAll,
    OpKind::kAllReduceShards};

constexpr ReduceOp kAllOps[] = {
    ReduceOp::kSum,  ReduceOp::kAvg,    ReduceOp::kMin,  ReduceOp::kMax,
    ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr};

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
};

std::vector<Reduction> ReductionsOf(OpKind kind) {
  if (!Reduces(kind)) return {Reduction()};
  std::vector<Reduction> reductions;
  for (const ReduceOp op : kAllOps) {
    for (const double scale : {1.0, 0.1, -1.0}) {
      reductions.push_back({op, scale});
    }
  }
  return reductions;
}

std::vector<int> RootsOf(OpKind kind) {
  switch (kind) {
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kGather:
    case OpKind::kScatter:
      return {0, 1, 12};
    default:
      return {-1};
  }
}

// Sets the `what`-th of several sets of counts.
void SetCounts(int what, Operation& op) {
  constexpr int64_t kCounts[] = {0, 1, 12, 123, 1000000007};
  const std::vector<int64_t> parts[] = {
      {0, 0, 0}, {1, 2, 3}, {3, 2, 1}, {12, 3, 0}, {1, 23, 0}};
  switch (op.kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      op.recv_counts = parts[what];
      break;
    case OpKind::kScatter:
      op.send_counts = parts[what];
      break;
    case OpKind::kAllToAll:
      op.send_counts = op.recv_counts = parts[what];
      break;
    case OpKind::kAllReduceShards:
      op.recv_counts = parts[what];
      // Some have the same count, and other shards.
      op.in.count = 2 * kCounts[what / 2];
      op.out.count = kCounts[what / 2];
      break;
    default:
      op.in.count = op.out.count = kCounts[what];
  }
}

// Returns the same operation on another rank: it differs only where ranks may
// differ.
Operation OnAnotherRank(Operation op) {
  static char memory = 0;
  const int64_t count = op.in.count;
  op.in = {&memory, count, op.dtype, {Device::Kind::kCuda, 1}};
  op.out = {&memory, count, op.dtype, {Device::Kind::kCuda, 1}};
  op.deadline = absl::Seconds(7);
  op.after = Stream(&memory);
  op.to = 3;
  op.from = 4;
  switch (op.kind) {
    case OpKind::kBroadcast:  // on a rank that is not the root
    case OpKind::kRecv:
      op.in = ConstBuffer();
      break;
    case OpKind::kReduce:  // on a rank that is not the root
    case OpKind::kSend:
      op.out = Buffer();
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      op.in.count = 5;
      op.send_counts = {5};
      break;
    case OpKind::kAllReduceShards:  // on a rank with another number of sums
      op.out.count = op.in.count / 2;
      op.in.count = 7;
      break;
    case OpKind::kScatter:
      op.out.count = 5;
      op.recv_counts = {5};
      break;
    case OpKind::kAllToAll:
      op.in.count = op.out.count = 18;
      op.send_counts = {5, 6, 7};
      op.recv_counts = {8, 7, 3};
      break;
    default:
      break;
  }
  return op;
}

// Returns many operations, each of them as two ranks have it.
std::vector<Operation> ManyOperations() {
  std::vector<Operation> ops;
  for (const OpKind kind : kAllKinds) {
    for (const Reduction& reduction : ReductionsOf(kind)) {
      for (const DType dtype : kAllDTypes) {
        for (const int root : RootsOf(kind)) {
          for (const char* const name : {"", "a", "b", "grad 12"}) {
            for (int what = 0; what < 5; ++what) {
              Operation op;
              op.kind = kind;
              op.dtype = dtype;
              op.op = reduction.op;
              op.scale = reduction.scale;
              op.root = root;
              op.name = name;
              SetCounts(what, op);
              ops.push_back(op);
              ops.push_back(OnAnotherRank(op));
            }
          }
        }
      }
    }
  }
  return ops;
}

// The fingerprints are the same if and only if the descriptions are.
TEST(Operation, FingerprintsAreTheSameWhereDescriptionsAre) {
  std::vector<Operation> ops = ManyOperations();
  for (const auto& [group, sequence] :
       std::vector<std::pair<std::string, uint64_t>>{
           {"world", 1}, {"world/a@12", uint64_t{1} << 40}}) {
    std::map<std::string, uint64_t> by_text;
    std::map<uint64_t, std::string> by_fingerprint;
    for (Operation& op : ops) {
      op.sequence = sequence;
      const uint64_t fingerprint = op.Fingerprint(group);
      const std::string text = op.Describe();
      ASSERT_EQ(by_text.insert({text, fingerprint}).first->second, fingerprint)
          << text;
      ASSERT_EQ(by_fingerprint.insert({fingerprint, text}).first->second, text);
    }
    EXPECT_GT(by_text.size(), 20000u);
    EXPECT_LE(by_text.size(), ops.size() / 2);
  }
}

TEST(Operation, TheSameOnTwoRanksIsDescribedTheSame) {
  std::vector<Operation> ops = ManyOperations();
  for (size_t i = 0; i < ops.size(); i += 2) {
    ASSERT_EQ(ops[i].Describe(), ops[i + 1].Describe());
    ASSERT_EQ(ops[i].Fingerprint("world"), ops[i + 1].Fingerprint("world"));
  }
}

TEST(Operation, BothCountsOfASendRecvAreInItsFingerprint) {
  Operation op;
  op.kind = OpKind::kSendRecv;
  std::set<std::string> texts;
  std::set<uint64_t> fingerprints;
  for (const int64_t in : {0, 1, 2, 3}) {
    for (const int64_t out : {0, 1, 2, 3}) {
      op.in.count = in;
      op.out.count = out;
      texts.insert(op.Describe());
      fingerprints.insert(op.Fingerprint("world"));
    }
  }
  EXPECT_EQ(texts.size(), 16u);
  EXPECT_EQ(fingerprints.size(), 16u);
}

TEST(Operation, EachPlaceHasAFingerprintOfItsOwn) {
  for (const OpKind kind : kAllKinds) {
    Operation op;
    op.kind = kind;
    std::set<uint64_t> fingerprints;
    size_t places = 0;
    for (const absl::string_view group :
         {"", "w", "world", "world1", "world@1", "world@2", "World"}) {
      for (const uint64_t sequence :
           {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{11}, uint64_t{12},
            uint64_t{1} << 32, std::numeric_limits<uint64_t>::max()}) {
        op.sequence = sequence;
        fingerprints.insert(op.Fingerprint(group));
        ++places;
      }
    }
    EXPECT_EQ(fingerprints.size(), places) << Name(kind);
  }
}

TEST(Operation, TheLastBitOfAScaleCounts) {
  for (const OpKind kind : kAllKinds) {
    if (!Reduces(kind)) continue;
    std::set<std::string> texts;
    std::set<uint64_t> fingerprints;
    size_t scales = 0;
    for (const double scale : {1.0, 0.1, 1.0 / 3, -0.5, 1e300, 1e-300}) {
      for (const double towards : {-2e300, 2e300}) {
        Operation op;
        op.kind = kind;
        op.scale = std::nextafter(scale, towards);
        texts.insert(op.Describe());
        fingerprints.insert(op.Fingerprint("world"));
        ++scales;
      }
      Operation op;
      op.kind = kind;
      op.scale = scale;
      texts.insert(op.Describe());
      fingerprints.insert(op.Fingerprint("world"));
      ++scales;
    }
    EXPECT_EQ(texts.size(), scales) << Name(kind);
    EXPECT_EQ(fingerprints.size(), scales) << Name(kind);
  }
}

// A kind without a scale has no scale in its fingerprint, and a kind without a
// dtype no dtype.
TEST(Operation, WhatIsNotDescribedIsNotInTheFingerprint) {
  Operation broadcast;
  broadcast.kind = OpKind::kBroadcast;
  Operation barrier;
  Operation other_broadcast = broadcast;
  other_broadcast.scale = 2;
  other_broadcast.op = ReduceOp::kMax;
  Operation other_barrier = barrier;
  other_barrier.dtype = DType::kU8;
  EXPECT_EQ(broadcast.Describe(), other_broadcast.Describe());
  EXPECT_EQ(broadcast.Fingerprint("world"),
            other_broadcast.Fingerprint("world"));
  EXPECT_EQ(barrier.Describe(), other_barrier.Describe());
  EXPECT_EQ(barrier.Fingerprint("world"), other_barrier.Fingerprint("world"));
}

}  // namespace
}  // namespace lockstep::internal_collective
