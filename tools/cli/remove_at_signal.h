// RemoveAtSignal removes a file or a folder that is not finished if SIGINT,
// SIGTERM or SIGHUP comes, and then ends the process by that signal:
//
//   const RemoveAtSignal unfinished("/data/model.safetensors.new");
//   ...  // writes it, and gives it its name
#ifndef LOCKSTEP_TOOLS_CLI_REMOVE_AT_SIGNAL_H_
#define LOCKSTEP_TOOLS_CLI_REMOVE_AT_SIGNAL_H_

#include <signal.h>

#include <string>
#include <thread>  // NOLINT: a thread of its own

namespace lockstep {

// Requires: the process has one thread when it is made, and threads that are
// made meanwhile leave the mask of signals alone. Signals that are ignored stay
// ignored.
// Thread-safety: thread-compatible.
class RemoveAtSignal {
 public:
  explicit RemoveAtSignal(std::string path);
  ~RemoveAtSignal();

  RemoveAtSignal(const RemoveAtSignal&) = delete;
  RemoveAtSignal& operator=(const RemoveAtSignal&) = delete;

 private:
  void Await() const;

  const std::string path_;
  sigset_t signals_;  // those that are waited for
  sigset_t before_;   // the mask of the thread before
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_REMOVE_AT_SIGNAL_H_
