// The commands of the lockstep tool that show and convert a checkpoint file:
// checkpoint show, checkpoint export and checkpoint import.
//
//   CheckpointCommand command;
//   command.path = "/data/model.000000000120";
//   command.to = "/data/model.safetensors";
//   command.format = "safetensors";
//   absl::Status status = RunCheckpointExport(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_CHECKPOINT_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_CHECKPOINT_COMMANDS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// The words and flags of the commands, by their names.
struct CheckpointCommand {
  std::string path;    // The checkpoint, or what is to be imported.
  std::string to;      // What is to be written.
  std::string format;  // "safetensors" or "npy".
  std::string prefix = "parameters/";
  std::vector<std::string> shapes;  // Such as "weights=64,10".
};

// Prints the step of a checkpoint, and the names, types and sizes of its
// sections.
absl::Status RunCheckpointShow(const CheckpointCommand& command,
                               std::ostream& out);

// Convert a checkpoint to other files, and back; checkpoint/exchange.h
// describes how.
absl::Status RunCheckpointExport(const CheckpointCommand& command,
                                 std::ostream& out);
absl::Status RunCheckpointImport(const CheckpointCommand& command);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_CHECKPOINT_COMMANDS_H_
