#include "lockstep/session/clock_offset.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_session {

absl::StatusOr<ClockOffset> MeasureClockOffset(
    Communicator& group, const std::function<int64_t()>& clock) {
  constexpr int kRounds = 8;
  CallOptions options;
  options.name = "the offsets of clocks";
  ClockOffset offset;
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const int64_t before = clock();
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier(options)));
    int64_t first = clock();
    const Buffer buffer = BufferOf(&first, 1);
    LOCKSTEP_RETURN_IF_ERROR(
        Wait(group.Broadcast(buffer, buffer, /*root=*/0, options)));
    const int64_t after = clock();
    if (round == 0) offset.began = first;
    least = std::max(least, before - first);
    most = std::min(most, after - first);
  }
  if (group.rank() == 0) return offset;
  constexpr double kNano = 1e-9;
  offset.seconds =
      kNano * (static_cast<double>(least) / 2 + static_cast<double>(most) / 2);
  // If a clock was set during the measurement, `least` may exceed `most`.
  offset.error =
      kNano *
      static_cast<double>(std::max(most, least) - std::min(most, least)) / 2;
  return offset;
}

absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& group) {
  return MeasureClockOffset(group, absl::GetCurrentTimeNanos);
}

}  // namespace lockstep::internal_session
