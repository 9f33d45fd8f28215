#include "lockstep/tools/cli/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace {

// The two ends of a pipe: `out` is read, and `in` is written.
struct Pipe {
  Descriptor out, in;

  static absl::StatusOr<Pipe> Create() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return SystemError(errno, "no pipe for a rank");
    return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

// Everything that the child's part of a start needs.
struct Birth {
  const ProcessImage& image;
  const RankSurroundings& surroundings;
  pid_t launcher;
  int out, err;
  int failure;  // A pipe that takes errno if the image can't be executed.
};

// Does the child's part of a start. It makes async-signal-safe calls only.
[[noreturn]] void Become(const Birth& birth) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before that call.
  if (getppid() != birth.launcher) _exit(1);
  setpgid(0, 0);
  birth.surroundings.keeper.Remember(getpid());
  setrlimit(RLIMIT_NOFILE, &birth.surroundings.files);
  dup2(birth.surroundings.null.fd(), STDIN_FILENO);
  dup2(birth.out, STDOUT_FILENO);
  dup2(birth.err, STDERR_FILENO);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int error = birth.image.Execute();
  // If this write fails, no launcher is left that could read the error.
  if (write(birth.failure, &error, sizeof(error)) < 0) _exit(1);
  _exit(127);
}

// Returns what a child writes into its pipe `failure`, or 0 if the pipe is
// closed because the child has executed its program.
int ReadFailure(const Descriptor& failure) {
  int error = 0;
  ssize_t size;
  do {
    size = read(failure.fd(), &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  return size == sizeof(error) ? error : 0;
}

}  // namespace

absl::StatusOr<RankProcess> StartRankProcess(
    const std::string& name, const ProcessImage& image,
    const RankSurroundings& surroundings) {
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe out, Pipe::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe err, Pipe::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe failure, Pipe::Create());
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become({image, surroundings, launcher, out.in.fd(), err.in.fd(),
            failure.in.fd()});
  }
  if (pid < 0) return SystemError(errno, "no process for a rank");
  failure.in.Close();
  const int error = ReadFailure(failure.out);
  if (error != 0) {
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrCat(
        "can't execute '", absl::CHexEscape(name), "'",
        name.find('/') == std::string::npos ? ", looked for in PATH" : "", ": ",
        ErrorText(error)));
  }
  return RankProcess{pid, std::move(out.out), std::move(err.out)};
}

}  // namespace lockstep
