// The command of the lockstep tool that lists what a configuration may name.
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

// The flags of the command, by their names. "": all.
struct PartsCommand {
  std::string kind;
  std::string name;
  std::string format = "text";  // or markdown: docs/settings.md
};

// Prints Lockstep's own parts and their settings; as Markdown, those of a whole
// job.
absl::Status RunParts(const PartsCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PARTS_COMMAND_H_
