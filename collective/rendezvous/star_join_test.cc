// Tests how ranks join a star, and what they say if they can't.
#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <chrono>  // NOLINT: SteadyTime's
#include <functional>
#include <future>  // NOLINT: ranks
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/spoke_join.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/rendezvous/wire.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(JoinTest, NobodyComes) {
  MemoryStore store;
  StarOptions zero = OptionsOf(0, 3, &store);
  zero.join_deadline = absl::Milliseconds(50);
  const JoinResult hub = Star::Join(zero);
  EXPECT_THAT(
      hub,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr(JobName()), HasSubstr(AddressIn(store)),
                     HasSubstr("after 50ms: 1 of 3 ranks came; missing: ranks "
                               "1-2; there: rank 0 (host-0, pid "),
                     Not(HasSubstr("refused")))));
  EXPECT_THAT(hub.status(), Blames(absl::StatusCode::kDeadlineExceeded,
                                   Blame::Cause::kAbsent, {1, 2}));
  EXPECT_FALSE(BlameOf(hub.status())->has_begun);
}

TEST(JoinTest, ASpokeThatGivesUpFirstKnowsWhoIsMissing) {
  MemoryStore store;
  Joining hub(OptionsOf(0, 3, &store));
  AddressIn(store);
  ExpectExpires(OptionsOf(2, 3, &store), HasSubstr("missing: rank 1"));
  // The rank may join again, and so may others.
  Joining one(OptionsOf(1, 3, &store));
  const JoinResult again = JoinAgain(OptionsOf(2, 3, &store));
  LOCKSTEP_EXPECT_OK(again);
  LOCKSTEP_EXPECT_OK(hub.Await());
}

// A rank 0 of two, which waits for the other.
class Refusals : public testing::Test {
 protected:
  StarOptions OptionsOfOne() {
    StarOptions options = OptionsOf(1, 2, nullptr);
    options.address = address_;
    return options;
  }
  // A refusal ends only the Join of the refused client.
  void TearDown() override {
    const JoinResult one = Star::Join(OptionsOfOne());
    LOCKSTEP_EXPECT_OK(one);
    LOCKSTEP_EXPECT_OK(hub_.Await());
  }

  MemoryStore store_;
  Joining hub_{OptionsOf(0, 2, &store_)};
  const std::string address_ = AddressIn(store_);
};

TEST_F(Refusals, OptionsOfAnotherJob) {
  StarOptions job = OptionsOfOne(), size = job, token = job, none = job;
  job.job = "b-job";
  size.size = 3;
  token.token = "sesame";
  none.token = "";
  const auto needs_token = HasSubstr("openssl rand -hex 32");
  EXPECT_THAT(Star::Join(job),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat("'", JobName(), "'")),
                             HasSubstr("'b-job'"), HasSubstr(address_))));
  EXPECT_THAT(Star::Join(size),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("one of 3"), HasSubstr("one of 2"))));
  EXPECT_THAT(
      Star::Join(token),
      StatusIs(absl::StatusCode::kUnauthenticated,
               AllOf(HasSubstr("another one"), needs_token,
                     Not(HasSubstr("sesame")), Not(HasSubstr("secret")))));
  EXPECT_THAT(Star::Join(none),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("rank 0 has a token, and this rank has "
                                       "none"),
                             needs_token)));
}

TEST_F(Refusals, ClaimsThatCanNotBe) {
  const auto refused = [&](const std::string& claim, int version) {
    Socket socket;
    EXPECT_TRUE(socket.Connect(address_));
    Hand hand(Handshake::Role::kSpoke, "secret", socket, version);
    const auto [type, payload] = hand.Join(claim);
    EXPECT_EQ(type, FrameType::kRefused);
    return DecodeReason(payload);
  };
  EXPECT_THAT(refused(EncodeClaim(ClaimOf(0, 2)), kProtocolVersion),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("rank 0 (host-0, pid ")));
  EXPECT_THAT(
      refused(EncodeClaim(ClaimOf(2, 2)), kProtocolVersion),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 to 1")));
  EXPECT_THAT(
      refused("what version 77 says of itself", 77),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("version 77"),
                     HasSubstr(absl::StrCat("version ", kProtocolVersion)))));
}

TEST(JoinTest, ARankThatIsLostBeforeAllAreThereMayComeAgain) {
  MemoryStore store;
  Joining hub(OptionsOf(0, 3, &store));
  { const HandSpoke lost(AddressIn(store), 1, 3); }
  JoinResult one;
  std::thread thread(
      [&one, &store] { one = JoinAgain(OptionsOf(1, 3, &store)); });
  const JoinResult two = Star::Join(OptionsOf(2, 3, &store));
  thread.join();
  LOCKSTEP_EXPECT_OK(two);
  LOCKSTEP_ASSERT_OK(one);
  EXPECT_EQ((*one)->peers()[1].host, "host-1");
}

TEST(JoinTest, NoTokenAtAll) {
  MemoryStore store;
  StarOptions zero = OptionsOf(0, 2, &store);
  StarOptions one = OptionsOf(1, 2, &store);
  zero.token = "";
  one.token = "";
  for (const JoinResult& result : JoinAll({zero, one})) {
    LOCKSTEP_EXPECT_OK(result);
  }
}

TEST(JoinTest, WhoComesLateIsRefused) {
  Job job(2);
  EXPECT_THAT(Star::Join(OptionsOf(1, 2, &job.store)),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("rank 1 (host-1, pid ")));
  job.Leave();
}

TEST(JoinTest, AStaleAddressIsReadAgain) {
  MemoryStore store;
  Socket gone;
  LOCKSTEP_ASSERT_OK(store.Set(AddressKey(JobName()), gone.Bind()));
  Joining one(OptionsOf(1, 2, &store));
  const JoinResult hub = Star::Join(OptionsOf(0, 2, &store));
  LOCKSTEP_EXPECT_OK(hub);
  LOCKSTEP_EXPECT_OK(one.Await());
}

TEST(JoinTest, NobodyLeavesAnAddress) {
  MemoryStore store;
  StarOptions one = OptionsOf(1, 2, &store);
  one.join_deadline = absl::Milliseconds(50);
  EXPECT_THAT(Star::Join(one),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("has not left its address in the store")));
}

// Returns the options of rank 1 of 2, for an address.
StarOptions OptionsTo(const std::string& address) {
  StarOptions options = OptionsOf(1, 2, nullptr);
  options.address = address;
  return options;
}

TEST(JoinTest, NobodyListens) {
  Socket socket;
  const StarOptions options = OptionsTo(socket.Bind());
  ExpectExpires(options, AllOf(HasSubstr(options.address),
                               HasSubstr("refused ("), HasSubstr("times)")));
}

TEST(JoinTest, ANameThatDoesNotResolve) {
  for (const int rank : {0, 1}) {
    StarOptions options = OptionsTo("lockstep-test.invalid:4000");
    options.rank = rank;
    options.join_deadline = absl::Milliseconds(200);
    EXPECT_THAT(Star::Join(options),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("lockstep-test.invalid")));
  }
}

StarOptions ZeroAt(const std::string& address) {
  StarOptions options = OptionsOf(0, 2, nullptr);
  options.address = address;
  return options;
}

TEST(JoinTest, ThePortIsTaken) {
  Socket other;
  const std::string address = other.Bind();
  other.Listen();
  EXPECT_THAT(Star::Join(ZeroAt(address)),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr(address), HasSubstr("MASTER_PORT"),
                             HasSubstr("LOCKSTEP_PORT"))));
}

TEST(JoinTest, AddressesThatRank0CanNotHave) {
  // RFC 5737: no host has this address.
  StarOptions other = ZeroAt("203.0.113.1:4000"), no_token = other;
  no_token.token = "";
  const std::pair<StarOptions, std::string> cases[] = {
      {other, "203.0.113.1:4000"},
      {other, "host on which rank 0 runs"},
      {ZeroAt("0.0.0.0:4000"), "stands for all"},
      {no_token, "203.0.113.1"},
      {no_token, "loopback"},
      {no_token, "openssl rand -hex 32"}};
  for (const auto& [options, words] : cases) {
    EXPECT_THAT(Star::Join(options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  }
}

TEST(JoinTest, Localhost) {
  MemoryStore store;
  StarOptions zero = OptionsOf(0, 2, &store);
  zero.listen_host = "localhost";
  for (const JoinResult& result : JoinAll({zero, OptionsOf(1, 2, &store)})) {
    LOCKSTEP_EXPECT_OK(result);
  }
}

TEST(JoinTest, Ipv6Loopback) {
  if (!HasIpv6Loopback()) GTEST_SKIP() << "this machine has no ::1";
  MemoryStore store;
  StarOptions zero = OptionsOf(0, 3, &store);
  zero.listen_host = "::1";
  Joining hub(zero);
  const std::string address = AddressIn(store);
  EXPECT_THAT(address, StartsWith("[::1]:"));
  StarOptions one = OptionsOf(1, 3, nullptr);
  one.address = address;
  for (const JoinResult& result : JoinAll({one, OptionsOf(2, 3, &store)})) {
    LOCKSTEP_ASSERT_OK(result);
    EXPECT_EQ((*result)->local_address(), "::1");
  }
  LOCKSTEP_ASSERT_OK(hub.Await());
  EXPECT_EQ((*hub.Await())->local_address(), "::1");
}

TEST(JoinTest, WrongOptionsAreNamed) {
  const StarOptions good = OptionsOf(1, 2, nullptr);
  const auto wrong = [](const StarOptions& options, const std::string& what) {
    EXPECT_THAT(Star::Join(options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  StarOptions options = good;
  options.rank = 2;
  wrong(options, "rank=2");
  options = good;
  options.size = 0;
  wrong(options, "size=0");
  options = good;
  options.job = std::string(257, 'j');
  wrong(options, "257");
  options = good;
  options.about = std::string(4097, 'a');
  wrong(options, "4097");
  options = good;
  options.host = std::string(257, 'h');
  wrong(options, "257");
  options = good;
  options.beat = absl::ZeroDuration();
  wrong(options, "beat=0");
  options = good;
  options.handshake = absl::ZeroDuration();
  wrong(options, "handshake=0");
  wrong(good, "address");
  options = good;
  options.address = "nowhere";
  wrong(options, "'nowhere'");
}

// A launcher restarts a rank while rank 0 still runs on another host.
TEST(JoinTest, ALostRankThatIsStartedAgainWaitsForTheNextRankZero) {
  Job job(2);
  job.stars[1].reset();
  EXPECT_THAT(job.ears[0].AwaitGone(1),
              StatusIs(absl::StatusCode::kUnavailable));
  Socket socket;
  ASSERT_TRUE(socket.Connect(AddressIn(job.store)));
  Hand hand(Handshake::Role::kSpoke, "secret", socket);
  const auto [type, payload] = hand.Join(EncodeClaim(ClaimOf(1, 2)));
  EXPECT_EQ(type, FrameType::kRefused);
  EXPECT_THAT(DecodeReason(payload),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank 1 (host-1, pid "),
                             HasSubstr("rank 0 has not ended yet"))));

  Joining again(OptionsOf(1, 2, &job.store));
  job.stars[0].reset();
  const JoinResult hub = Star::Join(OptionsOf(0, 2, &job.store));
  LOCKSTEP_EXPECT_OK(hub);
  LOCKSTEP_EXPECT_OK(again.Await());
}

// A door that takes input only when the test says so, and that is late at its
// deadline.
class LateDoor : public testing::Test {
 protected:
  void Open(int size) { Open(OptionsOf(0, size, &store_)); }
  void Open(const StarOptions& options) {
    Peer self;
    self.host = options.host;
    absl::StatusOr<std::unique_ptr<HubDoor>> door =
        HubDoor::Open(io_, options, self, After(kLong));
    LOCKSTEP_ASSERT_OK(door);
    door_ = *std::move(door);
    address_ = AddressIn(store_);
  }

  // Handles input while `ranks` runs.
  void ReadDuring(const std::function<void()>& ranks) {
    const std::future<void> done = std::async(std::launch::async, ranks);
    constexpr auto kPatience = absl::Milliseconds(1);
    while (done.wait_for(absl::ToChronoNanoseconds(kPatience)) !=
           std::future_status::ready) {
      io_.poll();
    }
  }

  // Handles input until that rank has joined.
  void AwaitRank(int rank) {
    const SteadyTime deadline = After(kLong);
    while (door_->links()[rank] == nullptr && SteadyNow() < deadline) {
      io_.run_one_until(deadline);
    }
  }

  // Does the handshake up to the claim.
  void Greet(Socket& socket, Hand& hand) {
    EXPECT_TRUE(socket.Connect(address_));
    LOCKSTEP_EXPECT_OK(hand.Greet());
    hand.Say(FrameType::kProof, "");
    EXPECT_EQ(hand.NextSealed().first, FrameType::kProof);
  }

  // Ends the spoke's connection, and returns when the door can see that.
  static void End(HandSpoke& spoke) {
    spoke.socket.Shutdown();
    spoke.socket.AwaitArrival();
  }

  MemoryStore store_;
  asio::io_context io_{1};
  std::unique_ptr<HubDoor> door_;
  std::string address_;
};

TEST_F(LateDoor, MissingRanksAreNamedOnAllSides) {
  StarOptions zero = OptionsOf(0, 5, &store_);
  zero.join_deadline = absl::Seconds(5);
  Open(zero);
  Joining spoke(OptionsOf(2, 5, &store_));
  AwaitRank(2);
  const auto missing = AllOf(
      HasSubstr(absl::StrCat("'", JobName(), "'")), HasSubstr(address_),
      HasSubstr("2 of 5 ranks came; missing: ranks 1, 3-4"),
      HasSubstr("there: rank 0 (host-0, pid "), HasSubstr("rank 2 (host-2, "),
      HasSubstr("after 5s"), Not(HasSubstr("refused")));
  EXPECT_THAT(door_->AwaitAll(SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, missing));
  // The spoke hears it from rank 0, and not at its own deadline.
  const absl::Status told = spoke.Await().status();
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kDeadlineExceeded, missing));
  EXPECT_THAT(told, Blames(absl::StatusCode::kDeadlineExceeded,
                           Blame::Cause::kAbsent, {1, 3, 4}));
}

TEST_F(LateDoor, ATokenOnTheSpokeAlone) {
  StarOptions zero = OptionsOf(0, 2, &store_);
  zero.token = "";
  Open(zero);
  ReadDuring([&] {
    EXPECT_THAT(Star::Join(OptionsOf(1, 2, &store_)),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("rank 0 has no token, and this rank "
                                         "has one"),
                               HasSubstr("openssl rand -hex 32"),
                               Not(HasSubstr("secret")))));
  });
  EXPECT_THAT(
      door_->AwaitAll(SteadyNow()),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("refused: 1 client (127.0.0.1:"),
                     HasSubstr("it has a token, and rank 0 has none"))));
}

// A client with the token keeps its place.
TEST_F(LateDoor, StrangersThatMakeRoomAreCounted) {
  constexpr int kStrangers = 30;
  constexpr int kPlaces = 10;
  constexpr auto kSilentFor = std::chrono::seconds(5);
  const DescriptorLimit limit(8 * kPlaces);
  bool in_time = false;
  while (!in_time) {
    Open(3);
    std::vector<Socket> strangers;
    ReadDuring([&] {
      const SteadyTime begin = SteadyNow();
      Socket socket;
      Hand hand(Handshake::Role::kSpoke, "secret", socket);
      Greet(socket, hand);
      strangers = ConnectStrangers(kStrangers, address_);
      hand.Say(FrameType::kClaim, EncodeClaim(ClaimOf(1, 3)));
      const FrameType answer = hand.NextSealed().first;
      in_time = SteadyNow() - begin < kSilentFor;
      if (in_time) {
        EXPECT_EQ(answer, FrameType::kWelcome);
      }
    });
    const absl::Status status = door_->AwaitAll(SteadyNow());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
    if (in_time) {
      EXPECT_THAT(status.message(),
                  HasSubstr("turned away before they said who they were: 21 "
                            "clients, to make room for later ones"));
    }
  }
}

TEST_F(LateDoor, ADuplicateRankIsToldWhoIsThere) {
  Open(3);
  std::unique_ptr<HandSpoke> first;
  ReadDuring([&] {
    first = std::make_unique<HandSpoke>(address_, 1, 3);
    EXPECT_THAT(Star::Join(OptionsOf(1, 3, &store_)),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("rank 1 (by-hand, pid 7)")));
  });
  EXPECT_THAT(door_->AwaitAll(SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("missing: rank 2"),
                             HasSubstr("refused: 1 client (127.0.0.1:"),
                             HasSubstr("rank 1 (by-hand, pid 7) has joined"))));
}

// Rank 1 of 3 has joined, and rank 2 has yet to send its claim.
class LateClaim : public LateDoor {
 protected:
  void SetUp() override {
    Open(3);
    ReadDuring([this] {
      one_ = std::make_unique<HandSpoke>(address_, 1, 3);
      Greet(socket_, two_);
    });
  }

  // Sends the claim, and returns when it has arrived but is not read yet.
  void ClaimUnread() {
    two_.Say(FrameType::kClaim, EncodeClaim(ClaimOf(2, 3)));
    socket_.AwaitArrival();
  }

  std::unique_ptr<HandSpoke> one_;
  Socket socket_;
  Hand two_{Handshake::Role::kSpoke, "secret", socket_};
};

TEST_F(LateClaim, AdmitsWhoHasClaimedInTime) {
  ClaimUnread();
  LOCKSTEP_EXPECT_OK(door_->AwaitAll(SteadyNow()));
  EXPECT_EQ(door_->peers()[2].host, "by-hand");
  one_->hand.AwaitComplete();
  EXPECT_EQ(two_.NextSealed().first, FrameType::kWelcome);
  two_.AwaitComplete();
}

TEST_F(LateClaim, IsNotCompleteWhenOneHasGivenUpMeanwhile) {
  ClaimUnread();
  End(*one_);
  EXPECT_THAT(door_->AwaitAll(SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("came, but gave up, died or fell silent: "
                                 "rank 1 (")));
}

TEST_F(LateClaim, AdmitsNobodyWhenItHasGivenUp) {
  EXPECT_THAT(door_->AwaitAll(SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(address_), HasSubstr("missing: rank 2"),
                             HasSubstr("rank 1 (by-hand, pid 7)"))));
  two_.Say(FrameType::kClaim, EncodeClaim(ClaimOf(2, 3)));
  EXPECT_EQ(two_.NextSealed().first, FrameType::kGoodbye);
  door_.reset();
  EXPECT_EQ(one_->hand.Next().first, FrameType::kFailed);
}

TEST_F(LateDoor, WhoCameAndDidNotStayIsNotMissing) {
  Open(4);
  std::unique_ptr<HandSpoke> one;
  std::unique_ptr<HandSpoke> two;
  ReadDuring([&] {
    one = std::make_unique<HandSpoke>(address_, 1, 4);
    two = std::make_unique<HandSpoke>(address_, 2, 4);
  });
  // A rank that joins again is not missing.
  End(*two);
  io_.poll();
  ReadDuring([&] { two = std::make_unique<HandSpoke>(address_, 2, 4); });
  // The end of the other rank's connection has arrived at the deadline, but is
  // not read yet.
  End(*one);
  const auto why = AllOf(
      HasSubstr("3 of 4 ranks came; missing: rank 3; came, but gave up, died "
                "or fell silent: rank 1 (by-hand, pid 7); there: rank 0 ("),
      HasSubstr("), rank 2 (by-hand, pid 7); see "),
      EndsWith("reach this address"));
  EXPECT_THAT(door_->AwaitAll(SteadyNow()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, why));
  const auto [type, payload] = two->hand.Next();
  EXPECT_EQ(type, FrameType::kFailed);
  EXPECT_THAT(DecodeReason(payload),
              AllOf(StatusIs(absl::StatusCode::kDeadlineExceeded, why),
                    Blames(absl::StatusCode::kDeadlineExceeded,
                           Blame::Cause::kAbsent, {3})));
}

TEST_F(LateDoor, AllCameAndNotAllStayed) {
  Open(3);
  std::unique_ptr<HandSpoke> one;
  ReadDuring([&] { one = std::make_unique<HandSpoke>(address_, 1, 3); });
  End(*one);
  io_.poll();
  std::unique_ptr<HandSpoke> two;
  ReadDuring([&] { two = std::make_unique<HandSpoke>(address_, 2, 3); });
  EXPECT_THAT(
      door_->AwaitAll(SteadyNow()),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("3 of 3 ranks came; came, but gave up, died or "
                               "fell silent: rank 1 (by-hand, pid 7); there: "),
                     EndsWith("a longer join deadline"),
                     Not(HasSubstr("missing")))));
}

// Returns the result of a spoke's Join: the ranks that it knows. The spoke's
// thread is late for a message that rank 0, by hand, has sent in time. Returns
// nullopt if the spoke's claim was late.
std::optional<absl::StatusOr<std::vector<Peer>>> JoinLateBy(
    absl::Duration takes, const std::string& news) {
  Socket server;
  const StarOptions options = OptionsTo(server.Bind());
  server.Listen();
  const SteadyTime deadline = After(takes);
  asio::io_context io(1);
  bool late = false;
  std::promise<bool> waits;
  std::promise<void> said;
  std::thread hub([&] {
    Socket socket(server.Accept());
    Hand hand(Handshake::Role::kHub, "secret", socket);
    if (!hand.Greet().ok()) return;
    if (hand.NextSealed().first != FrameType::kProof) return;
    hand.Say(FrameType::kProof, "");
    if (hand.NextSealed().first != FrameType::kClaim) return;
    asio::post(io, [&] {
      late = true;
      waits.set_value(true);
      said.get_future().wait();
      // It also sleeps until the spoke need not wait for rank 0 any longer.
      while (SteadyNow() < deadline + std::chrono::seconds(1)) {
        absl::SleepFor(absl::Milliseconds(10));
      }
    });
    if (!waits.get_future().get()) return;
    hand.Say(FrameType::kWelcome, "1 of 2 ranks came");
    socket.Write(news);
    socket.AwaitArrival();
    said.set_value();
    EXPECT_EQ(hand.Next().second, "ended");
  });
  absl::StatusOr<std::vector<Peer>> peers;
  {
    Peer self;
    self.rank = 1;
    const auto joined = JoinAsSpoke(io, options, self, deadline);
    if (joined.ok()) {
      peers = joined->peers;
      joined->hub->Close();
    } else {
      peers = joined.status();
    }
  }
  if (!late) waits.set_value(false);
  server.Shutdown();
  hub.join();
  if (!late) return std::nullopt;
  return peers;
}

absl::StatusOr<std::vector<Peer>> JoinLate(const std::string& news) {
  for (auto takes = absl::Milliseconds(250); takes < kLong; takes *= 4) {
    auto peers = JoinLateBy(takes, news);
    if (peers.has_value()) return *std::move(peers);
  }
  return absl::InternalError("its claim was never in time");
}

TEST(SpokeJoinTest, ReadsWhatHasComeInTime) {
  Peer zero;
  Peer one;
  one.rank = 1;
  std::future<absl::StatusOr<std::vector<Peer>>> joins =
      std::async(std::launch::async, JoinLate,
                 EncodeFrame(FrameType::kPeer, EncodePeer(zero)) +
                     EncodeFrame(FrameType::kPeer, EncodePeer(one)) +
                     EncodeFrame(FrameType::kComplete, ""));
  const absl::Status why = absl::DeadlineExceededError("missing: rank 2");
  EXPECT_THAT(JoinLate(EncodeFrame(FrameType::kFailed, EncodeReason(why))),
              StatusIs(why.code(), HasSubstr("missing: rank 2")));
  const absl::StatusOr<std::vector<Peer>> peers = joins.get();
  LOCKSTEP_ASSERT_OK(peers);
  EXPECT_EQ(peers->size(), 2u);
}

}  // namespace
}  // namespace lockstep::internal_collective
