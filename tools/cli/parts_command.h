// The command of the lockstep tool that lists the parts and settings that a
// job's text may name.
//
//   PartsCommand command;
//   command.kind = "sampler";
//   absl::Status status = RunParts(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_PARTS_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_PARTS_COMMAND_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace lockstep {

// The flags of the command, by their names. An empty kind or name stands for
// all.
struct PartsCommand {
  std::string kind;
  std::string name;
  std::string format = "text";  // Or "markdown", as in docs/settings.md.
};

// Prints Lockstep's own parts and their settings. Markdown also has the
// settings of a job.
absl::Status RunParts(const PartsCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PARTS_COMMAND_H_
