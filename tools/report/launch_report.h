// FindRunEnd finds out from the launcher how a run has ended: from the file
// that `lockstep launch --report` has written.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<RunEnd> end,
//                             FindRunEnd({"launch.jsonl"}, pids));
//   if (end.has_value() && end->has_failed) std::cout << end->blame << '\n';
#ifndef LOCKSTEP_TOOLS_REPORT_LAUNCH_REPORT_H_
#define LOCKSTEP_TOOLS_REPORT_LAUNCH_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// The launcher's account of the end of a run.
struct RunEnd {
  // A run that was stopped by a signal has an exit code, too, and has not
  // failed.
  bool has_failed = false;
  int64_t attempt = 0;  // from 0
  int64_t exit_code = 0;
  std::string blame;    // in one line; "": the launcher names nobody
  std::string message;  // the error in the words of a rank, or ""
  // The ends of ranks that did not end well, and that the launcher did not end:
  // "rank 1 was killed by signal 9 (SIGKILL)".
  std::vector<std::string> ends;
};

// Reads the files, one of each host, and returns the end of the last attempt
// whose processes are those of the run. `pids` has the process of each rank.
// Returns nothing if no attempt has them, and an error if a file can't be read
// or is none of the launcher's. An incomplete last line does not count.
absl::StatusOr<std::optional<RunEnd>> FindRunEnd(
    const std::vector<std::string>& paths,
    const std::map<int64_t, int64_t>& pids);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_LAUNCH_REPORT_H_
