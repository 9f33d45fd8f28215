// RankRecords are what the sink "json_lines" of one rank has written: the file
// that it writes, and the one before it. FindRankFiles finds the files of all
// ranks.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto found,
//                             FindRankFiles("/data/runs/7/steps"));
//   for (const RankFiles& files : found) {
//     RecordsWanted wanted;
//     wanted.events_of = [](int64_t step) { return step > 100; };
//     const RankRecords records = ReadRankRecords(files, wanted);
//     for (const RankRun& run : records.runs) {
//       if (run.damage.ok()) Show(run);
//     }
//   }
#ifndef LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_
#define LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {

// The files of one rank, the older one first.
struct RankFiles {
  int64_t rank = 0;
  std::vector<std::string> paths;
};

// Finds the files of all ranks, in the order of ranks. `path` is that of the
// sink, as in a job's text, or the folder of the files, or one of them. The
// error says what was looked for, or that several sinks have files there.
absl::StatusOr<std::vector<RankFiles>> FindRankFiles(absl::string_view path);

// Returns true for the name of a file that such a sink writes.
bool IsNameOfRankFile(absl::string_view name);

// The times of a step on a rank, in seconds, and what it had then. A number
// that is not known is NaN. Steps are many, so a float has to do.
struct StepTimes {
  int64_t step = 0;
  float whole = 0;    // the step, without the time before it
  float between = 0;  // from the end of the step before
  float for_data = 0;
  // The time in which the trainer was blocked by operations. Where an older
  // release has not written it, it is the time in Step::Average, or that of all
  // collectives if the trainer has not averaged.
  float blocked = 0;
  float collectives = 0;
  float rows = 0;
  float ready_batches = 0;
};

// The times of the collectives of a step from issue to end, in seconds: of
// those in which each rank waits for all others, by group, in the order of
// issue.
struct CollectiveTimes {
  int64_t step = 0;
  std::vector<float> took;
};

// What a rank has written in one run.
struct RankRun {
  int64_t run = 0;  // 0: a run without records
  // Why the records can't be used: the file, the line and what is wrong.
  absl::Status damage;
  int64_t size = 0;
  int64_t pid = 0;
  std::string host, clock, job;
  // The first and the last step that the files have; none if they have none.
  std::optional<int64_t> first_step, last_step;
  // The steps before the first one that are lost, since the files have room
  // only for later ones.
  int64_t lost_steps = 0;
  // The steps between the first and the last one that have no line.
  int64_t missing_steps = 0;
  // All lines of events. Those of steps that were not to be kept have no
  // events.
  std::vector<EventsLine> events;
  // These are read if they are wanted: each step, the last times of each
  // operation, and the slowest samples of each loader.
  std::vector<StepTimes> steps;
  // The times when the first and the last of these steps ended, in seconds
  // since 1970 by the host's clock.
  double first_ended = 0, last_ended = 0;
  // The time that workers took for the samples of the steps with events, and
  // the number of these steps that have such times.
  double read_seconds = 0;
  int64_t read_steps = 0;
  std::vector<CollectiveTimes> collectives;  // of the steps with events
  int64_t operations_until = 0;              // the step of the last times
  std::vector<OperationTimes> operations;
  std::map<std::string, std::vector<SlowRecord>> slowest;
};

struct RankRecords {
  int64_t rank = 0;
  // What is worth telling, but no damage.
  std::vector<std::string> notes;
  std::vector<RankRun> runs;  // in the order of the files
};

// The parts of the records that a reader wants.
struct RecordsWanted {
  // Says of which steps the events are kept; null: of none.
  std::function<bool(int64_t step)> events_of;
  // True if the times of steps and operations and the slowest samples are kept.
  bool times = false;
};

// Reads the records of a rank. What can't be used is told by RankRun::damage.
RankRecords ReadRankRecords(const RankFiles& files,
                            const RecordsWanted& wanted);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_
