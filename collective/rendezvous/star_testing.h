// Helpers of the tests of stars: ranks that are threads, a listener that keeps
// what it hears, and one side of the protocol by hand.
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

// The time for something that is expected to come. It is shorter than the time
// that Bazel gives a medium test, so that a test that hangs says what has not
// come.
constexpr absl::Duration kLong = absl::Minutes(4);

// The name of the job. It differs between processes, since tests that run at
// the same time may find each other's ports.
const std::string& JobName();

// Returns the options of a rank of that job, with the token "secret".
StarOptions OptionsOf(int rank, int size, Store* store);

// Joins all ranks, each on its own thread.
std::vector<JoinResult> JoinAll(const std::vector<StarOptions>& options);

// Joins. Tries again as long as rank 0 has not noticed that the rank is lost.
JoinResult JoinAgain(const StarOptions& options);

// Expects that a Join that can't succeed ends at its deadline with a message
// that matches `says`. The deadline is short, and grows until it was long
// enough for everything in the message.
void ExpectExpires(StarOptions options,
                   const testing::Matcher<std::string>& says);

// Returns the address that rank 0 has written to the store.
std::string AddressIn(MemoryStore& store);

// A rank that joins on its own thread.
// Thread-safety: thread-compatible.
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

// Keeps everything that it is told, for the test's thread.
// Thread-safety: thread-safe.
class Ears : public StarListener {
 public:
  void OnMessage(int from, absl::string_view message) override;
  void OnGone(int rank, const absl::Status& why) override;
  void OnTick() override;
  std::string Beat() override { return "boom"; }
  void OnBeat(int from, absl::string_view beat) override;

  std::vector<std::string> AwaitMessages(int from, size_t count);
  absl::Status AwaitGone(int rank);
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
  int ticks_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A job whose ranks have joined and started.
struct Job {
  // If `starts_hub` is false, the test starts rank 0 itself.
  explicit Job(int size, bool starts_hub = true);
  // Lets all ranks leave at the same time.
  void Leave();

  MemoryStore store;
  std::vector<Ears> ears;  // declared before the stars, which call them
  std::vector<std::unique_ptr<Star>> stars;
};

bool HasIpv6Loopback();

// A socket on loopback. Its calls block.
// Thread-safety: thread-compatible.
class Socket {
 public:
  Socket();
  explicit Socket(int fd);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Binds, and returns the address.
  std::string Bind();
  // Binds to an address of loopback, to reserve it for a server that will
  // listen there. Returns false if another socket listens there already.
  bool Keep(const std::string& address);
  void Listen();
  int Accept();
  bool Connect(const std::string& address);

  bool Write(absl::string_view bytes);
  // Waits until the other side's system has received all that was written, and
  // the end.
  void AwaitArrival();
  // Appends the bytes that come. Returns false at the end.
  bool Read(std::string* bytes);
  // Returns true if the other side has not ended the connection yet.
  bool IsOpen() const;
  void Shutdown();

 private:
  const int fd_;
};

// Connects `count` sockets, and waits until rank 0 has greeted each of them.
std::vector<Socket> ConnectStrangers(int count, const std::string& address);

// Limits the descriptors of this process while it exists.
// Thread-safety: use one at a time.
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
// Thread-safety: thread-compatible.
class Hand {
 public:
  Hand(Handshake::Role role, absl::string_view token, Socket& socket,
       uint64_t version = kProtocolVersion);

  absl::Status Greet();
  void Say(FrameType type, absl::string_view payload);
  // Returns the next frame's type and payload, or kGoodbye if there is none.
  std::pair<FrameType, std::string> Next();
  // Returns the next frame of the handshake, after checking its MAC.
  std::pair<FrameType, std::string> NextSealed();
  // Joins as a spoke with the given claim, and returns the answer.
  std::pair<FrameType, std::string> Join(absl::string_view claim);
  // Waits until all ranks have joined.
  void AwaitComplete();

 private:
  Socket& socket_;
  Handshake handshake_;
  std::string input_;
};

// Returns the claim of the rank that OptionsOf describes.
Claim ClaimOf(int rank, int size);

// A spoke by hand that has joined.
struct HandSpoke {
  HandSpoke(const std::string& address, int rank, int size);

  Socket socket;
  Hand hand{Handshake::Role::kSpoke, "secret", socket};
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_TESTING_H_
