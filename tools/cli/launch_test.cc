#include "lockstep/tools/cli/launch.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/launch_command.h"
#include "lockstep/tools/cli/restart_delay.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A test that hangs ends after this time, before Bazel ends a medium test.
constexpr unsigned kSafetySeconds = 240;

// A grace for tests that wait until it has passed.
constexpr absl::Duration kShort = absl::Milliseconds(10);

// Runs a launcher in a process of its own, and reads the launcher's streams.
class Launched {
 public:
  explicit Launched(const std::function<int()>& main) {
    int out[2], err[2], life[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(err), 0);
    EXPECT_EQ(pipe(life), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (const int fd : {out[0], out[1], err[0], err[1], life[0]}) close(fd);
      // A terminal starts the launcher with these actions. The test may run
      // with others.
      for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
        ::signal(signal, SIG_DFL);
      }
      _exit(main());
    }
    for (const int fd : {out[1], err[1], life[1]}) close(fd);
    out_.fd = out[0];
    err_.fd = err[0];
    life_ = life[0];
  }

  explicit Launched(const LaunchCommand& command,
                    const Environment& environment = {{"PATH",
                                                       "/bin:/usr/bin"}})
      : Launched([&] { return RunLaunch(command, environment); }) {}

  ~Launched() {
    if (pid_ > 0) Wait();
    CloseOut();
    close(err_.fd);
    close(life_);
  }

  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) { kill(pid_, signal); }
  void Stop() {
    Signal(SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  }

  // Closes stdout on the side of its reader.
  void CloseOut() {
    if (out_.fd >= 0) close(out_.fd);
    out_.fd = -1;
  }

  // Reads stdout until it has `text` that many times. AwaitErr does the same
  // for stderr, once. Neither reads the other stream.
  void AwaitOut(absl::string_view text, int times = 1) {
    Await(out_, text, times);
  }
  void AwaitErr(absl::string_view text) { Await(err_, text, 1); }

  // Waits for the end of the launcher, and returns its exit code, or -signal.
  // Expects that the launcher leaves no process behind: every process that it
  // has started holds the end of a pipe, and that pipe must come to its end.
  int Wait() {
    while (Read({&out_, &err_})) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    Stream life = {life_, ""};
    while (Read({&life})) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Returns true if the launcher has ended.
  bool HasEnded() const {
    siginfo_t info = {};
    EXPECT_EQ(waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == pid_;
  }

  // Reads what stdout has now, up to a page.
  void ReadOutPage() {
    char bytes[4096];
    pollfd polled = {out_.fd, POLLIN, 0};
    if (poll(&polled, 1, 0) <= 0) return;
    const ssize_t size = read(out_.fd, bytes, sizeof(bytes));
    if (size > 0) out_.text.append(bytes, size);
  }

  // Does the same as Wait, and reads the rest of the streams only after that.
  int WaitUnread() {
    siginfo_t info;
    alarm(kSafetySeconds);
    EXPECT_EQ(waitid(P_PID, pid_, &info, WEXITED | WNOWAIT), 0);
    alarm(0);
    return Wait();
  }

  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

  // Returns the lines of stdout, sorted, so that their order does not depend on
  // the time.
  std::vector<std::string> SortedOut() const {
    std::vector<std::string> lines =
        absl::StrSplit(absl::StripSuffix(out(), "\n"), '\n');
    std::sort(lines.begin(), lines.end());
    return lines;
  }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
    bool ended = false;
  };

  // Waits for bytes from any of the streams and reads them. Returns false when
  // all streams have come to their end.
  static bool Read(const std::vector<Stream*>& streams) {
    std::vector<pollfd> polled;
    bool more = false;
    for (const Stream* stream : streams) {
      const bool open = stream->fd >= 0 && !stream->ended;
      polled.push_back({open ? stream->fd : -1, POLLIN, 0});
      more = more || open;
    }
    if (!more) return false;
    const int ready = poll(polled.data(), polled.size(), 1000 * kSafetySeconds);
    if (ready <= 0) {
      ADD_FAILURE() << "nothing comes any more";
      return false;
    }
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      char bytes[65536];
      const ssize_t size = read(polled[i].fd, bytes, sizeof(bytes));
      if (size > 0) streams[i]->text.append(bytes, size);
      streams[i]->ended = size <= 0;
    }
    return true;
  }

  static void Await(Stream& stream, absl::string_view text, int times) {
    const auto count = [&] {
      int found = 0;
      for (size_t at = stream.text.find(text.data(), 0, text.size());
           at != std::string::npos;
           at = stream.text.find(text.data(), at + 1, text.size())) {
        ++found;
      }
      return found;
    };
    while (count() < times) {
      if (Read({&stream})) continue;
      ADD_FAILURE() << "no '" << text << "' in:\n" << stream.text;
      return;
    }
  }

  pid_t pid_ = -1;
  Stream out_, err_;
  int life_ = -1;
};

LaunchCommand Shell(int64_t n, const std::string& script) {
  LaunchCommand command;
  command.n = n;
  command.program = {"sh", "-c", script};
  // By default no test sees the end of a grace.
  command.grace = command.stop_grace = absl::InfiniteDuration();
  return command;
}

// A named pipe at which a rank waits for the test: "read go < " + path.
class Gate {
 public:
  explicit Gate(const std::string& name)
      : path_(absl::StrCat(testing::TempDir(), "/launch_gate_", name, "_",
                           getpid())) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
  }
  ~Gate() { unlink(path_.c_str()); }

  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  const std::string& path() const { return path_; }

  // Waits until the rank is at the gate, and lets it go on.
  void Open() const {
    alarm(kSafetySeconds);
    const int fd = open(path_.c_str(), O_WRONLY);
    EXPECT_EQ(write(fd, "go\n", 3), 3);
    close(fd);
    alarm(0);
  }

 private:
  const std::string path_;
};

void AwaitZombie(pid_t pid) {
  std::string state;
  while (state != "Z") {
    std::string number, name;
    std::ifstream(absl::StrCat("/proc/", pid, "/stat")) >> number >> name >>
        state;
    ASSERT_EQ(number, absl::StrCat(pid));
  }
}

// Returns the keeper of launcher `pid`. Waits until the keeper has its name.
pid_t KeeperOf(pid_t pid) {
  alarm(kSafetySeconds);
  while (true) {
    std::ifstream children(
        absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
    for (pid_t child; children >> child;) {
      std::string name;
      std::ifstream(absl::StrCat("/proc/", child, "/comm")) >> name;
      if (name != "lockstep-keeper") continue;
      alarm(0);
      return child;
    }
  }
}

// Returns the lines of rank `rank` in `out`, without their prefix.
std::string OutOf(int rank, const std::string& out) {
  const std::string prefix = absl::StrCat("[rank ", rank, "] ");
  std::string text;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    if (absl::ConsumePrefix(&line, prefix)) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

Environment ParseEnvironment(const std::string& text) {
  Environment environment;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> setting =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    environment.insert(setting);
  }
  environment.erase("");
  return environment;
}

TEST(Launch, SetsTorchrunsVariables) {
  LaunchCommand command;
  command.n = 2;
  command.max_restarts = 3;
  command.grace = absl::InfiniteDuration();
  command.program = {"env"};
  Launched launched(command, {{"PATH", "/bin:/usr/bin"},
                              {"RANK", "7"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"OF_THE_USER", "a=b"}});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.err(), "");
  Environment first = ParseEnvironment(OutOf(0, launched.out()));
  Environment second = ParseEnvironment(OutOf(1, launched.out()));
  for (Environment* variables : {&first, &second}) {
    EXPECT_EQ((*variables)["WORLD_SIZE"], "2");
    EXPECT_EQ((*variables)["LOCAL_WORLD_SIZE"], "2");
    EXPECT_EQ((*variables)["GROUP_RANK"], "0");
    EXPECT_EQ((*variables)["MASTER_ADDR"], "127.0.0.1");
    EXPECT_THAT((*variables)["MASTER_PORT"], ContainsRegex("^[1-9][0-9]*$"));
    EXPECT_EQ((*variables)["TORCHELASTIC_RESTART_COUNT"], "0");
    EXPECT_EQ((*variables)["TORCHELASTIC_MAX_RESTARTS"], "3");
    EXPECT_THAT((*variables)["TORCHELASTIC_RUN_ID"],
                ContainsRegex("^[0-9a-f]{16}$"));
    EXPECT_THAT((*variables)["LOCKSTEP_TOKEN"],
                ContainsRegex("^[0-9a-f]{64}$"));
    EXPECT_EQ((*variables)["OF_THE_USER"], "a=b");
    EXPECT_EQ(variables->count("TORCHELASTIC_USE_AGENT_STORE"), 0);
  }
  EXPECT_EQ(first["RANK"], "0");
  EXPECT_EQ(first["LOCAL_RANK"], "0");
  EXPECT_EQ(second["RANK"], "1");
  EXPECT_EQ(second["LOCAL_RANK"], "1");
  for (const char* same :
       {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "LOCKSTEP_TOKEN"}) {
    EXPECT_EQ(first[same], second[same]) << same;
  }

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LaunchEnvironment read,
                                ReadLaunchEnvironment(second));
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.size, 2);
  EXPECT_EQ(read.local_rank, 1);
  EXPECT_EQ(read.local_size, 2);
  EXPECT_EQ(read.address, absl::StrCat("127.0.0.1:", first["MASTER_PORT"]));
  EXPECT_EQ(read.token, first["LOCKSTEP_TOKEN"]);
}

TEST(Launch, StartsOneNodeOfSeveral) {
  LaunchCommand command;
  command.n = 2;
  command.nnodes = 3;
  command.node_rank = 2;
  command.master_addr = "trainer-0";
  command.master_port = 29500;
  command.run_id = "run7";
  command.program = {"env"};
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 0);
  Environment variables = ParseEnvironment(OutOf(5, launched.out()));
  EXPECT_EQ(variables["RANK"], "5");
  EXPECT_EQ(variables["LOCAL_RANK"], "1");
  EXPECT_EQ(variables["WORLD_SIZE"], "6");
  EXPECT_EQ(variables["LOCAL_WORLD_SIZE"], "2");
  EXPECT_EQ(variables["GROUP_RANK"], "2");
  EXPECT_EQ(variables["MASTER_ADDR"], "trainer-0");
  EXPECT_EQ(variables["MASTER_PORT"], "29500");
  EXPECT_EQ(variables["TORCHELASTIC_RUN_ID"], "run7");
  EXPECT_EQ(variables.count("LOCKSTEP_TOKEN"), 0);
}

TEST(Launch, KeepsTheUsersToken) {
  const std::string script = "echo \"$LOCKSTEP_TOKEN,$LOCKSTEP_TOKEN_FILE\"";
  Launched with_token(Shell(1, script), {{"PATH", "/bin:/usr/bin"},
                                         {"LOCKSTEP_TOKEN", "secret"}});
  EXPECT_EQ(with_token.Wait(), 0);
  EXPECT_EQ(with_token.out(), "[rank 0] secret,\n");
  Launched with_file(Shell(1, script), {{"PATH", "/bin:/usr/bin"},
                                        {"LOCKSTEP_TOKEN_FILE", "/token"}});
  EXPECT_EQ(with_file.Wait(), 0);
  EXPECT_EQ(with_file.out(), "[rank 0] ,/token\n");
}

TEST(Launch, KeepsStreamsApartAndInOrder) {
  Launched launched(Shell(3, "seq 1 20000; seq 1 3 >&2; printf last"));
  EXPECT_EQ(launched.Wait(), 0);
  std::string all;
  for (int i = 1; i <= 20000; ++i) absl::StrAppend(&all, i, "\n");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(OutOf(rank, launched.out()), all + "last\n");
    EXPECT_EQ(OutOf(rank, launched.err()), "1\n2\n3\n");
  }
}

TEST(Launch, CutsLongLinesAndLosesNoByte) {
  // These are lines of most lengths around a cut, and one of a megabyte. All
  // contain zero bytes.
  const size_t room = PIPE_BUF - 1 - std::string("[rank 0] ").size();
  const auto line = [](size_t size) {
    return absl::StrCat("head -c ", size,
                        " /dev/zero | tr '\\0' a; printf '\\0\\n'; ");
  };
  std::string script;
  for (size_t size = room - 2; size <= room + 1; ++size) {
    script += line(size);
  }
  script += line(1 << 20);
  Launched launched(Shell(1, script));
  EXPECT_EQ(launched.Wait(), 0);
  const std::vector<std::string> lines =
      absl::StrSplit(OutOf(0, launched.out()), '\n');
  ASSERT_GT(lines.size(), 6);
  const std::string zero(1, '\0');
  EXPECT_EQ(lines[0], std::string(room - 2, 'a') + zero);
  EXPECT_EQ(lines[1], std::string(room - 1, 'a') + zero);
  EXPECT_EQ(lines[2], std::string(room, 'a'));
  EXPECT_EQ(lines[3], zero);
  EXPECT_EQ(lines[4], std::string(room, 'a'));
  EXPECT_EQ(lines[5], "a" + zero);
  std::string rest;
  for (size_t i = 6; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), room);
    rest += lines[i];
  }
  EXPECT_EQ(rest, std::string(1 << 20, 'a') + zero);
}

TEST(Launch, GivesRanksAGroupAndNoInput) {
  Launched launched(
      Shell(2,
            "read input; echo \"input $input\"; "
            "read pid name state parent group rest < /proc/self/stat; "
            "[ $pid = $group ] && echo leads its group"));
  EXPECT_EQ(launched.Wait(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(OutOf(rank, launched.out()), "input \nleads its group\n");
  }
}

TEST(Launch, GivesRanksFreshSignals) {
  LaunchCommand command;
  command.n = 1;
  command.program = {"grep", "^Sig[BI]", "/proc/self/status"};
  Launched launched([&] {
    // While SIGCHLD is ignored, the system reaps children, so the launcher has
    // to undo that.
    for (const int signal : {SIGCHLD, SIGHUP, SIGUSR1}) {
      ::signal(signal, SIG_IGN);
    }
    sigset_t blocked;
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    return RunLaunch(command, {{"PATH", "/bin:/usr/bin"}});
  });
  EXPECT_EQ(launched.Wait(), 0);
  // The C library reserves signals 32 and 33, whose actions can't be set.
  EXPECT_THAT(launched.SortedOut(),
              ElementsAre("[rank 0] SigBlk:\t0000000000000000",
                          testing::MatchesRegex(
                              "\\[rank 0\\] SigIgn:\t0000000[01]80000000|"
                              "\\[rank 0\\] SigIgn:\t0000000000000000")));
}

TEST(Launch, LetsTheOthersReport) {
  const Gate first("first"), second("second");
  Launched launched(
      Shell(3, absl::StrCat("case $RANK in 0) read go < ", first.path(),
                            ";; 1) read go < ", second.path(),
                            ";; 2) kill -9 $$;; esac; echo saw it; exit 1")));
  launched.AwaitErr("the others have inf s to report\n");
  // Neither of the other ranks was killed, or Open() would wait forever.
  first.Open();
  second.Open();
  EXPECT_EQ(launched.Wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.SortedOut(),
              ElementsAre("[rank 0] saw it", "[rank 1] saw it"));
  EXPECT_THAT(launched.err(),
              ContainsRegex("lockstep launch: rank 2 .pid [0-9]+. was killed "
                            "by signal 9 .SIGKILL.; the others have inf s"));
  EXPECT_THAT(launched.err(),
              HasSubstr("lockstep launch: rank 2 died first: killed by signal "
                        "9 (SIGKILL)\n"
                        "lockstep launch: ranks 0, 1: exited with code 1\n"));
}

// Begins to end this process: its first thread ends at once. The other thread
// kills the process when the gate `path` is opened.
int DieSlowly(const char* path) {
  std::thread([path] {
    AwaitZombie(getpid());
    std::puts("dying");
    std::fflush(stdout);
    char byte;
    const ssize_t size = read(open(path, O_RDONLY), &byte, 1);
    kill(getpid(), size == 1 ? SIGKILL : SIGABRT);
  }).detach();
  // This ends the calling thread only. Sanitizers don't notice it.
  return static_cast<int>(syscall(SYS_exit, 0));
}

// The rank that the launcher sees dead first has only noticed the other's
// death.
TEST(Launch, BlamesTheRankThatWasKilled) {
  const Gate first("noticed"), second("killed");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  Launched launched(
      Shell(3, absl::StrCat("case $RANK in 0) exit 0;; 1) read go < ",
                            first.path(), "; exit 3;; 2) exec '", self,
                            "' --die_slowly ", second.path(), ";; esac")));
  launched.AwaitOut("[rank 2] dying\n");
  first.Open();
  launched.AwaitErr("exited with code 3; the others have inf s to report\n");
  second.Open();
  EXPECT_EQ(launched.Wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.err(),
              HasSubstr("lockstep launch: rank 2 died first: killed by signal "
                        "9 (SIGKILL)\n"
                        "lockstep launch: rank 0: exited with code 0\n"
                        "lockstep launch: rank 1: exited with code 3\n"));
}

// Both ranks are dead when the launcher looks.
TEST(Launch, BlamesNoRankThatAborts) {
  const Gate first("gone"), second("abort");
  Launched launched(
      Shell(2, absl::StrCat("echo $$; if [ $RANK = 0 ]; then read go < ",
                            first.path(), "; exit 3; fi; read go < ",
                            second.path(), "; kill -ABRT $$")));
  launched.AwaitOut("[rank ", 2);
  const auto pid_of = [&launched](int rank) {
    return std::stoi(OutOf(rank, launched.out()));
  };
  const pid_t zero = pid_of(0), one = pid_of(1);
  launched.Stop();
  first.Open();
  AwaitZombie(zero);
  second.Open();
  AwaitZombie(one);
  launched.Signal(SIGCONT);
  EXPECT_EQ(launched.Wait(), 3);
  EXPECT_THAT(launched.err(),
              AllOf(HasSubstr("rank 0 failed first: exited with code 3\n"),
                    HasSubstr("rank 1: killed by signal 6 (SIGABRT)\n")));
}

TEST(Launch, TellsWhoHadEndedBefore) {
  const Gate gate("early"), late("late");
  Launched launched(
      Shell(3, absl::StrCat("case $RANK in 0) read go < ", gate.path(),
                            "; exit 4;; 1) read go < ", late.path(),
                            ";; 2) echo $$;; esac")));
  launched.AwaitOut("[rank 2] ");
  AwaitZombie(std::stoi(OutOf(2, launched.out())));
  gate.Open();
  launched.AwaitErr("exited with code 4; the others have inf s to report\n");
  late.Open();
  EXPECT_EQ(launched.Wait(), 4);
  EXPECT_THAT(
      launched.err(),
      HasSubstr("lockstep launch: rank 0 failed first: exited with code 4\n"
                "lockstep launch: rank 1: exited with code 0\n"
                "lockstep launch: rank 2: exited with code 0, before that\n"));
}

TEST(Launch, BlamesNoRankThatWasKilledLater) {
  const Gate gate("later");
  Launched launched(Shell(2, absl::StrCat("[ $RANK = 0 ] && exit 3; read go < ",
                                          gate.path(), "; kill -9 $$")));
  launched.AwaitErr("exited with code 3; the others have inf s to report\n");
  gate.Open();
  EXPECT_EQ(launched.Wait(), 3);
  EXPECT_THAT(
      launched.err(),
      HasSubstr("lockstep launch: rank 0 failed first: exited with code 3\n"
                "lockstep launch: rank 1: killed by signal 9 (SIGKILL)\n"));
}

// A function of the shell by which a rank reports: "report 1 TEXT" blames rank
// 1, and -1 stands for no rank.
constexpr char kReport[] = R"sh(report() {
  [ $1 = -1 ] && set -- '' "$2" ||
    set -- '{"rank":'$1',"host":"","pid":0,"last":"","age":0}' "$2"
  blame='{"cause":"failed","code":"INTERNAL","ranks":['$1'],"more":0,'
  blame=$blame'"operation":"","number":0,"has_begun":true}'
  printf '%s\t%s\t%s\n' $RANK "$blame" "$2" >> $LOCKSTEP_FAILURES
}
)sh";

// Rank 0 fails first, and is the last one to end.
TEST(Launch, BlamesTheRankWhoseErrorCameFirst) {
  const Gate gate("reported");
  Launched launched(Shell(
      3, absl::StrCat(
             kReport, "case $RANK in 0) read go < ", gate.path(),
             "; report 0 'NOT_FOUND: no file'; exit 2;; "
             "1) report 0 'ABORTED: rank 0 aborted'; exit 1;; "
             "2) report 1 'UNAVAILABLE: rank 1 is lost'; exit 1;; esac")));
  launched.AwaitErr(" because of rank ");
  launched.AwaitErr("; the others have inf s to report\n");
  gate.Open();
  EXPECT_EQ(launched.Wait(), 2);
  EXPECT_THAT(launched.err(),
              HasSubstr("lockstep launch: rank 0 failed first: exited with "
                        "code 2: NOT_FOUND: no file\n"
                        "lockstep launch: ranks 1, 2: exited with code 1\n"
                        "lockstep launch: failed: rank 0; its own error "));
}

TEST(Launch, BlamesARankThatHasReportedNothing) {
  const std::string report = absl::StrCat(
      kReport, "[ $RANK = 0 ] || { report 0 'ABORTED: why'; exit 3; }; ");
  // Such a rank hangs, or ends well. Neither is the exit code of the launch.
  LaunchCommand command = Shell(2, report + "exec sleep 1000");
  command.grace = kShort;
  Launched hangs(command);
  EXPECT_EQ(hangs.Wait(), 3);
  EXPECT_THAT(hangs.err(),
              HasSubstr("rank 0 is to blame, and was ended by the launcher: "
                        "killed by signal 15 (SIGTERM); rank 1 reports: "
                        "ABORTED: why\n"
                        "lockstep launch: rank 1: exited with code 3\n"));
  Launched leaves(Shell(2, report));
  EXPECT_EQ(leaves.Wait(), 3);
  EXPECT_THAT(leaves.err(),
              HasSubstr("rank 0 left first: exited with code 0; rank 1 "
                        "reports: ABORTED: why\n"));
}

TEST(Launch, BlamesARankOfAnotherNode) {
  LaunchCommand command = Shell(
      2, absl::StrCat(kReport, "report 7 'ABORTED: rank 7 aborted'; exit 4"));
  command.nnodes = 4;
  command.master_addr = "localhost";
  command.master_port = 29500;
  command.run_id = "run7";
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 4);
  EXPECT_THAT(launched.err(),
              ContainsRegex("rank 7 of another node is to blame; rank [01] "
                            "reports: ABORTED: rank 7 aborted\n"
                            "lockstep launch: ranks 0, 1: exited with code 4"));
}

TEST(Launch, BlamesNobodyWhereNobodyIsToBlame) {
  Launched launched(Shell(
      2, absl::StrCat(kReport,
                      "report -1 'FAILED_PRECONDITION: they differ'; exit 1")));
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.err(),
              AllOf(ContainsRegex("the ranks failed together; rank [01] "
                                  "reports: FAILED_PRECONDITION: they differ\n"
                                  "lockstep launch: ranks 0, 1: exited with "
                                  "code 1"),
                    Not(HasSubstr("because of"))));
}

// The last report of a rank counts, and none that names no rank of the job.
TEST(Launch, ChoosesAmongReports) {
  Launched launched(
      Shell(1, absl::StrCat(kReport,
                            "report 0 'INTERNAL: earlier'; report 0 'INTERNAL: "
                            "last'; report 9 'INTERNAL: elsewhere'; exit 1")));
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.err(), HasSubstr("rank 0 failed first: exited with code "
                                        "1: INTERNAL: last\n"));
}

TEST(Launch, FollowsReportsThatGoRoundInACircle) {
  Launched launched(Shell(
      2, absl::StrCat(kReport, "report $((1 - RANK)) 'ABORTED: why'; exit 4")));
  EXPECT_EQ(launched.Wait(), 4);
  EXPECT_THAT(launched.err(), ContainsRegex("rank [01] failed first: exited "
                                            "with code 4"));
}

// Returns the lines of the file of --report.
std::vector<std::string> ReportsIn(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Returns what stands in `text` between `begin` and the next `end`.
std::string FirstPartOf(const std::string& text, const std::string& begin,
                        const std::string& end) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const std::string rest = text.substr(at + begin.size());
  return rest.substr(0, rest.find(end));
}

TEST(Launch, ReportsEachAttempt) {
  LaunchCommand command = Shell(
      2, absl::StrCat(kReport,
                      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0;"
                      "[ $RANK = 1 ] || { report 1 'ABORTED: why'; exit 3; };"
                      "report 1 'NOT_FOUND: no \"file\"'; exit 4"));
  command.max_restarts = 1;
  command.restart_delay = absl::ZeroDuration();
  command.report = absl::StrCat(testing::TempDir(), "/launch.jsonl");
  std::ofstream(command.report) << "what an earlier launch has left\n";
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 0);
  const std::vector<std::string> lines = ReportsIn(command.report);
  ASSERT_THAT(lines, testing::SizeIs(2));
  EXPECT_THAT(
      lines[0],
      testing::MatchesRegex(
          R"re(\{"version":1,"attempt":0,"node_rank":0,"exit_code":4,"blame":\{"cause":"failed",.*)re"
          R"re("ranks":\[\{"rank":1,.*"message":"NOT_FOUND: no \\"file\\"",)re"
          R"re("reported_by":1,"ranks":\[\{"rank":0,"pid":[0-9]+,"exit_code":3,)re"
          R"re("end":"exited with code 3","sent_by_launcher":false\},\{"rank":1,)re"
          R"re("pid":[0-9]+,"exit_code":4,.*\]\})re"));
  EXPECT_THAT(
      lines[1],
      testing::StartsWith(
          R"({"version":1,"attempt":1,"node_rank":0,"exit_code":0,"blame":null,"message":"",)"));
}

TEST(Launch, ReportsARankThatCouldNotReport) {
  LaunchCommand command = Shell(2, "[ $RANK = 0 ] || kill -9 $$; sleep 1000");
  command.grace = kShort;
  command.report = absl::StrCat(testing::TempDir(), "/killed.jsonl");
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 137);
  EXPECT_THAT(launched.err(), HasSubstr("lockstep launch: lost: rank 1 ("));
  const std::vector<std::string> lines = ReportsIn(command.report);
  ASSERT_THAT(lines, testing::SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr(R"("cause":"lost","code":"UNAVAILABLE")"));
  // The same process stands in the blame and among the ranks.
  const std::string process = absl::StrCat(
      "\"pid\":", FirstPartOf(lines[0], "{\"rank\":1,\"pid\":", ","), ",");
  EXPECT_THAT(FirstPartOf(lines[0], "\"ranks\":[{\"rank\":1,", "}"),
              HasSubstr(process));
}

TEST(Launch, TellsWhenItCannotReport) {
  LaunchCommand command = Shell(1, "echo started");
  command.report = "/nowhere/launch.jsonl";
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 2);
  EXPECT_THAT(launched.err(), HasSubstr("--report=/nowhere/launch.jsonl: "));
  EXPECT_EQ(launched.out(), "");
  const std::string pipe = absl::StrCat(testing::TempDir(), "/report.pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Descriptor reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  command.report = pipe;
  Launched piped(command);
  EXPECT_EQ(piped.Wait(), 2);
  EXPECT_THAT(piped.err(), HasSubstr(" is a pipe; give the path of a file"));
  command.report = "/dev/full";
  Launched full(command);
  EXPECT_EQ(full.Wait(), 0);
  EXPECT_THAT(full.err(), HasSubstr("the report /dev/full can't be written"));
}

TEST(Launch, EndsTheOthersAfterTheGrace) {
  const Gate gate("grace");
  LaunchCommand command =
      Shell(3, absl::StrCat("case $RANK in "
                            "0) read go < ",
                            gate.path(),
                            "; exit 3;; "
                            "1) echo ready; exec sleep 1000;; "
                            "2) trap '' TERM; sleep 1000 & echo ready; wait;; "
                            "esac"));
  command.grace = kShort;
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  gate.Open();
  EXPECT_EQ(launched.Wait(), 3);
  EXPECT_THAT(
      launched.err(),
      AllOf(HasSubstr("exited with code 3; the others have 0.01 s to report\n"),
            HasSubstr("sending SIGTERM to ranks 1, 2\n"),
            HasSubstr("rank 0 failed first: exited with code 3\n"),
            HasSubstr("rank 1: killed by signal 15 (SIGTERM), sent by the "
                      "launcher\n"),
            HasSubstr("rank 2: killed by signal 9 (SIGKILL), sent by the "
                      "launcher\n")));
}

TEST(Launch, NamesNoOthersWhereThereAreNone) {
  Launched launched(Shell(1, "exit 7"));
  EXPECT_EQ(launched.Wait(), 7);
  EXPECT_THAT(launched.err(),
              ContainsRegex("^lockstep launch: rank 0 .pid [0-9]+. exited with "
                            "code 7\nlockstep launch: rank 0 failed first: "
                            "exited with code 7\nlockstep launch: failed: "
                            "rank 0 .*pid [0-9]+.*\n$"));
}

TEST(Launch, WaitsForWhatRanksHaveStarted) {
  const Gate gate("tee");
  LaunchCommand command =
      Shell(1, absl::StrCat("(read go < ", gate.path(),
                            "; echo still there) & echo gone"));
  Launched launched(command);
  launched.AwaitOut("gone");
  gate.Open();
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.out(), "[rank 0] gone\n[rank 0] still there\n");
}

TEST(Launch, KillsWhatRanksHaveLeft) {
  // One process that is left has the streams of its rank, and one does not.
  LaunchCommand command =
      Shell(2, "sleep 1000 > /dev/null 2>&1 & [ $RANK = 0 ] && sleep 1000 & :");
  command.grace = kShort;
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.err(),
            "lockstep launch: sending SIGKILL to what the ranks have left "
            "running\n");
}

// The grace is zero here.
TEST(Launch, KillsNothingWhereNothingIsLeft) {
  LaunchCommand command = Shell(2, "echo a line");
  command.grace = absl::ZeroDuration();
  for (int i = 0; i < 20; ++i) {
    Launched launched(command);
    EXPECT_EQ(launched.Wait(), 0);
    EXPECT_EQ(launched.err(), "");
    EXPECT_EQ(launched.out().size(),
              std::string("[rank 0] a line\n").size() * 2);
  }
}

TEST(Launch, RestartsUntilAllIsWell) {
  LaunchCommand command =
      Shell(2,
            "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS "
            "$TORCHELASTIC_RUN_ID $MASTER_PORT; "
            "[ $TORCHELASTIC_RESTART_COUNT = 2 ]");
  command.max_restarts = 5;
  command.restart_delay = kShort;
  command.run_id = "run7";
  command.master_port = 29500;
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(OutOf(0, launched.out()),
            "0 of 5 run7 29500\n1 of 5 run7 29500\n2 of 5 run7 29500\n");
  EXPECT_EQ(OutOf(1, launched.out()), OutOf(0, launched.out()));
  EXPECT_THAT(launched.err(),
              AllOf(HasSubstr("lockstep launch: restart 1 of 5\n"),
                    HasSubstr("lockstep launch: restart 2 of 5 in 0.01 s\n"),
                    Not(HasSubstr("restart 3"))));
}

TEST(Launch, RestartsNoMoreThanItMay) {
  LaunchCommand command = Shell(1, "echo x; exit 5");
  command.max_restarts = 2;
  command.restart_delay = absl::ZeroDuration();
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 5);
  EXPECT_THAT(launched.err(), AllOf(HasSubstr("restart 1 of 2\n"),
                                    HasSubstr("restart 2 of 2\n"),
                                    Not(HasSubstr("restart 3"))));
  EXPECT_EQ(launched.out(), "[rank 0] x\n[rank 0] x\n[rank 0] x\n");
}

TEST(Launch, RestartsNothingThatWouldFailAgainOrWasStopped) {
  for (const auto& [code, why] : {std::make_pair(2, "would fail again"),
                                  std::make_pair(143, "were asked to stop")}) {
    LaunchCommand command = Shell(2, absl::StrCat("exit ", code));
    command.max_restarts = 2;
    Launched launched(command);
    EXPECT_EQ(launched.Wait(), code);
    EXPECT_THAT(
        launched.err(),
        AllOf(HasSubstr(absl::StrCat("the ranks are not started again, "
                                     "since exit code ",
                                     code, " means that they ", why, "\n")),
              HasSubstr(code == 2 ? " failed first: " : " stopped first: "),
              Not(HasSubstr("restart 1"))));
  }
}

// A signal from outside is no request of the trainer's.
TEST(Launch, RestartsARankThatSigtermHasKilled) {
  LaunchCommand command =
      Shell(1, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || kill -TERM $$");
  command.max_restarts = 1;
  Launched launched(command);
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.err(), HasSubstr("restart 1 of 1\n"));
}

TEST(Launch, RestartsNothingAfterASignalWithinTheGrace) {
  LaunchCommand command = Shell(2, "[ $RANK = 0 ] && exit 5; exec sleep 1000");
  command.max_restarts = 3;
  Launched launched(command);
  launched.AwaitErr("exited with code 5; the others have inf s to report\n");
  launched.Signal(SIGINT);
  EXPECT_EQ(launched.Wait(), 128 + SIGINT);
  EXPECT_THAT(launched.err(), AllOf(HasSubstr("SIGINT ends the launch"),
                                    Not(HasSubstr("restart"))));
}

TEST(Launch, EndsWhileItWaitsForARestart) {
  LaunchCommand command = Shell(1, "exit 5");
  command.max_restarts = 3;
  command.restart_delay = absl::InfiniteDuration();
  Launched launched(command);
  launched.AwaitErr("lockstep launch: restart 2 of 3 in 60 s\n");
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launched.err(), HasSubstr("SIGTERM ends the launch\n"));
}

TEST(RestartDelay, GrowsUntilRanksRunForLong) {
  const absl::Duration shortly = absl::Seconds(59);
  RestartDelay delay(absl::Seconds(9));
  EXPECT_EQ(delay.Next(shortly), absl::ZeroDuration());
  EXPECT_EQ(delay.Next(shortly), absl::Seconds(9));
  EXPECT_EQ(delay.Next(shortly), absl::Seconds(18));
  EXPECT_EQ(delay.Next(shortly), absl::Seconds(36));
  EXPECT_EQ(delay.Next(shortly), absl::Minutes(1));
  EXPECT_EQ(delay.Next(shortly), absl::Minutes(1));
  EXPECT_EQ(delay.Next(absl::Minutes(1)), absl::ZeroDuration());
  EXPECT_EQ(delay.Next(shortly), absl::Seconds(9));
  RestartDelay none((absl::ZeroDuration()));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(none.Next(shortly), absl::ZeroDuration());
  }
}

TEST(Launch, PassesASignalOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    LaunchCommand command =
        Shell(2,
              "trap 'echo told; exit 1' HUP INT TERM; "
              // This process is in the rank's group and ignores signals.
              "(trap '' HUP INT TERM; exec sleep 1000) > /dev/null 2>&1 & "
              "echo ready; wait");
    command.max_restarts = 3;
    Launched launched(command);
    launched.AwaitOut("ready", 2);
    launched.Signal(signal);
    EXPECT_EQ(launched.Wait(), 128 + signal);
    EXPECT_THAT(launched.SortedOut(),
                ElementsAre("[rank 0] ready", "[rank 0] told", "[rank 1] ready",
                            "[rank 1] told"));
    EXPECT_THAT(launched.err(),
                HasSubstr("lockstep launch: ranks 0, 1: exited with code 1\n"));
  }
}

TEST(Launch, KillsWhoDoesNotHeedASignal) {
  LaunchCommand command =
      Shell(2, "trap '' TERM; echo ready; while :; do sleep 1000; done");
  command.stop_grace = kShort;
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launched.err(),
              HasSubstr("lockstep launch: ranks 0, 1: killed by signal 9 "
                        "(SIGKILL), sent by the launcher\n"));
}

// Moves this process to the launcher's group, and waits there.
int LeaveGroup() {
  setpgid(0, getpgid(getppid()));
  std::puts("ready");
  std::fflush(stdout);
  while (true) pause();
}

TEST(Launch, EndsARankThatHasLeftItsGroup) {
  LaunchCommand command;
  command.n = 2;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  command.program = {self, "--leave_group"};
  command.stop_grace = absl::InfiniteDuration();
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launched.err(),
              HasSubstr("ranks 0, 1: killed by signal 15 (SIGTERM), sent by "
                        "the launcher\n"));
}

// Starts 100 ranks under a limit of 30 open files, soft or also hard.
Launched WithFewDescriptors(bool hard, const std::string& script) {
  return Launched([&] {
    rlimit few;
    getrlimit(RLIMIT_NOFILE, &few);
    few.rlim_cur = 30;
    if (hard) few.rlim_max = 30;
    setrlimit(RLIMIT_NOFILE, &few);
    return RunLaunch(Shell(100, script), {{"PATH", "/bin:/usr/bin"}});
  });
}

TEST(Launch, SaysThatDescriptorsHaveRunOut) {
  Launched launched = WithFewDescriptors(true, "exec sleep 1000");
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.err(),
              HasSubstr("lockstep launch: no pipe for a rank: Too many open "
                        "files; raise the limit of open files"));
}

TEST(Launch, TakesTheDescriptorsItMayAndLeavesRanksTheirs) {
  Launched launched = WithFewDescriptors(false, "ulimit -Sn");
  EXPECT_EQ(launched.Wait(), 0) << launched.err();
  for (int rank = 0; rank < 100; ++rank) {
    EXPECT_EQ(OutOf(rank, launched.out()), "30\n");
  }
}

TEST(Launch, KillsAtTheSecondSignal) {
  Launched launched(
      Shell(2, "trap '' INT; echo ready; while :; do sleep 1000; done"));
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGINT);
  launched.AwaitErr("SIGINT ends the launch; ranks 0, 1 got it");
  launched.Signal(SIGINT);
  EXPECT_EQ(launched.Wait(), 128 + SIGINT);
}

TEST(Launch, HeedsNoSignalThatWasIgnored) {
  const LaunchCommand command = Shell(1, "echo ready; exec sleep 1000");
  Launched launched([&] {
    signal(SIGHUP, SIG_IGN);
    return RunLaunch(command, {{"PATH", "/bin:/usr/bin"}});
  });
  launched.AwaitOut("ready");
  launched.Signal(SIGHUP);
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
}

TEST(Launch, LeavesNoRankWhenItIsKilled) {
  LaunchCommand command = Shell(2, "echo ready; exec sleep 1000");
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGKILL);
  EXPECT_EQ(launched.Wait(), -SIGKILL);
}

// The program is a child of a shell here, and not of the launcher.
constexpr char kBehindAShell[] =
    "(trap '' TERM; echo ready; exec sleep 1000); echo over";

TEST(Launch, LeavesNoRankBehindAShellWhenItIsKilled) {
  LaunchCommand command = Shell(2, kBehindAShell);
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGKILL);
  EXPECT_EQ(launched.Wait(), -SIGKILL);
}

TEST(Launch, LeavesNoRankOfARestartWhenItIsKilled) {
  LaunchCommand command =
      Shell(2, absl::StrCat("[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; ",
                            kBehindAShell));
  command.max_restarts = 1;
  Launched launched(command);
  launched.AwaitOut("ready", 2);
  launched.Signal(SIGKILL);
  EXPECT_EQ(launched.Wait(), -SIGKILL);
}

TEST(Launch, KeepsItsKeeper) {
  Launched launched(Shell(1, kBehindAShell));
  launched.AwaitOut("ready");
  const pid_t keeper = KeeperOf(launched.pid());
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1}) {
    EXPECT_EQ(kill(keeper, signal), 0);
  }
  EXPECT_NE(getsid(keeper), getsid(launched.pid()));
  launched.Signal(SIGKILL);
  EXPECT_EQ(launched.Wait(), -SIGKILL);
}

TEST(Launch, DoesWithoutItsKeeper) {
  const Gate gate("keeper");
  LaunchCommand command =
      Shell(2, absl::StrCat("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                            "[ $RANK = 0 ] && exit 1; echo ready; read go < ",
                            gate.path()));
  command.max_restarts = 1;
  Launched launched(command);
  launched.AwaitOut("ready");
  kill(KeeperOf(launched.pid()), SIGKILL);
  gate.Open();
  EXPECT_EQ(launched.Wait(), 0);
}

TEST(Launch, TakesSignalsWhileNobodyReads) {
  LaunchCommand command;
  command.n = 1;
  command.program = {"yes"};
  Launched launched(command);
  launched.AwaitOut("[rank 0] y\n");
  launched.Signal(SIGTERM);
  launched.AwaitErr("SIGTERM ends the launch");
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(absl::EndsWith(launched.out(), "\n"));
}

// The readers of both streams stand still.
TEST(Launch, EndsAfterASignalThoughNobodyReads) {
  LaunchCommand command =
      Shell(2, "[ $RANK = 0 ] && exec yes; exec yes error >&2");
  Launched launched(command);
  launched.AwaitOut("[rank 0] y\n");
  launched.AwaitErr("[rank 1] error\n");
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.WaitUnread(), 128 + SIGTERM);
}

// Rank 0 writes what its pipe can hold, which is more than that of the launcher
// can, since each line has the rank there. Rank 1 fails after that.
TEST(Launch, EndsAfterAFailureThoughNobodyReads) {
  const std::string written = ::testing::TempDir() + "/nobody_reads";
  std::remove(written.c_str());
  LaunchCommand command = Shell(
      2, absl::StrCat("[ $RANK = 1 ] && until [ -e ", written,
                      " ]; do sleep 0.01; done && exit 5; yes | head -n 25000; "
                      "echo >",
                      written, "; exec sleep 1000"));
  command.grace = kShort;
  Launched launched(command);
  launched.AwaitErr("stdout was not read in time; ");
  launched.AwaitErr(" bytes of it are lost\n");
  EXPECT_EQ(launched.WaitUnread(), 5);
}

// The rest of the output has some 130 pages or more.
TEST(Launch, EndsAfterASignalThoughItsReaderIsSlow) {
  LaunchCommand command;
  command.n = 8;
  command.program = {"yes"};
  Launched launched(command);
  for (int rank = 0; rank < 8; ++rank) {
    launched.AwaitOut(absl::StrCat("[rank ", rank, "] y\n"));
  }
  launched.Signal(SIGTERM);
  int pages = 0;
  while (!launched.HasEnded()) {
    launched.ReadOutPage();
    ++pages;
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_LT(pages, 100);
  EXPECT_EQ(launched.Wait(), 128 + SIGTERM);
}

TEST(Launch, EndsWhenItsReaderIsGone) {
  LaunchCommand command;
  command.n = 2;
  command.program = {"yes"};
  Launched launched(command);
  launched.AwaitOut("[rank 0] y\n");
  launched.CloseOut();
  EXPECT_EQ(launched.Wait(), 128 + SIGPIPE);
}

TEST(Launch, DoesWithoutStandardStreams) {
  const LaunchCommand command = Shell(1, "echo lost; echo kept >&2");
  Launched launched([&] {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    return RunLaunch(command, {{"PATH", "/bin:/usr/bin"}});
  });
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.err(), "[rank 0] kept\n");
}

TEST(Launch, SaysWhatItCannotExecute) {
  struct Case {
    std::string program, message;
  };
  const std::string text = testing::TempDir() + "/launch_text";
  close(open(text.c_str(), O_CREAT | O_WRONLY, 0600));
  for (const Case& c : std::vector<Case>{
           {"no-such-program",
            "'no-such-program', looked for in PATH: No such file or directory"},
           {"/no/such/program",
            "'/no/such/program': No such file or directory"},
           {text, absl::StrCat("'", text, "': Permission denied")}}) {
    LaunchCommand command;
    command.n = 3;
    command.max_restarts = 3;
    command.program = {c.program};
    Launched launched(command);
    EXPECT_EQ(launched.Wait(), 127);
    EXPECT_EQ(launched.err(),
              absl::StrCat("lockstep launch: can't execute ", c.message, "\n"));
  }
}

TEST(Launch, SearchesThePath) {
  const std::string folder = testing::TempDir() + "/launch_path";
  mkdir(folder.c_str(), 0700);
  const std::string program = folder + "/launch-greets";
  const int fd = open(program.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0700);
  const std::string script = "#!/bin/sh\necho \"$0 $*\"\n";
  EXPECT_EQ(write(fd, script.data(), script.size()),
            static_cast<ssize_t>(script.size()));
  close(fd);
  LaunchCommand command;
  command.n = 1;
  command.program = {"launch-greets", "a b"};
  Launched launched(command, {{"PATH", absl::StrCat("/no/such:", folder)}});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.out(), absl::StrCat("[rank 0] ", program, " a b\n"));
}

TEST(Launch, RefusesWhatMakesNoSense) {
  struct Case {
    std::function<void(LaunchCommand&)> spoil;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {[](LaunchCommand& l) { l.n = std::nullopt; },
            "-n, the number of ranks on this host, is not given; give it, as "
            "in lockstep launch -n 4 -- ./train --lr=0.1"},
           {[](LaunchCommand& l) { l.n = 0; },
            "should be 1 to 1000000, but it "
            "is 0"},
           {[](LaunchCommand& l) { l.n = -1; },
            "-n, the number of ranks on "
            "this host, should be"},
           {[](LaunchCommand& l) { l.nnodes = 0; }, "--nnodes should be 1 to"},
           {[](LaunchCommand& l) { l.node_rank = 1; },
            "--node_rank should be 0 to 0, but it is 1"},
           {[](LaunchCommand& l) { l.master_port = 65536; },
            "--master_port should be 0 to 65535, but it is 65536"},
           {[](LaunchCommand& l) { l.max_restarts = -1; },
            "--max_restarts should be 0 to"},
           {[](LaunchCommand& l) { l.grace = -absl::Seconds(1); },
            "--grace should not be negative, but it is -1s"},
           {[](LaunchCommand& l) { l.stop_grace = -absl::Seconds(1); },
            "--stop_grace should not be negative, but it is -1s"},
           {[](LaunchCommand& l) { l.restart_delay = -absl::Seconds(1); },
            "--restart_delay should not be negative, but it is -1s"},
           {[](LaunchCommand& l) {
              l.nnodes = 2;
              l.master_addr = "trainer-0";
              l.run_id = "run7";
            },
            "with --nnodes=2 each node must be given the same --master_addr, "
            "--master_port and --run_id"},
           {[](LaunchCommand& l) { l.program.clear(); },
            "lockstep launch -n 4 -- ./train --lr=0.1"},
       }) {
    LaunchCommand command = Shell(1, "echo started");
    c.spoil(command);
    Launched launched(command);
    EXPECT_EQ(launched.Wait(), 2) << c.message;
    EXPECT_THAT(launched.err(),
                AllOf(HasSubstr("lockstep launch: "), HasSubstr(c.message)));
    EXPECT_THAT(launched.out(), IsEmpty());
  }
}

// Starts the tool itself, with these arguments of launch.
Launched Tool(std::vector<std::string> words) {
  words.insert(words.begin(), {"tools/cli/lockstep", "launch"});
  return Launched([&words] {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    return 126;
  });
}

TEST(LaunchTool, LeavesTheProgramItsFlags) {
  Launched launched = Tool({"-n", "2", "--grace=1s", "--", "echo", "--shuffle",
                            "--size=x", "--", "-n"});
  EXPECT_EQ(launched.Wait(), 0) << launched.err();
  EXPECT_THAT(launched.SortedOut(),
              ElementsAre("[rank 0] --shuffle --size=x -- -n",
                          "[rank 1] --shuffle --size=x -- -n"));
}

TEST(LaunchTool, TakesFlagsAsTorchrunDoes) {
  const std::string script =
      "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID "
      "$TORCHELASTIC_MAX_RESTARTS";
  Launched launched =
      Tool({"--nproc_per_node=1", "--nnodes", "2", "--node_rank", "1",
            "--master_addr", "trainer-0", "--master_port", "29500", "--run_id",
            "run7", "--max_restarts", "4", "--", "sh", "-c", script});
  EXPECT_EQ(launched.Wait(), 0) << launched.err();
  EXPECT_EQ(launched.out(), "[rank 1] 1 2 trainer-0 29500 run7 4\n");
  Launched newer =
      Tool({"--nproc-per-node=1", "--nnodes=2", "--node-rank=1",
            "--master-addr=trainer-0", "--master-port=29500", "--rdzv-id=run7",
            "--max-restarts=4", "--", "sh", "-c", script});
  EXPECT_EQ(newer.Wait(), 0) << newer.err();
  EXPECT_EQ(newer.out(), launched.out());
}

TEST(LaunchTool, RefusesAProgramAmongItsFlags) {
  Launched launched = Tool({"-n", "2", "echo", "--seed=7"});
  EXPECT_EQ(launched.Wait(), 2);
  EXPECT_THAT(launched.err(), HasSubstr("then -- and the program"));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--die_slowly") {
    return lockstep::DieSlowly(argv[2]);
  }
  if (argc == 2 && std::string(argv[1]) == "--leave_group") {
    return lockstep::LeaveGroup();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
