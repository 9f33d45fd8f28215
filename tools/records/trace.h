// A trace is what the ranks of a run did, on one time line. It can be printed
// as Chrome's trace JSON, which ui.perfetto.dev and chrome://tracing open.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Trace trace, Trace::Read(path, options));
//   LOCKSTEP_RETURN_IF_ERROR(trace.CheckClocks(absl::Milliseconds(1)));
//   trace.PrintJson(std::cout);
#ifndef LOCKSTEP_TOOLS_RECORDS_TRACE_H_
#define LOCKSTEP_TOOLS_RECORDS_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/tools/records/job_records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/time_line.h"

namespace lockstep {

struct TraceOptions {
  std::optional<int64_t> run;  // from 1 on; unset: the last one
  // The first and the last step.
  std::optional<std::pair<int64_t, int64_t>> steps;
  std::set<int64_t> ranks;  // empty: all

  bool WantsStep(int64_t step) const {
    return !steps.has_value() ||
           (step >= steps->first && step <= steps->second);
  }
};

// Something on a track of a rank.
struct TraceSlice {
  // The track: what it shows, of what, and which of several tracks it is.
  enum class Kind : uint8_t { kSteps, kGroup, kWorker };
  std::tuple<Kind, std::string, int64_t> track = {Kind::kSteps, "", 0};
  std::string name;   // "step 120", "all_reduce bucket 3"
  int64_t begin = 0;  // nanoseconds on the time line
  int64_t end = 0;
  const EventsLine* step = nullptr;
  const RecordedEvent* event = nullptr;  // null: a step, or what is before it
  bool is_step = false;
};

// What there is of a rank.
struct RankSummary {
  int64_t rank = 0;
  std::string host;
  int64_t first_step = 0;  // these are of all steps
  int64_t last_step = 0;
  std::set<int64_t> steps;  // those that are shown; the next ones are of them
  int64_t events = 0;
  int64_t dropped = 0;
  int64_t dropped_steps = 0;
  // The largest error of a time, in nanoseconds; none: it is not known.
  std::optional<int64_t> clock_error;
};

// A step that took long, and the rank that waited least for others in it. All
// times are nanoseconds.
struct SlowStep {
  int64_t step = 0;
  int64_t took = 0;   // on the rank that took longest
  int64_t ranks = 0;  // those that have kept it
  int64_t rank = 0;   // the one that was least in operations; these are of it
  int64_t for_data = 0;
  int64_t in_operations = 0;  // those at the same time count once
  int64_t between = 0;        // before the step
};

// Returns the name of a track for people: "steps", "group world", "group world,
// lane 2" or "loader train, worker 3".
std::string NameOfTrack(const TraceSlice& slice);

// Returns microseconds with three digits behind the point.
std::string Microseconds(int64_t nanoseconds);

// Thread-safety: thread-compatible.
class Trace {
 public:
  // Reads the records of all ranks. `tell` gets what is worth telling: the
  // progress of reading many files, and ranks that are missing or damaged,
  // which are left out. If nothing is left, that is the error.
  static absl::StatusOr<Trace> Read(
      absl::string_view path, const TraceOptions& options,
      const std::function<void(absl::string_view)>& tell);

  // Returns whether all ranks of the run are there and whole.
  bool is_whole() const { return job_.is_whole; }

  // Returns FAILED_PRECONDITION if a time may be wrong by more than `most`.
  absl::Status CheckClocks(absl::Duration most) const;

  // Calls `show` with all slices of a rank, each of which lives until `show`
  // returns. The slices of a track are in each other or follow each other.
  void ForEachSlice(int64_t rank,
                    const std::function<void(const TraceSlice&)>& show) const;

  // Prints Chrome's trace JSON.
  void PrintJson(std::ostream& out) const;

  std::vector<RankSummary> Summaries() const;
  // Returns the steps that took longest, the slowest first.
  std::vector<SlowStep> Slowest(size_t most) const;

  // The number of the run that is shown, from 1 on, and when all runs began.
  int64_t number() const { return job_.number; }
  std::vector<absl::Time> begins() const { return job_.begins(); }

 private:
  Trace() = default;

  absl::Status ChooseSteps(const TraceOptions& options,
                           const std::function<void(absl::string_view)>& tell);

  JobRecords job_;
  std::map<int64_t, std::vector<const EventsLine*>> steps_;  // by rank
  std::optional<TimeLine> time_line_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_TRACE_H_
