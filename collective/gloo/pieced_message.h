// A message to or from another rank, over Gloo, in pieces.
//
//   Messages messages;
//   messages.emplace_back(connections, route, data, bytes);
//   return Finish(messages);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_PIECED_MESSAGE_H_
#define LOCKSTEP_COLLECTIVE_GLOO_PIECED_MESSAGE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/gloo/gloo_connections.h"
#include "lockstep/collective/gloo/gloo_releases.h"

namespace lockstep::internal_collective {

// Bytes to or from another rank, in pieces that go one after the other.
//
// Requires: the connections and the memory outlive the object. Both ends have
// the same fingerprint, number, bytes and piece, or the message never arrives.
// Guarantees: nobody touches the memory after the destructor, which revokes the
// pieces that are under way. (Gloo refers to the buffer of a message weakly,
// and the destructor of the buffer waits for a thread of Gloo's that is about
// to use it.)
// Thread-safety: thread-compatible.
class PiecedMessage {
 public:
  using Direction = GlooConnections::Direction;

  // The other end of a message, and what tells it apart from others.
  struct Route {
    Direction direction;
    int peer;
    uint64_t fingerprint;  // of the operation
    // A number that differs between the messages of an operation from one rank
    // to another.
    uint64_t number;
  };

  // Makes a message of one piece.
  PiecedMessage(GlooConnections& connections, const Route& route, char* data,
                int64_t bytes)
      : PiecedMessage(connections, route, data, bytes,
                      std::max<int64_t>(1, bytes), /*memory_pieces=*/1) {}
  // Makes a message in pieces of `piece` bytes. The memory has room for
  // `memory_pieces` pieces; piece k is at the place k % memory_pieces.
  PiecedMessage(GlooConnections& connections, const Route& route, char* data,
                int64_t bytes, int64_t piece, int64_t memory_pieces)
      : connections_(&connections),
        route_(route),
        data_(data),
        bytes_(bytes),
        piece_(piece),
        memory_pieces_(memory_pieces) {}

  int64_t pieces() const { return (bytes_ + piece_ - 1) / piece_; }

  // Begins to send or to receive all pieces before `end`.
  absl::Status Post(int64_t end);

  // Waits until all pieces before `end` were sent from the memory or received
  // into it.
  // Requires: they were posted.
  absl::Status Await(int64_t end);

 private:
  absl::Status PostNext();

  GlooConnections* connections_;
  Route route_;
  char* data_;
  int64_t bytes_;
  int64_t piece_;
  int64_t memory_pieces_;
  int64_t posted_ = 0;
  int64_t done_ = 0;
  // The buffers of the pieces from done_ to posted_, which are few. Each is for
  // one piece, since a buffer does not tell which of several is done.
  std::vector<std::unique_ptr<GlooBuffer>> buffers_;
};

using Messages = std::vector<PiecedMessage>;

// Call Post or Await of all messages.
absl::Status PostAll(Messages& messages, int64_t end);
absl::Status AwaitAll(Messages& messages, int64_t end);

// Posts all pieces of all messages, and awaits them.
absl::Status Finish(Messages& messages);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_PIECED_MESSAGE_H_
