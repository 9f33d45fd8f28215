#include "lockstep/tools/cli/launcher.h"

#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>  // NOLINT: deadlines for poll
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/tools/cli/process_end.h"
#include "lockstep/tools/cli/process_image.h"
#include "lockstep/tools/cli/rank_output.h"
#include "lockstep/tools/cli/rank_process.h"
#include "lockstep/tools/cli/restart_delay.h"

namespace lockstep {
namespace {

constexpr SteadyTime kNever = SteadyTime::max();
// The time from SIGTERM to SIGKILL.
constexpr absl::Duration kPatience = absl::Seconds(2);
// A launch that has failed, or that a signal ends, drops its output if nobody
// has taken any of it for kOutputPatience, or if some of it is left after
// kOutputTakes.
constexpr absl::Duration kOutputPatience = absl::Seconds(2);
constexpr absl::Duration kOutputTakes = absl::Seconds(10);

std::string Seconds(absl::Duration duration) {
  return absl::StrCat(absl::ToDoubleSeconds(duration), " s");
}

std::string RankList(const std::vector<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

// Returns a port that was free a moment ago.
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

// Returns the timeout that poll() takes: milliseconds, or -1 for no limit.
int PollTimeout(SteadyTime until) {
  if (until == kNever) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - SteadyNow());
  return static_cast<int>(
      std::clamp<int64_t>(left.count(), 0, int64_t{INT_MAX}));
}

// Returns what a rank did when it ended, such as " failed".
const char* WayOf(const ProcessEnd& end) {
  if (!end.failed()) return " left";
  if (!end.exited) return " died";
  return end.status == kExitForStop ? " stopped" : " failed";
}

}  // namespace

absl::StatusOr<int> Launcher::Run() {
  if (command_.doctor) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int code, RunDoctor());
    if (code != 0 && !stopping()) {
      Say("no rank is started, since the job would fail here; without "
          "--doctor, "
          "the ranks are started all the same");
    }
    if (code != 0 || stopping()) {
      WriteRest(/*has_failed=*/true);
      return stopping() ? 128 + stop_ : code;
    }
  }
  RestartDelay delay(command_.restart_delay);
  absl::StatusOr<AttemptEnd> end;
  for (int64_t attempt = 0;; ++attempt) {
    const SteadyTime start = SteadyNow();
    end = RunOnce(attempt);
    if (!end.ok() || end->code == 0 || stopping()) break;
    if (attempt == command_.max_restarts) break;
    if (end->is_final) {
      Say(absl::StrCat("the ranks are not started again, since exit code ",
                       end->code, " means that they ",
                       end->code == kExitForStop ? "were asked to stop"
                                                 : "would fail again"));
      break;
    }
    AwaitRestart(attempt + 1,
                 delay.Next(absl::FromChrono(SteadyNow() - start)));
    if (stopping()) break;
  }
  WriteRest(!end.ok() || end->code != 0);
  if (stopping()) return 128 + stop_;
  if (!end.ok()) return end.status();
  return end->code;
}

void Launcher::WriteRest(bool has_failed) {
  const auto left = [this] { return out_.pending() + err_.pending(); };
  size_t before = left();
  SteadyTime begun = SteadyNow(), since = begun;
  while (state_ != State::kStoppingNow && left() > 0) {
    const bool hurries = has_failed || stopping();
    PollOnce(hurries ? since + absl::ToChronoNanoseconds(kOutputPatience)
                     : kNever);
    const SteadyTime now = SteadyNow();
    if (!hurries) begun = now;
    if (left() != before || !hurries) since = now;
    before = left();
    if (!Passed(since, kOutputPatience, now) &&
        !Passed(begun, kOutputTakes, now)) {
      continue;
    }
    if (out_.empty()) return;
    // The standard error may still have a reader.
    Say(absl::StrCat("stdout was not read in time; ", out_.Drop(),
                     " bytes of it are lost"));
    before = left();
    begun = since = now;
  }
}

void Launcher::Begin(State state) {
  state_ = state;
  steps_.clear();
  sigemptyset(&sent_);
}

absl::StatusOr<int> Launcher::RunDoctor() {
  Begin(State::kExamining);
  // The doctor finds what local rank 0 would find. It looks at the port of the
  // job without binding it.
  LOCKSTEP_ASSIGN_OR_RETURN(Environment environment, EnvironmentOf(0));
  SetRank(0, environment);
  // A program of the user's that has this command has the doctor, too.
  const std::vector<std::string> program = {"/proc/self/exe", "doctor",
                                            "--quick"};
  LOCKSTEP_ASSIGN_OR_RETURN(
      RankProcess process,
      StartRankProcess(program[0], ProcessImage(program, environment),
                       surroundings_));
  Rank& doctor = ranks_.emplace_back();
  doctor.pid = process.pid;
  doctor.streams.emplace_back(std::move(process.out), "[doctor] ", err_);
  doctor.streams.emplace_back(std::move(process.err), "[doctor] ", err_);
  while (!AllOver()) PollOnce(NextStep());
  Reap();
  const int code = doctor.end->exit_code();
  ranks_.clear();
  return code;
}

absl::StatusOr<Launcher::AttemptEnd> Launcher::RunOnce(int64_t attempt) {
  Begin(State::kRunning);
  const absl::Status started = StartAll(attempt);
  while (started.ok() && !AllOver()) PollOnce(NextStep());
  Reap();
  AttemptEnd end;
  if (started.ok()) end = Conclude(attempt);
  first_failed_ = nullptr;
  ranks_.clear();
  if (!started.ok()) return started;
  return end;
}

absl::StatusOr<Environment> Launcher::EnvironmentOf(int64_t attempt) {
  int64_t port = command_.master_port;
  if (port == 0 && attempt == 0) port = first_port_;
  if (port == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(port, FreePort());
  }
  if (attempt == 0) first_port_ = port;
  Environment environment = environment_;
  environment["WORLD_SIZE"] = absl::StrCat(*command_.n * command_.nnodes);
  environment["LOCAL_WORLD_SIZE"] = absl::StrCat(*command_.n);
  environment["GROUP_RANK"] = absl::StrCat(command_.node_rank);
  environment["MASTER_PORT"] = absl::StrCat(port);
  environment["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(attempt);
  environment["TORCHELASTIC_MAX_RESTARTS"] =
      absl::StrCat(command_.max_restarts);
  return environment;
}

void Launcher::SetRank(int64_t local, Environment& environment) const {
  environment["RANK"] = absl::StrCat(command_.node_rank * *command_.n + local);
  environment["LOCAL_RANK"] = absl::StrCat(local);
}

absl::Status Launcher::StartAll(int64_t attempt) {
  LOCKSTEP_ASSIGN_OR_RETURN(Environment environment, EnvironmentOf(attempt));
  reports_.emplace(FailureReports::Create());
  environment["LOCKSTEP_FAILURES"] = reports_->path();
  const int64_t here = *command_.n;
  ranks_.reserve(here);
  for (int64_t local = 0; local < here; ++local) {
    SetRank(local, environment);
    LOCKSTEP_RETURN_IF_ERROR(
        Start(command_.node_rank * here + local,
              ProcessImage(command_.program, environment)));
  }
  return absl::OkStatus();
}

absl::Status Launcher::Start(int64_t number, const ProcessImage& image) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      RankProcess process,
      StartRankProcess(command_.program[0], image, surroundings_));
  const std::string prefix = absl::StrCat("[rank ", number, "] ");
  Rank rank;
  rank.number = number;
  rank.pid = process.pid;
  rank.streams.emplace_back(std::move(process.out), prefix, out_);
  rank.streams.emplace_back(std::move(process.err), prefix, err_);
  ranks_.push_back(std::move(rank));
  return absl::OkStatus();
}

void Launcher::AwaitRestart(int64_t attempt, absl::Duration delay) {
  Say(absl::StrCat("restart ", attempt, " of ", command_.max_restarts,
                   delay > absl::ZeroDuration()
                       ? absl::StrCat(" in ", Seconds(delay))
                       : ""));
  const SteadyTime end = After(delay);
  while (!stopping() && SteadyNow() < end) PollOnce(end);
}

bool Launcher::AllOver() const {
  const bool killed = sigismember(&sent_, SIGKILL) == 1;
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.end.has_value() &&
           (killed || (!rank.streams[0].open() && !rank.streams[1].open()));
  });
}

SteadyTime Launcher::NextStep() const {
  return steps_.empty() ? kNever : steps_.front().at;
}

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
  if (poll(polled.data(), polled.size(), PollTimeout(until)) < 0) {
    return;  // EINTR
  }

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
    // One SIGCHLD may stand for the ends of several ranks. It has the number of
    // the first one, which is therefore looked at before the others.
    for (Rank& rank : ranks_) {
      if (rank.pid == static_cast<pid_t>(info.ssi_pid)) TakeEnd(rank);
    }
  }
  for (Rank& rank : ranks_) TakeEnd(rank);
}

void Launcher::TakeEnd(Rank& rank) {
  if (rank.end.has_value()) return;
  rank.end = EndOf(rank.pid);
  if (!rank.end.has_value()) return;
  // The output of the rank comes before messages about its end.
  for (RankStream& stream : rank.streams) stream.ReadRest();

  const ProcessEnd& end = *rank.end;
  if (state_ == State::kRunning && end.failed()) {
    TakeFirstFailure(rank);
  } else if (rank.at_failure == AtFailure::kDying && end.IsIndependent()) {
    MoveBlame(rank);
  } else if (!end.exited) {
    rank.sent_by_launcher = sigismember(&sent_, end.status) == 1;
  }
  // Processes that the ranks have started, such as a tee, may still write to
  // the streams.
  if (Running().empty()) steps_ = {{After(command_.grace), SIGKILL}};
}

void Launcher::TakeFirstFailure(Rank& rank) {
  state_ = State::kFailing;
  first_failed_ = &rank;
  const ProcessEnd& end = *rank.end;
  for (Rank& other : ranks_) {
    if (&other == &rank) continue;
    if (other.end.has_value()) {
      other.at_failure = AtFailure::kEnded;
    } else if (end.exited && IsDying(other.pid)) {
      other.at_failure = AtFailure::kDying;
    }
  }
  const int64_t first = FindFirstError().rank;
  Say(absl::StrCat("rank ", rank.number, " (pid ", rank.pid, ") ",
                   end.exited ? "" : "was ", end.ToString(),
                   first == rank.number || first < 0
                       ? ""
                       : absl::StrCat(" because of rank ", first),
                   Running().empty()
                       ? ""
                       : absl::StrCat("; the others have ",
                                      Seconds(command_.grace), " to report")));
  steps_ = {{After(command_.grace), SIGTERM},
            {After(command_.grace + kPatience), SIGKILL}};
}

// Makes `rank` the one that failed first. The rank that was blamed until now
// has exited by itself while `rank` was dying, or the ranks have reported that
// the error of `rank` came first.
void Launcher::MoveBlame(Rank& rank) {
  first_failed_ = &rank;
  for (Rank& other : ranks_) other.at_failure = AtFailure::kAlive;
}

void Launcher::TakeStop(int signal) {
  if (stopping()) {
    // When the reader of stdout and stderr goes away, a SIGPIPE comes for each
    // of them. The second one is no reason to hurry.
    if (signal == SIGPIPE) return;
    state_ = State::kStoppingNow;
    SendAll(SIGKILL);
    return;
  }
  state_ = State::kStopping;
  stop_ = signal;
  const std::string running = Running();
  Say(absl::StrCat(
      SignalName(signal), " ends the launch",
      running.empty() ? ""
                      : absl::StrCat("; ", running, " got it, too, with ",
                                     Seconds(command_.stop_grace), " to end")));
  if (ranks_.empty()) return;
  SendAll(signal);
  steps_ = {{After(command_.stop_grace), SIGKILL}};
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
    // The rank may have left the group that it was given.
    if (!rank.end.has_value() && getpgid(rank.pid) != rank.pid) {
      kill(rank.pid, signal);
    }
  }
  if (signal == SIGKILL) steps_.clear();
}

void Launcher::Reap() {
  // This kills the processes that ranks have left running.
  SendAll(SIGKILL);
  for (Rank& rank : ranks_) {
    waitpid(rank.pid, nullptr, 0);
    for (RankStream& stream : rank.streams) {
      stream.ReadRest();
      stream.Close();
    }
  }
  surroundings_.keeper.Forget();
}

std::string Launcher::Running() const {
  std::vector<int64_t> running;
  for (const Rank& rank : ranks_) {
    if (rank.end.has_value()) continue;
    if (rank.number < 0) return "the doctor";
    running.push_back(rank.number);
  }
  return running.empty() ? "" : RankList(running);
}

Launcher::Rank* Launcher::Find(int64_t number) {
  for (Rank& rank : ranks_) {
    if (rank.number == number) return &rank;
  }
  return nullptr;
}

Launcher::FirstError Launcher::FindFirstError() const {
  const int64_t world = *command_.n * command_.nnodes;
  FirstError first;
  first.rank = first_failed_->number;
  std::map<int64_t, FailureReport> reports;
  for (FailureReport& report : reports_->Read()) {
    if (report.blame.rank() >= world) continue;
    // A rank may have run another program of this kind before it failed.
    reports[report.rank] = std::move(report);
  }
  // No report is followed twice.
  for (size_t left = reports.size(); left > 0; --left) {
    const auto report = reports.find(first.rank);
    if (report == reports.end()) break;
    first.reported_by = report->second.rank;
    first.text = report->second.text;
    first.blame = report->second.blame;
    if (first.blame->rank() == first.rank) break;
    first.rank = first.blame->rank();
  }
  // The report of another rank may say more about this rank than its own
  // report, or may be the only report about it.
  for (const auto& [rank, report] : reports) {
    if (first.rank < 0 || report.blame.rank() != first.rank) continue;
    if (!first.blame.has_value()) {
      first.reported_by = rank;
      first.text = report.text;
      first.blame = report.blame;
    } else if (first.blame->rank() == first.rank &&
               first.blame->ranks[0].last.empty()) {
      first.blame = report.blame;
    }
  }
  return first;
}

Blame Launcher::BlameByEnd() const {
  Blame blame;
  blame.cause =
      first_failed_->end->exited ? Blame::Cause::kFailed : Blame::Cause::kLost;
  if (!first_failed_->end->exited) blame.code = absl::StatusCode::kUnavailable;
  blame.ranks = {ThisProcess(static_cast<int>(first_failed_->number))};
  blame.ranks[0].pid = first_failed_->pid;
  return blame;
}

// Says how the attempt has ended, and returns it.
Launcher::AttemptEnd Launcher::Conclude(int64_t attempt) {
  FirstError first;
  AttemptEnd end;
  if (first_failed_ != nullptr) {
    const Rank* const noticed = first_failed_;
    first = FindFirstError();
    Rank* const rank = Find(first.rank);
    if (rank != nullptr && rank != noticed) MoveBlame(*rank);
    if (!first.blame.has_value()) first.blame = BlameByEnd();
    end = EndOfAttempt(noticed);
  }
  Summarize(first);
  Report(attempt, end.code, first);
  return end;
}

Launcher::AttemptEnd Launcher::EndOfAttempt(const Rank* noticed) const {
  // The rank whose error came first may have ended well, or may have been
  // killed because it did not end.
  const bool is_failure =
      first_failed_->end->failed() && !first_failed_->sent_by_launcher;
  const ProcessEnd& end = *(is_failure ? first_failed_ : noticed)->end;
  return {end.exit_code(), end.exited && (end.status == kExitForMistake ||
                                          end.status == kExitForStop)};
}

// Says how each rank has ended, unless all of them have exited with 0.
void Launcher::Summarize(const FirstError& first) {
  if (state_ == State::kRunning) return;
  const std::string why =
      first.text.empty()
          ? ""
          : absl::StrCat(
                first.reported_by == first.rank
                    ? ": "
                    : absl::StrCat("; rank ", first.reported_by, " reports: "),
                first.text);
  const bool is_elsewhere =
      first_failed_ != nullptr && first_failed_->number != first.rank;
  if (is_elsewhere) {
    Say(absl::StrCat(
        first.rank < 0
            ? "the ranks failed together"
            : absl::StrCat("rank ", first.rank, " of another node is to blame"),
        why));
  }
  std::map<std::string, std::vector<int64_t>> ends;
  for (const Rank& rank : ranks_) {
    const ProcessEnd& end = *rank.end;
    if (&rank == first_failed_ && !is_elsewhere) {
      Say(rank.sent_by_launcher
              ? absl::StrCat("rank ", rank.number,
                             " is to blame, and was ended by the launcher: ",
                             end.ToString(), why)
              : absl::StrCat("rank ", rank.number, WayOf(end),
                             " first: ", end.ToString(), why));
    } else {
      ends[absl::StrCat(
               end.ToString(),
               rank.sent_by_launcher ? ", sent by the launcher" : "",
               rank.at_failure == AtFailure::kEnded ? ", before that" : "")]
          .push_back(rank.number);
    }
  }
  for (const auto& [end, ranks] : ends) {
    Say(absl::StrCat(RankList(ranks), ": ", end));
  }
  if (first.blame.has_value()) Say(Describe(*first.blame));
}

void Launcher::Report(int64_t attempt, int code, const FirstError& first) {
  AttemptReport report;
  report.attempt = attempt;
  report.node_rank = command_.node_rank;
  report.exit_code = stopping() ? 128 + stop_ : code;
  report.blame = first.blame;
  report.message = first.text;
  report.reported_by = first.reported_by;
  for (const Rank& rank : ranks_) {
    report.ranks.push_back(
        {rank.number, rank.pid, *rank.end, rank.sent_by_launcher});
  }
  const absl::Status written = report_.Write(report);
  if (!written.ok()) Say(written.message());
}

}  // namespace lockstep
