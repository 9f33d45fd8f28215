#include "lockstep/collective/nccl/nccl_collectives.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/nccl/nccl_types.h"
#include "lockstep/collective/transport_util.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep::internal_collective {

using internal_gpu::CudaEvent;
using internal_gpu::CudaResult;
using internal_gpu::kCudaNotReady;
using internal_gpu::kCudaSuccess;

namespace {

// The host looks after each collective, and a graph that is launched again
// would repeat it without the host.
constexpr char kCaptured[] =
    "the stream is being captured into a CUDA graph, which collectives can't "
    "be "
    "part of: issue this one, and wait for it on a stream, before the capture "
    "begins or after its end";

// The slices that a rank gives to and takes from each rank.
struct Moves {
  std::vector<Slice> gives, takes;
};

Moves MovesOf(const Operation& op, int rank, int size) {
  Moves moves = {std::vector<Slice>(size), std::vector<Slice>(size)};
  const Slice all_in = {0, op.in.count * SizeOf(op.dtype)};
  const Slice all_out = {0, op.out.count * SizeOf(op.dtype)};
  const bool is_root = op.root == rank;
  switch (op.kind) {
    case OpKind::kAllGather:
      moves.gives.assign(size, all_in);
      moves.takes = SlicesOf(op.recv_counts, op.dtype);
      break;
    case OpKind::kGather:
      moves.gives[op.root] = all_in;
      if (is_root) moves.takes = SlicesOf(op.recv_counts, op.dtype);
      break;
    case OpKind::kScatter:
      if (is_root) moves.gives = SlicesOf(op.send_counts, op.dtype);
      moves.takes[op.root] = all_out;
      break;
    default:
      moves.gives = SlicesOf(op.send_counts, op.dtype);
      moves.takes = SlicesOf(op.recv_counts, op.dtype);
  }
  return moves;
}

// Returns how many of the elements are whole blocks of NCCL's kernel for a rank
// that is alone.
int64_t WholeBlocks(int64_t count, int64_t bytes_of_each) {
  constexpr int64_t kBlockBytes = 16 << 10;
  return count * bytes_of_each / kBlockBytes * kBlockBytes / bytes_of_each;
}

}  // namespace

// One collective.
// Thread-safety: that of Launch.
class NcclCollectives::NcclLaunch : public Launch {
 public:
  // `after` is nullptr, or an event after which the collective comes.
  NcclLaunch(NcclCollectives& collectives, std::shared_ptr<const Operation> op,
             CudaEvent* after)
      : collectives_(collectives),
        shared_(collectives.shared_),
        op_(std::move(op)),
        after_(after) {}
  ~NcclLaunch() override {
    if (after_ != nullptr) shared_.events.Give(after_);
    if (end_ != nullptr) shared_.events.Give(end_);
  }

  absl::StatusOr<State> Begin() override {
    State state = State::kLaunching;
    LOCKSTEP_RETURN_IF_ERROR(shared_.device().InContext([&]() {
      if (after_ != nullptr) {
        LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
            shared_.cuda.StreamWaitEvent(collectives_.stream_, after_, 0),
            "nccl, cuStreamWaitEvent"));
      }
      LOCKSTEP_RETURN_IF_ERROR(shared_.CheckCancelled());
      return Go(collectives_.Queue(*op_, rest_), state);
    }));
    return state;
  }

  absl::StatusOr<State> Look() override {
    State state = State::kQueued;
    const absl::Status status =
        shared_.device().InContext([&] { return LookHere(state); });
    if (status.ok()) return state;
    // Without its context, which the trainer has destroyed, the device runs
    // nothing.
    if (shared_.cancelled && collectives_.communicator_.aborted()) {
      return State::kDone;
    }
    return status;
  }

  absl::Status WaitOnStream(Stream stream) override {
    return shared_.device().InContext([&] {
      LOCKSTEP_RETURN_IF_ERROR(
          shared_.device().CheckNotCaptured(HandleOf(stream), kCaptured));
      return shared_.Check(
          shared_.cuda.StreamWaitEvent(HandleOf(stream), end_, 0),
          "nccl, cuStreamWaitEvent of the stream of WaitOnStream");
    });
  }

 private:
  // Looks in the device's context. A collective that is cancelled is done when
  // the abort has finished and the stream is empty, since NCCL may have queued
  // it after `end_`.
  absl::Status LookHere(State& state) {
    NcclCommunicator& communicator = collectives_.communicator_;
    if (shared_.cancelled) {
      if (communicator.aborted() &&
          shared_.cuda.StreamQuery(collectives_.stream_) != kCudaNotReady) {
        state = State::kDone;
      }
      return absl::OkStatus();
    }
    LOCKSTEP_RETURN_IF_ERROR(failure_);
    if (end_ == nullptr) {
      return Go(communicator.Settled(Name(op_->kind)), state);
    }
    const CudaResult result = shared_.cuda.EventQuery(end_);
    if (result == kCudaNotReady) return communicator.AsyncError();
    LOCKSTEP_RETURN_IF_ERROR(shared_.Check(result, "nccl, cuEventQuery"));
    state = State::kDone;
    return absl::OkStatus();
  }

  // Queues the rest if NCCL has `queued` the operation.
  absl::Status Go(const absl::StatusOr<bool>& queued, State& state) {
    failure_ = queued.status();
    state = State::kLaunching;
    if (!failure_.ok() || !*queued) return failure_;
    failure_ = QueueRest();
    if (failure_.ok()) state = State::kQueued;
    return failure_;
  }

  absl::Status QueueRest() {
    LOCKSTEP_RETURN_IF_ERROR(collectives_.QueueRest(rest_));
    LOCKSTEP_ASSIGN_OR_RETURN(CudaEvent* const end, shared_.events.Take());
    const CudaResult result =
        shared_.cuda.EventRecord(end, collectives_.stream_);
    if (result == kCudaSuccess) {
      end_ = end;
    } else {
      shared_.events.Give(end);
    }
    return shared_.Check(result, "nccl, cuEventRecord");
  }

  NcclCollectives& collectives_;
  NcclShared& shared_;
  const std::shared_ptr<const Operation> op_;
  CudaEvent* const after_;
  CudaEvent* end_ = nullptr;  // behind the collective, once that is queued
  absl::Status failure_;
  Rest rest_;
};

// ---- Beginning and end.

absl::Status NcclCollectives::Open() {
  LOCKSTEP_RETURN_IF_ERROR(shared_.Check(
      shared_.cuda.StreamCreate(&stream_, internal_gpu::kCudaStreamNonBlocking),
      "cuStreamCreate"));
  return shared_.Check(shared_.cuda.MemAlloc(&scratch_, kNcclScratchBytes),
                       "cuMemAlloc");
}

absl::Status NcclCollectives::Connect() {
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclUniqueId id,
                            shared_.ShareId("", shared_.rank == 0));
  return communicator_.Connect(shared_.size, id, shared_.rank);
}

void NcclCollectives::Finalize() {
  if (stream_ != nullptr && shared_.cuda.StreamQuery(stream_) != kCudaSuccess) {
    communicator_.Abort();
  }
  communicator_.Finalize();
}

void NcclCollectives::Release() {
  shared_.cuda.MemFree(scratch_);
  if (stream_ != nullptr) shared_.cuda.StreamDestroy(stream_);
}

// ---- Launching.

absl::StatusOr<std::shared_ptr<Launch>> NcclCollectives::Prepare(
    const std::shared_ptr<const Operation>& op) {
  const internal_gpu::Gpu& device = shared_.device();
  CudaEvent* after = nullptr;
  if (op->after.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(device.InContext([&] {
      LOCKSTEP_RETURN_IF_ERROR(
          device.CheckNotCaptured(HandleOf(*op->after), kCaptured));
      LOCKSTEP_ASSIGN_OR_RETURN(after, shared_.events.Take());
      const CudaResult result =
          shared_.cuda.EventRecord(after, HandleOf(*op->after));
      if (result == kCudaSuccess) return absl::OkStatus();
      shared_.events.Give(after);
      if (result != internal_gpu::kCudaInvalidHandle) {
        return shared_.Check(result,
                             "nccl, cuEventRecord of CallOptions::stream");
      }
      return absl::InvalidArgumentError(
          absl::StrCat("CallOptions::stream should be a stream of CUDA device ",
                       device.ordinal(), ", which is this rank's"));
    }));
  }
  return std::make_shared<NcclLaunch>(*this, op, after);
}

// NCCL's own kernel multiplies by the scale. The average of scaled inputs is
// their sum with another scale. If a rank is alone, NCCL 2.28 leaves out up to
// some hundred of the last elements (it rounds the shares of its blocks down),
// unless they are whole blocks, or less than one. So whole blocks go first.
template <typename Do>
absl::StatusOr<bool> NcclCollectives::QueueReduction(const Operation& op,
                                                     const Do& reduce,
                                                     Rest& rest) {
  if (op.in.count == 0) return true;
  const NcclDataType type = *NcclTypeOf(op.dtype);
  const int64_t count =
      op.kind == OpKind::kReduceScatter ? op.out.count : op.in.count;
  const bool is_alone = shared_.size == 1;
  // The average of one rank is its sum.
  NcclRedOp red_op = *NcclRedOpOf(
      is_alone && op.op == ReduceOp::kAvg ? ReduceOp::kSum : op.op);
  if (op.scale == 1) {
    return communicator_.Begin(Name(op.kind), [&](NcclComm* comm) {
      return reduce(0, count, type, red_op, comm);
    });
  }
  uint64_t scalar = NcclScalarOf(
      op.dtype, op.op == ReduceOp::kAvg ? op.scale / shared_.size : op.scale);
  LOCKSTEP_RETURN_IF_ERROR(
      communicator_.Call("RedOpCreatePreMulSum", [&](NcclComm* comm) {
        return shared_.nccl.RedOpCreatePreMulSum(
            &red_op, &scalar, type, NcclScalarResidence::kHostImmediate, comm);
      }));
  rest.red_op = red_op;
  const int64_t whole = is_alone ? WholeBlocks(count, SizeOf(op.dtype)) : count;
  return communicator_.Begin(Name(op.kind), [&](NcclComm* comm) {
    if (whole == 0 || whole == count) {
      return reduce(0, count, type, red_op, comm);
    }
    NcclResult result = shared_.nccl.GroupStart();
    if (result != NcclResult::kSuccess) return result;
    result = reduce(0, whole, type, red_op, comm);
    if (result == NcclResult::kSuccess) {
      result = reduce(whole, count - whole, type, red_op, comm);
    }
    const NcclResult ended = shared_.nccl.GroupEnd();
    return result == NcclResult::kSuccess ? ended : result;
  });
}

absl::Status NcclCollectives::QueueRest(const Rest& rest) {
  if (rest.red_op.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(
        communicator_.Call("RedOpDestroy", [&](NcclComm* comm) {
          return shared_.nccl.RedOpDestroy(*rest.red_op, comm);
        }));
  }
  if (rest.bytes == 0) return absl::OkStatus();
  return shared_.Check(
      shared_.cuda.MemcpyAsync(rest.to, rest.from, rest.bytes, stream_),
      "nccl, cuMemcpyAsync");
}

absl::StatusOr<bool> NcclCollectives::Queue(const Operation& op, Rest& rest) {
  const NcclApi& nccl = shared_.nccl;
  const void* const in = op.in.data;
  void* const out = op.out.data;
  const int64_t width = SizeOf(op.dtype);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return QueueReduction(
          op,
          [&](int64_t first, int64_t count, NcclDataType type, NcclRedOp red_op,
              NcclComm* comm) {
            return nccl.AllReduce(At(in, first * width), At(out, first * width),
                                  count, type, red_op, comm, stream_);
          },
          rest);
    case OpKind::kReduce:
      return QueueReduction(
          op,
          [&](int64_t first, int64_t count, NcclDataType type, NcclRedOp red_op,
              NcclComm* comm) {
            return nccl.Reduce(At(in, first * width), At(out, first * width),
                               count, type, red_op, op.root, comm, stream_);
          },
          rest);
    case OpKind::kReduceScatter:
      return QueueReduction(
          op,
          [&](int64_t first, int64_t count, NcclDataType type, NcclRedOp red_op,
              NcclComm* comm) {
            return nccl.ReduceScatter(At(in, first * width),
                                      At(out, first * width), count, type,
                                      red_op, comm, stream_);
          },
          rest);
    case OpKind::kBarrier:
      return communicator_.Begin(Name(op.kind), [&](NcclComm* comm) {
        return nccl.AllReduce(scratch_, scratch_, 1, kNcclByte, NcclRedOp::kSum,
                              comm, stream_);
      });
    case OpKind::kBroadcast:
      if (op.out.count == 0) return true;
      return communicator_.Begin(Name(op.kind), [&](NcclComm* comm) {
        return nccl.Broadcast(in, out, op.out.count * SizeOf(op.dtype),
                              kNcclByte, op.root, comm, stream_);
      });
    default:
      return QueueMoves(op, rest);
  }
}

absl::StatusOr<bool> NcclCollectives::QueueMoves(const Operation& op,
                                                 Rest& rest) {
  const NcclApi& nccl = shared_.nccl;
  const int rank = shared_.rank, size = shared_.size;
  const void* const in = op.in.data;
  void* const out = op.out.data;
  const std::vector<int64_t>& parts = op.recv_counts;
  if (op.kind == OpKind::kAllGather &&
      std::all_of(parts.begin(), parts.end(),
                  [&](int64_t part) { return part == parts[0]; })) {
    const int64_t bytes = op.in.count * SizeOf(op.dtype);
    if (bytes == 0) return true;
    return communicator_.Begin(Name(op.kind), [&](NcclComm* comm) {
      return nccl.AllGather(in, out, bytes, kNcclByte, comm, stream_);
    });
  }
  const Moves moves = MovesOf(op, rank, size);
  const auto call = [&](NcclComm* comm) {
    NcclResult result = nccl.GroupStart();
    if (result != NcclResult::kSuccess) return result;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const Slice& give = moves.gives[peer];
      const Slice& take = moves.takes[peer];
      if (result == NcclResult::kSuccess && give.bytes > 0) {
        result = nccl.Send(At(in, give.first), give.bytes, kNcclByte, peer,
                           comm, stream_);
      }
      if (result == NcclResult::kSuccess && take.bytes > 0) {
        result = nccl.Recv(At(out, take.first), take.bytes, kNcclByte, peer,
                           comm, stream_);
      }
    }
    const NcclResult ended = nccl.GroupEnd();
    return result == NcclResult::kSuccess ? ended : result;
  };
  const Slice& give = moves.gives[rank];
  const Slice& take = moves.takes[rank];
  if (At(in, give.first) != At(out, take.first)) {
    rest.from = At(in, give.first);
    rest.to = At(out, take.first);
    // The counts of an all-to-all may contradict each other.
    rest.bytes = std::min(give.bytes, take.bytes);
  }
  return communicator_.Begin(Name(op.kind), call);
}

}  // namespace lockstep::internal_collective
