// The handshake, by which a spoke and the hub prove to each other that they
// have the same token. This code takes and makes bytes; it does no input or
// output.
//
//   spoke                                       hub
//   greeting: magic, version, nonce  -->  <--  greeting: magic, version, nonce
//   kProof                           -->
//                                    <--  kProof, or kStranger
//   kClaim: rank, size, job, host... -->
//                                    <--  kWelcome, or kRefused: why
//
// Greetings are raw bytes of a fixed length. Each frame except kStranger ends
// in a MAC, made with the token, over everything that either side has said
// before, the sender's role, and the frame itself. The nonces make each proof
// fresh, and the role keeps a proof from being sent back to its sender. A
// client without the token learns only that this is a rendezvous, its version,
// and whether it has a token. The frames after the handshake are neither signed
// nor encrypted.
//
// If the job has no token, the handshake is the same, with an empty key.
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

// The version of the protocol that this build speaks.
constexpr uint64_t kProtocolVersion = 7;

// The limits of the values in a claim.
constexpr size_t kMostJobBytes = 256;
constexpr size_t kMostHostBytes = 256;
constexpr size_t kMostAboutBytes = 4096;

// One side of a handshake.
// Thread-safety: thread-compatible.
class Handshake {
 public:
  enum class Role : uint8_t { kHub = 0, kSpoke = 1 };

  // Requires: `nonce` is random and has kMacBytes bytes.
  Handshake(Role role, absl::string_view token, absl::string_view nonce,
            uint64_t version = kProtocolVersion);

  // Returns the bytes to send first.
  const std::string& greeting() const { return greeting_; }

  // Removes the other side's greeting from `input`. Returns false while it is
  // not complete. Returns INVALID_ARGUMENT as soon as it can't be a greeting,
  // and UNAUTHENTICATED if only one side has a token.
  absl::StatusOr<bool> TakeGreeting(absl::string_view& input);

  // Returns the other side's version.
  // Requires: its greeting was taken.
  uint64_t version() const { return version_; }

  // Returns a whole frame with its MAC. It must be sent next.
  std::string Seal(FrameType type, absl::string_view payload);

  // Returns true if the MAC of the frame is right. Removes the MAC from
  // `frame`.
  bool Open(Frame& frame);

 private:
  std::string Chain(Role sender, FrameType type,
                    absl::string_view payload) const;

  const Role role_;
  const std::string token_;
  const std::string greeting_;
  uint64_t version_ = 0;
  std::string chain_;  // the MAC over everything said so far
};

// Returns the advice for both sides, if a token is missing or differs.
absl::string_view HowToMakeAToken();

// The values by which a spoke introduces itself.
struct Claim {
  int size = 0;
  std::string job;
  Peer peer;
};

std::string EncodeClaim(const Claim& claim);
absl::StatusOr<Claim> DecodeClaim(absl::string_view payload);

std::string EncodePeer(const Peer& peer);
absl::StatusOr<Peer> DecodePeer(absl::string_view payload);

// Encode and decode the reason in kRefused and kFailed. A payload that is no
// reason decodes to INTERNAL.
std::string EncodeReason(const absl::Status& why);
absl::Status DecodeReason(absl::string_view payload);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_HANDSHAKE_H_
