// The command of the lockstep tool that shows which rank sees which sample in
// which step.
//
//   PlanCommand command;
//   command.samples.size = 25;
//   command.world = 2;
//   absl::Status status = RunPlan(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_PLAN_H_
#define LOCKSTEP_TOOLS_CLI_PLAN_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/sample_source.h"

namespace lockstep {

// The flags, by their names.
struct PlanCommand {
  SampleFlags samples;
  int64_t world = 1;
  std::optional<int64_t> rank;   // all ranks if not given
  std::optional<int64_t> epoch;  // 0, or that of `from`, if not given
  int64_t epochs = 1;
  std::string from;  // a checkpoint, from whose place on is planned
  bool all = false;  // prints each step and each sample in the text, too
  std::string format = "text";
};

// The text has what happens to the last samples in sentences, and a table of
// the first and the last steps; the other formats have all steps. The command
// ends early, with OK, when `out` takes no more. The caller, which owns `out`,
// finds out why.
absl::Status RunPlan(const CommandHost& host, const PlanCommand& command,
                     std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PLAN_H_
