#include "lockstep/tools/cli/process_end.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep {

std::string SignalName(int signal) {
  static constexpr struct {
    int number;
    const char* name;
  } kNames[] = {
      {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},
      {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},
      {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
      {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
      {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGUSR1, "SIGUSR1"},
      {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
  for (const auto& known : kNames) {
    if (known.number == signal) return known.name;
  }
  return absl::StrCat("SIG", signal);
}

bool ProcessEnd::IsIndependent() const {
  if (exited) return false;
  switch (status) {
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGKILL:
    case SIGSEGV:
      return true;
    default:
      return false;
  }
}

std::string ProcessEnd::ToString() const {
  if (exited) return absl::StrCat("exited with code ", status);
  return absl::StrCat("killed by signal ", status, " (", SignalName(status),
                      ")");
}

std::optional<ProcessEnd> EndOf(pid_t pid) {
  siginfo_t info = {};
  if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  return ProcessEnd{info.si_code == CLD_EXITED, info.si_status};
}

bool IsDying(pid_t pid) {
  constexpr int64_t kExiting = 0x4;  // The kernel's PF_EXITING.
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');
  // The program's name may contain parentheses. It ends before the last one.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string state;
  int64_t parent, group, session, terminal, foreground, flags = 0;
  fields >> state >> parent >> group >> session >> terminal >> foreground >>
      flags;
  return (flags & kExiting) != 0;
}

}  // namespace lockstep
