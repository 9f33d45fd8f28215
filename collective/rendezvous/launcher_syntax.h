// How launchers write numbers, hosts and lists in variables. What is not of the
// form is refused as a whole.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// Digits alone, from `least` to `most`.
std::optional<int64_t> ParseNumber(absl::string_view text, int64_t least,
                                   int64_t most);

// Whether all characters may be in the name or address of a host; brackets may
// not.
bool IsHostName(absl::string_view text);

// The first of a list of Slurm's: of "rack[1-2]node[003-005,007]-ib,gpu1", that
// is "rack1node003-ib".
std::optional<std::string> FirstHostOf(absl::string_view list);

// Slurm's "4(x2),3": 4 tasks on each of two nodes, and 3 on a third.
struct TasksPerNode {
  int64_t all = 0;
  int64_t most = 0;      // on any node
  int64_t on_node = -1;  // the one asked for; -1: there is none
};
std::optional<TasksPerNode> ParseTasksPerNode(absl::string_view text,
                                              int64_t node);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_LAUNCHER_SYNTAX_H_
