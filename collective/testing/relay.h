// A wire with a delay, for tests. It stands between the two ends of a
// connection on loopback, delays their bytes, and can stop passing them on.
//
//   Relay relay(port, absl::Milliseconds(200));
//   Connect(relay.port());  // in place of `port`
//   relay.Cut();
#ifndef LOCKSTEP_COLLECTIVE_TESTING_RELAY_H_
#define LOCKSTEP_COLLECTIVE_TESTING_RELAY_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>  // NOLINT: the relay's
#include <utility>

#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {

// Listens on loopback for clients, and connects each of them to a port there.
// Bytes reach the other end `delay` later.
// Thread-safety: thread-safe.
class Relay {
 public:
  Relay(int port, absl::Duration delay)
      : Relay(port, delay, /*burst=*/INT64_MAX, absl::ZeroDuration()) {}
  // Reads nothing from a client for `rest` after every `burst` of bytes. The
  // client must keep the bytes that the system does not take meanwhile.
  Relay(int port, absl::Duration delay, int64_t burst, absl::Duration rest);
  // Waits until both ends of all connections have ended them.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }

  // From now on, drops all bytes, and does not pass on the end of a connection.
  void Cut() { cut_ = true; }

 private:
  struct Way {
    int from, to;
    // The bytes on the way, and when they arrive. "" is the end of the
    // connection.
    std::deque<std::pair<SteadyTime, std::string>> line = {};
    int64_t burst = INT64_MAX;  // bytes to read before the next rest
    SteadyTime hears_from = {};
    bool heard_all = false;
    bool open = true;
  };

  void Run();
  void Connect(int client);
  void Hear(Way& way);
  static void Pass(Way& way);

  const int to_port_;
  const absl::Duration delay_;
  const int64_t burst_;
  const absl::Duration rest_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> cut_{false};
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_RELAY_H_
