// A message to or from another rank, in pieces.
//
//   Messages messages;
//   messages.emplace_back(streams, route, data, bytes);
//   return Finish(streams, messages);
#ifndef LOCKSTEP_COLLECTIVE_TCP_PIECED_MESSAGE_H_
#define LOCKSTEP_COLLECTIVE_TCP_PIECED_MESSAGE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/tcp/streams.h"

namespace lockstep::internal_collective {

enum class Direction { kSend, kRecv };

// Returns the tag of a frame: a hash of the operation's fingerprint, of numbers
// that tell its frames apart, and of the frame's size, which a frame does not
// tell. So the data of operations that differ do not meet.
uint64_t TagOf(uint64_t fingerprint, uint64_t number, int64_t piece,
               int64_t bytes);

// Bytes to or from another rank, in pieces that go one after the other. Each
// piece is a frame. A message of no bytes is an empty frame.
//
// Requires: the streams and the memory outlive the object. Both ends have the
// same fingerprint, bytes and piece, and post their pieces in the same order,
// or an error says that they differ.
// Thread-safety: thread-compatible.
class PiecedMessage {
 public:
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
  PiecedMessage(Streams& streams, const Route& route, char* data, int64_t bytes)
      : PiecedMessage(streams, route, data, bytes, std::max<int64_t>(1, bytes),
                      /*memory_pieces=*/1) {}
  // Makes a message in pieces of `piece` bytes. The memory has room for
  // `memory_pieces` pieces; piece k is at the place k % memory_pieces.
  PiecedMessage(Streams& streams, const Route& route, char* data, int64_t bytes,
                int64_t piece, int64_t memory_pieces)
      : streams_(&streams),
        route_(route),
        data_(data),
        bytes_(bytes),
        piece_(piece),
        memory_pieces_(memory_pieces) {}

  int64_t pieces() const {
    return std::max<int64_t>(1, (bytes_ + piece_ - 1) / piece_);
  }

  // Adds all pieces before `end` to the stream.
  void Post(int64_t end);

  // Returns true if all pieces before `end` were sent from the memory or
  // received into it.
  // Requires: they were posted.
  bool Done(int64_t end) const;

 private:
  Streams* streams_;
  Route route_;
  char* data_;
  int64_t bytes_;
  int64_t piece_;
  int64_t memory_pieces_;
  // The number in the stream of each piece that was posted.
  std::vector<uint64_t> posted_;
};

using Messages = std::vector<PiecedMessage>;

// Calls Post of all messages.
void PostAll(Messages& messages, int64_t end);

// Waits until all pieces before `end` are done.
absl::Status AwaitAll(Streams& streams, const Messages& messages, int64_t end);

// Posts all pieces of all messages, and awaits them.
absl::Status Finish(Streams& streams, Messages& messages);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_PIECED_MESSAGE_H_
