#include "lockstep/collective/gloo/gloo_transport.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/no_sigpipe.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/gloo/gloo_connections.h"
#include "lockstep/collective/gloo/gloo_device.h"
#include "lockstep/collective/gloo/gloo_releases.h"
#include "lockstep/collective/gloo/parts_plan.h"
#include "lockstep/collective/gloo/pieced_message.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduce.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// If the inputs of all ranks have together no more bytes than these, each rank
// (or the root) reduces all of them, since that needs one step only. Between
// two ranks, that sends no more bytes than any other way.
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int64_t kSmallPairBytes = 1 << 20;
// Broadcasts of no more bytes go down a tree, in one piece.
constexpr int64_t kTreeBytes = 256 << 10;

// Returns an address to send from. Gloo does not write there, but its types do
// not say so.
char* SendFrom(const void* data, int64_t offset) {
  return At(const_cast<void*>(data), offset);
}

// Does collectives by schedules of our own over Gloo's connections.
//
// Requires: the calls come as transport.h says.
// Guarantees: a message arrives only if both ends name the same fingerprint.
// Thread-safety: Cancel may be called from any thread. At the same time there
// may be one Run or Post, one Send to each rank and one Recv from each rank.
class GlooTransport : public Transport {
 public:
  // `device` is nullptr in a group of one.
  GlooTransport(const TransportContext& context,
                std::shared_ptr<GlooDevice> device)
      : rank_(context.rank),
        size_(context.size),
        connections_(context, std::move(device)) {}

  absl::string_view name() const override { return "gloo"; }
  absl::Status CheckSupported(const Operation& op) const override {
    return CheckOnHost(name(), op);
  }
  absl::Status Connect() override { return connections_.Connect(); }
  bool Post(const Operation& op, uint64_t fingerprint) override;
  absl::Status Run(const Operation& op, uint64_t fingerprint) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  void Cancel() override { connections_.Cancel(); }

 private:
  using Direction = PiecedMessage::Direction;
  using Route = PiecedMessage::Route;

  // A rank's part of a collective, with the messages that are under way.
  struct Call {
    const Operation& op;
    uint64_t fingerprint;
    Messages messages;
  };

  // The messages of an operation in parts.
  struct PartsMessages {
    Messages from_others, to_owners;   // Kind::kInput
    Messages results_in, results_out;  // Kind::kResult
  };

  absl::Status RunCall(Call& call);
  bool IsSmall(const Operation& op) const;
  absl::Status ExchangeInputs(const Operation& op, uint64_t fingerprint);
  absl::Status RunSmall(const Call& call);
  absl::Status RunBarrier(const Call& call);
  absl::Status RunTree(Call& call);
  absl::Status RunMoves(Call& call);
  void AddMove(Call& call, Direction direction, int peer, char* data,
               int64_t bytes);
  absl::Status RunInParts(const Call& call);
  PartsMessages MessagesOf(const Call& call, const PartsPlan& plan);
  absl::Status RunRound(const Operation& op, const PartsPlan& plan,
                        PartsMessages& messages, int64_t k);
  char* ResultOf(const Operation& op, const PartsPlan& plan);
  void Reduce(const Operation& op, const Slice& piece, int64_t slot, void* out);
  char* Staging(int rank);

  // Calls `what` with each other rank. Each rank has an order of its own, so
  // that not all of them begin with the same one.
  template <typename Do>
  void ForOthers(const Do& what) const {
    for (int i = 1; i < size_; ++i) what((rank_ + i) % size_);
  }

  const int rank_;
  const int size_;
  GlooConnections connections_;

  // The next fields are used by Post and Run alone.
  std::unique_ptr<char[]> staging_;
  Messages inputs_;  // of the small operation that is under way
  // The result of ExchangeInputs, if Post has called it for the next Run.
  std::optional<absl::Status> posted_;
};

absl::Status GlooTransport::Run(const Operation& op, uint64_t fingerprint) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(connections_.CheckCancelled());
  Call call = {op, fingerprint, {}};
  return RunCall(call);
}

absl::Status GlooTransport::RunCall(Call& call) {
  const Operation& op = call.op;
  if (IsSmall(op)) return RunSmall(call);
  switch (op.kind) {
    case OpKind::kBarrier:
      return RunBarrier(call);
    case OpKind::kBroadcast:
      if (rank_ == op.root) {
        Copy(At(op.in.data, 0), At(op.out.data, 0),
             op.in.count * SizeOf(op.dtype));
      }
      if (size_ == 2 || op.out.count * SizeOf(op.dtype) <= kTreeBytes) {
        return RunTree(call);
      }
      return RunInParts(call);
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      return RunInParts(call);
    default:
      return RunMoves(call);
  }
}

// ---- Small operations, in which each rank sends its whole input.

// Returns true if the operation takes one step, in which a rank waits for the
// inputs of the others and for nothing else. The input of a barrier is a byte.
bool GlooTransport::IsSmall(const Operation& op) const {
  if (op.kind == OpKind::kBarrier) return size_ == 2;
  return (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduce) &&
         op.in.count * SizeOf(op.dtype) <=
             (size_ == 2 ? kSmallPairBytes : kSmallBytes) / size_;
}

// Begins to send a copy of the input to the ranks that want it, and to receive
// the inputs of the others. If a receiver has not come yet, Gloo's thread sends
// later, while this rank goes on.
absl::Status GlooTransport::ExchangeInputs(const Operation& op,
                                           uint64_t fingerprint) {
  const bool barrier = op.kind == OpKind::kBarrier;
  const int64_t bytes = barrier ? 1 : op.in.count * SizeOf(op.dtype);
  if (barrier) {
    *Staging(rank_) = 1;
  } else {
    Copy(At(op.in.data, 0), Staging(rank_), bytes);
  }
  const auto wants = [&op](int rank) { return op.root < 0 || rank == op.root; };
  const auto begin = [&](Direction direction, int peer, char* data) {
    inputs_.emplace_back(connections_, Route{direction, peer, fingerprint, 0},
                         data, bytes);
    return inputs_.back().Post(1);
  };
  inputs_.clear();
  for (const Direction direction : {Direction::kSend, Direction::kRecv}) {
    const bool receives = direction == Direction::kRecv;
    for (int i = 1; i < size_; ++i) {
      const int peer = (rank_ + i) % size_;
      if (!wants(receives ? rank_ : peer)) continue;
      LOCKSTEP_RETURN_IF_ERROR(
          begin(direction, peer, Staging(receives ? peer : rank_)));
    }
  }
  return absl::OkStatus();
}

bool GlooTransport::Post(const Operation& op, uint64_t fingerprint) {
  if (size_ == 1 || !IsSmall(op) || !connections_.CheckCancelled().ok()) {
    return false;
  }
  const NoSigpipe no_sigpipe;
  posted_ = ExchangeInputs(op, fingerprint);
  return true;
}

absl::Status GlooTransport::RunSmall(const Call& call) {
  const Operation& op = call.op;
  if (!posted_.has_value()) posted_ = ExchangeInputs(op, call.fingerprint);
  const absl::Status begun = *std::exchange(posted_, std::nullopt);
  LOCKSTEP_RETURN_IF_ERROR(begun);
  LOCKSTEP_RETURN_IF_ERROR(Finish(inputs_));
  inputs_.clear();
  if (op.kind == OpKind::kBarrier || (op.root >= 0 && op.root != rank_)) {
    return absl::OkStatus();
  }
  Reduce(op, {0, op.in.count * SizeOf(op.dtype)}, 0, op.out.data);
  return absl::OkStatus();
}

// ---- Operations whose data goes straight to its place.

void GlooTransport::AddMove(Call& call, Direction direction, int peer,
                            char* data, int64_t bytes) {
  call.messages.emplace_back(
      connections_, Route{direction, peer, call.fingerprint, 0}, data, bytes);
}

// In step k, each rank receives a byte from the rank that is 2^k before it.
// Then it knows that 2^(k+1) ranks have come.
absl::Status GlooTransport::RunBarrier(const Call& call) {
  char here = 1, there = 0;
  for (int step = 0; 1 << step < size_; ++step) {
    const int distance = 1 << step;
    const auto route = [&](Direction direction, int peer) {
      return Route{direction, peer % size_, call.fingerprint,
                   static_cast<uint64_t>(step)};
    };
    Messages messages;
    messages.emplace_back(connections_,
                          route(Direction::kRecv, rank_ + size_ - distance),
                          &there, 1);
    messages.emplace_back(connections_,
                          route(Direction::kSend, rank_ + distance), &here, 1);
    LOCKSTEP_RETURN_IF_ERROR(Finish(messages));
  }
  return absl::OkStatus();
}

// Sends down a binomial tree. The place of a rank is its number counted from
// the root; the place of its parent is the same without the lowest set bit.
absl::Status GlooTransport::RunTree(Call& call) {
  const int place = (rank_ - call.op.root + size_) % size_;
  const auto move = [&](Direction direction, int other_place) {
    AddMove(call, direction, (other_place + call.op.root) % size_,
            At(call.op.out.data, 0), call.op.out.count * SizeOf(call.op.dtype));
  };
  int below = 1;  // the number of ranks in the tree at and under this one
  while (below < size_ && (place & below) == 0) below *= 2;
  if (place != 0) {
    move(Direction::kRecv, place - below);
    LOCKSTEP_RETURN_IF_ERROR(Finish(call.messages));
    call.messages.clear();
  }
  while ((below /= 2) > 0) {
    if (place + below < size_) move(Direction::kSend, place + below);
  }
  return Finish(call.messages);
}

// Moves data straight from the memory of one rank to that of another.
absl::Status GlooTransport::RunMoves(Call& call) {
  const Operation& op = call.op;
  const int64_t in_bytes = op.in.count * SizeOf(op.dtype);
  const int64_t out_bytes = op.out.count * SizeOf(op.dtype);
  const std::vector<Slice> gives = SlicesOf(op.send_counts, op.dtype);
  const std::vector<Slice> takes = SlicesOf(op.recv_counts, op.dtype);
  const auto receive = [&](int from, const Slice& slice) {
    AddMove(call, Direction::kRecv, from, At(op.out.data, slice.first),
            slice.bytes);
  };
  const auto send = [&](int to, const Slice& slice) {
    AddMove(call, Direction::kSend, to, SendFrom(op.in.data, slice.first),
            slice.bytes);
  };
  const bool has_root = op.root >= 0;
  const bool is_root = op.root == rank_;
  // Receives come first, because a message to a rank that waits for it goes at
  // once.
  if (!takes.empty() && (!has_root || is_root)) {
    ForOthers([&](int other) { receive(other, takes[other]); });
  } else if (op.kind == OpKind::kScatter && !is_root) {
    receive(op.root, {0, out_bytes});
  }
  if (!gives.empty() && (!has_root || is_root)) {
    ForOthers([&](int other) { send(other, gives[other]); });
  } else if (op.kind == OpKind::kAllGather) {
    ForOthers([&](int other) { send(other, {0, in_bytes}); });
  } else if (op.kind == OpKind::kGather && !is_root) {
    send(op.root, {0, in_bytes});
  }
  if (!has_root || is_root) {
    const Slice from = gives.empty() ? Slice{0, in_bytes} : gives[rank_];
    const Slice to = takes.empty() ? Slice{0, out_bytes} : takes[rank_];
    Copy(At(op.in.data, from.first), At(op.out.data, to.first), to.bytes);
  }
  return Finish(call.messages);
}

// ---- Operations in parts, which parts_plan.h describes.

absl::Status GlooTransport::RunInParts(const Call& call) {
  const PartsPlan plan(call.op, rank_, size_);
  PartsMessages messages = MessagesOf(call, plan);
  for (int64_t k = 0; k < plan.rounds; ++k) {
    LOCKSTEP_RETURN_IF_ERROR(RunRound(call.op, plan, messages, k));
  }
  LOCKSTEP_RETURN_IF_ERROR(Finish(messages.to_owners));
  LOCKSTEP_RETURN_IF_ERROR(Finish(messages.results_in));
  return Finish(messages.results_out);
}

// Returns the messages of this rank, none of which is posted yet.
//
// If the operation is in place, a result arrives in memory that was sent from.
// Its owner has made it of the bytes that it received from there, so that send
// is over.
GlooTransport::PartsMessages GlooTransport::MessagesOf(const Call& call,
                                                       const PartsPlan& plan) {
  using Kind = PartsPlan::Kind;
  const Operation& op = call.op;
  const void* const in = plan.reduces ? op.in.data : op.out.data;
  char* const result = ResultOf(op, plan);
  const auto add = [&](Messages& messages, Direction direction, Kind kind,
                       int peer, char* data, int64_t bytes, bool staged) {
    const Route route = {direction, peer, call.fingerprint,
                         static_cast<uint64_t>(kind)};
    messages.emplace_back(connections_, route, data, bytes, plan.piece,
                          staged ? kPiecesAhead : INT64_MAX);
  };
  PartsMessages all;
  ForOthers([&](int i) {
    const Slice& part = plan.parts[i];
    if (plan.Gives(i)) {
      add(all.from_others, Direction::kRecv, Kind::kInput, i,
          plan.reduces ? Staging(i) : result, plan.own.bytes, plan.reduces);
    }
    if (plan.Gives(rank_)) {
      add(all.to_owners, Direction::kSend, Kind::kInput, i,
          SendFrom(in, part.first), part.bytes, /*staged=*/false);
    }
    if (plan.Wants(rank_)) {
      add(all.results_in, Direction::kRecv, Kind::kResult, i,
          At(op.out.data, part.first), part.bytes, /*staged=*/false);
    }
    if (plan.Wants(i)) {
      add(all.results_out, Direction::kSend, Kind::kResult, i, result,
          plan.own.bytes, plan.stages_result);
    }
  });
  return all;
}

// Makes piece k of this rank's result, while later pieces travel.
//
// The other ranks have posted, by their round k, all that a rank awaits in its
// round k, and they await nothing of later rounds for that. So there is always
// a rank that goes on.
absl::Status GlooTransport::RunRound(const Operation& op, const PartsPlan& plan,
                                     PartsMessages& messages, int64_t k) {
  for (Messages* const before :
       {&messages.to_owners, &messages.results_in, &messages.results_out}) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitAll(*before, k + 1 - kPiecesAhead));
  }
  LOCKSTEP_RETURN_IF_ERROR(PostAll(messages.to_owners, k + kPiecesAhead));
  LOCKSTEP_RETURN_IF_ERROR(PostAll(messages.from_others, k + kPiecesAhead));
  LOCKSTEP_RETURN_IF_ERROR(AwaitAll(messages.from_others, k + 1));
  const Slice piece = plan.PieceOf(k);
  if (plan.reduces && piece.bytes > 0) {
    const int64_t slot = k % kPiecesAhead;
    const int64_t place = plan.stages_result ? slot : k;
    Reduce(op, piece, slot, ResultOf(op, plan) + place * plan.piece);
  }
  LOCKSTEP_RETURN_IF_ERROR(PostAll(messages.results_out, k + 1));
  return PostAll(messages.results_in, k + 1);
}

// Returns the memory of this rank's result.
char* GlooTransport::ResultOf(const Operation& op, const PartsPlan& plan) {
  if (plan.stages_result) return Staging(rank_);
  return At(op.out.data, plan.result_at);
}

// Reduces a piece of the inputs. Those of the others are in their staging
// memory, at the place `slot`.
void GlooTransport::Reduce(const Operation& op, const Slice& piece,
                           int64_t slot, void* out) {
  std::vector<const void*> inputs(size_);
  for (int i = 0; i < size_; ++i) {
    inputs[i] = i == rank_ ? At(op.in.data, piece.first)
                           : At(Staging(i), slot * PieceBytes(size_));
  }
  ReduceInOrder(op.dtype, op.op, op.scale, inputs,
                piece.bytes / SizeOf(op.dtype), {&out, 1});
}

// Returns memory for kPiecesAhead pieces from `rank`. This rank's own is for
// its results for others, or for its input of a small operation.
char* GlooTransport::Staging(int rank) {
  const int64_t bytes = PieceBytes(size_) * kPiecesAhead;
  // The memory is not initialized, so pages that are not used take no memory.
  if (staging_ == nullptr) staging_.reset(new char[bytes * size_]);
  return staging_.get() + rank * bytes;
}

// ---- Messages from one rank to another.

absl::Status GlooTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(connections_.CheckCancelled());
  Messages messages;
  messages.emplace_back(connections_, Route{Direction::kSend, to, tag, 0},
                        SendFrom(in.data, 0), in.count * SizeOf(in.dtype));
  return Finish(messages);
}

absl::Status GlooTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(connections_.CheckCancelled());
  Messages messages;
  messages.emplace_back(connections_, Route{Direction::kRecv, from, tag, 0},
                        At(out.data, 0), out.count * SizeOf(out.dtype));
  return Finish(messages);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeGlooTransport(
    const TransportContext& context) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRank(context));
  std::shared_ptr<GlooDevice> device;
  if (context.size > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(device, MakeGlooDevice(context.address));
  }
  return std::make_unique<GlooTransport>(context, std::move(device));
}

}  // namespace lockstep::internal_collective
