#include "lockstep/collective/perform.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/reduction_inputs.h"

namespace lockstep {
namespace {

using Ops = absl::Span<const Operation* const>;

// Copies elements, unless the output is the same memory as the input.
void Copy(const ConstBuffer& from, int64_t first, const Buffer& to,
          int64_t second, int64_t count) {
  const int64_t width = SizeOf(to.dtype);
  const char* const source =
      static_cast<const char*>(from.data) + first * width;
  char* const target = static_cast<char*>(to.data) + second * width;
  if (count > 0 && source != target) {
    std::memcpy(target, source, static_cast<size_t>(count * width));
  }
}

int64_t Before(const std::vector<int64_t>& counts, size_t rank) {
  int64_t sum = 0;
  for (size_t i = 0; i < rank; ++i) sum += counts[i];
  return sum;
}

void Reduce(Ops ops) {
  const Operation& first = *ops[0];
  const int64_t width = SizeOf(first.dtype);
  internal_collective::ReductionInputs inputs(static_cast<int>(ops.size()));
  inputs.Begin(first);
  const auto reduce = [&](int64_t begin, int64_t count,
                          const std::vector<void*>& outs) {
    for (size_t rank = 0; rank < ops.size(); ++rank) {
      const auto number = static_cast<int>(rank);
      const char* in = static_cast<const char*>(ops[rank]->in.data);
      for (int64_t i = 0; i < inputs.CountOf(number); ++i) {
        // The sums of shards that a rank gives are as large as the output.
        inputs.At(number, i) = in + (i * first.out.count + begin) * width;
      }
    }
    inputs.Reduce(first, count, outs);
  };
  if (first.kind == OpKind::kReduceScatter) {
    // The parts are reduced one by one: a part that is written in place is not
    // read for any other part.
    for (size_t rank = 0; rank < ops.size(); ++rank) {
      const Buffer& out = ops[rank]->out;
      reduce(static_cast<int64_t>(rank) * out.count, out.count, {out.data});
    }
    return;
  }
  if (first.kind == OpKind::kReduce) {
    const auto root = static_cast<size_t>(first.root);
    return reduce(0, first.in.count, {ops[root]->out.data});
  }
  std::vector<void*> outs;
  for (const Operation* const op : ops) outs.push_back(op->out.data);
  reduce(0, first.out.count, outs);
}

// Writes the output of one rank, for collectives that reduce nothing.
void Move(Ops ops, size_t rank) {
  const Operation& op = *ops[rank];
  const size_t root = op.root < 0 ? 0 : static_cast<size_t>(op.root);
  switch (op.kind) {
    case OpKind::kBroadcast:
      return Copy(ops[root]->in, 0, op.out, 0, op.out.count);
    case OpKind::kScatter:
      return Copy(ops[root]->in, Before(op.send_counts, rank), op.out, 0,
                  op.out.count);
    case OpKind::kGather:
      if (rank != root) return;
      [[fallthrough]];
    case OpKind::kAllGather:
      for (size_t from = 0; from < ops.size(); ++from) {
        Copy(ops[from]->in, 0, op.out, Before(op.recv_counts, from),
             ops[from]->in.count);
      }
      return;
    case OpKind::kAllToAll:
      for (size_t from = 0; from < ops.size(); ++from) {
        Copy(ops[from]->in, Before(ops[from]->send_counts, rank), op.out,
             Before(op.recv_counts, from), op.recv_counts[from]);
      }
      return;
    default:
      return;
  }
}

absl::Status CheckAllToAll(Ops ops) {
  for (size_t from = 0; from < ops.size(); ++from) {
    for (size_t to = 0; to < ops.size(); ++to) {
      const int64_t sent = ops[from]->send_counts[to];
      const int64_t taken = ops[to]->recv_counts[from];
      if (sent == taken) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", from, " sends ", sent, " elements to rank ", to,
                       ", which takes ", taken));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Perform(absl::Span<const Operation* const> ops) {
  if (Reduces(ops[0]->kind)) {
    Reduce(ops);
    return absl::OkStatus();
  }
  if (ops[0]->kind == OpKind::kAllToAll) {
    LOCKSTEP_RETURN_IF_ERROR(CheckAllToAll(ops));
  }
  for (size_t rank = 0; rank < ops.size(); ++rank) Move(ops, rank);
  return absl::OkStatus();
}

}  // namespace lockstep
