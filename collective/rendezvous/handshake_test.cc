#include "lockstep/collective/rendezvous/handshake.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/token.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Role = Handshake::Role;

struct Sides {
  explicit Sides(absl::string_view hub_token = "secret",
                 absl::string_view spoke_token = "secret",
                 uint64_t spoke_version = kProtocolVersion)
      : hub(Role::kHub, hub_token, std::string(kMacBytes, 'h')),
        spoke(Role::kSpoke, spoke_token, std::string(kMacBytes, 's'),
              spoke_version) {}

  void Greet() {
    absl::string_view to_hub = spoke.greeting();
    absl::string_view to_spoke = hub.greeting();
    EXPECT_THAT(hub.TakeGreeting(to_hub), IsOkAndHolds(true));
    EXPECT_THAT(spoke.TakeGreeting(to_spoke), IsOkAndHolds(true));
    EXPECT_TRUE(to_hub.empty());
    EXPECT_TRUE(to_spoke.empty());
  }

  Handshake hub;
  Handshake spoke;
};

Frame Take(absl::string_view bytes) {
  const auto frame = TakeFrame(bytes, kLargestFrame);
  EXPECT_THAT(frame, IsOk());
  EXPECT_TRUE(frame->has_value());
  return **frame;
}

bool Opens(Handshake& side, const std::string& bytes) {
  Frame frame = Take(bytes);
  return side.Open(frame);
}

TEST(HandshakeTest, GoesWellWithOneToken) {
  for (const char* token : {"", "secret"}) {
    Sides sides(token, token);
    sides.Greet();
    EXPECT_EQ(sides.hub.version(), kProtocolVersion);
    EXPECT_TRUE(Opens(sides.hub, sides.spoke.Seal(FrameType::kProof, "")));
    EXPECT_TRUE(Opens(sides.spoke, sides.hub.Seal(FrameType::kProof, "")));
    const std::string claim = sides.spoke.Seal(FrameType::kClaim, "rank 2");
    Frame frame = Take(claim);
    EXPECT_TRUE(sides.hub.Open(frame));
    EXPECT_EQ(frame.payload, "rank 2");
    EXPECT_TRUE(Opens(sides.spoke, sides.hub.Seal(FrameType::kWelcome, "")));
  }
}

TEST(HandshakeTest, KnowsTheOthersVersion) {
  Sides sides("secret", "secret", 99);
  sides.Greet();
  EXPECT_EQ(sides.hub.version(), 99u);
  EXPECT_EQ(sides.spoke.version(), kProtocolVersion);
}

TEST(HandshakeTest, AnotherTokenProvesNothing) {
  Sides sides("secret", "sesame");
  sides.Greet();
  EXPECT_FALSE(Opens(sides.hub, sides.spoke.Seal(FrameType::kProof, "")));
  EXPECT_FALSE(Opens(sides.spoke, sides.hub.Seal(FrameType::kProof, "")));
}

TEST(HandshakeTest, ATokenOnOneSideIsNamedOnBoth) {
  Sides sides("secret", "");
  absl::string_view to_hub = sides.spoke.greeting();
  absl::string_view to_spoke = sides.hub.greeting();
  EXPECT_THAT(sides.hub.TakeGreeting(to_hub),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       HasSubstr("it has no token, and rank 0 has one")));
  EXPECT_THAT(
      sides.spoke.TakeGreeting(to_spoke),
      StatusIs(absl::StatusCode::kUnauthenticated,
               AllOf(HasSubstr("rank 0 has a token, and this rank has none"),
                     HasSubstr("LOCKSTEP_TOKEN=$(openssl rand -hex 32)"))));
}

TEST(HandshakeTest, NothingThatWasChangedIsOpened) {
  Sides made;
  made.Greet();
  const std::string good = made.spoke.Seal(FrameType::kClaim, "rank 2");
  for (size_t i = 4; i < good.size(); ++i) {
    Sides sides;
    sides.Greet();
    std::string bytes = good;
    bytes[i] ^= 1;
    EXPECT_FALSE(Opens(sides.hub, bytes)) << i;
  }
  Frame cut{FrameType::kClaim, "short"};
  EXPECT_FALSE(made.hub.Open(cut));
}

TEST(HandshakeTest, NothingIsOpenedTwiceOrWhereItCameFrom) {
  Sides sides;
  sides.Greet();
  const std::string proof = sides.spoke.Seal(FrameType::kProof, "");
  EXPECT_FALSE(Opens(sides.spoke, proof));
  EXPECT_TRUE(Opens(sides.hub, proof));
  EXPECT_FALSE(Opens(sides.hub, proof));
  // It is not accepted under another nonce or another version, either.
  for (const char nonce : {'s', 't'}) {
    Handshake spoke(Role::kSpoke, "secret", std::string(kMacBytes, nonce),
                    nonce == 's' ? kProtocolVersion + 1 : kProtocolVersion);
    Handshake hub(Role::kHub, "secret", std::string(kMacBytes, 'h'));
    absl::string_view greeting = spoke.greeting();
    EXPECT_THAT(hub.TakeGreeting(greeting), IsOkAndHolds(true));
    EXPECT_FALSE(Opens(hub, proof));
  }
}

TEST(HandshakeTest, WaitsForAWholeGreeting) {
  const Sides sides;
  for (size_t size = 0; size < sides.spoke.greeting().size(); ++size) {
    Sides other;
    absl::string_view input =
        absl::string_view(sides.spoke.greeting()).substr(0, size);
    EXPECT_THAT(other.hub.TakeGreeting(input), IsOkAndHolds(false));
    EXPECT_EQ(input.size(), size);
  }
}

TEST(HandshakeTest, KnowsWhatIsNoGreetingByItsFirstByte) {
  Sides sides;
  for (const std::string& text :
       {std::string("H"), std::string("\0", 1), sides.hub.greeting(),
        std::string("lockstep spoke")}) {
    Sides other;
    absl::string_view input = text;
    const bool good = text == "lockstep spoke";
    EXPECT_EQ(other.hub.TakeGreeting(input).ok(), good) << text;
    EXPECT_EQ(other.spoke.TakeGreeting(input).ok(),
              text == sides.hub.greeting())
        << text;
  }
}

TEST(ClaimTest, ComesBack) {
  Claim claim;
  claim.size = 4;
  claim.job = "a-job";
  claim.peer.rank = 2;
  claim.peer.host = "trainer-1";
  claim.peer.pid = 4711;
  claim.peer.about = std::string(kMostAboutBytes, 'a');
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Claim back,
                                DecodeClaim(EncodeClaim(claim)));
  EXPECT_EQ(back.size, 4);
  EXPECT_EQ(back.job, "a-job");
  EXPECT_EQ(back.peer.Describe(), "rank 2 (trainer-1, pid 4711)");
  EXPECT_EQ(back.peer.about, claim.peer.about);
  EXPECT_LE(EncodeClaim(claim).size() + kMacBytes, kLargestClaim);

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Peer peer,
                                DecodePeer(EncodePeer(claim.peer)));
  EXPECT_EQ(peer.Describe(), "rank 2 (trainer-1, pid 4711)");
  EXPECT_EQ(peer.about, claim.peer.about);
}

TEST(ClaimTest, WhatIsNoneIsRefused) {
  Claim claim;
  claim.peer.about = std::string(kMostAboutBytes + 1, 'a');
  EXPECT_THAT(DecodeClaim(EncodeClaim(claim)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodePeer(EncodePeer(claim.peer)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const std::string good = EncodeClaim(Claim());
  EXPECT_THAT(DecodeClaim(absl::StrCat(good, "x")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeClaim(good.substr(1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ReasonTest, ComesBack) {
  const absl::Status why = absl::AlreadyExistsError("rank 2 is there");
  EXPECT_EQ(DecodeReason(EncodeReason(why)), why);
}

TEST(ReasonTest, WhatIsNoneIsInternal) {
  for (const std::string& bytes :
       {std::string(), std::string("x"), EncodeReason(absl::OkStatus()),
        WireWriter().Number(17).Text("why").Take()}) {
    EXPECT_THAT(DecodeReason(bytes), StatusIs(absl::StatusCode::kInternal));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
