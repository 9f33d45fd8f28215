// A Notifier writes the lines of a log on a thread of its own, so that a paused
// terminal, a full pipe, a slow disk or a function that blocks holds up no
// other thread. Internal.
//
//   const std::shared_ptr<Notifier> notifier = Notifier::StandardError();
//   notifier->WriteLine("epoch 0: 417 steps in 12.3 s");
//   if (notifier->has_bar()) notifier->ShowBar("epoch 1 [==>     ] 120/417");
//   notifier->Flush(kLastPatience);
#ifndef LOCKSTEP_SESSION_NOTIFIER_H_
#define LOCKSTEP_SESSION_NOTIFIER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: a library's own thread

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_session {

// An ending session or process waits for at most this time for its last lines.
inline constexpr absl::Duration kLastPatience = absl::Seconds(1);

// The first text starts the thread. If the system has no thread left, the
// calling thread calls the outputs. In a forked child, WriteLine does so, and
// ShowBar does nothing.
// Guarantees: the outputs are called one at a time, except in a forked child.
// Thread-safety: thread-safe, except for the destructor.
class Notifier {
 public:
  using Output = std::function<void(absl::string_view text)>;

  // The number of lines that wait at most. If there are more, the oldest ones
  // are dropped, and a line tells how many.
  static constexpr size_t kMostLines = 1000;

  // Returns the notifier of the process's standard error. It has a bar where
  // that is a terminal, and it is never destroyed. A forked child has its own.
  static std::shared_ptr<Notifier> StandardError();

  // `bar` gets texts that replace each other; it may be null.
  explicit Notifier(Output line, Output bar = nullptr);

  // Drops what is not written after kLastPatience. An output that still blocks
  // then keeps the thread, which calls no other output afterwards.
  ~Notifier();

  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool has_bar() const;

  void WriteLine(absl::string_view text);
  void ShowBar(absl::string_view text);

  // Waits until everything is written, for at most `patience`. Returns false if
  // something is not written, and at once if an output still blocks in a call
  // for which an earlier Flush waited for kLastPatience or longer.
  bool Flush(absl::Duration patience);

 private:
  struct State;

  // Returns true if the thread runs, or can be started.
  bool HasThread();

  const ForkGuard fork_guard_;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_NOTIFIER_H_
