#include "lockstep/tools/records/time_line.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
TimeLine::TimeLine(const std::map<int64_t, const RankRun*>& ranks) {
  for (const auto& [rank, run] : ranks) {
    // A clock without a name is that of one rank alone.
    const std::string name =
        run->clock.empty() ? absl::StrCat("of rank ", rank) : run->clock;
    clock_of_rank_[rank] = name;
    if (rank == 0) first_ = name;
    // Ranks with one clock have measured it at nearly the same times. The
    // first one of them that has measured anything counts for all, so that
    // their times fit together.
    Clock& clock = clocks_[name];
    if (clock.empty()) clock = ClockOf(*run);
  }
}

TimeLine::Clock TimeLine::ClockOf(const RankRun& run) {
  Clock clock;
  for (const EventsLine& events : run.events) {
    if (events.ahead_error < 0) continue;
    Measured next = {events.ended, events.ahead, events.ahead_error,
                     events.ended - events.ahead};
    if (!clock.empty()) {
      Measured& last = clock.back();
      if (next.at == last.at) continue;
      // A new measurement may move times back, but not before earlier ones.
      next.place = std::max(next.place, last.place);
      // Two measurements that contradict each other show that the clock jumps,
      // as where a machine was paused. Then neither is better than that.
      const int64_t most =
          next.error + last.error + SteadyDrift(next.at - last.at);
      const int64_t excess = std::abs(next.ahead - last.ahead) - most;
      if (excess > 0) {
        next.error += excess;
        last.error = std::max(last.error, excess);
        next.is_contradicted = last.is_contradicted = true;
      }
    }
    clock.push_back(next);
  }
  return clock;
}

PlacedTime TimeLine::Place(int64_t rank, int64_t nanoseconds) const {
  const std::string& name = clock_of_rank_.at(rank);
  if (name == first_) return {nanoseconds, 0};
  const Clock& clock = clocks_.at(name);
  if (clock.empty()) return {nanoseconds, std::nullopt};
  const auto after = std::lower_bound(
      clock.begin(), clock.end(), nanoseconds,
      [](const Measured& each, int64_t time) { return each.at < time; });
  const Measured& next = after == clock.end() ? clock.back() : *after;
  const Measured& last = after == clock.begin() ? next : *std::prev(after);
  PlacedTime placed;
  if (next.at <= nanoseconds) {
    placed.nanoseconds = next.place + (nanoseconds - next.at);
  } else if (last.at >= nanoseconds) {
    placed.nanoseconds = last.place - (last.at - nanoseconds);
  } else {
    // Between two measurements, times are moved evenly.
    const double share = static_cast<double>(nanoseconds - last.at) /
                         static_cast<double>(next.at - last.at);
    placed.nanoseconds =
        last.place +
        std::llround(share * static_cast<double>(next.place - last.place));
  }
  const auto error_by = [&](const Measured& each) {
    const int64_t moved = nanoseconds - placed.nanoseconds;
    return each.error + SteadyDrift(nanoseconds - each.at) +
           std::abs(moved - each.ahead);
  };
  const auto [less, more] = std::minmax({error_by(last), error_by(next)});
  placed.error = last.is_contradicted || next.is_contradicted ? more : less;
  return placed;
}

}  // namespace lockstep
