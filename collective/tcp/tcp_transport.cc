#include "lockstep/collective/tcp/tcp_transport.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduction_inputs.h"
#include "lockstep/collective/tcp/frames.h"
#include "lockstep/collective/tcp/parts_plan.h"
#include "lockstep/collective/tcp/pieced_message.h"
#include "lockstep/collective/tcp/streams.h"
#include "lockstep/collective/tcp/tcp_connections.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

using Use = TcpConnections::Use;

// If the inputs of all ranks have together no more bytes than these, each rank
// (or the root) reduces all of them, since that needs one step only. Two inputs
// always go this way, since it sends no more bytes than any other one.
constexpr int64_t kSmallBytes = 64 << 10;
// Post sends no more bytes than these, which a connection has room for as a
// rule.
constexpr int64_t kPostBytes = 64 << 10;
// Broadcasts of no more bytes go down a tree, in one piece.
constexpr int64_t kTreeBytes = 256 << 10;

// Returns an address to send from. Nobody writes there, but the type of a
// message does not say so.
char* SendFrom(const void* data, int64_t offset) {
  return At(const_cast<void*>(data), offset);
}

// Does collectives by frames between each two ranks.
//
// A rank that only sends to another one does not know by itself whether the
// other does the same operation. So in each operation two ranks that have
// something for each other send a frame both ways, an empty one if need be. (In
// a barrier of many ranks, what a rank receives tells it of all others.)
//
// Requires: the calls come as transport.h says.
// Guarantees: data reach memory only if both ends name the same fingerprint. A
// collective ends well only if all ranks with which this one shares data do the
// same.
// Thread-safety: Cancel may be called from any thread. At the same time there
// may be one Run or Post, one Send to each rank and one Recv from each rank.
class TcpTransport : public Transport {
 public:
  TcpTransport(const TransportContext& context,
               std::unique_ptr<TcpConnections> connections)
      : rank_(context.rank),
        size_(context.size),
        connections_(std::move(connections)),
        inputs_(context.size) {}

  absl::string_view name() const override { return "tcp"; }
  bool adds_shards() const override { return true; }
  absl::Status CheckSupported(const Operation& op) const override {
    return CheckOnHost(name(), op);
  }
  absl::Status Connect() override;
  bool Post(const Operation& op, uint64_t fingerprint) override;
  absl::Status Run(const Operation& op, uint64_t fingerprint) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  void Cancel() override { connections_->Cancel(); }

 private:
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
    Messages notices;                  // empty: the root of a broadcast is told
  };

  absl::Status RunCall(Call& call);
  bool IsExchange(const Operation& op) const;
  void BeginExchange(const Operation& op, uint64_t fingerprint);
  absl::Status RunExchange(const Call& call);
  absl::Status RunBarrier(const Call& call);
  absl::Status RunTree(Call& call);
  absl::Status RunMoves(Call& call);
  void AddMove(Call& call, Direction direction, int peer, char* data,
               int64_t bytes, uint64_t number = 0);
  absl::Status RunInParts(const Call& call);
  PartsMessages MessagesOf(const Call& call, const PartsPlan& plan);
  absl::Status RunRound(const Operation& op, const PartsPlan& plan,
                        PartsMessages& messages, int64_t k);
  char* ResultOf(const Operation& op, const PartsPlan& plan);
  void Reduce(const Operation& op, const Slice& piece, int64_t slot, void* out);
  char* Staging(int rank, int64_t input = 0);

  // Calls `what` with each other rank. Each rank has an order of its own, so
  // that not all of them begin with the same one.
  template <typename Do>
  void ForOthers(const Do& what) const {
    for (int i = 1; i < size_; ++i) what((rank_ + i) % size_);
  }

  const int rank_;
  const int size_;
  const std::unique_ptr<TcpConnections> connections_;

  // The next fields are used by Post and Run alone.
  std::optional<Streams> streams_;
  ReductionInputs inputs_;
  std::unique_ptr<char[]> staging_;
  int64_t staging_bytes_ = 0;
  Messages inputs_in_, inputs_out_;  // of the exchange that has begun
  bool begun_ = false;
  // The error of the first Run that failed. All later calls of Run return it,
  // since frames of that Run may be left.
  absl::Status failure_;

  // The streams of messages. Each writer belongs to the thread that sends to
  // that rank, and each reader to the one that receives from it.
  std::optional<Streams> messages_;
};

absl::Status TcpTransport::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(connections_->Connect());
  streams_.emplace(*connections_, Use::kCollectives, rank_, size_);
  messages_.emplace(*connections_, Use::kMessages, rank_, size_);
  return absl::OkStatus();
}

absl::Status TcpTransport::Run(const Operation& op, uint64_t fingerprint) {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  LOCKSTEP_RETURN_IF_ERROR(connections_->CheckCancelled());
  Call call = {op, fingerprint, {}};
  inputs_.Begin(op);
  failure_ = RunCall(call);
  return failure_;
}

absl::Status TcpTransport::RunCall(Call& call) {
  const Operation& op = call.op;
  if (IsExchange(op)) return RunExchange(call);
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
    case OpKind::kAllReduceShards:
      return RunInParts(call);
    default:
      return RunMoves(call);
  }
}

// ---- Exchanges, in which each rank sends its whole input.

// Returns true if the operation takes one step, in which a rank waits for the
// inputs of the others and for nothing else. A barrier has no input.
//
// Requires: inputs_ has begun.
bool TcpTransport::IsExchange(const Operation& op) const {
  if (op.kind == OpKind::kBarrier) return size_ == 2;
  if (op.kind != OpKind::kAllReduce && op.kind != OpKind::kReduce &&
      op.kind != OpKind::kAllReduceShards) {
    return false;
  }
  return inputs_.total() <= 2 ||
         CountOfInput(op) * SizeOf(op.dtype) <= kSmallBytes / inputs_.total();
}

// Makes the messages of an exchange, and adds the first pieces to the streams.
void TcpTransport::BeginExchange(const Operation& op, uint64_t fingerprint) {
  const int64_t bytes = CountOfInput(op) * SizeOf(op.dtype);
  const int64_t piece = PieceBytes(inputs_.total());
  const auto wants = [&op](int rank) { return op.root < 0 || rank == op.root; };
  inputs_in_.clear();
  inputs_out_.clear();
  ForOthers([&](int peer) {
    if (!wants(peer) && !wants(rank_)) return;
    const auto route = [&](Direction direction, int64_t input) {
      return Route{direction, peer, fingerprint, static_cast<uint64_t>(input)};
    };
    for (int64_t i = 0; i < inputs_.CountOf(rank_); ++i) {
      inputs_out_.emplace_back(*streams_, route(Direction::kSend, i),
                               SendFrom(op.in.data, InputAt(op, i)),
                               wants(peer) ? bytes : 0, piece,
                               /*memory_pieces=*/INT64_MAX);
    }
    for (int64_t i = 0; i < inputs_.CountOf(peer); ++i) {
      inputs_in_.emplace_back(*streams_, route(Direction::kRecv, i),
                              Staging(peer, i), wants(rank_) ? bytes : 0, piece,
                              kPiecesAhead);
    }
  });
  PostAll(inputs_out_, INT64_MAX);
  PostAll(inputs_in_, kPiecesAhead);
  begun_ = true;
}

bool TcpTransport::Post(const Operation& op, uint64_t fingerprint) {
  inputs_.Begin(op);
  if (size_ == 1 || !IsExchange(op) ||
      op.in.count * SizeOf(op.dtype) > kPostBytes || !failure_.ok() ||
      !connections_->CheckCancelled().ok()) {
    return false;
  }
  BeginExchange(op, fingerprint);
  // If it is not written whole, Run goes on with it, and finds an error again.
  const absl::StatusOr<bool> written = streams_->WriteNow();
  return written.ok() && *written;
}

// Reduces a piece while later ones arrive.
absl::Status TcpTransport::RunExchange(const Call& call) {
  const Operation& op = call.op;
  if (!begun_) BeginExchange(op, call.fingerprint);
  begun_ = false;
  if (op.kind != OpKind::kBarrier && (op.root < 0 || op.root == rank_)) {
    const int64_t bytes = CountOfInput(op) * SizeOf(op.dtype);
    const int64_t piece = PieceBytes(inputs_.total());
    for (int64_t k = 0; k * piece < bytes; ++k) {
      PostAll(inputs_in_, k + kPiecesAhead);
      LOCKSTEP_RETURN_IF_ERROR(AwaitAll(*streams_, inputs_in_, k + 1));
      // If the operation is in place, the result takes the place of the input.
      LOCKSTEP_RETURN_IF_ERROR(AwaitAll(*streams_, inputs_out_, k + 1));
      const Slice slice = {k * piece, std::min(piece, bytes - k * piece)};
      Reduce(op, slice, k % kPiecesAhead, At(op.out.data, slice.first));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, inputs_in_));
  return Finish(*streams_, inputs_out_);
}

// ---- Operations whose data goes straight to its place.

void TcpTransport::AddMove(Call& call, Direction direction, int peer,
                           char* data, int64_t bytes, uint64_t number) {
  call.messages.emplace_back(
      *streams_, Route{direction, peer, call.fingerprint, number}, data, bytes);
}

// In step k, each rank receives a byte from the rank that is 2^k before it.
// Then it knows that 2^(k+1) ranks have come.
absl::Status TcpTransport::RunBarrier(const Call& call) {
  char here = 1, there = 0;
  for (int step = 0; 1 << step < size_; ++step) {
    const int distance = 1 << step;
    const auto route = [&](Direction direction, int peer) {
      return Route{direction, peer % size_, call.fingerprint,
                   static_cast<uint64_t>(step)};
    };
    Messages messages;
    messages.emplace_back(*streams_,
                          route(Direction::kRecv, rank_ + size_ - distance),
                          &there, 1);
    messages.emplace_back(*streams_, route(Direction::kSend, rank_ + distance),
                          &here, 1);
    LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, messages));
  }
  return absl::OkStatus();
}

// Sends down a binomial tree. The place of a rank is its number counted from
// the root; the place of its parent is the same without the lowest set bit.
absl::Status TcpTransport::RunTree(Call& call) {
  const int place = (rank_ - call.op.root + size_) % size_;
  const auto move = [&](Direction direction, int other_place) {
    const int other = (other_place + call.op.root) % size_;
    AddMove(call, direction, other, At(call.op.out.data, 0),
            call.op.out.count * SizeOf(call.op.dtype));
    AddMove(call,
            direction == Direction::kSend ? Direction::kRecv : Direction::kSend,
            other, nullptr, 0);
  };
  int below = 1;  // the number of ranks in the tree at and under this one
  while (below < size_ && (place & below) == 0) below *= 2;
  if (place != 0) {
    move(Direction::kRecv, place - below);
    LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, call.messages));
    call.messages.clear();
  }
  while ((below /= 2) > 0) {
    if (place + below < size_) move(Direction::kSend, place + below);
  }
  return Finish(*streams_, call.messages);
}

// Moves data straight from the memory of one rank to that of another.
absl::Status TcpTransport::RunMoves(Call& call) {
  const Operation& op = call.op;
  const int64_t in_bytes = op.in.count * SizeOf(op.dtype);
  const int64_t out_bytes = op.out.count * SizeOf(op.dtype);
  const std::vector<Slice> gives = SlicesOf(op.send_counts, op.dtype);
  const std::vector<Slice> takes = SlicesOf(op.recv_counts, op.dtype);
  const bool has_root = op.root >= 0;
  const bool is_root = op.root == rank_;
  const auto out_to = [&](int other) -> Slice {
    if (!gives.empty() && (!has_root || is_root)) return gives[other];
    const bool gives_all =
        op.kind == OpKind::kAllGather || op.kind == OpKind::kGather;
    return gives_all && !is_root ? Slice{0, in_bytes} : Slice();
  };
  const auto in_from = [&](int other) -> Slice {
    if (!takes.empty() && (!has_root || is_root)) return takes[other];
    return op.kind == OpKind::kScatter && !is_root ? Slice{0, out_bytes}
                                                   : Slice();
  };
  ForOthers([&](int other) {
    if (has_root && !is_root && other != op.root) return;
    const Slice out = out_to(other);
    const Slice in = in_from(other);
    // The counts of an all-to-all are not in its fingerprint. So each frame
    // also has the number of bytes that go the other way.
    AddMove(call, Direction::kSend, other, SendFrom(op.in.data, out.first),
            out.bytes, in.bytes);
    AddMove(call, Direction::kRecv, other, At(op.out.data, in.first), in.bytes,
            out.bytes);
  });
  if (!has_root || is_root) {
    const Slice from = gives.empty() ? Slice{0, in_bytes} : gives[rank_];
    const Slice to = takes.empty() ? Slice{0, out_bytes} : takes[rank_];
    Copy(At(op.in.data, from.first), At(op.out.data, to.first), to.bytes);
  }
  return Finish(*streams_, call.messages);
}

// ---- Operations in parts, which parts_plan.h describes.

absl::Status TcpTransport::RunInParts(const Call& call) {
  const PartsPlan plan(call.op, rank_, size_, inputs_.total());
  PartsMessages messages = MessagesOf(call, plan);
  PostAll(messages.notices, INT64_MAX);
  for (int64_t k = 0; k < plan.rounds; ++k) {
    LOCKSTEP_RETURN_IF_ERROR(RunRound(call.op, plan, messages, k));
  }
  LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, messages.to_owners));
  LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, messages.results_in));
  LOCKSTEP_RETURN_IF_ERROR(Finish(*streams_, messages.results_out));
  return AwaitAll(*streams_, messages.notices, INT64_MAX);
}

// Returns the messages of this rank, none of which is posted yet.
//
// If the operation is in place, a result arrives in memory that was sent from.
// Its owner has made it of the bytes that it received from there, so that send
// is over.
TcpTransport::PartsMessages TcpTransport::MessagesOf(const Call& call,
                                                     const PartsPlan& plan) {
  using Kind = PartsPlan::Kind;
  const Operation& op = call.op;
  char* const result = ResultOf(op, plan);
  const auto add = [&](Messages& messages, Direction direction, Kind kind,
                       int peer, char* data, int64_t bytes, bool staged,
                       uint64_t input = 0) {
    const Route route = {direction, peer, call.fingerprint,
                         static_cast<uint64_t>(kind) + 4 * input};
    messages.emplace_back(*streams_, route, data, bytes, plan.piece,
                          staged ? kPiecesAhead : INT64_MAX);
  };
  PartsMessages all;
  ForOthers([&](int i) {
    const Slice& part = plan.parts[i];
    if (plan.reduces) {
      for (int64_t j = 0; j < inputs_.CountOf(i); ++j) {
        add(all.from_others, Direction::kRecv, Kind::kInput, i, Staging(i, j),
            plan.own.bytes, /*staged=*/true, j);
      }
      for (int64_t j = 0; j < inputs_.CountOf(rank_); ++j) {
        add(all.to_owners, Direction::kSend, Kind::kInput, i,
            SendFrom(op.in.data, InputAt(op, j) + part.first), part.bytes,
            /*staged=*/false, j);
      }
    } else if (i == plan.root) {
      add(all.from_others, Direction::kRecv, Kind::kInput, i, result,
          plan.own.bytes, /*staged=*/false);
    } else if (rank_ == plan.root) {
      add(all.to_owners, Direction::kSend, Kind::kInput, i,
          SendFrom(op.out.data, part.first), part.bytes, /*staged=*/false);
    }
    if (plan.Wants(rank_)) {
      add(all.results_in, Direction::kRecv, Kind::kResult, i,
          At(op.out.data, part.first), part.bytes, /*staged=*/false);
    }
    if (plan.Wants(i)) {
      add(all.results_out, Direction::kSend, Kind::kResult, i, result,
          plan.own.bytes, plan.stages_result);
    }
    if (!plan.reduces && (i == plan.root || rank_ == plan.root)) {
      const bool told = rank_ == plan.root;
      add(all.notices, told ? Direction::kRecv : Direction::kSend,
          Kind::kNotice, i, nullptr, 0, /*staged=*/false);
    }
  });
  return all;
}

// Makes piece k of this rank's result, while later pieces travel.
//
// The other ranks have posted, by their round k, all that a rank awaits in its
// round k, and they await nothing of later rounds for that. So there is always
// a rank that goes on.
absl::Status TcpTransport::RunRound(const Operation& op, const PartsPlan& plan,
                                    PartsMessages& messages, int64_t k) {
  for (Messages* const before :
       {&messages.to_owners, &messages.results_in, &messages.results_out}) {
    LOCKSTEP_RETURN_IF_ERROR(
        AwaitAll(*streams_, *before, k + 1 - kPiecesAhead));
  }
  PostAll(messages.to_owners, k + kPiecesAhead);
  PostAll(messages.from_others, k + kPiecesAhead);
  LOCKSTEP_RETURN_IF_ERROR(AwaitAll(*streams_, messages.from_others, k + 1));
  const Slice piece = plan.PieceOf(k);
  if (plan.reduces && piece.bytes > 0) {
    const int64_t slot = k % kPiecesAhead;
    const int64_t place = plan.stages_result ? slot : k;
    Reduce(op, piece, slot, ResultOf(op, plan) + place * plan.piece);
  }
  PostAll(messages.results_out, k + 1);
  PostAll(messages.results_in, k + 1);
  return absl::OkStatus();
}

// Returns the memory of this rank's result.
char* TcpTransport::ResultOf(const Operation& op, const PartsPlan& plan) {
  if (plan.stages_result) return Staging(rank_);
  return At(op.out.data, plan.result_at);
}

// Reduces a piece of the inputs. Those of the others are in their staging
// memory, at the place `slot`.
void TcpTransport::Reduce(const Operation& op, const Slice& piece, int64_t slot,
                          void* out) {
  const int64_t staged = slot * PieceBytes(inputs_.total());
  for (int i = 0; i < size_; ++i) {
    for (int64_t j = 0; j < inputs_.CountOf(i); ++j) {
      inputs_.At(i, j) = i == rank_
                             ? At(op.in.data, InputAt(op, j) + piece.first)
                             : At(Staging(i, j), staged);
    }
  }
  inputs_.Reduce(op, piece.bytes / SizeOf(op.dtype), {&out, 1});
}

// Returns memory for kPiecesAhead pieces of an input of `rank`. This rank's own
// is for its results for others.
char* TcpTransport::Staging(int rank, int64_t input) {
  const int64_t bytes = PieceBytes(inputs_.total()) * kPiecesAhead;
  if (bytes * inputs_.total() > staging_bytes_) {
    staging_bytes_ = bytes * inputs_.total();
    // The memory is not initialized, so pages that are not used take no memory.
    staging_.reset(new char[staging_bytes_]);
  }
  return staging_.get() + inputs_.PlaceOf(rank, input) * bytes;
}

// ---- Messages from one rank to another.

absl::Status TcpTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  LOCKSTEP_RETURN_IF_ERROR(connections_->CheckCancelled());
  const int64_t bytes = in.count * SizeOf(in.dtype);
  FrameWriter& writer = messages_->To(to);
  writer.Add(TagOf(tag, 0, 0, bytes), At(in.data, 0), bytes);
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(writer.Write());
    if (writer.idle()) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(connections_->AwaitOne(
        connections_->SocketTo(to, Use::kMessages), POLLOUT));
  }
}

absl::Status TcpTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  LOCKSTEP_RETURN_IF_ERROR(connections_->CheckCancelled());
  const int64_t bytes = out.count * SizeOf(out.dtype);
  FrameReader& reader = messages_->From(from);
  reader.Expect(TagOf(tag, 0, 0, bytes), At(out.data, 0), bytes);
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(reader.Read());
    if (reader.idle()) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(connections_->AwaitOne(
        connections_->SocketTo(from, Use::kMessages), POLLIN));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTcpTransport(
    const TransportContext& context) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRank(context));
  LOCKSTEP_ASSIGN_OR_RETURN(auto connections, TcpConnections::Create(context));
  return std::make_unique<TcpTransport>(context, std::move(connections));
}

}  // namespace lockstep::internal_collective
