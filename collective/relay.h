// A wire with a delay, for tests: what two ends of a connection on loopback say
// to each other takes its time on the way, and can be kept from them.
//
//   Relay relay(port, absl::Milliseconds(200));
//   Connect(relay.port());  // in place of `port`
//   relay.Cut();
#ifndef LOCKSTEP_COLLECTIVE_RELAY_H_
#define LOCKSTEP_COLLECTIVE_RELAY_H_

#include <atomic>
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
  Relay(int port, absl::Duration delay);
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
    bool heard_all = false;
    bool open = true;
  };

  void Run();
  void Connect(int client, int server);
  void Hear(Way& way);
  static void Pass(Way& way);

  const int to_port_;
  const absl::Duration delay_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> cut_{false};
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_RELAY_H_
