// Tells how a child process has ended, and whether one is about to end.
//
//   const std::optional<ProcessEnd> end = EndOf(pid);
//   if (end.has_value() && end->failed()) {
//     std::cerr << end->ToString();  // "killed by signal 11 (SIGSEGV)"
//   }
#ifndef LOCKSTEP_TOOLS_CLI_PROCESS_END_H_
#define LOCKSTEP_TOOLS_CLI_PROCESS_END_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace lockstep {

// "SIGTERM", or "SIG40" for a signal without a name.
std::string SignalName(int signal);

// The end of one process. It is a plain value.
struct ProcessEnd {
  bool exited = false;  // False if a signal killed the process.
  int status = 0;       // The exit code, or the number of the signal.

  bool failed() const { return !exited || status != 0; }

  // Returns the exit code that a shell would report.
  int exit_code() const { return exited ? status : 128 + status; }

  // Returns true if a signal killed the process that no process sends itself
  // because it has noticed the end of another one. SIGABRT, for example, may be
  // such an answer.
  bool IsIndependent() const;

  // "exited with code 3", or "killed by signal 11 (SIGSEGV)".
  std::string ToString() const;
};

// Returns how child `pid` has ended, or nothing if it has not. The child stays
// a zombie, so that no other process gets its number before waitpid().
std::optional<ProcessEnd> EndOf(pid_t pid);

// Returns true if the end of process `pid` has begun. The system may close the
// process's connections long before it reports the end, and a process that
// notices this may be reported as ended earlier.
bool IsDying(pid_t pid);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PROCESS_END_H_
