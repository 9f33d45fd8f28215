// A TimeLine puts the times of all ranks of a run on one time line: that of
// rank 0's steady clock. Ranks of one machine have one clock. Those of other
// machines have measured how far their clocks were ahead. Times of one clock
// keep their order, also where a new measurement differs from the one before.
//
//   const TimeLine time_line(ranks);
//   const PlacedTime time = time_line.Place(rank, event.begin);
//   if (time.error.has_value()) Show(time.nanoseconds, *time.error);
#ifndef LOCKSTEP_TOOLS_RECORDS_TIME_LINE_H_
#define LOCKSTEP_TOOLS_RECORDS_TIME_LINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tools/records/rank_records.h"

namespace lockstep {

struct PlacedTime {
  int64_t nanoseconds = 0;
  // The largest error, in nanoseconds, if clocks drift as SteadyDrift
  // (base/steady_time.h) says; none: it is not known.
  std::optional<int64_t> error;
};

// Thread-safety: thread-compatible.
class TimeLine {
 public:
  // Takes the records of each rank of one run, which outlive this.
  explicit TimeLine(const std::map<int64_t, const RankRun*>& ranks);

  // Returns where a time of a rank's clock is.
  PlacedTime Place(int64_t rank, int64_t nanoseconds) const;

 private:
  // How far a clock was ahead of rank 0's, at a time of its own.
  struct Measured {
    int64_t at;
    int64_t ahead;
    int64_t error;
    int64_t place;                 // of `at` on the time line
    bool is_contradicted = false;  // by the one before or after it
  };
  // What was measured of a clock, in the order of times. Without anything,
  // nothing is known.
  using Clock = std::vector<Measured>;

  static Clock ClockOf(const RankRun& run);

  std::map<std::string, Clock> clocks_;  // by name
  std::map<int64_t, std::string> clock_of_rank_;
  std::string first_;  // the name of rank 0's clock
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_TIME_LINE_H_
