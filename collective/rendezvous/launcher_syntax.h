// Parses the numbers, hosts and lists that launchers write into variables. A
// text that does not have the form is refused as a whole.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// Parses a number of digits only, from `least` to `most`.
std::optional<int64_t> ParseNumber(absl::string_view text, int64_t least,
                                   int64_t most);

// Returns true if all characters may be in the name or the address of a host.
// Brackets may not.
bool IsHostName(absl::string_view text);

// Returns the first host of one of Slurm's lists: "rack1node003-ib" for
// "rack[1-2]node[003-005,007]-ib,gpu1".
std::optional<std::string> FirstHostOf(absl::string_view list);

// The meaning of Slurm's "4(x2),3": 4 tasks on each of two nodes, and 3 on a
// third one.
struct TasksPerNode {
  int64_t all = 0;
  int64_t most = 0;      // the most on one node
  int64_t on_node = -1;  // on node `node`; -1: there is no such node
};
std::optional<TasksPerNode> ParseTasksPerNode(absl::string_view text,
                                              int64_t node);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_
