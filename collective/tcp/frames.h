// Frames are what two ranks send to each other over a TCP connection. A frame
// is a tag of 8 bytes, and data. Both ends know a frame's tag and its number of
// bytes before it is sent, so neither the length nor the data is looked at
// before the tag was compared.
//
//   FrameWriter writer(socket, peer);      FrameReader reader(socket, peer);
//   writer.Add(tag, data, bytes);          reader.Expect(tag, data, bytes);
//   while (!writer.idle()) {               while (!reader.idle()) {
//     AwaitRoom(socket);                     AwaitData(socket);
//     RETURN_IF_ERROR(writer.Write());       RETURN_IF_ERROR(reader.Read());
//   }                                      }
//
// Frames keep their order. So both ends have to name theirs in the same order.
#ifndef LOCKSTEP_COLLECTIVE_TCP_FRAMES_H_
#define LOCKSTEP_COLLECTIVE_TCP_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// The frames that a rank sends to another one.
//
// Requires: the socket is open, does not block, and outlives the writer.
// Guarantees: no call waits. After an error, all calls of Write return it.
// Thread-safety: thread-compatible. A reader of the same socket may be used at
// the same time.
class FrameWriter {
 public:
  // `peer` is the other rank, for error messages.
  FrameWriter(int socket, int peer) : socket_(socket), peer_(peer) {}

  // Adds a frame to those that Write writes. Its data stay as they are until
  // the system has taken them.
  void Add(uint64_t tag, const char* data, int64_t bytes);

  // Writes what the system takes now, up to some hundred KiB. UNAVAILABLE if
  // the connection has ended.
  absl::Status Write();

  // Returns true if the system has taken all frames.
  bool idle() const { return frames_.empty(); }
  // Return the number of frames that were added, and that the system has taken.
  uint64_t added() const { return added_; }
  uint64_t done() const { return added_ - frames_.size(); }

 private:
  struct Frame {
    uint64_t tag;
    const char* data;
    int64_t bytes;
  };

  void Take(int64_t written);

  const int socket_;
  const int peer_;
  std::deque<Frame> frames_;  // those that were not written whole
  int64_t written_ = 0;       // the bytes of the first one, with its tag
  uint64_t added_ = 0;
  absl::Status failure_;
};

// The frames that a rank receives from another one.
//
// Requires: the socket is open, does not block, and outlives the reader.
// Guarantees: no call waits. No data reaches the memory of a frame whose tag is
// another one. After an error, all calls of Read return it.
// Thread-safety: thread-compatible. A writer of the same socket may be used at
// the same time.
class FrameReader {
 public:
  FrameReader(int socket, int peer) : socket_(socket), peer_(peer) {}

  // Adds a frame to those that Read reads. Nobody else uses its memory until it
  // was read whole.
  void Expect(uint64_t tag, char* data, int64_t bytes);

  // Reads what has arrived of the frames that are expected. UNAVAILABLE if the
  // connection has ended, and FAILED_PRECONDITION if the next frame has another
  // tag.
  absl::Status Read();

  // Returns true if all expected frames were read.
  bool idle() const { return frames_.empty(); }
  // Return the number of frames that were expected, and that were read.
  uint64_t expected() const { return expected_; }
  uint64_t done() const { return expected_ - frames_.size(); }

 private:
  // A small frame is read with its tag, and so are the tags of later frames.
  static constexpr int64_t kAheadBytes = 16 << 10;

  struct Frame {
    uint64_t tag;
    char* data;
    int64_t bytes;
  };

  absl::Status TakeAhead();
  absl::Status ReadMore(bool& drained);

  const int socket_;
  const int peer_;
  std::deque<Frame> frames_;  // those that were not read whole
  bool compared_ = false;     // the tag of the first one
  int64_t read_ = 0;          // the bytes of the first one's data
  uint64_t expected_ = 0;
  // The bytes that were read ahead, from ahead_begin_ to ahead_end_.
  std::unique_ptr<char[]> ahead_;
  int64_t ahead_begin_ = 0;
  int64_t ahead_end_ = 0;
  absl::Status failure_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_FRAMES_H_
