// The TCP connections of a rank to all other ranks of its group.
//
//   TcpConnections connections(context);
//   LOCKSTEP_RETURN_IF_ERROR(connections.Connect());
//   FrameWriter writer(connections.SocketTo(peer, Use::kMessages), peer);
//   writer.Add(tag, data, bytes);
//   while (!writer.idle()) {
//     LOCKSTEP_RETURN_IF_ERROR(writer.Write());
//     ...
//   }
//
// Two ranks have two connections: one for collectives, and one for messages.
// No thread serves them. The thread that needs a connection uses it itself, so
// nobody else has to be woken for it.
//
// Each rank listens while the group is made, and the ranks above it connect to
// it. A store that only the ranks of the job can read has the address and a
// secret of each rank. A rank that connects sends the other's secret, and is
// answered by its own. So strangers get nothing but an open port, until the
// group is made.
#ifndef LOCKSTEP_COLLECTIVE_TCP_TCP_CONNECTIONS_H_
#define LOCKSTEP_COLLECTIVE_TCP_TCP_CONNECTIONS_H_

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The connections of a rank.
//
// Requires: a group of one uses no socket.
// Guarantees: each call that waits returns an error soon after Cancel. A forked
// child has no socket. What was sent is delivered, also after the destructor,
// unless this host dies or the other rank reads nothing for minutes.
// Thread-safety: Connect comes first, alone. Then any thread may call any
// function. Cancel may be called at any time.
class TcpConnections {
 public:
  enum class Use { kCollectives, kMessages };

  // RESOURCE_EXHAUSTED if no descriptor is left.
  static absl::StatusOr<std::unique_ptr<TcpConnections>> Create(
      const TransportContext& context);
  ~TcpConnections();

  TcpConnections(const TcpConnections&) = delete;
  TcpConnections& operator=(const TcpConnections&) = delete;

  // Connects to all other ranks. Waits for them as long as it takes.
  absl::Status Connect();

  // Ends all calls that wait, and lets no later one wait.
  void Cancel();
  absl::Status CheckCancelled() const;

  // Returns a socket that does not block.
  // Requires: Connect has returned OK.
  int SocketTo(int peer, Use use) const;

  // Waits until something has happened at one of the sockets. The first entry
  // is for this function alone.
  absl::Status AwaitEvents(absl::Span<pollfd> events) const;
  // Does not wait. Returns false if nothing has happened.
  absl::StatusOr<bool> LookForEvents(absl::Span<pollfd> events) const;
  // Does the same for one socket.
  absl::Status AwaitOne(int socket, int16_t events) const;

 private:
  // A connection, or the socket that listens for them.
  struct Link {
    explicit Link(Descriptor descriptor);
    ~Link();

    Descriptor socket;
    const ClosedInForks closed_in_forks;
  };

  // The address and the secret of a rank.
  struct Place {
    std::string host;
    uint16_t port = 0;
    std::string secret;
  };

  // The first bytes of a connection.
  struct Hello;
  // A connection that has been accepted, and whose other end is not known yet.
  struct Newcomer;

  TcpConnections(const TransportContext& context, Descriptor cancel);

  absl::StatusOr<bool> Poll(absl::Span<pollfd> events, int timeout) const;
  absl::StatusOr<std::unique_ptr<Link>> Listen();
  absl::StatusOr<Place> PlaceOf(int peer) const;
  absl::Status ConnectTo(int peer, Use use);
  absl::Status AcceptAll(int listener);
  absl::Status Greet(Newcomer& newcomer);
  absl::Status AwaitAnswer(int peer, Use use) const;
  std::unique_ptr<Link>& LinkTo(int peer, Use use);

  const TransportContext context_;
  const int rank_;
  const int size_;
  // It becomes readable when the transport is cancelled.
  const Descriptor cancel_;
  const ClosedInForks cancel_closed_in_forks_;
  std::atomic<bool> cancelled_{false};
  std::string secret_;
  // The connections to each rank, one for each use.
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_TCP_CONNECTIONS_H_
