#include "lockstep/collective/gloo/gloo_connections.h"

#include <gloo/transport/address.h>

#include <algorithm>
#include <chrono>  // NOLINT: Gloo speaks chrono
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/gloo/gloo_catch.h"
#include "lockstep/collective/gloo/gloo_device.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// A wait of Gloo's that expires closes all connections, so none may expire.
// Gloo adds this to the clock, which must not overflow.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

}  // namespace

GlooConnections::GlooConnections(const TransportContext& context,
                                 std::shared_ptr<GlooDevice> device)
    : context_(context),
      rank_(context.rank),
      size_(context.size),
      device_(std::move(device)) {}

GlooConnections::~GlooConnections() {
  if (gloo_ == nullptr) return;
  CatchGloo([this] { EndContext(*device_, gloo_, connected_); }).IgnoreError();
}

// ---- Waiting, and its end.

std::unique_ptr<GlooBuffer> GlooConnections::MakeBuffer(char* data,
                                                        int64_t bytes) {
  return gloo_->createUnboundBuffer(data, bytes);
}

absl::Status GlooConnections::Await(GlooBuffer& buffer, Direction direction,
                                    int peer) {
  {
    MutexLock lock(mutex_);
    if (cancelled_) return TransportCancelled();
    awaited_.push_back(&buffer);
  }
  bool done = false;
  const absl::Status status = CatchGloo(
      [&] { return Describe(direction, peer); },
      [&] {
        done = direction == Direction::kSend ? buffer.waitSend(kForEver)
                                             : buffer.waitRecv(kForEver);
      });
  {
    MutexLock lock(mutex_);
    awaited_.erase(std::find(awaited_.begin(), awaited_.end(), &buffer));
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  return done ? absl::OkStatus() : TransportCancelled();
}

std::string GlooConnections::Describe(Direction direction, int peer) {
  return absl::StrCat("gloo, ", direction == Direction::kSend ? "to" : "from",
                      " rank ", peer);
}

absl::Status GlooConnections::CheckCancelled() {
  MutexLock lock(mutex_);
  return cancelled_ ? TransportCancelled() : absl::OkStatus();
}

void GlooConnections::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (GlooBuffer* const buffer : awaited_) {
    // These calls also end a wait that has not begun yet.
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  // One call may come before the wait that it should end, so this goes on until
  // the thread that connects has returned from Gloo.
  while (GlooPair* const pair = connecting_) {
    CatchGloo([&] { EndConnecting(*device_, *gloo_, *pair); }).IgnoreError();
    changed_.WaitUntil(mutex_, After(absl::Milliseconds(10)));
  }
}

// ---- Reaching the others.

// Gloo's own rendezvous is not used, because it can't be interrupted. Newer
// releases of it also write about it on the standard output.
absl::Status GlooConnections::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  if (size_ == 1) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string addresses, MakePairs());
  // If Gloo's thread can't accept a connection, it ends the process in some
  // releases. Two more descriptors may be open while it connects.
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

// Makes a pair for each other rank. Returns their addresses, one after the
// other in the order of ranks.
absl::StatusOr<std::string> GlooConnections::MakePairs() {
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
  return addresses;
}

// Waits until `peer` has told its addresses, and returns the one at which it
// listens for this rank.
absl::StatusOr<std::vector<char>> GlooConnections::AddressFrom(int peer) {
  const std::string key = absl::StrCat(context_.key, "/gloo/", peer);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string addresses,
      AwaitKey(*context_.store, key, [this] { return CheckCancelled(); }));
  const size_t others = size_ - 1;
  if (addresses.empty() || addresses.size() % others != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the store should have ", others, " addresses of rank ", peer,
        " under '", key, "', but has ", addresses.size(), " bytes"));
  }
  const auto bytes = static_cast<int64_t>(addresses.size() / others);
  const auto first =
      addresses.begin() + bytes * (rank_ < peer ? rank_ : rank_ - 1);
  return std::vector<char>(first, first + bytes);
}

absl::Status GlooConnections::ConnectTo(int peer) {
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
    if (cancelled_) return TransportCancelled();
    connecting_ = pair;
  }
  const absl::Status status = CatchGloo(where, [&] { pair->connect(address); });
  MutexLock lock(mutex_);
  connecting_ = nullptr;
  changed_.NotifyAll();
  return cancelled_ ? TransportCancelled() : status;
}

}  // namespace lockstep::internal_collective
