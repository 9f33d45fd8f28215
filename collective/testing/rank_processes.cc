#include "lockstep/collective/testing/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr char kRoleFlag[] = "--role";
// A rank that hangs ends before Bazel ends a medium test, so that it is named.
constexpr unsigned kMostSeconds = 240;

}  // namespace

RankProcesses::RankProcesses(const std::string& role, int size,
                             const std::string& argument) {
  folder_ = absl::StrCat(testing::TempDir(), "/ranks_XXXXXX");
  if (mkdtemp(folder_.data()) == nullptr) {
    ADD_FAILURE() << "no folder " << folder_;
    return;
  }
  processes_.resize(size);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<std::string> words = {
        "/proc/self/exe",   kRoleFlag, role,    absl::StrCat(rank),
        absl::StrCat(size), folder_,   argument};
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      ADD_FAILURE() << "no pipe: errno " << errno;
      return;
    }
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(ends[1], STDOUT_FILENO);
      alarm(kMostSeconds);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    processes_[rank].pid = pid;
    processes_[rank].output = ends[0];
    if (pid < 0) ADD_FAILURE() << "no process: errno " << errno;
  }
}

RankProcesses::~RankProcesses() {
  for (Process& process : processes_) {
    if (process.output >= 0) close(process.output);
    if (process.pid <= 0) continue;
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RankProcesses::Signal(int rank, int signal) {
  Process& process = processes_[rank];
  ASSERT_GT(process.pid, 0);
  process.signaled = true;
  kill(process.pid, signal);
  if (signal != SIGSTOP) return;
  siginfo_t stopped;  // its last thread stops some time after the kill
  while (waitid(P_PID, process.pid, &stopped, WSTOPPED | WEXITED | WNOWAIT) &&
         errno == EINTR) {
  }
}

bool RankProcesses::Read(Process& process) {
  char bytes[4096];
  const ssize_t got = read(process.output, bytes, sizeof(bytes));
  if (got > 0) process.printed.append(bytes, got);
  return got > 0 || (got < 0 && errno == EINTR);
}

std::string RankProcesses::AwaitLine(int rank, const std::string& text) {
  Process& process = processes_[rank];
  const auto there = [&] {
    const size_t at = process.printed.find(text);
    return at != std::string::npos &&
           process.printed.find('\n', at) != std::string::npos;
  };
  while (!there()) {
    if (Read(process)) continue;
    ADD_FAILURE() << "rank " << rank << " ended without '" << text
                  << "', after:\n"
                  << process.printed;
    break;
  }
  return process.printed;
}

std::string RankProcesses::Wait(int rank) {
  Process& process = processes_[rank];
  while (Read(process)) {
  }
  int status = 0;
  while (process.pid > 0 && waitpid(process.pid, &status, 0) < 0 &&
         errno == EINTR) {
  }
  process.pid = -1;
  if (!process.signaled) {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with status " << status << ", after:\n"
        << process.printed;
  }
  return process.printed;
}

int RankProcesses::Main(int argc, char** argv,
                        const std::map<std::string, Role>& roles,
                        const std::function<int()>& otherwise) {
  if (argc == 7 && std::string(argv[1]) == kRoleFlag) {
    Self self;
    const auto role = roles.find(argv[2]);
    if (role == roles.end() || !absl::SimpleAtoi(argv[3], &self.rank) ||
        !absl::SimpleAtoi(argv[4], &self.size)) {
      std::fprintf(stderr, "no role %s\n", argv[2]);
      return 2;
    }
    self.folder = argv[5];
    self.argument = argv[6];
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const int result = role->second(self);
    return result;
  }
  testing::InitGoogleTest(&argc, argv);
  return otherwise();
}

int RankProcesses::RunTests() { return RUN_ALL_TESTS(); }

}  // namespace lockstep
