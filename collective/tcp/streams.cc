#include "lockstep/collective/tcp/streams.h"

#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_collective {

Streams::Streams(const TcpConnections& connections, TcpConnections::Use use,
                 int rank, int size)
    : connections_(connections), peers_(size), events_(size) {
  // Each rank has an order of its own, so that not all of them begin with the
  // same one.
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    const int socket = connections.SocketTo(peer, use);
    peers_[peer] = std::make_unique<Peer>(
        Peer{socket, FrameWriter(socket, peer), FrameReader(socket, peer)});
    others_.push_back(peers_[peer].get());
  }
}

FrameWriter& Streams::To(int peer) { return peers_[peer]->writer; }
FrameReader& Streams::From(int peer) { return peers_[peer]->reader; }

absl::StatusOr<bool> Streams::WriteNow() {
  bool all = true;
  for (Peer* const peer : others_) {
    LOCKSTEP_RETURN_IF_ERROR(peer->writer.Write());
    all = all && peer->writer.idle();
  }
  return all;
}

absl::Status Streams::Await(const std::function<bool()>& done) {
  // The first time, nobody knows yet what can go on.
  for (pollfd& event : events_) event.revents = POLLIN | POLLOUT;
  while (!done()) {
    for (size_t i = 0; i < others_.size(); ++i) {
      Peer& peer = *others_[i];
      // An error of the connection is found by the call that needs it.
      const int happened = events_[i + 1].revents;
      if ((happened & ~POLLIN) != 0) {
        LOCKSTEP_RETURN_IF_ERROR(peer.writer.Write());
      }
      if ((happened & ~POLLOUT) != 0) {
        LOCKSTEP_RETURN_IF_ERROR(peer.reader.Read());
      }
    }
    if (done()) break;
    for (size_t i = 0; i < others_.size(); ++i) {
      const Peer& peer = *others_[i];
      const int wanted = (peer.writer.idle() ? 0 : POLLOUT) |
                         (peer.reader.idle() ? 0 : POLLIN);
      // A negative descriptor is passed over, also if it has an error.
      events_[i + 1] = {wanted == 0 ? -1 : peer.socket,
                        static_cast<int16_t>(wanted), 0};
    }
    LOCKSTEP_RETURN_IF_ERROR(AwaitEvents());
  }
  return absl::OkStatus();
}

absl::Status Streams::AwaitEvents() {
  const absl::Span<pollfd> events = absl::MakeSpan(events_);
  absl::Status status;
  eager_.Await(
      [&] {
        const absl::StatusOr<bool> found = connections_.LookForEvents(events);
        status = found.status();
        return !found.ok() || *found;
      },
      [&] { status = connections_.AwaitEvents(events); });
  return status;
}

}  // namespace lockstep::internal_collective
