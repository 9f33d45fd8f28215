// Tests with programs that do not belong to the job: clients that send nothing,
// nonsense or half of the truth, and servers that are not rank 0.
#include <unistd.h>

#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/io_context.hpp>
#include <chrono>  // NOLINT: SteadyTime is of it
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>  // NOLINT: strangers
#include <memory>
#include <mutex>  // NOLINT: of what a callback is told
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: strangers
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/spoke_join.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/rendezvous/token.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Strangers, MaySendOnlySmallFrames) {
  MemoryStore store;
  Joining hub(OptionsOf(0, 2, &store));
  Socket socket;
  ASSERT_TRUE(socket.Connect(AddressIn(store)));
  Hand hand(Handshake::Role::kSpoke, "secret", socket);
  LOCKSTEP_EXPECT_OK(hand.Greet());
  hand.Say(FrameType::kProof, std::string(kLargestOfStranger, 'x'));
  EXPECT_EQ(hand.Next(), std::make_pair(FrameType::kStranger, std::string()));
  EXPECT_EQ(hand.Next().first, FrameType::kGoodbye);
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(1, 2, &store)));
}

// A rank that is dropped because it was slow tries again.
TEST(Strangers, ThatSayNothingAreDropped) {
  MemoryStore store;
  StarOptions options = OptionsOf(0, 2, &store);
  options.handshake = absl::Milliseconds(50);
  Joining hub(options);
  Socket socket;
  ASSERT_TRUE(socket.Connect(AddressIn(store)));
  for (std::string greeting; socket.Read(&greeting);) continue;
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(1, 2, &store)));
  LOCKSTEP_EXPECT_OK(hub.Await());
}

int CountOpen(const std::vector<Socket>& strangers) {
  return static_cast<int>(
      std::count_if(strangers.begin(), strangers.end(),
                    [](const Socket& stranger) { return stranger.IsOpen(); }));
}

// Strangers that connect and send nothing hold at most a share of rank 0's
// descriptors, and only a few once all ranks have joined. They keep no rank
// out.
TEST(Strangers, ThatSayNothingMakeRoom) {
  constexpr int kStrangers = 300;
  // A stranger that has sent nothing for this time is dropped, too.
  constexpr auto kSilentFor = std::chrono::seconds(5);
  for (const auto& [limit, most] :
       {std::pair(4096, 256), std::pair(800, 100)}) {
    const DescriptorLimit descriptors(limit);
    bool in_time = false;
    while (!in_time) {
      MemoryStore store;
      Joining hub(OptionsOf(0, 2, &store));
      const std::string address = AddressIn(store);
      const SteadyTime begin = SteadyNow();
      const std::vector<Socket> before = ConnectStrangers(kStrangers, address);
      const int open = CountOpen(before);
      in_time = SteadyNow() - begin < kSilentFor;
      EXPECT_LE(open, most);
      if (in_time) {
        EXPECT_EQ(open, most);
      }

      const JoinResult one = Star::Join(OptionsOf(1, 2, &store));
      LOCKSTEP_ASSERT_OK(one);
      EXPECT_LE(CountOpen(before), 8);
      const SteadyTime joined = SteadyNow();
      const std::vector<Socket> after = ConnectStrangers(kStrangers, address);
      EXPECT_LE(CountOpen(before) + CountOpen(after), 8);
      // The last stranger is one of the few, until it has been silent for too
      // long.
      const bool is_open = after.back().IsOpen();
      EXPECT_TRUE(is_open || SteadyNow() - joined >= kSilentFor);
      LOCKSTEP_ASSERT_OK(hub.Await());
    }
  }
}

// The job trains while ranks of other jobs come.
TEST(Strangers, ThatAreRefusedLateAreTold) {
  MemoryStore store;
  StarOptions options = OptionsOf(0, 2, &store);
  std::mutex mutex;
  std::vector<std::string> told;
  options.on_slow = [&](absl::string_view what) {
    const std::lock_guard<std::mutex> lock(mutex);
    told.emplace_back(what);
    throw std::runtime_error("is ignored");
  };
  Ears ears;
  Joining hub(options);
  const std::string address = AddressIn(store);
  const JoinResult one = Star::Join(OptionsOf(1, 2, &store));
  LOCKSTEP_ASSERT_OK(one);
  LOCKSTEP_ASSERT_OK(hub.Await());
  (*hub.Await())->Start(ears);
  for (int i = 0; i < 5; ++i) {
    StarOptions stranger = OptionsOf(1, 2, nullptr);
    stranger.address = address;
    stranger.job = "another job";
    EXPECT_FALSE(Star::Join(stranger).ok());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  ASSERT_THAT(told, testing::SizeIs(3));
  EXPECT_THAT(told[0], AllOf(HasSubstr("rank 0 has refused 1 client after all "
                                       "ranks had joined: 127.0.0.1:"),
                             HasSubstr("it belongs to job 'another job'")));
  EXPECT_THAT(told[1], HasSubstr("2 clients after all ranks had joined; the "
                                 "last one was 127.0.0.1:"));
  EXPECT_THAT(told[2], HasSubstr("4 clients"));
}

// Returns the options of rank 1 of 2, for an address.
StarOptions OptionsTo(const std::string& address) {
  StarOptions options = OptionsOf(1, 2, nullptr);
  options.address = address;
  return options;
}

TEST(Strangers, AServerThatNeverAnswers) {
  Socket server;
  StarOptions options = OptionsTo(server.Bind());
  server.Listen();
  options.join_deadline = absl::Milliseconds(100);
  EXPECT_THAT(Star::Join(options), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("no answer (1 time)")));
}

TEST(Strangers, AServerThatHangsUp) {
  Socket server;
  const StarOptions options = OptionsTo(server.Bind());
  server.Listen();
  std::thread thread([&server] {
    for (int fd = server.Accept(); fd >= 0; fd = server.Accept()) close(fd);
  });
  ExpectExpires(options, HasSubstr("the connection ended"));
  server.Shutdown();
  thread.join();
}

// Calls a function with each client, one after the other.
// Thread-safety: thread-compatible.
class Server {
 public:
  explicit Server(const std::function<void(Socket&)>& serve)
      : address_(socket_.Bind()) {
    socket_.Listen();
    thread_ = std::thread([this, serve] {
      for (int fd = socket_.Accept(); fd >= 0; fd = socket_.Accept()) {
        Socket client(fd);
        serve(client);
      }
    });
  }
  ~Server() {
    socket_.Shutdown();
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  Socket socket_;
  const std::string address_;
  std::thread thread_;
};

TEST(Strangers, AServerOfAnotherKind) {
  Server server([](Socket& client) {
    client.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
    std::string bytes;
    while (client.Read(&bytes)) continue;
  });
  EXPECT_THAT(Star::Join(OptionsTo(server.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(server.address()),
                             HasSubstr("does not speak Lockstep"))));
}

TEST(Strangers, AServerThatEchoes) {
  Server server([](Socket& client) {
    std::string bytes;
    while (client.Read(&bytes)) {
      client.Write(bytes);
      bytes.clear();
    }
  });
  EXPECT_THAT(Star::Join(OptionsTo(server.address())),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not speak Lockstep")));
}

TEST(Strangers, AnImpostorForAHub) {
  std::string heard;
  {
    Server server([&heard](Socket& client) {
      Hand hand(Handshake::Role::kHub, "guess", client);
      if (!hand.Greet().ok()) return;  // the spoke comes again
      heard = hand.Next().second;
      hand.Say(FrameType::kProof, "");
      heard += hand.Next().second;
    });
    EXPECT_THAT(Star::Join(OptionsTo(server.address())),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("does not have this rank's token"),
                               Not(HasSubstr("secret")))));
  }
  // It was sent nothing but a MAC.
  EXPECT_EQ(heard.size(), kMacBytes + absl::string_view("ended").size());
}

// ---- Garbage.

// The bytes that a spoke sent: its greeting, and then each frame.
using Pieces = std::vector<std::string>;

Pieces Split(absl::string_view said) {
  const size_t greeting =
      Handshake(Handshake::Role::kSpoke, "", std::string(kMacBytes, 'n'))
          .greeting()
          .size();
  Pieces pieces = {std::string(said.substr(0, greeting))};
  said.remove_prefix(greeting);
  while (!said.empty()) {
    absl::string_view rest = said;
    const auto frame = TakeFrame(rest, kLargestFrame);
    if (!frame.ok() || !frame->has_value()) break;
    pieces.emplace_back(said.substr(0, said.size() - rest.size()));
    said = rest;
  }
  EXPECT_TRUE(said.empty());
  return pieces;
}

// Returns everything that a true spoke sends, from its greeting to its goodbye.
// A relay on the way to rank 0 records it.
Pieces Record() {
  MemoryStore store;
  // No heartbeat may come while the spoke leaves: bytes of the spoke would be
  // lost if it closes a connection before it has read everything.
  StarOptions of_hub = OptionsOf(0, 2, &store);
  of_hub.beat = kLong;
  of_hub.silence = 4 * of_hub.beat;  // a shorter silence shortens the beat
  Joining joining(of_hub);
  const std::string address = AddressIn(store);
  std::string said;
  {
    const Server relay([&](Socket& client) {
      said.clear();
      Socket hub;
      EXPECT_TRUE(hub.Connect(address));
      std::thread back([&] {
        for (std::string bytes; hub.Read(&bytes); bytes.clear()) {
          client.Write(bytes);
        }
        client.Shutdown();
      });
      for (std::string bytes; client.Read(&bytes); bytes.clear()) {
        hub.Write(bytes);
        said += bytes;
      }
      hub.Shutdown();
      back.join();
    });
    StarOptions options = OptionsTo(relay.address());
    options.beat = kLong;  // otherwise some runs would have heartbeats
    options.silence = of_hub.silence;
    Ears ears;
    const JoinResult spoke = Star::Join(options);
    LOCKSTEP_EXPECT_OK(spoke);
    if (!spoke.ok()) return {};
    (*spoke)->Start(ears);
    for (int i = 0; i < 40; ++i) {
      (*spoke)->Send(0, std::string(i * i, static_cast<char>(i)));
    }
    LOCKSTEP_EXPECT_OK((*spoke)->Leave(kLong));
  }
  LOCKSTEP_EXPECT_OK(joining.Await());
  Pieces pieces = Split(said);
  EXPECT_GE(pieces.size(), 44u);  // greeting, proof, claim, 40, goodbye
  return pieces;
}

// Random numbers that are the same in every run.
// Thread-safety: thread-compatible.
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}

  // Returns a number below `end`.
  size_t operator()(size_t end) { return random_() % end; }
  bool Once(size_t in) { return random_() % in == 0; }

 private:
  std::mt19937 random_;
};

void FlipBits(Dice& dice, size_t most, std::string& bytes) {
  for (size_t n = dice(most + 1); n > 0; --n) {
    bytes[dice(bytes.size())] ^= static_cast<char>(1 << dice(8));
  }
}

// Joins the beginning of one spoke's pieces and the end of another's, with
// pieces that come twice, have a wrong length, are cut off, or have changed
// bits.
Pieces Mutate(Dice& dice, const std::vector<Pieces>& recorded) {
  const Pieces& first = recorded[dice(recorded.size())];
  const Pieces& other = recorded[dice(recorded.size())];
  Pieces pieces(first.begin(), first.begin() + dice(first.size() + 1));
  pieces.insert(pieces.end(), other.begin() + dice(other.size()), other.end());
  for (size_t n = dice(4); n > 0; --n) {
    const size_t at = dice(pieces.size());
    const std::string twice = pieces[at];
    pieces.insert(pieces.begin() + at, twice);
  }
  for (size_t n = dice(4); n > 0; --n) {
    std::string& piece = pieces[dice(pieces.size())];
    piece[dice(sizeof(uint32_t))] = static_cast<char>(dice(256));
  }
  if (dice.Once(4)) {
    std::string& piece = pieces[dice(pieces.size())];
    piece.resize(dice(piece.size()) + 1);
  }
  FlipBits(dice, 4, pieces[dice(pieces.size())]);
  return pieces;
}

// Makes random frames of any type, after bytes that may be a greeting.
Pieces MakeUp(Dice& dice) {
  const std::string nonce(kMacBytes, static_cast<char>(dice(256)));
  const Handshake handshake(Handshake::Role::kSpoke,
                            dice.Once(4) ? "secret" : "guess", nonce);
  Pieces pieces;
  if (!dice.Once(8)) {
    pieces.push_back(handshake.greeting());
    if (dice.Once(4)) FlipBits(dice, 1, pieces.back());
  }
  if (dice.Once(3)) {
    pieces.push_back(EncodeFrame(FrameType::kProof, std::string(32, 'p')));
  }
  for (int i = 0; i < 50; ++i) {
    const auto type = static_cast<FrameType>(dice(13));
    const size_t size = dice.Once(4) ? dice(9000) : dice(64);
    std::string frame =
        EncodeFrame(type, std::string(size, static_cast<char>(dice(256))));
    for (size_t n = dice(3); n > 0; --n) {
      frame[dice(frame.size())] = static_cast<char>(dice(256));
    }
    if (dice.Once(16)) frame.resize(dice(frame.size()) + 1);
    pieces.push_back(std::move(frame));
  }
  return pieces;
}

// Connects with the token, and makes a nonsensical claim. Like a rank, it
// connects again when it was turned away to make room for others.
void ClaimNonsense(Dice& dice, const std::string& address) {
  Claim claim = ClaimOf(1, 3);
  claim.job = "b-job";
  std::string says = EncodeClaim(claim);
  FlipBits(dice, 2, says);
  says.resize(says.size() - dice(2));
  while (true) {
    Socket socket;
    if (!socket.Connect(address)) continue;
    Hand hand(Handshake::Role::kSpoke, "secret", socket);
    if (!hand.Greet().ok()) continue;
    hand.Say(FrameType::kProof, "");
    if (hand.NextSealed().first != FrameType::kProof) continue;
    hand.Say(FrameType::kClaim, says);
    EXPECT_EQ(hand.NextSealed().first, FrameType::kRefused);
    return;
  }
}

// Connects many clients, one after the other. Returns the number of frames that
// they sent.
int ThrowGarbage(uint32_t seed, const std::string& address,
                 const std::vector<Pieces>& recorded) {
  Dice dice(seed);
  int frames = 0;
  for (int i = 0; i < 1400; ++i) {
    if (i % 16 == 0) {
      ClaimNonsense(dice, address);
      continue;
    }
    Socket socket;
    if (!socket.Connect(address)) continue;
    Pieces pieces = i % 2 == 0 ? MakeUp(dice) : Mutate(dice, recorded);
    if (dice.Once(4)) {
      pieces.resize(dice(pieces.size()) + 1);
      pieces.back().resize(dice(pieces.back().size()) + 1);
    }
    socket.Write(absl::StrJoin(pieces, ""));
    frames += static_cast<int>(pieces.size());
  }
  return frames;
}

// Strangers send garbage to rank 0 while a job joins and works. Some make it
// up, and some change the bytes of a true spoke.
TEST(Strangers, GarbageHarmsNobody) {
  const std::vector<Pieces> recorded = {Record(), Record(), Record()};
  MemoryStore store;
  Joining hub(OptionsOf(0, 3, &store));
  const std::string address = AddressIn(store);
  Joining one(OptionsOf(1, 3, &store));

  const Held before = HeldNow();
  std::future<int> first = std::async(
      std::launch::async, [&] { return ThrowGarbage(1, address, recorded); });
  std::future<int> second = std::async(
      std::launch::async, [&] { return ThrowGarbage(2, address, recorded); });
  JoinResult two = Star::Join(OptionsOf(2, 3, &store));
  LOCKSTEP_ASSERT_OK(two);
  LOCKSTEP_ASSERT_OK(hub.Await());
  LOCKSTEP_ASSERT_OK(one.Await());
  Ears ears[3];
  const std::unique_ptr<Star> stars[] = {
      *std::move(hub.Await()), *std::move(one.Await()), *std::move(two)};
  for (int rank = 0; rank < 3; ++rank) stars[rank]->Start(ears[rank]);
  for (int i = 0; i < 1000; ++i) {
    stars[0]->Send(1 + i % 2, "down");
    stars[1 + i % 2]->Send(0, "up");
  }
  const int frames = first.get() + second.get();
  stars[2]->Send(0, "unharmed");
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ears[0].AwaitMessages(rank, 500 + rank / 2).size(),
              500 + rank / 2);
    EXPECT_EQ(ears[rank].AwaitMessages(0, 500).size(), 500u);
    EXPECT_THAT(ears[rank].gone(), testing::IsEmpty());
  }
  EXPECT_THAT(ears[0].gone(), testing::IsEmpty());
  EXPECT_GE(frames, 100000);
  EXPECT_LT(HeldNow().used_kib - before.used_kib, 4096);
}

// If a client that has joined sends garbage or nothing more, it is forgotten,
// and its rank is free again.
TEST(Strangers, ARankThatSpeaksGarbageIsForgotten) {
  const std::vector<Pieces> recorded = {Record()};
  MemoryStore store;
  Joining hub(OptionsOf(0, 3, &store));
  const std::string address = AddressIn(store);
  Dice dice(3);
  for (int joined = 0; joined < 200;) {
    Socket socket;
    ASSERT_TRUE(socket.Connect(address));
    Hand hand(Handshake::Role::kSpoke, "secret", socket);
    const FrameType answer = hand.Join(EncodeClaim(ClaimOf(1, 3))).first;
    // Rank 0 may not have noticed the end of the previous one yet.
    if (answer == FrameType::kRefused) continue;
    ASSERT_EQ(answer, FrameType::kWelcome);
    socket.Write(absl::StrJoin(Mutate(dice, recorded), ""));
    ++joined;
  }
  Joining two(OptionsOf(2, 3, &store));
  LOCKSTEP_EXPECT_OK(JoinAgain(OptionsOf(1, 3, &store)));
  LOCKSTEP_EXPECT_OK(two.Await());
  LOCKSTEP_EXPECT_OK(hub.Await());
}

// The server listens before rank 0, which then uses the port on the other
// address.
TEST(Strangers, AServerOnOneOfTheAddressesOfAName) {
  for (const bool first : {true, false}) {
    std::optional<Socket> server, kept;
    std::string port;
    do {
      server.emplace();
      const std::string address = server->Bind();
      port = address.substr(address.rfind(':'));
      kept.emplace();
    } while (!kept->Keep("127.0.0.2" + port));
    server->Listen();
    std::promise<void> met;
    std::thread thread([&] {
      bool first_client = true;
      for (int fd = server->Accept(); fd >= 0; fd = server->Accept()) {
        Socket client(fd);
        client.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
        std::string bytes;
        while (client.Read(&bytes)) continue;
        if (std::exchange(first_client, false)) met.set_value();
      }
    });
    const Resolver resolve = [first](const std::string&, SteadyTime) {
      std::vector<std::string> found = {"127.0.0.1", "127.0.0.2"};
      if (!first) std::swap(found[0], found[1]);
      return found;
    };
    Peer self;
    self.rank = 1;
    std::future<absl::Status> one = std::async(std::launch::async, [&] {
      asio::io_context io(1);
      return JoinAsSpoke(io, OptionsTo("trainer-0" + port), self, After(kLong),
                         resolve)
          .status();
    });
    met.get_future().wait();
    StarOptions zero = OptionsOf(0, 2, nullptr);
    zero.address = "127.0.0.2" + port;
    const JoinResult hub = Star::Join(zero);
    LOCKSTEP_EXPECT_OK(hub);
    LOCKSTEP_EXPECT_OK(one.get());
    server->Shutdown();
    thread.join();
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
