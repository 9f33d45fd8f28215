// A Console shows the lines of a log and, on a terminal, a bar below them.
// Internal.
//
//   const std::shared_ptr<Console> console = Console::StandardError();
//   console->WriteLine("epoch 0: 417 steps in 12.3 s");
//   if (console->has_bar()) console->ShowBar("epoch 1 [===>      ] 120/417");
#ifndef LOCKSTEP_SESSION_CONSOLE_H_
#define LOCKSTEP_SESSION_CONSOLE_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/notifier.h"

namespace lockstep::internal_session {

// It writes to the descriptor and does not use stdio. A blocked write to stderr
// would hold a lock that the process needs to exit.
// Requires: the descriptor stays open while it lives.
// Thread-safety: thread-safe.
class Console {
 public:
  Console(int fd, bool has_bar) : fd_(fd), has_bar_(has_bar) {}

  // Returns the console of the standard error. It has a bar if the standard
  // error is a terminal that can return to the beginning of a line.
  static std::shared_ptr<Console> StandardError();

  bool has_bar() const { return has_bar_; }

  void WriteLine(absl::string_view text);

  // Replaces the bar's text. A text that is wider than the terminal is cut off
  // at a comma if possible. An empty text removes the bar.
  void ShowBar(absl::string_view text);

 private:
  const int fd_;
  const bool has_bar_;
  Mutex mutex_;
  std::string bar_ ABSL_GUARDED_BY(mutex_);
};

// Returns the notifier of the process's standard error, which writes by the
// console. It has a bar if the console has one, and it is never destroyed. A
// forked child has its own.
std::shared_ptr<internal_base::Notifier> StandardErrorNotifier();

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_CONSOLE_H_
