// A wire with a delay, for tests: what two ends of a connection on loopback say
// to each other takes its time on the way, and can be kept from them.
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

// Listens on loopback for a client, and connects it to a port there; when both
// have ended that, for the next one. What one says reaches the other `delay`
// later.
class Relay {
 public:
  Relay(int port, absl::Duration delay)
      : Relay(port, delay, /*burst=*/INT64_MAX, absl::ZeroDuration()) {}
  // After every `burst` bytes of the client it hears nothing of it for `rest`,
  // and the client has to keep what the system does not take.
  Relay(int port, absl::Duration delay, int64_t burst, absl::Duration rest);
  // When both have ended their connection.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }

  // Nothing that is said from now on reaches the other, nor its end.
  void Cut() { cut_ = true; }

 private:
  struct Way {
    int from, to;
    // What is under way, and until when; "" is its end.
    std::deque<std::pair<SteadyTime, std::string>> line = {};
    int64_t burst = INT64_MAX;  // still to be heard before a rest
    SteadyTime hears_from = {};
    bool heard_all = false;
    bool open = true;
  };

  void Run();
  void Connect(int client, int server);
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
