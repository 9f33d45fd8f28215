// RankRecords are what the sink "json_lines" of one rank has written: the file
// that it writes, and the one before it. FindRankFiles finds the files of all
// ranks.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto found,
//                             FindRankFiles("/data/runs/7/steps"));
//   for (const RankFiles& files : found) {
//     const RankRecords records =
//         ReadRankRecords(files, [](int64_t step) { return step > 100; });
//     for (const RankRun& run : records.runs) {
//       if (run.damage.ok()) Show(run);
//     }
//   }
#ifndef LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_
#define LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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
};

struct RankRecords {
  int64_t rank = 0;
  // What is worth telling, but no damage.
  std::vector<std::string> notes;
  std::vector<RankRun> runs;  // in the order of the files
};

// Reads the records of a rank. `keeps` says of which steps the events are kept.
RankRecords ReadRankRecords(const RankFiles& files,
                            const std::function<bool(int64_t step)>& keeps);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_RANK_RECORDS_H_
