#include "lockstep/collective/rendezvous/handshake.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/check.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/rendezvous/token.h"

namespace lockstep::internal_collective {
namespace {

constexpr absl::string_view kMagic[] = {"lockstep hub   \n",
                                        "lockstep spoke \n"};
constexpr size_t kMagicBytes = 16;
constexpr size_t kNonceBytes = kMacBytes;
constexpr size_t kGreetingBytes =
    kMagicBytes + 2 * sizeof(uint64_t) + kNonceBytes;

absl::string_view MagicOf(Handshake::Role role) {
  return kMagic[static_cast<int>(role)];
}

Handshake::Role Other(Handshake::Role role) {
  return role == Handshake::Role::kHub ? Handshake::Role::kSpoke
                                       : Handshake::Role::kHub;
}

std::string MakeGreeting(Handshake::Role role, bool token, uint64_t version,
                         absl::string_view nonce) {
  LOCKSTEP_CHECK(nonce.size() == kNonceBytes);
  return absl::StrCat(MagicOf(role),
                      WireWriter().Number(version).Number(token).Take(), nonce);
}

void Put(const Peer& peer, WireWriter* writer) {
  writer->Number(peer.rank)
      .Text(peer.host)
      .Number(static_cast<uint64_t>(peer.pid))
      .Text(peer.about);
}

Peer Get(WireReader* reader) {
  Peer peer;
  peer.rank = static_cast<int>(reader->Number(kMostRanks));
  peer.host = reader->Text(kMostHostBytes);
  peer.pid = static_cast<int64_t>(reader->Number(INT64_MAX));
  peer.about = reader->Text(kMostAboutBytes);
  return peer;
}

}  // namespace

Handshake::Handshake(Role role, absl::string_view token,
                     absl::string_view nonce, uint64_t version)
    : role_(role),
      token_(token),
      greeting_(MakeGreeting(role, !token.empty(), version, nonce)) {}

absl::StatusOr<bool> Handshake::TakeGreeting(absl::string_view& input) {
  const absl::string_view magic = MagicOf(Other(role_));
  const size_t there = std::min(input.size(), kMagicBytes);
  if (input.substr(0, there) != magic.substr(0, there)) {
    return absl::InvalidArgumentError("it does not speak Lockstep's protocol");
  }
  if (input.size() < kGreetingBytes) return false;
  const absl::string_view theirs = input.substr(0, kGreetingBytes);
  input.remove_prefix(kGreetingBytes);

  WireReader reader(theirs.substr(kMagicBytes, 2 * sizeof(uint64_t)));
  version_ = reader.Number(UINT64_MAX);
  const bool token = reader.Number(UINT64_MAX) != 0;
  const bool is_hub = role_ == Role::kHub;
  chain_ = Mac(token_, absl::StrCat(is_hub ? theirs : greeting_,
                                    is_hub ? greeting_ : theirs));
  if (token == !token_.empty()) return true;
  return absl::UnauthenticatedError(
      absl::StrCat(is_hub ? "it" : "rank 0",
                   token ? " has a token, and " : " has no token, and ",
                   is_hub ? "rank 0" : "this rank",
                   token ? " has none; " : " has one; ", HowToMakeAToken()));
}

std::string Handshake::Chain(Role sender, FrameType type,
                             absl::string_view payload) const {
  const char kinds[] = {static_cast<char>(sender), static_cast<char>(type)};
  return Mac(
      token_,
      absl::StrCat(chain_, absl::string_view(kinds, sizeof(kinds)), payload));
}

std::string Handshake::Seal(FrameType type, absl::string_view payload) {
  chain_ = Chain(role_, type, payload);
  return EncodeFrame(type, absl::StrCat(payload, chain_));
}

bool Handshake::Open(Frame& frame) {
  if (frame.payload.size() < kMacBytes) return false;
  const absl::string_view mac =
      frame.payload.substr(frame.payload.size() - kMacBytes);
  frame.payload.remove_suffix(kMacBytes);
  std::string expected = Chain(Other(role_), frame.type, frame.payload);
  if (!SameMac(mac, expected)) return false;
  chain_ = std::move(expected);
  return true;
}

absl::string_view HowToMakeAToken() {
  return "make one with `export LOCKSTEP_TOKEN=$(openssl rand -hex 32)`, and "
         "give the same to all ranks";
}

std::string EncodeClaim(const Claim& claim) {
  WireWriter writer;
  writer.Number(claim.size).Text(claim.job);
  Put(claim.peer, &writer);
  return writer.Take();
}

absl::StatusOr<Claim> DecodeClaim(absl::string_view payload) {
  WireReader reader(payload);
  Claim claim;
  claim.size = static_cast<int>(reader.Number(kMostRanks));
  claim.job = reader.Text(kMostJobBytes);
  claim.peer = Get(&reader);
  if (reader.AtEnd()) return claim;
  return absl::InvalidArgumentError("it says badly who it is");
}

std::string EncodePeer(const Peer& peer) {
  WireWriter writer;
  Put(peer, &writer);
  return writer.Take();
}

absl::StatusOr<Peer> DecodePeer(absl::string_view payload) {
  WireReader reader(payload);
  Peer peer = Get(&reader);
  if (reader.AtEnd()) return peer;
  return absl::InvalidArgumentError("it describes a rank badly");
}

std::string EncodeReason(const absl::Status& why) {
  WireWriter writer;
  writer.Number(static_cast<uint64_t>(why.code())).Text(why.message());
  const std::string blame = BlameText(why);
  if (!blame.empty()) writer.Text(blame);
  return writer.Take();
}

absl::Status DecodeReason(absl::string_view payload) {
  WireReader reader(payload);
  const uint64_t code =
      reader.Number(static_cast<uint64_t>(absl::StatusCode::kUnauthenticated));
  const std::string message = reader.Text(kLargestFrame);
  const std::string blame = reader.AtEnd() ? "" : reader.Text(kLargestFrame);
  if (!reader.AtEnd() || code == 0) {
    return absl::InternalError("it gave no reason that can be read");
  }
  return WithBlameText(
      absl::Status(static_cast<absl::StatusCode>(code), message), blame);
}

}  // namespace lockstep::internal_collective
