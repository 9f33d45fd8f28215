// What goes over the connections of a star: frames, and what is in them.
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
// proved to have the token, and of one that has joined.
constexpr size_t kLargestOfStranger = size_t{1} << 10;
constexpr size_t kLargestClaim = size_t{8} << 10;
constexpr size_t kLargestFrame = size_t{4} << 20;

// The numbers are part of the protocol. So is all of the handshake, in every
// version: one side tells the other by it that their versions differ.
enum class FrameType : uint8_t {
  // The handshake, in this order; handshake.h.
  kProof = 1,     // spoke to hub, then hub to spoke
  kStranger = 2,  // hub to spoke, instead: the proof was wrong
  kClaim = 3,     // spoke to hub: who it is
  kWelcome = 4,   // hub to spoke
  kRefused = 5,   // instead: why

  // Hub to spoke, when all are there: one kPeer a rank, then kComplete.
  kPeer = 6,
  kComplete = 7,
  kFailed = 8,  // instead: why

  // Both ways, from kWelcome on. Until all are there the hub's heartbeats say
  // how far the rendezvous is; then they are the listener's.
  kBeat = 9,

  // Both ways, from kComplete on.
  kMessage = 10,
  kGoodbye = 11,
};

struct Frame {
  FrameType type;
  absl::string_view payload;
};

std::string EncodeFrame(FrameType type, absl::string_view payload);

// Takes the first frame off `input`; none while it is not all there. What it
// returns points into `input`. INVALID_ARGUMENT: larger than `largest`, or of a
// type that does not exist.
absl::StatusOr<std::optional<Frame>> TakeFrame(absl::string_view& input,
                                               size_t largest);

class WireWriter {
 public:
  WireWriter& Number(uint64_t value);
  WireWriter& Text(absl::string_view text);
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads back; after anything that is not there, or is too large, all is 0 and
// empty, and AtEnd() is false.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}

  // `most` is the largest that is good.
  uint64_t Number(uint64_t most);
  std::string Text(size_t most);
  // Whether all was good, and no byte is left.
  bool AtEnd() const { return good_ && bytes_.empty(); }

 private:
  bool good_ = true;
  absl::string_view bytes_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_WIRE_H_
