#include "lockstep/base/end_process.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "absl/status/status.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/no_sigpipe.h"

namespace lockstep {
namespace {

std::atomic<bool> is_ending{false};

void EndConnections() {
  is_ending = true;
  ClosedInForks::ShutDownAll();
}

iovec PieceOf(absl::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};
}

}  // namespace

bool ProcessIsEnding() { return is_ending; }

// The connections come first, since writing waits if nobody reads the standard
// error.
void EndProcess(absl::string_view line, absl::string_view more) noexcept {
  EndConnections();
  const NoSigpipe guard;  // SIGPIPE would leave no core file
  const iovec pieces[] = {PieceOf(line), PieceOf(more), PieceOf("\n")};
  static_cast<void>(!::writev(STDERR_FILENO, pieces, 3));
  std::abort();
}

void EndAtException(const char* what) noexcept {
  EndConnections();
  // Its text is empty if there is no memory for it.
  const absl::Status why = CurrentException(what);
  EndProcess(why.message().empty() ? what : why.message(),
             ", so Lockstep ends this process (if it is a rank, the others "
             "are told)");
}

}  // namespace lockstep
