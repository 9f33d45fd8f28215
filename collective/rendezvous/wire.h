// The frames that go over the connections of a star, and their contents.
// Numbers are little-endian.
//
//   frame: u32 size of the payload, u8 type, payload
//
//   std::string bytes = EncodeFrame(FrameType::kMessage, "hello");
//   absl::string_view input = bytes;
//   LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Frame> frame,
//                             TakeFrame(input, kLargestFrame));
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_WIRE_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// The largest payloads: of a peer that has proved nothing, of one that has
// proved that it has the token, and of one that has joined.
constexpr size_t kLargestOfStranger = size_t{1} << 10;
constexpr size_t kLargestClaim = size_t{8} << 10;
constexpr size_t kLargestFrame = size_t{4} << 20;

// The types of frames. The numbers are part of the protocol. The whole
// handshake must stay the same in every version, since one side uses it to tell
// the other that their versions differ.
enum class FrameType : uint8_t {
  // The handshake, in this order (handshake.h).
  kProof = 1,     // spoke to hub, then hub to spoke
  kStranger = 2,  // hub to spoke, instead: the proof was wrong
  kClaim = 3,     // spoke to hub: its rank and job
  kWelcome = 4,   // hub to spoke
  kRefused = 5,   // instead: the reason

  // Hub to spoke, when all have joined: one kPeer for each rank, then
  // kComplete.
  kPeer = 6,
  kComplete = 7,
  kFailed = 8,  // instead: the reason

  // Both ways, from kWelcome on. Until all have joined, the hub's heartbeats
  // say how far the rendezvous is. Then the listener makes their text.
  kBeat = 9,

  // Both ways, from kComplete on.
  kMessage = 10,
  kGoodbye = 11,
};

// A frame. The payload points into the input of TakeFrame.
struct Frame {
  FrameType type;
  absl::string_view payload;
};

// Returns the bytes of a frame.
std::string EncodeFrame(FrameType type, absl::string_view payload);

// Removes the first frame from `input`, and returns it. Returns nullopt while
// it is not complete. Returns INVALID_ARGUMENT if the frame is larger than
// `largest`, or its type does not exist.
absl::StatusOr<std::optional<Frame>> TakeFrame(absl::string_view& input,
                                               size_t largest);

// Encodes numbers and texts.
// Thread-safety: thread-compatible.
class WireWriter {
 public:
  WireWriter() = default;
  // Appends to `head`.
  explicit WireWriter(std::string head) : bytes_(std::move(head)) {}

  WireWriter& Number(uint64_t value);
  WireWriter& Text(absl::string_view text);
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Decodes the bytes of a WireWriter. If a value is missing or too large, it and
// all later values are 0 or empty, and good() and AtEnd() are false.
// Thread-safety: thread-compatible.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}

  // Returns the next number, which may be at most `most`.
  uint64_t Number(uint64_t most);
  std::string Text(size_t most);
  // Returns the number of values that come next, each of which takes at least
  // `bytes_each` bytes. A number for which too few bytes are left is too large.
  size_t Count(size_t bytes_each);
  // Returns true if all values were good.
  bool good() const { return good_; }
  // Returns true if all values were good, and no byte is left.
  bool AtEnd() const { return good_ && bytes_.empty(); }

 private:
  void Refuse();

  bool good_ = true;
  absl::string_view bytes_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_WIRE_H_
