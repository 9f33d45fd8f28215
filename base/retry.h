// RetryOnSignal repeats a call of the system that a signal has interrupted.
//
//   Descriptor file(RetryOnSignal(
//       [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
//
// close(2) must not be repeated, since it may have closed the descriptor.
#ifndef LOCKSTEP_BASE_RETRY_H_
#define LOCKSTEP_BASE_RETRY_H_

#include <cerrno>

#include "lockstep/base/language.h"

namespace lockstep {

// Repeats `call` while a signal interrupts it, and returns its last result.
// Requires: if `call` fails, it returns a negative number and sets errno.
template <typename Call>
auto RetryOnSignal(Call&& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_RETRY_H_
