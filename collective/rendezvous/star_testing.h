// For the tests of stars: ranks as threads, what they hear, and one side of the
// protocol by hand.
//
//   MemoryStore store;
//   Joining hub(OptionsOf(0, 2, &store));
//   HandSpoke one(AddressIn(store), 1, 2);
//   one.hand.AwaitComplete();
//   LOCKSTEP_EXPECT_OK(hub.Await());
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_TESTING_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_TESTING_H_

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {

using JoinResult = absl::StatusOr<std::unique_ptr<Star>>;

// For what is expected to come. A hang ends by it before Bazel ends a medium
// test, which then says what has not come.
constexpr absl::Duration kLong = absl::Minutes(4);

// Another one in each process: tests that run at once may come by each other's
// ports.
const std::string& JobName();

// Of a rank of that job, whose token is "secret".
StarOptions OptionsOf(int rank, int size, Store* store);

// Each in a thread of its own.
std::vector<JoinResult> JoinAll(const std::vector<StarOptions>& options);

// Joins; again for as long as rank 0 has not noticed that the rank is lost.
JoinResult JoinAgain(const StarOptions& options);

// How a Join ends that can't end in its time, which is short, and grows until
// it was long enough for all that is to be said.
void ExpectExpires(StarOptions options,
                   const testing::Matcher<std::string>& says);

// The address that rank 0 has left in the store.
std::string AddressIn(MemoryStore& store);

// A rank that joins in a thread of its own.
class Joining {
 public:
  explicit Joining(const StarOptions& options)
      : thread_([this, options] { result_ = Star::Join(options); }) {}
  ~Joining() { Join(); }

  JoinResult& Await() {
    Join();
    return result_;
  }

 private:
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  JoinResult result_;
  std::thread thread_;
};

// Keeps what it is told, for the test's thread.
class Ears : public StarListener {
 public:
  void OnMessage(int from, absl::string_view message) override;
  void OnGone(int rank, const absl::Status& why) override;
  void OnTick() override;
  void OnBroken(const absl::Status& why) override;
  std::string Beat() override { return "boom"; }
  void OnBeat(int from, absl::string_view beat) override;

  std::vector<std::string> AwaitMessages(int from, size_t count);
  absl::Status AwaitGone(int rank);
  absl::Status AwaitBroken();
  std::string AwaitBeat(int from);
  int AwaitTicks(int count);
  std::map<int, absl::Status> gone();

 private:
  template <typename Condition>
  void Await(const Condition& there) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const SteadyTime deadline = After(kLong);
    while (!there()) {
      if (changed_.WaitUntil(mutex_, deadline)) return;
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<int, std::vector<std::string>> messages_ ABSL_GUARDED_BY(mutex_);
  std::map<int, absl::Status> gone_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::string> beats_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  int ticks_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A job whose ranks have joined and started.
struct Job {
  // Without `starts_hub`, rank 0 is still to be started.
  explicit Job(int size, bool starts_hub = true);
  // All at once, as ranks do.
  void Leave();

  MemoryStore store;
  std::vector<Ears> ears;  // outlive the stars
  std::vector<std::unique_ptr<Star>> stars;
};

bool HasIpv6Loopback();

// A socket on loopback, with calls that block.
class Socket {
 public:
  Socket();
  explicit Socket(int fd);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Binds, and returns the address.
  std::string Bind();
  // Binds to an address of loopback, and so keeps it for a server that is to
  // listen there; false if another one listens there already.
  bool Keep(const std::string& address);
  void Listen();
  int Accept();
  bool Connect(const std::string& address);

  bool Write(absl::string_view bytes);
  // Until the other side's system has all that was written, and the end.
  void AwaitArrival();
  // Adds what comes; false at the end.
  bool Read(std::string* bytes);
  // Returns whether the other side has not ended the connection yet.
  bool IsOpen() const;
  void Shutdown();

 private:
  const int fd_;
};

// Connects so many and waits until rank 0 has greeted each of them.
std::vector<Socket> ConnectStrangers(int count, const std::string& address);

// Sets how many descriptors this process may have, while it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most);
  ~DescriptorLimit();
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_ = {};
};

// One side of the protocol, by hand.
class Hand {
 public:
  Hand(Handshake::Role role, absl::string_view token, Socket& socket,
       uint64_t version = kProtocolVersion);

  absl::Status Greet();
  void Say(FrameType type, absl::string_view payload);
  // The next frame's type and payload; kGoodbye when there is none.
  std::pair<FrameType, std::string> Next();
  // The next frame of the handshake, its MAC checked.
  std::pair<FrameType, std::string> NextSealed();
  // As a spoke that says `claim`: the answer.
  std::pair<FrameType, std::string> Join(absl::string_view claim);
  // Until all are there.
  void AwaitComplete();

 private:
  Socket& socket_;
  Handshake handshake_;
  std::string input_;
};

// As those of OptionsOf say it.
Claim ClaimOf(int rank, int size);

// A spoke by hand, that has joined.
struct HandSpoke {
  HandSpoke(const std::string& address, int rank, int size);

  Socket socket;
  Hand hand{Handshake::Role::kSpoke, "secret", socket};
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_TESTING_H_
