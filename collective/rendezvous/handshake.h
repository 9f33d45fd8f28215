// How a spoke and the hub come to trust each other. Bytes in, bytes out.
//
//   spoke                                       hub
//   greeting: magic, version, nonce  -->  <--  greeting: magic, version, nonce
//   kProof                           -->
//                                    <--  kProof, or kStranger
//   kClaim: rank, size, job, host... -->
//                                    <--  kWelcome, or kRefused: why
//
// Greetings are raw bytes of a fixed length. Each frame, but kStranger, ends in
// a MAC under the token over all that was said before by either side, the
// sender's role, and the frame itself. So a nonce makes each side's proof
// fresh, none can be sent back to whom it came from, and whoever has no token
// learns no more than that this is a rendezvous, of which version, and whether
// with a token. What follows the handshake is neither signed nor encrypted.
//
// Without a token the same is said under an empty key.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_HANDSHAKE_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {

constexpr uint64_t kProtocolVersion = 1;

constexpr size_t kMostJobBytes = 256;
constexpr size_t kMostHostBytes = 256;
constexpr size_t kMostAboutBytes = 4096;
constexpr int kMostRanks = 1000000;

class Handshake {
 public:
  enum class Role : uint8_t { kHub = 0, kSpoke = 1 };

  // `nonce` is random, kMacBytes long.
  Handshake(Role role, absl::string_view token, absl::string_view nonce,
            uint64_t version = kProtocolVersion);

  // What to send first.
  const std::string& greeting() const { return greeting_; }

  // Takes the other side's greeting off `input`; false while it is not all
  // there. INVALID_ARGUMENT: it is no greeting, as soon as that is plain.
  // UNAUTHENTICATED: one side has a token and the other has none.
  absl::StatusOr<bool> TakeGreeting(absl::string_view& input);

  // Of the other side, once its greeting was taken.
  uint64_t version() const { return version_; }

  // A whole frame, with its MAC, to send next.
  std::string Seal(FrameType type, absl::string_view payload);

  // Whether the other side could say that. Takes the MAC off `frame`.
  bool Open(Frame& frame);

 private:
  std::string Chain(Role sender, FrameType type,
                    absl::string_view payload) const;

  const Role role_;
  const std::string token_;
  const std::string greeting_;
  uint64_t version_ = 0;
  std::string chain_;  // the MAC of all that was said
};

// For both sides, where a token is missing or another one.
absl::string_view HowToMakeAToken();

// Who a spoke says that it is.
struct Claim {
  int size = 0;
  std::string job;
  Peer peer;
};

std::string EncodeClaim(const Claim& claim);
absl::StatusOr<Claim> DecodeClaim(absl::string_view payload);

std::string EncodePeer(const Peer& peer);
absl::StatusOr<Peer> DecodePeer(absl::string_view payload);

// A reason, of kRefused and kFailed. What is no reason decodes to INTERNAL.
std::string EncodeReason(const absl::Status& why);
absl::Status DecodeReason(absl::string_view payload);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_HANDSHAKE_H_
