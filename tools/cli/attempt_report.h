// The report of a launch, for programs that start launches and look at how they
// have ended: one line of JSON for each attempt.
//
//   lockstep launch -n 2 --report=launch.jsonl -- ./train
//
//   {"version":1,"attempt":0,"node_rank":0,"exit_code":137,
//    "blame":{"cause":"lost",...},"message":"","reported_by":-1,
//    "ranks":[{"rank":0,"pid":11,"exit_code":1,
//    "end":"exited with code 1","sent_by_launcher":false},...]}
#ifndef LOCKSTEP_TOOLS_CLI_ATTEMPT_REPORT_H_
#define LOCKSTEP_TOOLS_CLI_ATTEMPT_REPORT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/collective/blame.h"
#include "lockstep/tools/cli/process_end.h"

namespace lockstep {

// One attempt to run the ranks of this host.
struct AttemptReport {
  struct Rank {
    int64_t number = -1;
    pid_t pid = -1;
    ProcessEnd end;
    // True if the launcher has sent the signal that killed the rank.
    bool sent_by_launcher = false;
  };

  int64_t attempt = 0;  // from 0
  int64_t node_rank = 0;
  int exit_code = 0;
  // Why the ranks have failed, or nothing if no rank has failed.
  std::optional<Blame> blame;
  // The error, in the words of the rank that has reported it, and the number of
  // that rank; "" and -1 if no rank has reported it.
  std::string message;
  int64_t reported_by = -1;
  std::vector<Rank> ranks;

  // Returns one line of JSON, without a newline at its end.
  std::string ToJson() const;
};

// The file of the reports.
// Thread-safety: for one thread at a time.
class ReportFile {
 public:
  // Makes the file, or empties it. It must not be a pipe, whose reader could
  // hold the launch up. If `path` is "", there is no file, and nothing is
  // written.
  static absl::StatusOr<ReportFile> Open(const std::string& path);

  absl::Status Write(const AttemptReport& report);

 private:
  ReportFile(Descriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  Descriptor file_;
  std::string path_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_ATTEMPT_REPORT_H_
