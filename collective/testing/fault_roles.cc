#include "lockstep/collective/testing/fault_roles.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>  // NOLINT: SteadyTime is one of its
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/held.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/testing/any_backend.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/port_scanner.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using internal_collective::ConnectStrangers;
using internal_collective::DecodeReason;
using internal_collective::Hand;
using internal_collective::Handshake;
using internal_collective::kProtocolVersion;
using internal_collective::Socket;

// A forked child that the test does not end is ended after this time.
constexpr unsigned kMostSecondsOfChild = 240;

constexpr absl::Duration kBeat = absl::Milliseconds(20);

// The deadline of ranks that rank 0 tells in the end. It is shorter than the
// time limit of their processes.
constexpr absl::Duration kUntilTold = absl::Minutes(3);

WorldOptions OptionsOf(const RankProcesses::Self& self) {
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  options.beat = kBeat;
  options.leave_patience = absl::Seconds(5);
  return options;
}

struct Joined {
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
};

absl::StatusOr<Joined> Join(const RankProcesses::Self& self,
                            const WorldOptions& options,
                            GroupOptions group_options = {}) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto world, World::Join(options));
  group_options.backend = self.argument;
  LOCKSTEP_ASSIGN_OR_RETURN(auto group,
                            MakeGroupForHost(*world, group_options));
  return Joined{std::move(world), std::move(group)};
}

absl::StatusOr<Joined> Join(const RankProcesses::Self& self) {
  return Join(self, OptionsOf(self));
}

int Failed(const absl::Status& status) {
  std::printf("failed: %s\n", status.ToString().c_str());
  return 1;
}

// Returns the report of an operation that ends now.
FaultReport ReportOf(const absl::Status& status, double issued) {
  return {status.ToString(), issued, ClockSeconds()};
}

int Print(const absl::StatusOr<FaultReport>& report) {
  if (!report.ok()) return Failed(report.status());
  std::printf("%s | %.6f | %.6f\n", report->status.c_str(), report->issued,
              report->answered);
  return 0;
}

// ---- Faults in a group, whose ranks are processes or threads.

// Returns the report of the operation that a rank issues, or the error if it
// can't issue it.
using Part = std::function<absl::StatusOr<FaultReport>(
    Communicator&, const RankProcesses::Self&)>;

absl::StatusOr<FaultReport> Barriers(Communicator& group,
                                     const RankProcesses::Self&) {
  std::printf("joined\n");
  while (true) {
    const double issued = ClockSeconds();
    const absl::Status status = Wait(group.Barrier());
    if (!status.ok()) return ReportOf(status, issued);
  }
}

// Limits a resource of this process from now on. Returns false if the system
// does not allow that limit.
bool SetLimit(int resource, rlim_t limit) {
  rlimit both;
  getrlimit(resource, &both);
  both.rlim_cur = limit;
  return setrlimit(resource, &both) == 0;
}

std::atomic<bool> is_out_of_memory{false};

absl::StatusOr<FaultReport> BarriersUntilNoMemory(
    Communicator& group, const RankProcesses::Self& self) {
  constexpr size_t kBytes = size_t{4} << 30;
  const std::vector<char> memory(self.rank == 3 ? kBytes : 0, 1);
  if (chdir(self.folder.c_str()) != 0 ||
      !SetLimit(RLIMIT_CORE, RLIM_INFINITY)) {
    return absl::ErrnoToStatus(errno, "core files should have no limit");
  }
  signal(SIGUSR1, [](int) { is_out_of_memory = true; });
  std::printf("joined\n");
  while (true) {
    const double issued = ClockSeconds();
    const absl::Status status = Wait(group.Barrier());
    if (!status.ok()) return ReportOf(status, issued);
    if (is_out_of_memory) RunOrEnd("a test", [] { throw std::bad_alloc(); });
  }
}

std::string GoFile(const std::string& folder) {
  return absl::StrCat(folder, "/go");
}

void Touch(const std::string& file) {
  close(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

absl::StatusOr<FaultReport> BarriersOfParents(Communicator& group,
                                              const RankProcesses::Self& self) {
  std::fflush(stdout);
  const std::string go = GoFile(self.folder);
  if (fork() == 0) {
    // The reader of a rank's output waits until no process can write to it any
    // more.
    close(STDOUT_FILENO);
    alarm(kMostSecondsOfChild);
    while (access(go.c_str(), F_OK) != 0) usleep(1000);
    _exit(0);
  }
  return Barriers(group, self);
}

// Does a barrier to which all ranks come except the one that is stopped. Rank
// `aborts` aborts first.
FaultReport DeadlineBarrier(Communicator& group, int aborts,
                            absl::Duration deadline) {
  CallOptions options;
  options.deadline = deadline;
  const double issued = ClockSeconds();
  if (group.rank() == aborts) group.Abort(absl::InternalError("loss is NaN"));
  return ReportOf(Wait(group.Barrier(options)), issued);
}

// Returns when heartbeats have told rank 0 what this rank has issued before,
// and have told this rank the same about rank 0. The messages that make a group
// go the same way there and back, behind the heartbeats that were due.
absl::Status AwaitBeats(Communicator& group) {
  std::vector<int> members(group.size());
  std::iota(members.begin(), members.end(), 0);
  for (int i = 0; i < 5; ++i) {
    absl::SleepFor(2 * kBeat);
    LOCKSTEP_ASSIGN_OR_RETURN(const auto part,
                              group.Split(absl::StrCat("part ", i), members));
    LOCKSTEP_RETURN_IF_ERROR(Wait(part->Barrier()));
  }
  return absl::OkStatus();
}

// First does barriers of which all ranks have heard. Rank 0 has the deadline
// `first`.
Part DeadlineBarrierAfterGo(int aborts, absl::Duration first,
                            absl::Duration others) {
  return [=](Communicator& group,
             const RankProcesses::Self& self) -> absl::StatusOr<FaultReport> {
    for (int i = 0; i < 100; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
    }
    LOCKSTEP_RETURN_IF_ERROR(AwaitBeats(group));
    AwaitGo(self);
    return DeadlineBarrier(group, aborts, self.rank == 0 ? first : others);
  };
}

absl::StatusOr<FaultReport> Aborts(Communicator& group,
                                   const RankProcesses::Self&) {
  // Rank 1 may have left the barrier and aborted before another rank leaves it.
  absl::Status status = Wait(group.Barrier());
  if (!status.ok() && !absl::IsAborted(status)) return status;
  const double issued = ClockSeconds();
  if (group.rank() == 1) group.Abort(absl::InternalError("loss is NaN"));
  if (status.ok()) status = Wait(group.Barrier());
  return ReportOf(status, issued);
}

absl::StatusOr<FaultReport> Leaves(Communicator& group,
                                   const RankProcesses::Self&) {
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
  const double issued = ClockSeconds();
  return ReportOf(group.rank() == 1 ? group.Close() : Wait(group.Barrier()),
                  issued);
}

using Issue =
    std::function<absl::StatusOr<Work>(Communicator&, absl::Span<float>)>;

// Issues an operation of 2000 elements in which ranks differ, and which must
// not touch them. Only a device may touch them, and end the operation well
// until the next heartbeats.
Part Mismatch(const Issue& issue) {
  return
      [issue](Communicator& group,
              const RankProcesses::Self& self) -> absl::StatusOr<FaultReport> {
        std::vector<float> values(2000, 1.0f);
        const double issued = ClockSeconds();
        absl::Status status = Wait(issue(group, absl::MakeSpan(values)));
        // If all ranks that this rank exchanges data with issue the same, its
        // next operation reports the mismatch.
        const bool device = self.argument == "nccl";
        do {
          if (status.ok()) status = Wait(group.Barrier());
        } while (status.ok() && device);
        const FaultReport report = ReportOf(status, issued);
        for (const float value : values) {
          if (value != 1.0f && !device) return absl::DataLossError("touched");
        }
        return report;
      };
}

// Does the same, but nothing tells the ranks that they differ before the
// operation has ended. The mismatch is found when they leave.
int EndedMismatch(const RankProcesses::Self& self, const Issue& issue) {
  constexpr absl::Duration kNever = absl::Hours(1);
  WorldOptions options = OptionsOf(self);
  options.beat = kNever;
  options.silence = 4 * kNever;
  GroupOptions group_options;
  group_options.slow = kNever;
  const absl::StatusOr<Joined> joined = Join(self, options, group_options);
  if (!joined.ok()) return Failed(joined.status());
  std::vector<float> values(2000, 1.0f);
  absl::Status status = Wait(issue(*joined->group, absl::MakeSpan(values)));
  if (!status.ok()) return Failed(status);
  AwaitGo(self);
  const double issued = ClockSeconds();
  // This returns OK, or the failure if it is known by then. Later operations
  // return the failure.
  joined->group->Close().IgnoreError();
  while (true) {
    status = joined->group->Barrier().status();
    if (!absl::StrContains(status.message(), "by Close")) break;
    usleep(1000);
  }
  return Print(ReportOf(status, issued));
}

absl::StatusOr<Work> IssueCounts(Communicator& group,
                                 absl::Span<float> values) {
  const Buffer buffer =
      BufferOf(group.rank() == 0 ? values.first(1000) : values);
  return group.AllReduce(buffer, buffer, ReduceOp::kSum);
}

absl::StatusOr<Work> IssueReduceOp(Communicator& group,
                                   absl::Span<float> values) {
  const Buffer buffer = BufferOf(values);
  return group.AllReduce(buffer, buffer,
                         group.rank() == 0 ? ReduceOp::kMax : ReduceOp::kSum);
}

absl::StatusOr<Work> IssueRoot(Communicator& group, absl::Span<float> values) {
  const Buffer buffer = BufferOf(values);
  return group.Broadcast(buffer, buffer, /*root=*/group.rank() == 0 ? 0 : 1);
}

absl::StatusOr<Work> IssueKind(Communicator& group, absl::Span<float> values) {
  const Buffer buffer = BufferOf(values);
  return group.rank() == 0 ? group.Broadcast(buffer, buffer, /*root=*/0)
                           : group.AllReduce(buffer, buffer, ReduceOp::kSum);
}

absl::StatusOr<Work> IssueDType(Communicator& group, absl::Span<float> values) {
  Buffer buffer = BufferOf(values);
  if (group.rank() == 0) buffer.dtype = DType::kI32;
  return group.AllReduce(buffer, buffer, ReduceOp::kSum);
}

absl::StatusOr<Work> IssueName(Communicator& group, absl::Span<float> values) {
  const Buffer buffer = BufferOf(values);
  CallOptions options;
  options.name = group.rank() == 0 ? "weights" : "biases";
  return group.AllReduce(buffer, buffer, ReduceOp::kSum, options);
}

absl::StatusOr<FaultReport> GroupOrder(Communicator& group,
                                       const RankProcesses::Self&) {
  std::vector<int> members(group.size());
  std::iota(members.begin(), members.end(), 0);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto a, group.Split("a", members));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto b, group.Split("b", members));
  const double issued = ClockSeconds();
  return ReportOf(Wait((group.rank() == 0 ? a : b)->Barrier()), issued);
}

absl::StatusOr<FaultReport> NoMemory(Communicator& group,
                                     const RankProcesses::Self&) {
  std::vector<float> values(5000000, 1);
  // Rank 1 may have left the barrier and failed before another rank leaves it.
  absl::Status status = Wait(group.Barrier());
  if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
  const double issued = ClockSeconds();
  if (group.rank() == 1) SetLimit(RLIMIT_AS, 0);
  const Buffer buffer = BufferOf(values);
  if (status.ok()) {
    status = Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum));
  }
  return ReportOf(status, issued);
}

// The parts that ranks can do as threads, too.
std::map<std::string, Part> PartsOfAnyRank() {
  return {{"aborts", Aborts},
          {"leaves", Leaves},
          {"kind", Mismatch(IssueKind)},
          {"dtype", Mismatch(IssueDType)},
          {"counts", Mismatch(IssueCounts)},
          {"reduce_op", Mismatch(IssueReduceOp)},
          {"root", Mismatch(IssueRoot)},
          {"name", Mismatch(IssueName)},
          {"group_order", GroupOrder}};
}

// ---- Faults while groups are made.

// Aborts the group and makes it again, 100 times. Growth counts from the 11th
// time on.
absl::StatusOr<Held> MakeAgain(const RankProcesses::Self& self) {
  LOCKSTEP_ASSIGN_OR_RETURN(Joined joined, Join(self));
  GroupOptions options;
  options.backend = self.argument;
  Held before;
  for (int i = 0; i < 100; ++i) {
    absl::Status status = Wait(joined.group->Barrier());
    // Rank 0 may have left the barrier and aborted already.
    if (!status.ok() && !absl::IsAborted(status)) return status;
    if (self.rank == 0) joined.group->Abort(absl::InternalError("again"));
    while (status.ok()) status = Wait(joined.group->Barrier());
    if (!absl::IsAborted(status)) return status;
    joined.group = nullptr;
    if (i == 10) before = HeldNow();
    if (i == 99) break;
    LOCKSTEP_ASSIGN_OR_RETURN(joined.group,
                              MakeGroupForHost(*joined.world, options));
  }
  return GrowthSince(before);
}

int Again(const RankProcesses::Self& self) {
  const absl::StatusOr<Held> growth = MakeAgain(self);
  if (!growth.ok()) return Failed(growth.status());
  const std::string grew = WhatGrew(*growth);
  std::printf("%s\n", grew.empty() ? "nothing is left over" : grew.c_str());
  return 0;
}

int Growth(const RankProcesses::Self& self) {
  const absl::StatusOr<Held> growth = MakeAgain(self);
  if (!growth.ok()) return Failed(growth.status());
  std::printf("%d %d %lld\n", growth->files, growth->threads,
              static_cast<long long>(growth->resident_kib));
  return 0;
}

int NoFiles(const RankProcesses::Self& self) {
  const auto world = World::Join(OptionsOf(self));
  if (!world.ok()) return Failed(world.status());
  GroupOptions options;
  options.backend = self.argument;
  const double issued = ClockSeconds();
  if (self.rank == 1) SetLimit(RLIMIT_NOFILE, 0);
  return Print(ReportOf((*world)->MakeGroup(options).status(), issued));
}

int Scanned(const RankProcesses::Self& self) {
  const auto world = World::Join(OptionsOf(self));
  if (!world.ok()) return Failed(world.status());
  GroupOptions options;
  options.backend = self.argument;
  const PortScanner scanner;
  const double issued = ClockSeconds();
  const auto group = (*world)->MakeGroup(options);
  const FaultReport report = ReportOf(group.status(), issued);
  // Rank 0 listens as long as its World exists.
  while (self.rank == 0 && scanner.count() == 0) usleep(1000);
  return Print(report);
}

// Makes a group of ranks that hide their memory from each other. A flag hides
// it from other processes of the same user; for root, this needs root's
// capabilities to be dropped.
int HiddenMemory(const RankProcesses::Self& self) {
  const auto world = World::Join(OptionsOf(self));
  if (!world.ok()) return Failed(world.status());
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (prctl(PR_SET_DUMPABLE, 0) != 0 ||
      syscall(SYS_capset, &header, none) != 0) {
    return Failed(absl::ErrnoToStatus(errno, "could not hide the memory"));
  }
  GroupOptions options;
  options.backend = "shm";
  const double issued = ClockSeconds();
  return Print(ReportOf((*world)->MakeGroup(options).status(), issued));
}

// ---- Faults before there is a world.

int JoinAlone(const WorldOptions& options) {
  const double issued = ClockSeconds();
  return Print(ReportOf(World::Join(options).status(), issued));
}

// A rank's part of a role, with the options that all ranks have.
using Joining = std::function<int(const RankProcesses::Self&, WorldOptions)>;

int Absent(const RankProcesses::Self& self, const WorldOptions& options) {
  if (absl::StrCat(self.rank) == self.argument) return 0;
  return JoinAlone(options);
}

int WrongToken(const RankProcesses::Self& self, WorldOptions options) {
  options.token = self.rank == 1 ? "theirs" : "ours";
  return JoinAlone(options);
}

int Duplicate(const RankProcesses::Self& self, WorldOptions options) {
  if (self.rank == 2) options.rank = 1;
  return JoinAlone(options);
}

int OtherSize(const RankProcesses::Self& self, WorldOptions options) {
  if (self.rank == 1) ++options.size;
  return JoinAlone(options);
}

// Returns the address on which rank 0 listens, "host:port".
absl::StatusOr<std::string> AwaitAddress(const RankProcesses::Self& self,
                                         const WorldOptions& options) {
  FileStore store(self.folder);
  return store.Get(absl::StrCat("lockstep/", options.job, "/address"),
                   absl::Now() + options.join_deadline);
}

// Rank 1 joins by rank 0's address. By the store, it would not find rank 0,
// since each job has its own address there.
int OtherJob(const RankProcesses::Self& self, WorldOptions options) {
  options.job = "new";
  if (self.rank == 1) {
    const absl::StatusOr<std::string> address = AwaitAddress(self, options);
    if (!address.ok()) return Failed(address.status());
    options.init = absl::StrCat("tcp://", *address);
    options.job = "old";
  }
  return JoinAlone(options);
}

int IdleStrangers(const RankProcesses::Self& self) {
  const WorldOptions options = OptionsOf(self);
  std::vector<Socket> strangers;
  if (self.rank != 0) {
    const absl::StatusOr<std::string> address = AwaitAddress(self, options);
    if (!address.ok()) return Failed(address.status());
    if (self.rank == 2) {
      strangers = ConnectStrangers(300, *address);
      Touch(GoFile(self.folder));
    } else {
      AwaitGo(self);
    }
  }
  return JoinAlone(options);
}

// Rank 1 speaks the protocol by hand, since a build has only one version.
int OtherVersion(const RankProcesses::Self& self, const WorldOptions& options) {
  if (self.rank != 1) return JoinAlone(options);
  const absl::StatusOr<std::string> address = AwaitAddress(self, options);
  if (!address.ok()) return Failed(address.status());
  const double issued = ClockSeconds();
  Socket socket;
  if (!socket.Connect(*address)) return 1;
  Hand hand(Handshake::Role::kSpoke, options.token, socket,
            kProtocolVersion + 1);
  return Print(ReportOf(
      DecodeReason(hand.Join("as the next version says it").second), issued));
}

int JoinAt(const RankProcesses::Self& self, WorldOptions options) {
  options.init = absl::StrCat("tcp://", self.argument);
  return JoinAlone(options);
}

// ---- The roles.

RankProcesses::Role InGroup(const Part& part) {
  return [part](const RankProcesses::Self& self) {
    const double began = ClockSeconds();
    const absl::StatusOr<Joined> joined = Join(self);
    // Other ranks may have failed the group while it was made here.
    if (!joined.ok()) return Print(ReportOf(joined.status(), began));
    return Print(part(*joined->group, self));
  };
}

RankProcesses::Role EndedMismatchOf(const Issue& issue) {
  return [issue](const RankProcesses::Self& self) {
    return EndedMismatch(self, issue);
  };
}

// Joins after Go, so that no rank's deadline begins while another is started.
RankProcesses::Role AfterGo(const Joining& joining, absl::Duration first,
                            absl::Duration others) {
  return [joining, first, others](const RankProcesses::Self& self) {
    AwaitGo(self);
    WorldOptions options = OptionsOf(self);
    options.join_deadline = self.rank == 0 ? first : others;
    return joining(self, options);
  };
}

}  // namespace

std::map<std::string, RankProcesses::Role> FaultRoles(
    const FaultDeadlines& deadlines) {
  const absl::Duration barrier = deadlines.barrier;
  std::map<std::string, RankProcesses::Role> roles = {
      {"barriers", InGroup(Barriers)},
      {"has_child", InGroup(BarriersOfParents)},
      {"core", InGroup(BarriersUntilNoMemory)},
      {"no_memory", InGroup(NoMemory)},
      {"no_files", NoFiles},
      {"scanned", Scanned},
      {"idle_strangers", IdleStrangers},
      {"deadline_barrier",
       InGroup(DeadlineBarrierAfterGo(/*aborts=*/-1, barrier, barrier))},
      {"patient_barrier",
       InGroup(DeadlineBarrierAfterGo(/*aborts=*/-1, barrier, kUntilTold))},
      {"abort_unheard",
       InGroup(DeadlineBarrierAfterGo(/*aborts=*/1, barrier, barrier))},
      {"ended_dtype", EndedMismatchOf(IssueDType)},
      {"ended_reduce_op", EndedMismatchOf(IssueReduceOp)},
      {"ended_name", EndedMismatchOf(IssueName)},
      {"again", Again},
      {"growth", Growth},
      {"hidden_memory", HiddenMemory}};
  for (const auto& [name, part] : PartsOfAnyRank()) {
    roles[name] = InGroup(part);
  }
  const std::map<std::string, Joining> joinings = {
      {"absent", Absent},       {"wrong_token", WrongToken},
      {"duplicate", Duplicate}, {"other_size", OtherSize},
      {"other_job", OtherJob},  {"other_version", OtherVersion},
      {"join_at", JoinAt}};
  for (const auto& [name, joining] : joinings) {
    roles[name] = AfterGo(joining, deadlines.join, deadlines.join);
    roles["patient_" + name] =
        AfterGo(joining, deadlines.patient_join, kUntilTold);
  }
  return roles;
}

std::map<int, FaultReport> FaultOfThreads(const std::string& role, int size,
                                          int absent) {
  std::map<std::string, Part> parts = PartsOfAnyRank();
  parts["deadline_barrier"] = [](Communicator& group,
                                 const RankProcesses::Self&) {
    return DeadlineBarrier(group, /*aborts=*/-1, FaultDeadlines().barrier);
  };
  const Part& part = parts.at(role);
  LocalGroupOptions options;
  options.size = size;
  std::map<int, FaultReport> reports;
  Mutex mutex;
  OnAllRanks(*MakeLocalGroup(options), [&](Communicator& group) {
    if (group.rank() == absent) return;
    const auto report = part(group, {});
    EXPECT_TRUE(report.ok()) << report.status();
    MutexLock lock(mutex);
    if (report.ok()) reports[group.rank()] = *report;
  });
  return reports;
}

void AwaitGo(const RankProcesses::Self& self) {
  std::printf("ready\n");
  const std::string go = GoFile(self.folder);
  while (access(go.c_str(), F_OK) != 0) usleep(1000);
}

void AwaitReady(RankProcesses& ranks, int size) {
  for (int rank = 0; rank < size; ++rank) ranks.AwaitLine(rank, "ready");
}

void Go(const RankProcesses& ranks) { Touch(GoFile(ranks.folder())); }

absl::Status StatusIn(absl::string_view printed) {
  constexpr absl::string_view kBlame = " [lockstep/blame='";
  absl::Status status;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    // A message may have other codes in it.
    size_t first = line.size();
    for (int number = 1; number <= 16; ++number) {
      const auto code = static_cast<absl::StatusCode>(number);
      const std::string name =
          absl::StrCat(absl::StatusCodeToString(code), ": ");
      const size_t at = line.find(name);
      if (at >= first) continue;
      first = at;
      const absl::string_view text = line.substr(at + name.size());
      const size_t end = text.find(kBlame);
      status = absl::Status(code, text.substr(0, end));
      if (end == absl::string_view::npos) continue;
      const absl::string_view escaped = text.substr(end + kBlame.size());
      std::string json;
      absl::CUnescape(escaped.substr(0, escaped.find("']")), &json);
      status = internal_collective::WithBlameText(status, json);
    }
  }
  if (status.ok()) ADD_FAILURE() << "no status is printed in\n" << printed;
  return status;
}

FaultReport ParseFaultReport(absl::string_view printed) {
  FaultReport report;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, " | ");
    double issued = 0, answered = 0;
    if (parts.size() == 3 && absl::SimpleAtod(parts[1], &issued) &&
        absl::SimpleAtod(parts[2], &answered)) {
      report = {std::string(parts[0]), issued, answered};
    }
  }
  EXPECT_FALSE(report.status.empty()) << "no report in:\n" << printed;
  return report;
}

double ClockSeconds() {
  return std::chrono::duration<double>(SteadyNow().time_since_epoch()).count();
}

}  // namespace lockstep
