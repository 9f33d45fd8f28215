// One call of a collective, as backends see it: checked, numbered, and with a
// fingerprint that all ranks must have in common.
#ifndef LOCKSTEP_COLLECTIVE_OPERATION_H_
#define LOCKSTEP_COLLECTIVE_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/work.h"

namespace lockstep {

// The numbers are part of messages between ranks: do not change those that
// exist.
enum class ReduceOp : uint8_t {
  kSum = 1,
  kAvg = 2,  // the sum over the number of ranks; no integers
  kMin = 3,  // NaN if any is; on NCCL, if all are
  kMax = 4,  // NaN if any is; on NCCL, if all are
  kProd = 5,
  kBitAnd = 6,  // integers and bool
  kBitOr = 7,   // integers and bool
};

absl::string_view Name(ReduceOp op);

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
};

absl::string_view Name(OpKind kind);

// Whether it has a ReduceOp and a scale.
bool Reduces(OpKind kind);

struct Operation {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;  // of every input
  int root = -1;     // where there is one
  int to = -1;       // of Send and SendRecv
  int from = -1;     // of Recv and SendRecv
  std::string name;
  // By rank, for kinds that deal different parts: what this rank gives to (or,
  // in gathers, what is taken from) each, and what it gets from each.
  std::vector<int64_t> send_counts;
  std::vector<int64_t> recv_counts;

  ConstBuffer in;
  Buffer out;
  std::optional<Stream> after;  // what is queued there comes first
  absl::Duration deadline;

  // Its number in the group's order, from 1; 0 for Send, Recv and SendRecv.
  uint64_t sequence = 0;

  // What all ranks must agree on, in words: "all_reduce(1000 x f32, sum,
  // name 'grad')". All-to-all and the parts of a gather or scatter may differ.
  std::string Describe() const;
  // "all_reduce(1000 x f32, sum) #17 of group 'world'".
  std::string DescribeIn(absl::string_view group) const;
  // A digest of the group's name, the sequence and Describe().
  uint64_t Fingerprint(absl::string_view group) const;
};

namespace internal_collective {

// Whether it is a name of at most 256 bytes, and of one at least where
// `required`.
absl::Status CheckName(absl::string_view name, bool required);

// Whether `op` is defined for `dtype`, and `scale` too. INVALID_ARGUMENT says
// what is.
absl::Status CheckReduction(DType dtype, ReduceOp op, double scale);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_OPERATION_H_
