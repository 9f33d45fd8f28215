#include "lockstep/tools/cli/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/tools/cli/attempt_report.h"
#include "lockstep/tools/cli/keeper.h"
#include "lockstep/tools/cli/launcher.h"
#include "lockstep/tools/cli/rank_process.h"

namespace lockstep {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kRunIdBytes = 8;

// Raises this process's limit of open files as far as the system allows.
// Returns the limit before that, which the ranks get.
rlimit TakeAllDescriptors() {
  rlimit was = {};
  getrlimit(RLIMIT_NOFILE, &was);
  const rlimit most = {was.rlim_max, was.rlim_max};
  setrlimit(RLIMIT_NOFILE, &most);
  return was;
}

// Blocks the signals that end ranks or the launch, and returns a descriptor
// from which they are read.
absl::StatusOr<Descriptor> WatchSignals() {
  // If SIGCHLD were ignored, the system would reap the ranks.
  signal(SIGCHLD, SIG_DFL);
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    // nohup, for example, has a signal ignored, which then ends no launch.
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  Descriptor fd(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.ok()) return SystemError(errno, "no descriptor for signals");
  return fd;
}

// Opens /dev/null. Its descriptor is not one of the first three. All of these
// are open afterwards, so that no pipe takes the place of one.
absl::StatusOr<Descriptor> OpenNull() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return SystemError(errno, "/dev/null");
  } while (fd <= STDERR_FILENO);
  return Descriptor(fd);
}

absl::StatusOr<std::string> RandomHex(size_t size) {
  std::string bytes(size, '\0');
  if (getentropy(bytes.data(), size) != 0)
    return SystemError(errno, "random bytes");
  return absl::BytesToHexString(bytes);
}

absl::StatusOr<int> Launch(const LaunchCommand& command,
                           Environment environment) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(command));
  environment["MASTER_ADDR"] =
      command.master_addr.empty() ? "127.0.0.1" : command.master_addr;
  std::string run_id = command.run_id;
  if (run_id.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(run_id, RandomHex(kRunIdBytes));
  }
  environment["TORCHELASTIC_RUN_ID"] = run_id;
  // If torchrun has started this process, the store of its agent is at
  // torchrun's own port, and not at the one that the ranks are given.
  environment.erase("TORCHELASTIC_USE_AGENT_STORE");
  const auto given = [&environment](const char* name) {
    const auto found = environment.find(name);
    return found != environment.end() && !found->second.empty();
  };
  if (command.nnodes == 1 && !given("LOCKSTEP_TOKEN") &&
      !given("LOCKSTEP_TOKEN_FILE")) {
    LOCKSTEP_ASSIGN_OR_RETURN(environment["LOCKSTEP_TOKEN"],
                              RandomHex(kTokenBytes));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor null, OpenNull());
  LOCKSTEP_ASSIGN_OR_RETURN(ReportFile report,
                            ReportFile::Open(command.report));
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor signals, WatchSignals());
  LOCKSTEP_ASSIGN_OR_RETURN(Keeper keeper, Keeper::Start());
  return Launcher(command, std::move(environment), std::move(signals),
                  std::move(report),
                  {std::move(null), std::move(keeper), TakeAllDescriptors()})
      .Run();
}

}  // namespace

int RunLaunch(const LaunchCommand& command, const Environment& environment) {
  const absl::StatusOr<int> code = Launch(command, environment);
  if (code.ok()) return *code;
  const std::string text =
      absl::StrCat("lockstep launch: ", code.status().message(), "\n");
  // If this fails, there is no other place for the message.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return 1;
  if (absl::IsInvalidArgument(code.status())) return 2;
  return absl::IsNotFound(code.status()) ? 127 : 1;
}

}  // namespace lockstep
