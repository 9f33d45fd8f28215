// The command of the lockstep tool that says what is wrong with a job's text.
//
//   CheckCommand command;
//   command.job.config = "job.toml";
//   LOCKSTEP_ASSIGN_OR_RETURN(const int code,
//                             RunCheck(host, command, std::cout));
#ifndef LOCKSTEP_TOOLS_CLI_CHECK_H_
#define LOCKSTEP_TOOLS_CLI_CHECK_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// The flags, by their names.
struct CheckCommand {
  JobFlags job;
  std::vector<std::string> world = {"1"};  // numbers of ranks
  int64_t replicas = 1;
  // The samples of a dataset that stands in for those of all loaders. Without
  // it, the datasets are opened.
  std::optional<int64_t> size;
  std::string format = "text";
};

// Prints everything that is wrong in a job's text, with its place, and the
// batches of each loader on each number of ranks. Returns 0 if nothing is
// wrong, and otherwise 1. An error is one of the flags or of the file.
absl::StatusOr<int> RunCheck(const CommandHost& host,
                             const CheckCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_CHECK_H_
