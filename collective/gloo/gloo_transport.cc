#include "lockstep/collective/gloo/gloo_transport.h"

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>  // NOLINT: Gloo speaks chrono
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/no_sigpipe.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/gloo/gloo_catch.h"
#include "lockstep/collective/gloo/gloo_device.h"
#include "lockstep/collective/gloo/listen_guard.h"
#include "lockstep/collective/reduce.h"

namespace lockstep::internal_collective {
namespace {

using GlooContext = ::gloo::transport::Context;
using GlooPair = ::gloo::transport::Pair;
using ::gloo::transport::UnboundBuffer;

constexpr int64_t kLine = 64;  // bytes of a cache line

// Reductions of inputs that have together no more are done by each rank (or by
// the root) on its own, since that needs one step only. Between two ranks, no
// more travels that way than any other.
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int64_t kSmallPairBytes = 1 << 20;
// Broadcasts of no more go down a tree, whole.
constexpr int64_t kTreeBytes = 256 << 10;

// Of what is larger, one piece is reduced while others travel. With smaller
// pieces, Gloo's thread looks for work more often than it finds any.
constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kPiecesAhead = 2;
constexpr int64_t kMostStagingBytes = 32 << 20;

constexpr absl::Duration kStoreSlice = absl::Milliseconds(100);

// A wait of Gloo's that expires closes all connections, so none may. What it
// adds to the clock must not overflow, either.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

absl::Status Cancelled() {
  return absl::CancelledError("the transport was cancelled");
}

#ifdef LOCKSTEP_GLOO_HAS_LISTENER

// Ends waits for `pair` to be connected. A pair that expires, as below, would
// here end the process when its connection came after all.
void EndConnecting(GlooDevice& /*device*/, GlooContext& /*context*/,
                   GlooPair& pair) {
  pair.close();
}

#else

// A pair that is closed resets its connection, and where the other end has not
// looked at that yet, Gloo's thread throws there: the process ends. So let a
// wait expire that nothing fulfils, which closes the connections of all pairs
// without that.
void EndConnecting(GlooDevice& device, GlooContext& context,
                   GlooPair& /*pair*/) {
  const Rounds rounds(device);
  char nothing = 0;
  context.createUnboundBuffer(&nothing, 1)
      ->waitRecv(std::chrono::milliseconds(1));
}

#endif

// ---- Memory.

char* At(void* data, int64_t offset) {
  return static_cast<char*>(data) + offset;
}
// What is sent from is not written; Gloo's type does not tell.
char* At(const void* data, int64_t offset) {
  return static_cast<char*>(const_cast<void*>(data)) + offset;
}

// In-place memory is left as it is; of no bytes, the addresses mean nothing.
void Copy(const char* from, char* to, int64_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

struct Range {  // in bytes
  int64_t first = 0;
  int64_t bytes = 0;
};

std::vector<Range> RangesOf(const std::vector<int64_t>& counts, DType dtype) {
  std::vector<Range> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({first, count * SizeOf(dtype)});
    first += ranges.back().bytes;
  }
  return ranges;
}

// About equal ones that begin with cache lines.
std::vector<Range> EvenRanges(int64_t bytes, int size) {
  const int64_t lines = (bytes + kLine - 1) / kLine;
  std::vector<Range> ranges;
  for (int i = 0; i < size; ++i) {
    const int64_t first = std::min(bytes, lines * i / size * kLine);
    const int64_t end = std::min(bytes, lines * (i + 1) / size * kLine);
    ranges.push_back({first, end - first});
  }
  return ranges;
}

// ---- Messages.

class GlooTransport;

// Bytes to or from another rank, in pieces that go one after the other. Those
// that are under way when it is destroyed are revoked: Gloo refers to the
// buffer of a message weakly, and its destructor waits for a thread of Gloo's
// that is about to use it; so nobody touches the memory afterwards.
class Stream {
 public:
  enum class Direction { kSend, kRecv };

  struct Route {
    Direction direction;
    int peer;
    // What only these two streams, at its two ends, have in common.
    uint64_t fingerprint;
    uint64_t number;
  };

  // All of it as one piece.
  Stream(GlooTransport* transport, const Route& route, char* data,
         int64_t bytes)
      : Stream(transport, route, data, bytes, std::max<int64_t>(1, bytes),
               /*memory_pieces=*/1) {}
  // Piece k stands at piece k % memory_pieces of the memory.
  Stream(GlooTransport* transport, const Route& route, char* data,
         int64_t bytes, int64_t piece, int64_t memory_pieces)
      : transport_(transport),
        route_(route),
        data_(data),
        bytes_(bytes),
        piece_(piece),
        memory_pieces_(memory_pieces) {}

  int64_t pieces() const { return (bytes_ + piece_ - 1) / piece_; }

  // Begins with all pieces before `end` that there are.
  absl::Status Post(int64_t end);
  // Until all pieces before `end` have been written or read. Requires that they
  // were posted.
  absl::Status Await(int64_t end);

 private:
  absl::Status PostNext();

  GlooTransport* transport_;
  Route route_;
  char* data_;
  int64_t bytes_;
  int64_t piece_;
  int64_t memory_pieces_;
  int64_t posted_ = 0;
  int64_t done_ = 0;
  // Of the few pieces from done_ to posted_. A buffer is for one message, since
  // it does not tell which of several is done.
  std::vector<std::unique_ptr<UnboundBuffer>> buffers_;
};

using Streams = std::vector<Stream>;

class GlooTransport : public Transport {
 public:
  GlooTransport(const TransportContext& context,
                std::shared_ptr<GlooDevice> device)
      : context_(context),
        rank_(context.rank),
        size_(context.size),
        device_(std::move(device)) {}
  ~GlooTransport() override;

  absl::string_view name() const override { return "gloo"; }
  absl::Status CheckSupported(const Operation& op) const override;
  absl::Status Connect() override;
  bool Post(const Operation& op, uint64_t fingerprint) override;
  absl::Status Run(const Operation& op, uint64_t fingerprint) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  void Cancel() override;

 private:
  friend class Stream;
  using Direction = Stream::Direction;

  // A rank's part of a collective, with what it has under way.
  struct Call {
    const Operation& op;
    uint64_t fingerprint;
    Streams streams;
  };

  absl::Status CheckCancelled();
  absl::StatusOr<std::vector<char>> AddressFrom(int peer);
  absl::Status ConnectTo(int peer);
  absl::Status Await(UnboundBuffer& buffer, const Stream::Route& route);

  absl::Status RunCall(Call& call);
  bool IsSmall(const Operation& op) const;
  absl::Status ExchangeInputs(const Operation& op, uint64_t fingerprint);
  absl::Status RunSmall(const Call& call);
  absl::Status RunBarrier(const Call& call);
  absl::Status RunTree(Call& call);
  absl::Status RunInParts(const Call& call);
  absl::Status RunMoves(Call& call);
  absl::Status Finish(Streams& streams);
  void AddMove(Call& call, Direction direction, int peer, char* data,
               int64_t bytes);
  void Reduce(const Operation& op, const Range& piece, int64_t slot, void* out);

  // Memory for pieces: kPiecesAhead from each other rank, and of results.
  int64_t PieceBytes() const;
  char* Staging(int rank);

  // The other ranks, each rank in an order of its own, so that not all of them
  // begin with the same one.
  template <typename Do>
  void ForOthers(const Do& what) const {
    for (int i = 1; i < size_; ++i) what((rank_ + i) % size_);
  }

  const TransportContext context_;
  const int rank_;
  const int size_;
  const std::shared_ptr<GlooDevice> device_;  // nullptr in a group of one
  std::vector<std::unique_ptr<ListenGuard>> guards_;  // by rank
  std::shared_ptr<GlooContext> gloo_;                 // from Connect
  bool connected_ = false;                            // to all others
  std::unique_ptr<char[]> staging_;                   // of Run and Post
  Streams inputs_;  // what a small reduction has under way
  // How ExchangeInputs went that Post has called for the next Run.
  std::optional<absl::Status> posted_;

  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // What threads of ours wait for in Gloo: Cancel ends these waits.
  GlooPair* connecting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<UnboundBuffer*> awaited_ ABSL_GUARDED_BY(mutex_);
};

// Operations that differ have different slots, and Gloo sends nothing before
// both ends have named the same slot. The size is part of it, since Gloo ends
// the process when it gets more than was asked for.
uint64_t SlotOf(const Stream::Route& route, int64_t piece, int64_t bytes) {
  const uint64_t parts[] = {route.fingerprint, route.number,
                            static_cast<uint64_t>(piece),
                            static_cast<uint64_t>(bytes)};
  return DigestOf({reinterpret_cast<const char*>(parts), sizeof(parts)}).low;
}

std::string Describe(const Stream::Route& route) {
  const bool sends = route.direction == Stream::Direction::kSend;
  return absl::StrCat("gloo, ", sends ? "to" : "from", " rank ", route.peer);
}

absl::Status Stream::PostNext() {
  char* const data = At(data_, posted_ % memory_pieces_ * piece_);
  const int64_t bytes = std::min(piece_, bytes_ - posted_ * piece_);
  const uint64_t slot = SlotOf(route_, posted_, bytes);
  return CatchGloo(
      [this] { return Describe(route_); },
      [&] {
        buffers_.push_back(transport_->gloo_->createUnboundBuffer(data, bytes));
        ++posted_;
        if (route_.direction == Direction::kSend) {
          buffers_.back()->send(route_.peer, slot, 0, bytes);
        } else {
          buffers_.back()->recv(route_.peer, slot, 0, bytes);
        }
      });
}

absl::Status Stream::Post(int64_t end) {
  end = std::min(end, pieces());
  while (posted_ < end) LOCKSTEP_RETURN_IF_ERROR(PostNext());
  return absl::OkStatus();
}

absl::Status Stream::Await(int64_t end) {
  end = std::min(end, pieces());
  while (done_ < end) {
    LOCKSTEP_RETURN_IF_ERROR(transport_->Await(*buffers_.front(), route_));
    buffers_.erase(buffers_.begin());
    ++done_;
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::Await(UnboundBuffer& buffer,
                                  const Stream::Route& route) {
  {
    MutexLock lock(mutex_);
    if (cancelled_) return Cancelled();
    awaited_.push_back(&buffer);
  }
  bool done = false;
  const absl::Status status = CatchGloo(
      [&] { return Describe(route); },
      [&] {
        done = route.direction == Direction::kSend ? buffer.waitSend(kForEver)
                                                   : buffer.waitRecv(kForEver);
      });
  {
    MutexLock lock(mutex_);
    awaited_.erase(std::find(awaited_.begin(), awaited_.end(), &buffer));
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  return done ? absl::OkStatus() : Cancelled();
}

absl::Status GlooTransport::CheckCancelled() {
  MutexLock lock(mutex_);
  return cancelled_ ? Cancelled() : absl::OkStatus();
}

void GlooTransport::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (UnboundBuffer* const buffer : awaited_) {
    // Also ends a wait that has not begun.
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  // Until the thread that connects is out of it.
  while (GlooPair* const pair = connecting_) {
    CatchGloo([&] { EndConnecting(*device_, *gloo_, *pair); }).IgnoreError();
    changed_.WaitUntil(mutex_, After(absl::Milliseconds(10)));
  }
}

// ---- Reaching the others.

absl::Status GlooTransport::CheckSupported(const Operation& op) const {
  for (const Device& device : {op.in.device, op.out.device}) {
    if (device.kind != Device::Kind::kHost) {
      return absl::UnimplementedError(
          "gloo moves memory of the host, and this is of a CUDA device: copy "
          "it to the host, or use the nccl backend");
    }
  }
  return absl::OkStatus();
}

// Connections are made here and not by Gloo's rendezvous, which can't be
// interrupted, and which newer releases of it talk about on the standard
// output.
absl::Status GlooTransport::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  if (size_ == 1) return absl::OkStatus();
  // What the rank listens at, for each other rank in turn.
  std::string addresses;
  LOCKSTEP_RETURN_IF_ERROR(CatchGloo([&] {
    gloo_ = device_->createContext(rank_, size_);
    gloo_->setTimeout(kForEver);
    guards_.resize(size_);
    const Standstill standstill(*device_);
    for (int i = 0; i < size_; ++i) {
      if (i == rank_) continue;
      GlooPair& pair = *gloo_->createPair(i);
      guards_[i] = std::make_unique<ListenGuard>(*device_, pair);
      const std::vector<char> address = pair.address().bytes();
      addresses.append(address.begin(), address.end());
    }
  }));
  // Where Gloo's thread can't accept a connection, it ends the process in some
  // releases. There may be two more in between.
  if (const int shortage = ShortageOfDescriptors(size_ + 1)) {
    return SystemError(shortage, "gloo can't connect to all ranks");
  }
  CatchGloo([this] { CloseAllOnExec(*device_); }).IgnoreError();
  LOCKSTEP_RETURN_IF_ERROR(context_.store->Set(
      absl::StrCat(context_.key, "/gloo/", rank_), addresses));
  for (int i = 0; i < size_; ++i) {
    if (i != rank_) LOCKSTEP_RETURN_IF_ERROR(ConnectTo(i));
  }
  connected_ = true;
  CatchGloo([this] {
    StopListening(*device_);
    CloseAllOnExec(*device_);
  }).IgnoreError();
  return CheckCancelled();
}

#ifdef LOCKSTEP_GLOO_HAS_LISTENER

// The listener tells a pair of its connection even when the pair is no more. So
// where pairs still wait for theirs, the listener goes first, after Gloo's
// thread. That ends when nothing has happened for 10 ms, so all connections are
// closed before.
GlooTransport::~GlooTransport() {
  if (gloo_ == nullptr || connected_) return;
  CatchGloo([this] {
    for (int i = 0; i < size_; ++i) {
      if (i == rank_ || gloo_->getPair(i) == nullptr) continue;
      gloo_->getPair(i)->close();
    }
    device_->shutdown();
  }).IgnoreError();
}

#else

GlooTransport::~GlooTransport() {
  if (gloo_ == nullptr) return;
  CatchGloo([this] {
    const Rounds rounds(*device_);
    inputs_.clear();  // they refer to it
    gloo_.reset();
  }).IgnoreError();
}

#endif

// Where `peer` listens for this rank.
absl::StatusOr<std::vector<char>> GlooTransport::AddressFrom(int peer) {
  const std::string key = absl::StrCat(context_.key, "/gloo/", peer);
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const absl::StatusOr<std::string> addresses =
        context_.store->Get(key, absl::Now() + kStoreSlice);
    if (absl::IsDeadlineExceeded(addresses.status())) continue;
    LOCKSTEP_RETURN_IF_ERROR(addresses.status());
    const size_t others = size_ - 1;
    if (addresses->empty() || addresses->size() % others != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the store should have ", others, " addresses of rank ", peer,
          " under '", key, "', but has ", addresses->size(), " bytes"));
    }
    const size_t bytes = addresses->size() / others;
    const auto first =
        addresses->begin() +
        static_cast<int64_t>(bytes) * (rank_ < peer ? rank_ : rank_ - 1);
    return std::vector<char>(first, first + static_cast<int64_t>(bytes));
  }
}

absl::Status GlooTransport::ConnectTo(int peer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<char> address, AddressFrom(peer));
  GlooPair* const pair = gloo_->getPair(peer).get();
  const auto where = [peer] {
    return absl::StrCat("gloo, connecting to rank ", peer);
  };
  LOCKSTEP_RETURN_IF_ERROR(CatchGloo(where, [&] {
    guards_[peer]->Await(address, [this] { return !CheckCancelled().ok(); });
  }));
  {
    MutexLock lock(mutex_);
    if (cancelled_) return Cancelled();
    connecting_ = pair;
  }
  const absl::Status status = CatchGloo(where, [&] { pair->connect(address); });
  MutexLock lock(mutex_);
  connecting_ = nullptr;
  changed_.NotifyAll();
  return cancelled_ ? Cancelled() : status;
}

// ---- Collectives.

absl::Status GlooTransport::Run(const Operation& op, uint64_t fingerprint) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
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

// What takes one step in which every rank sends its input, and of which the
// others' inputs are all that a rank waits for. A barrier has no more than a
// byte to say.
bool GlooTransport::IsSmall(const Operation& op) const {
  if (op.kind == OpKind::kBarrier) return size_ == 2;
  return (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduce) &&
         op.in.count * SizeOf(op.dtype) <=
             (size_ == 2 ? kSmallPairBytes : kSmallBytes) / size_;
}

// Begins to send a copy of the input to those that want it, and to receive the
// others'. What is sent before its receiver has come is sent by Gloo's thread,
// which has time.
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
    inputs_.emplace_back(this, Stream::Route{direction, peer, fingerprint, 0},
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
  if (size_ == 1 || !IsSmall(op) || !CheckCancelled().ok()) return false;
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

void GlooTransport::AddMove(Call& call, Direction direction, int peer,
                            char* data, int64_t bytes) {
  call.streams.emplace_back(
      this, Stream::Route{direction, peer, call.fingerprint, 0}, data, bytes);
}

absl::Status GlooTransport::Finish(Streams& streams) {
  for (Stream& stream : streams) {
    LOCKSTEP_RETURN_IF_ERROR(stream.Post(stream.pieces()));
  }
  for (Stream& stream : streams) {
    LOCKSTEP_RETURN_IF_ERROR(stream.Await(stream.pieces()));
  }
  return absl::OkStatus();
}

// In step k, each rank hears from the one 2^k before it: then it knows of
// 2^(k+1) ranks that they have come.
absl::Status GlooTransport::RunBarrier(const Call& call) {
  char here = 1, there = 0;
  for (int step = 0; 1 << step < size_; ++step) {
    const int distance = 1 << step;
    const auto route = [&](Direction direction, int peer) {
      return Stream::Route{direction, peer % size_, call.fingerprint,
                           static_cast<uint64_t>(step)};
    };
    Streams streams;
    streams.emplace_back(
        this, route(Direction::kRecv, rank_ + size_ - distance), &there, 1);
    streams.emplace_back(this, route(Direction::kSend, rank_ + distance), &here,
                         1);
    LOCKSTEP_RETURN_IF_ERROR(Finish(streams));
  }
  return absl::OkStatus();
}

// A binomial tree of the ranks counted from the root: the parent of one is it
// without its lowest bit.
absl::Status GlooTransport::RunTree(Call& call) {
  const int place = (rank_ - call.op.root + size_) % size_;
  const auto move = [&](Direction direction, int other_place) {
    AddMove(call, direction, (other_place + call.op.root) % size_,
            At(call.op.out.data, 0), call.op.out.count * SizeOf(call.op.dtype));
  };
  int below = 1;  // ranks in the tree under this one, and it
  while (below < size_ && (place & below) == 0) below *= 2;
  if (place != 0) {
    move(Direction::kRecv, place - below);
    LOCKSTEP_RETURN_IF_ERROR(Finish(call.streams));
    call.streams.clear();
  }
  while ((below /= 2) > 0) {
    if (place + below < size_) move(Direction::kSend, place + below);
  }
  return Finish(call.streams);
}

// What goes straight from one rank's memory to another's.
absl::Status GlooTransport::RunMoves(Call& call) {
  const Operation& op = call.op;
  const int64_t in_bytes = op.in.count * SizeOf(op.dtype);
  const int64_t out_bytes = op.out.count * SizeOf(op.dtype);
  const std::vector<Range> gives = RangesOf(op.send_counts, op.dtype);
  const std::vector<Range> takes = RangesOf(op.recv_counts, op.dtype);
  const auto receive = [&](int from, const Range& range) {
    AddMove(call, Direction::kRecv, from, At(op.out.data, range.first),
            range.bytes);
  };
  const auto send = [&](int to, const Range& range) {
    AddMove(call, Direction::kSend, to, At(op.in.data, range.first),
            range.bytes);
  };
  const bool has_root = op.root >= 0;
  const bool is_root = op.root == rank_;
  // Receives first: what is sent to a rank that waits for it goes at once.
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
    const Range from = gives.empty() ? Range{0, in_bytes} : gives[rank_];
    const Range to = takes.empty() ? Range{0, out_bytes} : takes[rank_];
    Copy(At(op.in.data, from.first), At(op.out.data, to.first), to.bytes);
  }
  return Finish(call.streams);
}

// Every rank owns a part. It gets that part from those that have something for
// it, makes one of them, and passes it on to those that want it; all in pieces.
//
// In place, a result comes into memory that was sent from: its owner made it of
// what it had received from there, so the send was over.
absl::Status GlooTransport::RunInParts(const Call& call) {
  const Operation& op = call.op;
  const int64_t width = SizeOf(op.dtype);
  const bool reduces = op.kind != OpKind::kBroadcast;
  const int64_t bytes = width * (reduces ? op.in.count : op.out.count);

  std::vector<Range> parts(size_);  // by owner
  bool passes_on = false;
  if (op.kind == OpKind::kReduceScatter) {
    parts = RangesOf(std::vector<int64_t>(size_, op.out.count), op.dtype);
  } else {
    parts = EvenRanges(bytes, size_);
    passes_on = true;
  }
  const auto gives = [&op](int rank) {
    return op.kind != OpKind::kBroadcast || rank == op.root;
  };
  const auto wants = [&op](int rank) {
    return op.root < 0 || (rank == op.root) == (op.kind == OpKind::kReduce);
  };
  const Range own = parts[rank_];
  const int64_t piece = PieceBytes();
  const char* const in = At(reduces ? op.in.data : op.out.data, 0);
  // Of this rank's result; in the staging memory where it wants none.
  const bool has_out = op.kind != OpKind::kReduce || rank_ == op.root;
  char* const result = !has_out ? Staging(rank_)
                       : op.kind == OpKind::kReduceScatter
                           ? At(op.out.data, 0)
                           : At(op.out.data, own.first);

  Streams from_others, to_owners, results_in, results_out;
  const auto add = [&](Streams& streams, Direction direction, int peer,
                       char* data, int64_t size, bool staged) {
    const bool is_result = &streams == &results_in || &streams == &results_out;
    const Stream::Route route = {direction, peer, call.fingerprint, is_result};
    streams.emplace_back(this, route, data, size, piece,
                         staged ? kPiecesAhead : INT64_MAX);
  };
  ForOthers([&](int i) {
    if (gives(i)) {
      add(from_others, Direction::kRecv, i, reduces ? Staging(i) : result,
          own.bytes, reduces);
    }
    if (gives(rank_)) {
      add(to_owners, Direction::kSend, i, At(in, parts[i].first),
          parts[i].bytes, false);
    }
    if (!passes_on) return;
    if (wants(rank_)) {
      add(results_in, Direction::kRecv, i, At(op.out.data, parts[i].first),
          parts[i].bytes, false);
    }
    if (wants(i)) {
      add(results_out, Direction::kSend, i, result, own.bytes, !has_out);
    }
  });

  int64_t most = 0;
  for (const Range& part : parts) most = std::max(most, part.bytes);
  const auto await = [](Streams& streams, int64_t end) {
    for (Stream& stream : streams) {
      LOCKSTEP_RETURN_IF_ERROR(stream.Await(end));
    }
    return absl::OkStatus();
  };
  const auto post = [](Streams& streams, int64_t end) {
    for (Stream& stream : streams) LOCKSTEP_RETURN_IF_ERROR(stream.Post(end));
    return absl::OkStatus();
  };
  // Whatever a rank awaits in round k, the others have posted by their round k,
  // and without awaiting anything of later ones: so there is always one that
  // goes on.
  for (int64_t k = 0; k * piece < most; ++k) {
    for (Streams* const streams : {&to_owners, &results_in, &results_out}) {
      LOCKSTEP_RETURN_IF_ERROR(await(*streams, k + 1 - kPiecesAhead));
    }
    for (Streams* const streams : {&to_owners, &from_others}) {
      LOCKSTEP_RETURN_IF_ERROR(post(*streams, k + kPiecesAhead));
    }
    LOCKSTEP_RETURN_IF_ERROR(await(from_others, k + 1));
    if (reduces && k * piece < own.bytes) {
      const Range range = {own.first + k * piece,
                           std::min(piece, own.bytes - k * piece)};
      Reduce(op, range, k % kPiecesAhead,
             At(result, (has_out ? k : k % kPiecesAhead) * piece));
    }
    LOCKSTEP_RETURN_IF_ERROR(post(results_out, k + 1));
    LOCKSTEP_RETURN_IF_ERROR(post(results_in, k + 1));
  }
  for (Streams* const streams : {&to_owners, &results_in, &results_out}) {
    LOCKSTEP_RETURN_IF_ERROR(Finish(*streams));
  }
  return absl::OkStatus();
}

void GlooTransport::Reduce(const Operation& op, const Range& piece,
                           int64_t slot, void* out) {
  std::vector<const void*> inputs(size_);
  for (int i = 0; i < size_; ++i) {
    inputs[i] = i == rank_ ? At(op.in.data, piece.first)
                           : At(Staging(i), slot * PieceBytes());
  }
  ReduceInOrder(op.dtype, op.op, op.scale, inputs,
                piece.bytes / SizeOf(op.dtype), {&out, 1});
}

int64_t GlooTransport::PieceBytes() const {
  return std::clamp(kMostStagingBytes / kPiecesAhead / size_ / kLine * kLine,
                    kSmallBytes / 2, kPieceBytes);
}

// Pieces from `rank`; this rank's own are its results for others.
char* GlooTransport::Staging(int rank) {
  const int64_t bytes = PieceBytes() * kPiecesAhead;
  // Not set to anything, so that what is not used takes no memory.
  if (staging_ == nullptr) staging_.reset(new char[bytes * size_]);
  return staging_.get() + rank * bytes;
}

// ---- Messages from one rank to another.

absl::Status GlooTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  Streams streams;
  streams.emplace_back(this, Stream::Route{Direction::kSend, to, tag, 0},
                       At(in.data, 0), in.count * SizeOf(in.dtype));
  return Finish(streams);
}

absl::Status GlooTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  const NoSigpipe no_sigpipe;
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  Streams streams;
  streams.emplace_back(this, Stream::Route{Direction::kRecv, from, tag, 0},
                       At(out.data, 0), out.count * SizeOf(out.dtype));
  return Finish(streams);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeGlooTransport(
    const TransportContext& context) {
  if (context.size < 1 || context.rank < 0 || context.rank >= context.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank should be 0 to size - 1, but got rank=", context.rank,
        ", size=", context.size));
  }
  std::shared_ptr<GlooDevice> device;
  if (context.size > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(device, MakeGlooDevice(context.address));
  }
  return std::make_unique<GlooTransport>(context, std::move(device));
}

}  // namespace lockstep::internal_collective
