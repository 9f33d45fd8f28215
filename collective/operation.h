// An Operation is one call of a Communicator, in the form that backends get.
// Its arguments were checked. A collective has a number and a fingerprint,
// which must be the same on all ranks.
#ifndef LOCKSTEP_COLLECTIVE_OPERATION_H_
#define LOCKSTEP_COLLECTIVE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

// The ways to reduce. The numbers are part of messages between ranks: do not
// change existing ones.
enum class ReduceOp : uint8_t {
  kSum = 1,
  kAvg = 2,  // the sum divided by the number of ranks; no integers
  kMin = 3,  // NaN if any input is; on NCCL, only if all inputs are
  kMax = 4,  // NaN if any input is; on NCCL, only if all inputs are
  kProd = 5,
  kBitAnd = 6,  // integers and bool
  kBitOr = 7,   // integers and bool
};

absl::string_view Name(ReduceOp op);

// The kinds of operations. The numbers are part of messages between ranks, too.
enum class OpKind : uint8_t {
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kGather = 6,
  kScatter = 7,
  kAllToAll = 8,
  kBarrier = 9,
  kSend = 10,
  kRecv = 11,
  kSendRecv = 12,
  kAllReduceShards = 13,
};

absl::string_view Name(OpKind kind);

// Returns true if the kind has a ReduceOp and a scale. Those of an all-reduce
// of shards are always a sum and 1.
bool Reduces(OpKind kind);

// One operation of one rank.
struct Operation {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;  // the factor of every input
  int root = -1;     // -1: the kind has no root
  int to = -1;       // the receiver of Send and SendRecv
  int from = -1;     // the sender of Recv and SendRecv
  std::string name;
  // The numbers of elements by rank, or empty for all other kinds:
  //
  //   all-gather, gather   recv_counts: what each rank gives
  //   scatter              send_counts: what each rank gets
  //   all-to-all           send_counts: what this rank gives to each rank
  //                        recv_counts: what it gets from each rank
  //
  // In an all-reduce of shards, recv_counts has the number of shards of each
  // rank. Except in an all-to-all, all ranks have the same.
  std::vector<int64_t> send_counts;
  std::vector<int64_t> recv_counts;

  // A buffer that does not matter on this rank has no elements. In an
  // all-reduce of shards, `in` has one or more sums of shards one after
  // another, each as large as `out`: those that ShardSumsOf (shard_tree.h)
  // returns for the shards of this rank.
  ConstBuffer in;
  Buffer out;
  std::optional<Stream> after;  // the work queued there comes first
  absl::Duration deadline;
  absl::Duration waits_within;  // for which the caller computes first

  // The number of the operation in the group's order, from 1. 0 for Send, Recv
  // and SendRecv.
  uint64_t sequence = 0;

  // Returns true if all ranks of the group take part. Send, Recv and SendRecv
  // are between two ranks.
  bool collective() const { return to < 0 && from < 0; }

  // Returns what all ranks must agree on as text: "all_reduce(1000 x f32, sum,
  // name 'grad')". The counts of an all-to-all are not in it, since they may
  // differ.
  std::string Describe() const;
  // Returns, for example, "all_reduce(1000 x f32, sum) #17 of group 'world'".
  std::string DescribeIn(absl::string_view group) const;
  // Returns a digest of the group's name, the sequence and the values that
  // Describe() shows.
  uint64_t Fingerprint(absl::string_view group) const;
};

namespace internal_collective {

// The most bytes of a name.
constexpr size_t kLongestName = 256;

// Returns an error if the name has more bytes than that, or is empty although
// it is `required`.
absl::Status CheckName(absl::string_view name, bool required);

// Returns INVALID_ARGUMENT if `op` or `scale` is not defined for `dtype`. The
// message lists the defined ones.
absl::Status CheckReduction(DType dtype, ReduceOp op, double scale);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_OPERATION_H_
