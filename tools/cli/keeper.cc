#include "lockstep/tools/cli/keeper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace {

// Runs the keeper process. `told` is the socket from which it reads the numbers
// of groups.
[[noreturn]] void Keep(int told) {
  // Signals to the launcher's group or terminal, or to all processes with its
  // name, must not reach the keeper.
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  prctl(PR_SET_NAME, "lockstep-keeper");
  std::vector<pid_t> groups;
  pid_t group;
  ssize_t size;
  while ((size = recv(told, &group, sizeof(group), 0)) != 0) {
    if (size < 0) continue;
    if (group == 0) {
      groups.clear();
    } else {
      groups.push_back(group);
    }
  }
  // All other ends of the socket are closed: that of the launcher, and those of
  // ranks that were about to become the program.
  for (const pid_t left : groups) kill(-left, SIGKILL);
  _exit(0);
}

}  // namespace

absl::StatusOr<Keeper> Keeper::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError(errno, "no socket for the keeper of the ranks");
  }
  Descriptor told(ends[0]), teller(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) {
    return SystemError(errno, "no process for the keeper of the ranks");
  }
  if (pid == 0) {
    teller.Close();
    Keep(told.fd());
  }
  return Keeper(pid, std::move(teller));
}

Keeper::Keeper(pid_t pid, Descriptor teller)
    : pid_(pid), teller_(std::move(teller)) {}

Keeper::Keeper(Keeper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), teller_(std::move(other.teller_)) {}

Keeper::~Keeper() {
  if (pid_ < 0) return;
  teller_.Close();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::Tell(pid_t group) const {
  // If somebody has killed the keeper, send() fails, and the launch goes on
  // without a keeper.
  while (send(teller_.fd(), &group, sizeof(group), MSG_NOSIGNAL) < 0 &&
         errno == EINTR) {
  }
}

}  // namespace lockstep
