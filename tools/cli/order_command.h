// The command of the lockstep tool that prints the indices of an order.
//
//   OrderCommand command;
//   command.samples.size = 25;
//   absl::Status status = RunOrder(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_ORDER_COMMAND_H_
#define LOCKSTEP_TOOLS_CLI_ORDER_COMMAND_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/sample_source.h"

namespace lockstep {

// The flags, by their names.
struct OrderCommand {
  SampleFlags samples;
  // The ranks for which a job's order plans. Most orders do not depend on them.
  int64_t world = 1;
  int64_t epoch = 0;
  int64_t first = 0;
  std::optional<int64_t> count;  // all up to the end if not given
  bool digest = false;
  std::string format = "text";
};

// Prints an order's indices, or the SHA-1 of all of them as little-endian
// 64-bit integers. Ends early, with OK, when `out` takes no more. The caller,
// which owns `out`, finds out why.
absl::Status RunOrder(const CommandHost& host, const OrderCommand& command,
                      std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_ORDER_COMMAND_H_
