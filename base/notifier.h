// A Notifier gives lines of text to a function on a thread of its own, so that
// a paused terminal, a full pipe, a slow disk or a function that blocks holds
// up no other thread. Internal.
//
//   Notifier notifier([&](absl::string_view line) { log << line << '\n'; });
//   notifier.WriteLine("epoch 0: 417 steps in 12.3 s");
//   notifier.Flush(kLastPatience);
#ifndef LOCKSTEP_BASE_NOTIFIER_H_
#define LOCKSTEP_BASE_NOTIFIER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>  // NOLINT: a library's own thread

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

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

  // `bar` gets texts that replace each other; it may be null.
  explicit Notifier(Output line, Output bar = nullptr);

  // Closes the notifier.
  ~Notifier();

  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool has_bar() const;

  // `owner` is whoever will call Drop for its lines, or null.
  void WriteLine(absl::string_view text, const void* owner = nullptr);
  void ShowBar(absl::string_view text);

  // Waits until everything is written, for at most `patience`. Returns false if
  // something is not written, and at once if an output still blocks in a call
  // for which an earlier Flush waited for kLastPatience or longer.
  bool Flush(absl::Duration patience);

  // Waits until all lines of `owner` are written, for at most kLastPatience,
  // and then drops those that are not written.
  // Requires: the owner writes no line during this call or after it.
  void Drop(const void* owner);

  // Drops what is not written after kLastPatience, and what comes later. An
  // output that still blocks then keeps the thread, which calls no other output
  // afterwards.
  void Close();

  bool forked() const { return fork_guard_.forked(); }

 private:
  struct State;

  // Returns true if the thread runs, or can be started.
  bool HasThread();

  const ForkGuard fork_guard_;
  std::shared_ptr<State> state_;
  std::thread thread_;  // guarded by the mutex of state_
};

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_NOTIFIER_H_
