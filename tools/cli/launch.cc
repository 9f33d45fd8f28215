#include "lockstep/tools/cli/launch.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>  // NOLINT: deadlines for poll
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/tools/cli/keeper.h"
#include "lockstep/tools/cli/rank_output.h"

namespace lockstep {
namespace {

constexpr int64_t kMostRanks = 1000000;
constexpr int64_t kLastPort = 65535;
constexpr size_t kTokenBytes = 32;
constexpr size_t kRunIdBytes = 8;
constexpr SteadyTime kNever = SteadyTime::max();
// From SIGTERM to SIGKILL.
constexpr absl::Duration kPatience = absl::Seconds(2);

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

std::string Seconds(absl::Duration duration) {
  return absl::StrCat(absl::ToDoubleSeconds(duration), " s");
}

struct Pipe {
  Descriptor out, in;

  static absl::StatusOr<Pipe> Create() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return SystemError(errno, "no pipe for a rank");
    return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

// What a child needs to become the program: all is made before fork().
class Image {
 public:
  Image(const std::vector<std::string>& program,
        const Environment& environment) {
    for (const std::string& word : program) words_.push_back(word);
    for (const auto& [name, value] : environment) {
      settings_.push_back(absl::StrCat(name, "=", value));
    }
    FindPaths(program[0], environment);
    argv_ = Pointers(words_);
    envp_ = Pointers(settings_);
  }

  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Returns only if it can't, with errno. Async-signal-safe.
  int Execute() const {
    int error = ENOENT;
    for (const std::string& path : paths_) {
      execve(path.c_str(), argv_.data(), envp_.data());
      if (errno == ENOENT || errno == ENOTDIR) continue;
      error = errno;
      if (error != EACCES) break;
    }
    return error;
  }

 private:
  void FindPaths(const std::string& name, const Environment& environment) {
    if (name.find('/') != std::string::npos) {
      paths_ = {name};
      return;
    }
    const auto path = environment.find("PATH");
    for (const absl::string_view folder : absl::StrSplit(
             path == environment.end() ? "/bin:/usr/bin" : path->second, ':')) {
      paths_.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", name));
    }
  }

  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  std::vector<std::string> words_, settings_, paths_;
  std::vector<char*> argv_, envp_;
};

// Raises this process's limit of open files as far as it may. Returns what it
// was, for the ranks.
rlimit TakeAllDescriptors() {
  rlimit was = {};
  getrlimit(RLIMIT_NOFILE, &was);
  const rlimit most = {was.rlim_max, was.rlim_max};
  setrlimit(RLIMIT_NOFILE, &most);
  return was;
}

// Birth holds all that the child's part of a start needs.
struct Birth {
  const Image& image;
  const Keeper& keeper;
  const rlimit& files;
  pid_t launcher;
  int in, out, err;
  int failure;  // takes errno if the image can't be executed
};

// The child's part of a start, in async-signal-safe calls alone.
[[noreturn]] void Become(const Birth& birth) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before that.
  if (getppid() != birth.launcher) _exit(1);
  setpgid(0, 0);
  birth.keeper.Remember(getpid());
  setrlimit(RLIMIT_NOFILE, &birth.files);
  dup2(birth.in, STDIN_FILENO);
  dup2(birth.out, STDOUT_FILENO);
  dup2(birth.err, STDERR_FILENO);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int error = birth.image.Execute();
  // Without a reader there is nobody to tell.
  if (write(birth.failure, &error, sizeof(error)) < 0) _exit(1);
  _exit(127);
}

// A descriptor of signals that end ranks or the launch. They are blocked from
// now on.
absl::StatusOr<Descriptor> WatchSignals() {
  // Were it ignored, the system would reap ranks.
  signal(SIGCHLD, SIG_DFL);
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    // As by nohup.
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  Descriptor fd(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.ok()) return SystemError(errno, "no descriptor for signals");
  return fd;
}

// Not one of the first three, which are all open afterwards, so that no pipe
// takes their place.
absl::StatusOr<Descriptor> OpenNull() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return SystemError(errno, "/dev/null");
  } while (fd <= STDERR_FILENO);
  return Descriptor(fd);
}

// A port that was free a moment ago.
absl::StatusOr<int> FreePort() {
  const Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe.ok() || bind(probe.fd(), generic, size) != 0 ||
      getsockname(probe.fd(), generic, &size) != 0) {
    return SystemError(errno, "no free port for MASTER_PORT");
  }
  return ntohs(address.sin_port);
}

absl::StatusOr<std::string> RandomHex(size_t size) {
  std::string bytes(size, '\0');
  if (getentropy(bytes.data(), size) != 0)
    return SystemError(errno, "random bytes");
  return absl::BytesToHexString(bytes);
}

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " should be ", least, " to ", most, ", but it is ", value));
}

absl::Status Check(const LaunchCommand& command) {
  if (!command.n.has_value()) {
    return absl::InvalidArgumentError(
        "-n, the number of ranks on this host, is not given; give it, as in "
        "lockstep launch -n 4 -- ./train --lr=0.1");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("-n, the number of ranks on this host,",
                                      *command.n, 1, kMostRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--nnodes", command.nnodes, 1, kMostRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--node_rank", command.node_rank, 0, command.nnodes - 1));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--master_port", command.master_port, 0, kLastPort));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--max_restarts", command.max_restarts, 0, INT_MAX));
  for (const auto& [name, duration] :
       {std::make_pair("--grace", command.grace),
        std::make_pair("--restart_delay", command.restart_delay)}) {
    if (duration >= absl::ZeroDuration()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " should not be negative, but it is ",
                     absl::FormatDuration(duration)));
  }
  if (command.nnodes > 1 &&
      (command.master_addr.empty() || command.master_port == 0 ||
       command.run_id.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "with --nnodes=", command.nnodes,
        " each node must be given the same --master_addr, --master_port and "
        "--run_id, as in --master_addr=trainer-0 --master_port=29500 "
        "--run_id=run7"));
  }
  if (command.program.empty() || command.program[0].empty()) {
    return absl::InvalidArgumentError(
        "give flags only, then -- and the program with its arguments: lockstep "
        "launch -n 4 -- ./train --lr=0.1");
  }
  return absl::OkStatus();
}

struct Rank {
  int64_t number = -1;
  pid_t pid = -1;
  std::vector<RankStream> streams;
  bool ended = false;
  bool exited = false;        // ended, by itself
  std::string end;            // "exited with code 3"
  bool may_be_first = false;  // to fail: it was dying when one had failed
  bool ended_before = false;  // with code 0, before the first one failed
};

// Whether the end of process `pid` has begun. Its connections may be closed
// long before the system tells its end, and who notices that may end earlier.
bool IsDying(pid_t pid) {
  constexpr int64_t kExiting = 0x4;  // the kernel's PF_EXITING
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');
  // Whatever the program is called, its name ends before the last of these.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string state;
  int64_t parent, group, session, terminal, foreground, flags = 0;
  fields >> state >> parent >> group >> session >> terminal >> foreground >>
      flags;
  return (flags & kExiting) != 0;
}

// Whether no process ends so because it has noticed the end of another: by
// abort(), say, it may.
bool IsNobodysAnswer(int signal) {
  switch (signal) {
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

class Launcher {
 public:
  // Of checked flags.
  Launcher(const LaunchCommand& command, Environment environment,
           Descriptor signals, Descriptor null, Keeper keeper, rlimit files)
      : command_(command),
        environment_(std::move(environment)),
        signals_(std::move(signals)),
        null_(std::move(null)),
        keeper_(std::move(keeper)),
        files_(files) {}

  absl::StatusOr<int> Run();

 private:
  // A signal that all groups are sent at a time.
  struct Step {
    SteadyTime at;
    int signal;
  };

  absl::StatusOr<int> RunOnce(int64_t attempt);
  absl::Status StartAll(int64_t attempt);
  absl::Status Start(int64_t number, const Image& image);
  bool AllOver() const;
  SteadyTime NextStep() const;
  void PollOnce(SteadyTime until);
  void AwaitRestart(int64_t attempt, absl::Duration delay);
  void TakeSignals();
  void TakeEnd(Rank& rank);
  void TakeStop(int signal);
  void TakeSteps();
  void SendAll(int signal);
  void Reap();
  void Summarize();

  std::string Running() const;
  void Say(absl::string_view text) { err_.Add("lockstep launch: ", text); }

  const LaunchCommand& command_;
  Environment environment_;
  const Descriptor signals_;
  const Descriptor null_;
  const Keeper keeper_;
  const rlimit files_;  // the limit of ranks
  Output out_{STDOUT_FILENO, "stdout"};
  Output err_{STDERR_FILENO, "stderr"};

  // Of this attempt.
  std::vector<Rank> ranks_;
  std::deque<Step> steps_;  // still to be taken
  sigset_t sent_ = {};
  bool killed_ = false;
  const Rank* first_failed_ = nullptr;
  int exit_code_ = 0;

  // What ends the launch.
  int stop_ = 0;
  bool at_once_ = false;
};

absl::StatusOr<int> Launcher::Run() {
  RestartDelay delay(command_.restart_delay);
  absl::StatusOr<int> code;
  for (int64_t attempt = 0;; ++attempt) {
    const SteadyTime start = SteadyNow();
    code = RunOnce(attempt);
    if (!code.ok() || *code == 0 || stop_ != 0) break;
    if (attempt == command_.max_restarts) break;
    AwaitRestart(attempt + 1,
                 delay.Next(absl::FromChrono(SteadyNow() - start)));
    if (stop_ != 0) break;
  }
  while (!at_once_ && (!out_.empty() || !err_.empty())) PollOnce(kNever);
  if (stop_ != 0) return 128 + stop_;
  return code;
}

void Launcher::AwaitRestart(int64_t attempt, absl::Duration delay) {
  Say(absl::StrCat("restart ", attempt, " of ", command_.max_restarts,
                   delay > absl::ZeroDuration()
                       ? absl::StrCat(" in ", Seconds(delay))
                       : ""));
  const SteadyTime end = After(delay);
  while (stop_ == 0 && SteadyNow() < end) PollOnce(end);
}

absl::StatusOr<int> Launcher::RunOnce(int64_t attempt) {
  steps_.clear();
  sigemptyset(&sent_);
  killed_ = false;
  first_failed_ = nullptr;
  exit_code_ = 0;
  const absl::Status started = StartAll(attempt);
  while (started.ok() && !AllOver()) PollOnce(NextStep());
  Reap();
  if (started.ok()) Summarize();
  ranks_.clear();
  if (!started.ok()) return started;
  return exit_code_;
}

absl::Status Launcher::StartAll(int64_t attempt) {
  const int64_t here = *command_.n;
  int64_t port = command_.master_port;
  if (port == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(port, FreePort());
  }
  Environment environment = environment_;
  environment["WORLD_SIZE"] = absl::StrCat(here * command_.nnodes);
  environment["LOCAL_WORLD_SIZE"] = absl::StrCat(here);
  environment["GROUP_RANK"] = absl::StrCat(command_.node_rank);
  environment["MASTER_PORT"] = absl::StrCat(port);
  environment["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(attempt);
  environment["TORCHELASTIC_MAX_RESTARTS"] =
      absl::StrCat(command_.max_restarts);
  ranks_.reserve(here);
  for (int64_t local = 0; local < here; ++local) {
    const int64_t number = command_.node_rank * here + local;
    environment["RANK"] = absl::StrCat(number);
    environment["LOCAL_RANK"] = absl::StrCat(local);
    LOCKSTEP_RETURN_IF_ERROR(
        Start(number, Image(command_.program, environment)));
  }
  return absl::OkStatus();
}

absl::Status Launcher::Start(int64_t number, const Image& image) {
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe out, Pipe::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe err, Pipe::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe failure, Pipe::Create());
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become({image, keeper_, files_, launcher, null_.fd(), out.in.fd(),
            err.in.fd(), failure.in.fd()});
  }
  if (pid < 0) return SystemError(errno, "no process for a rank");
  // It is closed when the program is executed.
  failure.in.Close();
  int error = 0;
  ssize_t size;
  do {
    size = read(failure.out.fd(), &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  if (size == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrCat(
        "can't execute '", absl::CHexEscape(command_.program[0]), "'",
        command_.program[0].find('/') == std::string::npos
            ? ", looked for in PATH"
            : "",
        ": ", ErrorText(error)));
  }
  const std::string prefix = absl::StrCat("[rank ", number, "] ");
  Rank rank;
  rank.number = number;
  rank.pid = pid;
  rank.streams.emplace_back(std::move(out.out), prefix, out_);
  rank.streams.emplace_back(std::move(err.out), prefix, err_);
  ranks_.push_back(std::move(rank));
  return absl::OkStatus();
}

// All ranks have ended, and whatever else writes to their streams.
bool Launcher::AllOver() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
    return rank.ended &&
           (killed_ || (!rank.streams[0].open() && !rank.streams[1].open()));
  });
}

SteadyTime Launcher::NextStep() const {
  return steps_.empty() ? kNever : steps_.front().at;
}

// Waits until something has happened, or until `until`.
void Launcher::PollOnce(SteadyTime until) {
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}};
  for (const Output* output : {&out_, &err_}) {
    polled.push_back({output->empty() ? -1 : output->fd(), POLLOUT, 0});
  }
  for (const Rank& rank : ranks_) {
    for (const RankStream& stream : rank.streams) {
      polled.push_back({stream.blocked() ? -1 : stream.fd(), POLLIN, 0});
    }
  }
  int timeout = -1;
  if (until != kNever) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - SteadyNow());
    timeout = static_cast<int>(
        std::clamp<int64_t>(left.count(), 0, int64_t{INT_MAX}));
  }
  if (poll(polled.data(), polled.size(), timeout) < 0) return;  // EINTR

  auto next = polled.begin() + 1;
  for (Output* output : {&out_, &err_}) {
    if ((next++)->revents == 0) continue;
    const absl::Status status = output->WriteSome();
    if (!status.ok()) {
      Say(absl::StrCat(status.message(), "; what goes there is lost"));
    }
  }
  for (Rank& rank : ranks_) {
    for (RankStream& stream : rank.streams) {
      if ((next++)->revents != 0) stream.ReadSome();
    }
  }
  if (polled[0].revents != 0) TakeSignals();
  TakeSteps();
}

void Launcher::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.fd(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) {
      TakeStop(static_cast<int>(info.ssi_signo));
      continue;
    }
    // One signal stands for several, and has the number of the first.
    for (Rank& rank : ranks_) {
      if (rank.pid == static_cast<pid_t>(info.ssi_pid)) TakeEnd(rank);
    }
  }
  for (Rank& rank : ranks_) TakeEnd(rank);
}

void Launcher::TakeEnd(Rank& rank) {
  // It stays a zombie, so that its group's number is not another's until Reap.
  siginfo_t info = {};
  if (rank.ended ||
      waitid(P_PID, rank.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return;
  }
  rank.ended = true;
  // What it said comes before what is said of it.
  for (RankStream& stream : rank.streams) stream.Drain();

  const bool exited = rank.exited = info.si_code == CLD_EXITED;
  const int status = info.si_status;
  rank.end = exited ? absl::StrCat("exited with code ", status)
                    : absl::StrCat("killed by signal ", status, " (",
                                   SignalName(status), ")");
  const bool others = !Running().empty();
  const bool failed = !exited || status != 0;
  if (failed && first_failed_ == nullptr && stop_ == 0) {
    first_failed_ = &rank;
    exit_code_ = exited ? status : 128 + status;
    for (Rank& other : ranks_) {
      other.may_be_first = !other.ended && exited && IsDying(other.pid);
      other.ended_before = other.ended && &other != &rank;
    }
    Say(absl::StrCat("rank ", rank.number, " (pid ", rank.pid, ") ",
                     exited ? "" : "was ", rank.end,
                     others
                         ? absl::StrCat("; the others have ",
                                        Seconds(command_.grace), " to report")
                         : ""));
    steps_ = {{After(command_.grace), SIGTERM},
              {After(command_.grace + kPatience), SIGKILL}};
  } else if (!exited && rank.may_be_first && IsNobodysAnswer(status)) {
    // The one that was seen before has ended by itself: because of this one.
    first_failed_ = &rank;
    exit_code_ = 128 + status;
    for (Rank& other : ranks_) other.may_be_first = other.ended_before = false;
  } else if (!exited && sigismember(&sent_, status) == 1) {
    rank.end += ", sent by the launcher";
  }
  // Who still writes to the streams was started by ranks: a tee, perhaps.
  if (!others) steps_ = {{After(command_.grace), SIGKILL}};
}

void Launcher::TakeStop(int signal) {
  if (stop_ != 0) {
    // That stdout is closed, and then stderr as well, is no hurry.
    if (signal == SIGPIPE) return;
    at_once_ = true;
    SendAll(SIGKILL);
    return;
  }
  stop_ = signal;
  const std::string running = Running();
  Say(absl::StrCat(SignalName(signal), " ends the launch",
                   running.empty()
                       ? ""
                       : absl::StrCat("; ", running, " got it, too, with ",
                                      Seconds(command_.grace), " to end")));
  if (ranks_.empty()) return;
  SendAll(signal);
  steps_ = {{After(command_.grace), SIGKILL}};
}

void Launcher::TakeSteps() {
  while (!AllOver() && !steps_.empty() && steps_.front().at <= SteadyNow()) {
    const int signal = steps_.front().signal;
    steps_.pop_front();
    const std::string running = Running();
    Say(absl::StrCat(
        "sending ", SignalName(signal), " to ",
        running.empty() ? "what the ranks have left running" : running));
    SendAll(signal);
  }
}

void Launcher::SendAll(int signal) {
  sigaddset(&sent_, signal);
  for (const Rank& rank : ranks_) {
    kill(-rank.pid, signal);
    // It may have gone to another group than the one that it was given.
    if (!rank.ended && getpgid(rank.pid) != rank.pid) kill(rank.pid, signal);
  }
  if (signal == SIGKILL) {
    killed_ = true;
    steps_.clear();
  }
}

void Launcher::Reap() {
  SendAll(SIGKILL);  // to what ranks have left
  for (Rank& rank : ranks_) {
    waitpid(rank.pid, nullptr, 0);
    for (RankStream& stream : rank.streams) {
      stream.Drain();
      stream.Close();
    }
  }
  keeper_.Forget();
}

std::string RankList(const std::vector<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

// "ranks 0, 3"; "" if none is.
std::string Launcher::Running() const {
  std::vector<int64_t> running;
  for (const Rank& rank : ranks_) {
    if (!rank.ended) running.push_back(rank.number);
  }
  return running.empty() ? "" : RankList(running);
}

// How ranks ended, where not all did so by themselves and with 0.
void Launcher::Summarize() {
  if (first_failed_ == nullptr && stop_ == 0) return;
  std::map<std::string, std::vector<int64_t>> ends;
  for (const Rank& rank : ranks_) {
    if (&rank == first_failed_) {
      Say(absl::StrCat("rank ", rank.number, rank.exited ? " failed" : " died",
                       " first: ", rank.end));
    } else {
      ends[absl::StrCat(rank.end, rank.ended_before ? ", before that" : "")]
          .push_back(rank.number);
    }
  }
  for (const auto& [end, ranks] : ends) {
    Say(absl::StrCat(RankList(ranks), ": ", end));
  }
}

absl::StatusOr<int> Launch(const LaunchCommand& command,
                           Environment environment) {
  LOCKSTEP_RETURN_IF_ERROR(Check(command));
  environment["MASTER_ADDR"] =
      command.master_addr.empty() ? "127.0.0.1" : command.master_addr;
  std::string run_id = command.run_id;
  if (run_id.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(run_id, RandomHex(kRunIdBytes));
  }
  environment["TORCHELASTIC_RUN_ID"] = run_id;
  // A torchrun that has started this process listens at its own port.
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
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor signals, WatchSignals());
  LOCKSTEP_ASSIGN_OR_RETURN(Keeper keeper, Keeper::Start());
  return Launcher(command, std::move(environment), std::move(signals),
                  std::move(null), std::move(keeper), TakeAllDescriptors())
      .Run();
}

}  // namespace

absl::Duration RestartDelay::Next(absl::Duration ran) {
  if (ran >= kMost) next_ = absl::ZeroDuration();
  const absl::Duration delay = std::min(next_, kMost);
  next_ = delay == absl::ZeroDuration() ? second_ : 2 * delay;
  return delay;
}

int RunLaunch(const LaunchCommand& command, const Environment& environment) {
  const absl::StatusOr<int> code = Launch(command, environment);
  if (code.ok()) return *code;
  const std::string text =
      absl::StrCat("lockstep launch: ", code.status().message(), "\n");
  // There is no other place to say it.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return 1;
  if (absl::IsInvalidArgument(code.status())) return 2;
  return absl::IsNotFound(code.status()) ? 127 : 1;
}

}  // namespace lockstep
