#include "lockstep/collective/rendezvous/peer_clock.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {
namespace {

// Clocks count from some start, and differ by at most this. Larger times are
// no clock's, and could overflow.
constexpr int64_t kLatest = int64_t{1} << 61;

bool IsTime(int64_t time) { return time > 0 && time < kLatest; }

}  // namespace

void PeerClock::Hear(const Stamps& stamps, int64_t now) {
  if (!IsTime(stamps.sent) || !IsTime(now)) return;
  heard_sent_ = stamps.sent;
  heard_ = now;
  if (!IsTime(stamps.heard_sent) || !IsTime(stamps.heard)) return;
  // An echo comes again while no newer heartbeat has reached the peer. The
  // first one is the best.
  if (stamps.heard_sent <= last_echoed_) return;
  const int64_t away = now - stamps.heard_sent;
  const int64_t held = stamps.sent - stamps.heard;
  if (held < 0 || away < held) return;
  last_echoed_ = stamps.heard_sent;
  // The peer's clock read `heard` after this clock had read `heard_sent`, and
  // `sent` before this clock read `now`.
  const int64_t least = stamps.heard_sent - stamps.heard;
  const int64_t most = now - stamps.sent;
  const RoundTrip trip = {least + (most - least) / 2,
                          (away - held + 1) / 2 + SteadyDrift(held), now};
  // A clock that stood still, as that of a machine that was paused, makes
  // earlier round trips wrong.
  const std::optional<ClockAhead> known = At(now);
  if (known.has_value() &&
      std::abs(known->ahead - trip.ahead) > known->error + trip.error) {
    count_ = 0;
  }
  trips_[count_++ % kKept] = trip;
}

std::optional<ClockAhead> PeerClock::At(int64_t now) const {
  std::optional<ClockAhead> best;
  for (size_t i = 0; i < std::min(count_, kKept); ++i) {
    const int64_t error =
        trips_[i].error + SteadyDrift(now - trips_[i].measured);
    if (!best.has_value() || error < best->error) {
      best = ClockAhead{trips_[i].ahead, error};
    }
  }
  return best;
}

}  // namespace lockstep::internal_collective
