#include "lockstep/collective/communicator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep {
namespace {

using internal_collective::CheckName;
using internal_collective::CheckReduction;
using internal_collective::ControlPlane;
using internal_collective::Group;
using internal_collective::verdicts::ForkedFrom;

absl::Status CheckBuffer(absl::string_view what, const ConstBuffer& buffer) {
  if (SizeOf(buffer.dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has no dtype, but the number ",
                     static_cast<int>(buffer.dtype)));
  }
  if (buffer.count < 0 || buffer.count > INT64_MAX / SizeOf(buffer.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " should have 0 elements to what memory holds, but has count=",
        buffer.count));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has ", buffer.count, " elements, and data=nullptr"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view what, int64_t count, int64_t expected,
                        absl::string_view why) {
  if (count == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " should have ",
                                                 expected, " elements, ", why,
                                                 ", but has ", count));
}

absl::Status CheckSameType(const ConstBuffer& in, const ConstBuffer& out) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", in));
  LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("out", out));
  if (in.dtype == out.dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("in and out should have the same dtype, but have ",
                   Name(in.dtype), " and ", Name(out.dtype)));
}

// Returns an error if `part` and `whole` overlap, unless `part` begins `offset`
// elements into `whole` (in place).
absl::Status CheckOverlap(const ConstBuffer& part, const ConstBuffer& whole,
                          int64_t offset) {
  const int64_t size = SizeOf(whole.dtype);
  const char* const a = static_cast<const char*>(part.data);
  const char* const b = static_cast<const char*>(whole.data);
  if (part.count == 0 || whole.count == 0 || a + part.count * size <= b ||
      b + whole.count * size <= a || a == b + offset * size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "in and out overlap, and are not in place: see the call's comment for "
      "where in-place memory has to be");
}

int64_t Sum(absl::Span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

absl::Status CheckCounts(absl::string_view what,
                         absl::Span<const int64_t> counts, int size) {
  if (counts.size() != static_cast<size_t>(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " should have a number for each of ", size,
                     " ranks, but has ", counts.size()));
  }
  for (const int64_t count : counts) {
    if (count < 0 || count > INT64_MAX / 8 / size) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " should be from 0 to what memory holds, but has one of ",
          count));
    }
  }
  return absl::OkStatus();
}

// Returns an error unless the shards of all ranks together have a tree, and
// their elements are of a type that is added up along it.
absl::Status CheckShards(DType dtype, absl::Span<const int64_t> shards,
                         int size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckCounts("shards", shards, size));
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards are added up as f32 or f64, but got ", Name(dtype),
                     ": convert them first, so that no sum is rounded more "
                     "than once"));
  }
  const int64_t all = Sum(shards);
  if (!IsShardCount(all)) {
    return absl::InvalidArgumentError(
        absl::StrCat("all ranks together should have 2^n or 3 * 2^n shards, at "
                     "most ",
                     kMostShards, ", but have ", all));
  }
  if (*std::min_element(shards.begin(), shards.end()) > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "each rank should have a shard, but the numbers of shards by rank are ",
      absl::StrJoin(shards, ", ")));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<ControlPlane> control,
                           std::shared_ptr<Group> group)
    : control_(std::move(control)), group_(std::move(group)) {}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Of(
    std::shared_ptr<ControlPlane> control, std::shared_ptr<Group> group) {
  Group* const joined = group.get();
  std::unique_ptr<Communicator> communicator(
      new (std::nothrow) Communicator(std::move(control), std::move(group)));
  if (communicator != nullptr) return communicator;
  joined->Shutdown();
  return absl::ResourceExhaustedError("there is no memory for a communicator");
}

Communicator::~Communicator() {
  if (fork_guard_.forked()) {
    KeepForEver(group_);
    KeepForEver(control_);
  } else {
    group_->Shutdown();
  }
}

int Communicator::rank() const { return group_->rank; }
int Communicator::size() const { return group_->size; }
const std::string& Communicator::name() const { return group_->options.name; }
Device Communicator::device() const { return group_->notices().device; }

template <typename Call>
auto Communicator::Guarded(const Call& call) -> decltype(call()) {
  return RunOrEnd("a call of a group", [&]() -> decltype(call()) {
    if (!fork_guard_.forked()) return call();
    return ForkedFrom(
        absl::StrCat("rank ", rank(), " of the group '", name(), "'"));
  });
}

absl::Status Communicator::CheckRank(absl::string_view what, int rank) const {
  if (rank >= 0 && rank < size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " should be a rank of the group '", name(), "', 0 to ",
                   size() - 1, ", but got ", what, "=", rank));
}

absl::Status Communicator::CheckSplit(absl::string_view name,
                                      absl::Span<const int> members) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(name, /*required=*/true));
  std::vector<bool> seen(size(), false);
  for (const int member : members) {
    if (member < 0 || member >= size() || seen[member]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "members should be ranks of the group '", this->name(), "', 0 to ",
          size() - 1, ", each once, but got ", absl::StrJoin(members, ", ")));
    }
    seen[member] = true;
  }
  if (!seen[rank()]) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank(),
                     " calls Split and should be among its members, which are ",
                     absl::StrJoin(members, ", ")));
  }
  return absl::OkStatus();
}

Operation Communicator::MakeOperation(OpKind kind, DType dtype,
                                      const CallOptions& options) const {
  Operation op;
  op.kind = kind;
  op.dtype = dtype;
  op.name = options.name;
  op.scale = options.scale;
  op.after = options.stream;
  op.deadline = options.deadline == absl::ZeroDuration()
                    ? group_->options.deadline
                    : options.deadline;
  op.waits_within = options.waits_within;
  return op;
}

absl::StatusOr<Work> Communicator::Issue(Operation op) {
  if (op.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "deadline should be more than nothing, or 0 for the group's, but got "
        "deadline=",
        absl::FormatDuration(op.deadline)));
  }
  if (op.waits_within < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("waits_within should be 0 or more, but got waits_within=",
                     absl::FormatDuration(op.waits_within)));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckName(op.name, /*required=*/false));
  if (op.scale != 1 && !Reduces(op.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale is for reductions, and this is ", Name(op.kind)));
  }
  LOCKSTEP_RETURN_IF_ERROR(group_->CheckSupported(op));
  LOCKSTEP_ASSIGN_OR_RETURN(auto issued, group_->Issue(std::move(op)));
  return Work(std::move(issued));
}

absl::StatusOr<Work> Communicator::AllReduce(ConstBuffer in, Buffer out,
                                             ReduceOp reduce,
                                             const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckCount("out", out.count, in.count, "as in has"));
    LOCKSTEP_RETURN_IF_ERROR(CheckReduction(in.dtype, reduce, options.scale));
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, 0));
    Operation op = MakeOperation(OpKind::kAllReduce, in.dtype, options);
    op.op = reduce;
    op.in = in;
    op.out = out;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::Reduce(ConstBuffer in, Buffer out,
                                          ReduceOp reduce, int root,
                                          const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("root", root));
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", in));
    LOCKSTEP_RETURN_IF_ERROR(CheckReduction(in.dtype, reduce, options.scale));
    Operation op = MakeOperation(OpKind::kReduce, in.dtype, options);
    if (rank() == root) {
      LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
      LOCKSTEP_RETURN_IF_ERROR(
          CheckCount("out", out.count, in.count, "as in has"));
      LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, 0));
      op.out = out;
    }
    op.op = reduce;
    op.root = root;
    op.in = in;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::ReduceScatter(ConstBuffer in, Buffer out,
                                                 ReduceOp reduce,
                                                 const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    if (out.count > INT64_MAX / 8 / size()) {
      return absl::InvalidArgumentError(
          "out has more elements than there can be");
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckCount("in", in.count, out.count * size(),
                                        "those of out for each rank"));
    LOCKSTEP_RETURN_IF_ERROR(CheckReduction(in.dtype, reduce, options.scale));
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(out, in, rank() * out.count));
    Operation op = MakeOperation(OpKind::kReduceScatter, in.dtype, options);
    op.op = reduce;
    op.in = in;
    op.out = out;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::AllReduceShards(
    ConstBuffer in, Buffer out, absl::Span<const int64_t> shards,
    const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    LOCKSTEP_RETURN_IF_ERROR(CheckShards(in.dtype, shards, size()));
    const int64_t first = Sum(shards.first(rank()));
    const auto sums = static_cast<int64_t>(
        ShardSumsOf(Sum(shards), {first, first + shards[rank()]}).size());
    if (out.count > INT64_MAX / 8 / sums) {
      return absl::InvalidArgumentError(
          "out has more elements than there can be");
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckCount(
        "in", in.count, out.count * sums,
        absl::StrCat("those of out for each of the ", sums,
                     " sums that ShardSumsOf returns for this rank's shards")));
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(out, in, 0));
    if (options.scale != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("an all-reduce of shards has no scale, but got scale=",
                       options.scale));
    }
    Operation op = MakeOperation(OpKind::kAllReduceShards, in.dtype, options);
    op.in = in;
    op.out = out;
    op.recv_counts.assign(shards.begin(), shards.end());
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::Broadcast(ConstBuffer in, Buffer out,
                                             int root,
                                             const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("root", root));
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("out", out));
    Operation op = MakeOperation(OpKind::kBroadcast, out.dtype, options);
    if (rank() == root) {
      LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
      LOCKSTEP_RETURN_IF_ERROR(
          CheckCount("out", out.count, in.count, "as in has"));
      LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, 0));
      op.in = in;
    }
    op.root = root;
    op.out = out;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::IssueGather(OpKind kind, ConstBuffer in,
                                               Buffer out,
                                               absl::Span<const int64_t> counts,
                                               int root,
                                               const CallOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckCounts("counts", counts, size()));
  LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", in));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckCount("in", in.count, counts[rank()], "this rank's among counts"));
  Operation op = MakeOperation(kind, in.dtype, options);
  if (kind == OpKind::kAllGather || rank() == root) {
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckCount("out", out.count, Sum(counts), "those of all ranks"));
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, Sum(counts.first(rank()))));
    op.out = out;
  }
  op.root = root;
  op.in = in;
  op.recv_counts.assign(counts.begin(), counts.end());
  return Issue(std::move(op));
}

absl::StatusOr<Work> Communicator::AllGather(ConstBuffer in, Buffer out,
                                             const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", in));
    const std::vector<int64_t> counts(size(), in.count);
    return IssueGather(OpKind::kAllGather, in, out, counts, -1, options);
  });
}

absl::StatusOr<Work> Communicator::AllGatherV(ConstBuffer in, Buffer out,
                                              absl::Span<const int64_t> counts,
                                              const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    return IssueGather(OpKind::kAllGather, in, out, counts, -1, options);
  });
}

absl::StatusOr<Work> Communicator::Gather(ConstBuffer in, Buffer out, int root,
                                          const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    const std::vector<int64_t> counts(size(), in.count);
    return GatherV(in, out, counts, root, options);
  });
}

absl::StatusOr<Work> Communicator::GatherV(ConstBuffer in, Buffer out,
                                           absl::Span<const int64_t> counts,
                                           int root,
                                           const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("root", root));
    return IssueGather(OpKind::kGather, in, out, counts, root, options);
  });
}

absl::StatusOr<Work> Communicator::Scatter(ConstBuffer in, Buffer out, int root,
                                           const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    const std::vector<int64_t> counts(size(), out.count);
    return ScatterV(in, out, counts, root, options);
  });
}

absl::StatusOr<Work> Communicator::ScatterV(ConstBuffer in, Buffer out,
                                            absl::Span<const int64_t> counts,
                                            int root,
                                            const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("root", root));
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts("counts", counts, size()));
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("out", out));
    LOCKSTEP_RETURN_IF_ERROR(CheckCount("out", out.count, counts[rank()],
                                        "this rank's among counts"));
    Operation op = MakeOperation(OpKind::kScatter, out.dtype, options);
    if (rank() == root) {
      LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
      LOCKSTEP_RETURN_IF_ERROR(
          CheckCount("in", in.count, Sum(counts), "those of all ranks"));
      LOCKSTEP_RETURN_IF_ERROR(
          CheckOverlap(out, in, Sum(counts.first(rank()))));
      op.in = in;
    }
    op.root = root;
    op.out = out;
    op.send_counts.assign(counts.begin(), counts.end());
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::AllToAll(ConstBuffer in, Buffer out,
                                            const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    if (in.count % size() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("in should have as many elements for each of ", size(),
                       " ranks, but has ", in.count,
                       " in all; AllToAllV takes "
                       "parts of different sizes"));
    }
    const std::vector<int64_t> counts(size(), in.count / size());
    return AllToAllV(in, counts, out, counts, options);
  });
}

absl::StatusOr<Work> Communicator::AllToAllV(
    ConstBuffer in, absl::Span<const int64_t> send_counts, Buffer out,
    absl::Span<const int64_t> recv_counts, const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts("send_counts", send_counts, size()));
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts("recv_counts", recv_counts, size()));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckCount("in", in.count, Sum(send_counts), "the sum of send_counts"));
    LOCKSTEP_RETURN_IF_ERROR(CheckCount("out", out.count, Sum(recv_counts),
                                        "the sum of recv_counts"));
    if (send_counts[rank()] != recv_counts[rank()]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "what a rank gives itself should be what it takes, but got "
          "send_counts[",
          rank(), "]=", send_counts[rank()], ", recv_counts[", rank(),
          "]=", recv_counts[rank()]));
    }
    if (in.count > 0 && out.count > 0 && in.data == out.data) {
      return absl::InvalidArgumentError(
          "all_to_all can't be done in place: in and out are the same memory");
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, 0));
    Operation op = MakeOperation(OpKind::kAllToAll, in.dtype, options);
    op.in = in;
    op.out = out;
    op.send_counts.assign(send_counts.begin(), send_counts.end());
    op.recv_counts.assign(recv_counts.begin(), recv_counts.end());
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::Barrier(const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    return Issue(MakeOperation(OpKind::kBarrier, DType::kU8, options));
  });
}

absl::StatusOr<Work> Communicator::Send(ConstBuffer in, int to,
                                        const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("to", to));
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", in));
    Operation op = MakeOperation(OpKind::kSend, in.dtype, options);
    op.in = in;
    op.to = to;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::Recv(Buffer out, int from,
                                        const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("from", from));
    LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("out", out));
    Operation op = MakeOperation(OpKind::kRecv, out.dtype, options);
    op.out = out;
    op.from = from;
    return Issue(std::move(op));
  });
}

absl::StatusOr<Work> Communicator::SendRecv(ConstBuffer in, int to, Buffer out,
                                            int from,
                                            const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<Work> {
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("to", to));
    LOCKSTEP_RETURN_IF_ERROR(CheckRank("from", from));
    LOCKSTEP_RETURN_IF_ERROR(CheckSameType(in, out));
    if (in.count > 0 && out.count > 0 && in.data == out.data) {
      return absl::InvalidArgumentError(
          "send_recv can't be done in place: in and out are the same memory");
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOverlap(in, out, 0));
    Operation op = MakeOperation(OpKind::kSendRecv, in.dtype, options);
    op.in = in;
    op.out = out;
    op.to = to;
    op.from = from;
    return Issue(std::move(op));
  });
}

absl::StatusOr<GroupMemory> Communicator::Allocate(int64_t bytes,
                                                   const CallOptions& options) {
  return Guarded([&]() -> absl::StatusOr<GroupMemory> {
    if (bytes < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "memory of a group has 1 byte or more, but got bytes=", bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckName(options.name, /*required=*/false));
    CallOptions call = options;
    call.name = absl::StrCat("Allocate(", bytes, " bytes)",
                             options.name.empty() ? "" : " for ", options.name)
                    .substr(0, internal_collective::kLongestName);
    return AllocateOnAll(bytes, call);
  });
}

std::vector<OperationRecord> Communicator::RecentOperations(
    int64_t most) const {
  if (fork_guard_.forked() || most < 1) return {};
  return group_->log.Recent(static_cast<uint64_t>(most));
}

void Communicator::KeepOperations(int64_t least) {
  if (fork_guard_.forked() || least < 1) return;
  group_->log.Keep(static_cast<uint64_t>(least));
}

int64_t Communicator::issued_operations() const {
  return fork_guard_.forked() ? 0 : static_cast<int64_t>(group_->log.begun());
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(
    absl::string_view name, absl::Span<const int> members) {
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    LOCKSTEP_RETURN_IF_ERROR(CheckSplit(name, members));
    LOCKSTEP_ASSIGN_OR_RETURN(auto part, group_->Split(name, members));
    return Of(control_, std::move(part));
  });
}

void Communicator::Abort(absl::Status why) {
  Guarded([&] {
    group_->Abort(why);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status Communicator::Close() {
  return Guarded([&] { return group_->Close(); });
}

// ---- Works.

namespace {

absl::Status Forked() {
  return ForkedFrom("the one that issued the operation");
}

}  // namespace

absl::Status Work::Wait() const { return WaitUntil(absl::InfiniteFuture()); }

absl::Status Work::WaitUntil(absl::Time until) const {
  if (issued_ == nullptr) return absl::OkStatus();
  return RunOrEnd("waiting for an operation", [&] {
    if (issued_->forked()) return Forked();
    Group& group = *issued_->group;
    if (group.WaitUntil(*issued_, until)) return group.Result(*issued_);
    return absl::DeadlineExceededError(
        "the operation is not done yet; it goes on, and can be waited for "
        "again");
  });
}

absl::Status Work::WaitOnStream(Stream stream) const {
  if (issued_ == nullptr) return absl::OkStatus();
  return RunOrEnd("waiting on a stream", [&] {
    if (issued_->forked()) return Forked();
    return issued_->group->WaitOnStream(*issued_, stream);
  });
}

bool Work::Done() const {
  if (issued_ == nullptr || issued_->forked()) return true;
  return RunOrEnd("asking for an operation",
                  [this] { return issued_->group->Done(*issued_); });
}

absl::Status Work::status() const {
  if (issued_ == nullptr) return absl::OkStatus();
  return RunOrEnd("asking for a status", [this] {
    return issued_->forked() ? Forked() : issued_->group->Result(*issued_);
  });
}

}  // namespace lockstep
