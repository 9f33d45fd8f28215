// A CommandHost is the program that the commands of the lockstep tool are part
// of: its parts, and the settings of its trainer.
#ifndef LOCKSTEP_TOOLS_CLI_HOST_H_
#define LOCKSTEP_TOOLS_CLI_HOST_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Returns the error of a file or a job that was looked at. INVALID_ARGUMENT,
// which stands for a wrong command line, becomes FAILED_PRECONDITION.
inline absl::Status OfInput(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

// Thread-safety: thread-compatible.
struct CommandHost {
  PluginRegistry* registry = nullptr;

  // The settings of [trainer], or null if the program does not know them.
  const OptionTable* trainer = nullptr;

  // Receives lines about the progress of long work, for people.
  std::function<void(absl::string_view)> tell = [](absl::string_view) {};
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_HOST_H_
