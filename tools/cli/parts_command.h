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
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tools/cli/host.h"

namespace lockstep {

// The flags of the command, by their names. What is empty selects nothing.
struct PartsCommand {
  // Words in a part's name or meaning, or in its settings.
  std::vector<std::string> words;
  std::string kind;
  std::string name;
  std::string format = "text";  // or json, csv or markdown
};

// Prints the parts of the host, and their settings. Markdown without other
// flags also has the settings of a job, as in docs/settings.md. Returns
// NOT_FOUND if no part has the words. With words, the settings of a job and of
// the host's trainer are looked through, too.
absl::Status RunParts(const CommandHost& host, const PartsCommand& command,
                      std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PARTS_COMMAND_H_
