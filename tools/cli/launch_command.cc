#include "lockstep/tools/cli/launch_command.h"

#include <limits.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/rendezvous/launch_environment.h"

namespace lockstep {
namespace {

constexpr int64_t kLastPort = 65535;

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " should be ", least, " to ", most, ", but it is ", value));
}

}  // namespace

absl::Status Validate(const LaunchCommand& command) {
  if (!command.n.has_value()) {
    return absl::InvalidArgumentError(
        "-n, the number of ranks on this host, is not given; give it, as in "
        "lockstep launch -n 4 -- ./train --lr=0.1");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("-n, the number of ranks on this host,",
                                      *command.n, 1, kMostRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--nnodes", command.nnodes, 1, kMostRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--node_rank", command.node_rank, 0, command.nnodes - 1));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--master_port", command.master_port, 0, kLastPort));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--max_restarts", command.max_restarts, 0, INT_MAX));
  for (const auto& [name, duration] :
       {std::make_pair("--grace", command.grace),
        std::make_pair("--stop_grace", command.stop_grace),
        std::make_pair("--restart_delay", command.restart_delay)}) {
    if (duration >= absl::ZeroDuration()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " should not be negative, but it is ",
                     absl::FormatDuration(duration)));
  }
  if (command.nnodes > 1 &&
      (command.master_addr.empty() || command.master_port == 0 ||
       command.run_id.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "with --nnodes=", command.nnodes,
        " each node must be given the same --master_addr, --master_port and "
        "--run_id, as in --master_addr=trainer-0 --master_port=29500 "
        "--run_id=run7"));
  }
  if (command.program.empty() || command.program[0].empty()) {
    return absl::InvalidArgumentError(
        "give flags only, then -- and the program with its arguments: lockstep "
        "launch -n 4 -- ./train --lr=0.1");
  }
  return absl::OkStatus();
}

}  // namespace lockstep
