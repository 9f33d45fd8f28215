// The streams of frames between a rank and all other ranks of its group. A
// thread that waits for some of them goes on with all.
//
//   Streams streams(connections, Use::kCollectives, rank, size);
//   streams.To(peer).Add(tag, data, bytes);
//   streams.From(peer).Expect(tag, memory, bytes);
//   LOCKSTEP_RETURN_IF_ERROR(
//       streams.Await([&] { return streams.From(peer).idle(); }));
#ifndef LOCKSTEP_COLLECTIVE_TCP_STREAMS_H_
#define LOCKSTEP_COLLECTIVE_TCP_STREAMS_H_

#include <poll.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/eager_wait.h"
#include "lockstep/collective/tcp/frames.h"
#include "lockstep/collective/tcp/tcp_connections.h"

namespace lockstep::internal_collective {

// The frames to and from each other rank.
//
// Requires: the connections are connected, and outlive this.
// Guarantees: nobody uses the memory of frames outside of these calls.
// Thread-safety: thread-compatible.
class Streams {
 public:
  Streams(const TcpConnections& connections, TcpConnections::Use use, int rank,
          int size);

  FrameWriter& To(int peer);
  FrameReader& From(int peer);

  // Writes all frames that the system takes now. Returns true if it has taken
  // all.
  absl::StatusOr<bool> WriteNow();

  // Waits until `done` returns true. Meanwhile all frames are written, and all
  // that are expected are read.
  absl::Status Await(const std::function<bool()>& done);

 private:
  absl::Status AwaitEvents();

  struct Peer {
    int socket;
    FrameWriter writer;
    FrameReader reader;
  };

  const TcpConnections& connections_;
  std::vector<std::unique_ptr<Peer>> peers_;  // nullptr for this rank
  std::vector<Peer*> others_;
  std::vector<pollfd> events_;  // of the connections, and then of the others
  EagerWait eager_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_STREAMS_H_
