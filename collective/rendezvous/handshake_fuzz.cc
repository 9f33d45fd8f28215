// Reads the input as frames of a peer. Frames, claims, peers and reasons that
// are accepted have the same bytes when they are encoded again. A handshake
// accepts what the other side has sealed, and nothing that differs from it.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/token.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {
namespace {

void CheckPayload(absl::string_view payload) {
  const absl::StatusOr<Claim> claim = DecodeClaim(payload);
  LOCKSTEP_CHECK(!claim.ok() || EncodeClaim(*claim) == payload);
  const absl::StatusOr<Peer> peer = DecodePeer(payload);
  LOCKSTEP_CHECK(!peer.ok() || EncodePeer(*peer) == payload);
  const absl::Status why = DecodeReason(payload);
  LOCKSTEP_CHECK(!why.ok());
  const absl::Status again = DecodeReason(EncodeReason(why));
  LOCKSTEP_CHECK(again == why);
}

void CheckFrames(absl::string_view input) {
  while (true) {
    const absl::string_view before = input;
    const absl::StatusOr<std::optional<Frame>> frame =
        TakeFrame(input, kLargestFrame);
    if (!frame.ok() || !frame->has_value()) return;
    LOCKSTEP_CHECK(EncodeFrame((*frame)->type, (*frame)->payload) ==
                   before.substr(0, before.size() - input.size()));
    CheckPayload((*frame)->payload);
  }
}

// The peer sends a greeting and a frame. If it is honest, it has the token.
void CheckHandshake(FuzzInput& input, Handshake::Role role,
                    Handshake::Role other) {
  const bool honest = input.Byte() % 2 == 0;
  const uint8_t changed = input.Byte();
  const auto change = static_cast<char>(input.Byte());
  const absl::string_view payload = input.Piece();
  Handshake mine(role, "secret", std::string(kMacBytes, 'm'));
  Handshake theirs(other, "secret", std::string(kMacBytes, 't'));
  const std::string sent =
      honest ? theirs.greeting() : std::string(input.Rest());
  absl::string_view greeting = sent;
  const absl::StatusOr<bool> whole = mine.TakeGreeting(greeting);
  LOCKSTEP_CHECK(!honest || (whole.ok() && *whole));
  if (!whole.ok() || !*whole) return;
  const bool same =
      sent.substr(0, sent.size() - greeting.size()) == theirs.greeting();
  absl::string_view answer = mine.greeting();
  LOCKSTEP_CHECK(*theirs.TakeGreeting(answer));

  std::string sealed = theirs.Seal(FrameType::kProof, payload);
  const size_t at = sealed.size() - 1 - changed % (kMacBytes + payload.size());
  sealed[at] = static_cast<char>(sealed[at] ^ change);
  absl::string_view rest = sealed;
  const absl::StatusOr<std::optional<Frame>> taken =
      TakeFrame(rest, kLargestFrame);
  LOCKSTEP_CHECK(taken.ok() && taken->has_value());
  Frame frame = **taken;
  const bool opened = mine.Open(frame);
  LOCKSTEP_CHECK(opened == (same && change == 0));
  if (opened) LOCKSTEP_CHECK(frame.payload == payload);
  fuzz_accepts += opened ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lockstep::internal_collective::Handshake;
  lockstep::FuzzInput input(data, size);
  switch (input.Byte() % 3) {
    case 0:
      lockstep::internal_collective::CheckFrames(input.Rest());
      break;
    case 1:
      lockstep::internal_collective::CheckHandshake(
          input, Handshake::Role::kHub, Handshake::Role::kSpoke);
      break;
    default:
      lockstep::internal_collective::CheckHandshake(
          input, Handshake::Role::kSpoke, Handshake::Role::kHub);
  }
  return 0;
}
