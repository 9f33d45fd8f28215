#include "lockstep/tools/records/time_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
namespace {

// The speeds of two clocks differ by at most this many parts in a million.
constexpr int64_t kDriftPpm = 20;

int64_t DriftIn(int64_t nanoseconds) {
  return std::abs(nanoseconds) / 1'000'000 * kDriftPpm;
}

}  // namespace

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
  // Rank 0 is alone, or its clock is the time line.
  if (ranks.size() == 1 && ranks.begin()->second->size == 1) {
    first_ = clocks_.begin()->first;
  }
}

TimeLine::Clock TimeLine::ClockOf(const RankRun& run) {
  Clock clock;
  for (const EventsLine& events : run.events) {
    if (events.ahead_error < 0) continue;
    clock.push_back({events.ended, events.ahead, events.ahead_error});
  }
  return clock;
}

PlacedTime TimeLine::Place(int64_t rank, int64_t nanoseconds) const {
  const std::string& name = clock_of_rank_.at(rank);
  if (name == first_) return {nanoseconds, 0};
  const Clock& clock = clocks_.at(name);
  const auto after = std::lower_bound(
      clock.begin(), clock.end(), nanoseconds,
      [](const Measured& each, int64_t time) { return each.at < time; });
  PlacedTime placed = {nanoseconds, std::nullopt};
  const auto consider = [&](const Measured& each) {
    const int64_t error = each.error + DriftIn(nanoseconds - each.at);
    if (placed.error.has_value() && *placed.error <= error) return;
    placed = {nanoseconds - each.ahead, error};
  };
  if (after != clock.end()) consider(*after);
  if (after != clock.begin()) consider(*std::prev(after));
  return placed;
}

}  // namespace lockstep
