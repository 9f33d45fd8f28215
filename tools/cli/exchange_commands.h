// The commands of the lockstep tool that convert checkpoints: state export and
// state import.
//
//   ExchangeCommand command;
//   command.path = "/data/model.000000000120";
//   command.to = "/data/model.safetensors";
//   command.format = "safetensors";
//   absl::Status status = RunStateExport(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_EXCHANGE_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_EXCHANGE_COMMANDS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// The flags, by their names.
struct ExchangeCommand {
  std::string path;    // the checkpoint, or what is to be imported
  std::string to;      // what is to be written
  std::string format;  // "safetensors" or "npy"
  std::string prefix = "parameters/";
  std::vector<std::string> shapes;  // such as "weights=64,10"
};

// Convert a checkpoint to other files, and back; checkpoint/exchange.h
// describes how.
absl::Status RunStateExport(const ExchangeCommand& command, std::ostream& out);
absl::Status RunStateImport(const ExchangeCommand& command);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_EXCHANGE_COMMANDS_H_
