// A PeerClock compares this process's steady clock with that of a peer, with
// which it exchanges heartbeats. Each heartbeat carries three times: when it
// was sent, and when the last one from the other side was sent and received.
// So each side knows both ends of a round trip, whatever the heartbeats' pace.
// Internal.
//
//   PeerClock clock;
//   Send(clock.Next(SteadyNanoseconds()));           // with each heartbeat
//   clock.Hear(stamps, SteadyNanoseconds());         // at each one that comes
//   ...
//   if (const auto offset = clock.At(SteadyNanoseconds())) {
//     const int64_t at_peer = mine - offset->ahead;
//   }
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_PEER_CLOCK_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_PEER_CLOCK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// A ClockAhead says how far this process's clock is ahead of another one, in
// nanoseconds.
struct ClockAhead {
  int64_t ahead = 0;
  // The largest possible error of `ahead` if the clocks drift as SteadyDrift
  // (steady_time.h) says.
  int64_t error = 0;
};

// Thread-safety: thread-compatible.
class PeerClock {
 public:
  // The times of a heartbeat in nanoseconds, of the clocks of those who read
  // them. 0 stands for a heartbeat that has not come yet.
  struct Stamps {
    int64_t sent = 0;
    int64_t heard_sent = 0;  // when the peer sent the last one that came
    int64_t heard = 0;       // when that one came
  };

  // The number of round trips that are kept. The one with the smallest error
  // counts.
  static constexpr size_t kKept = 60;

  // Returns the times for the next heartbeat.
  Stamps Next(int64_t now) const { return {now, heard_sent_, heard_}; }

  // Takes in a heartbeat. Times with which no round trip is possible, such as
  // those of a hostile peer, count for nothing.
  void Hear(const Stamps& stamps, int64_t now);

  // Returns how far this clock is ahead of the peer's, or nothing before the
  // first round trip.
  std::optional<ClockAhead> At(int64_t now) const;

 private:
  struct RoundTrip {
    int64_t ahead;
    int64_t error;
    int64_t measured;
  };

  int64_t heard_sent_ = 0;
  int64_t heard_ = 0;
  int64_t last_echoed_ = 0;
  std::array<RoundTrip, kKept> trips_ = {};
  size_t count_ = 0;  // of all round trips
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_PEER_CLOCK_H_
