// Tests a job in which one rank forks. The child has no part in the job,
// whatever it calls, and the ranks notice nothing.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of the standard library
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/any_backend.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {
namespace {

using Group = std::unique_ptr<Communicator>;

// A child that hangs is ended, and named, before its rank is ended.
constexpr unsigned kMostSecondsOfChild = 120;

// Returns the names of the children's tasks. The thread sanitizer does not let
// a forked process start threads, and does not let a process that had several
// threads exit.
std::vector<std::string> WhatChildrenDo() {
#if defined(__SANITIZE_THREAD__)
  return {"calls", "destroys"};
#else
  return {"calls", "destroys", "joins", "returns"};
#endif
}

constexpr int kSize = 2;
constexpr int kElements = 1000;

// Returns when all have issued `count` reductions, each of them with the right
// sum.
absl::Status Reduce(Communicator& group, int count) {
  for (int i = 0; i < count; ++i) {
    std::vector<float> values(kElements, 1.0F + group.rank());
    const Buffer buffer = BufferOf(values);
    LOCKSTEP_RETURN_IF_ERROR(
        Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
    if (values[0] == 3 && values[kElements - 1] == 3) continue;
    return absl::DataLossError(
        absl::StrCat("the sum is ", values[0], ", and not 3"));
  }
  return absl::OkStatus();
}

WorldOptions OptionsOf(const RankProcesses::Self& self) {
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  options.silence = absl::Hours(1);
  return options;
}

// Returns true if `call` was refused because the process is a fork.
bool Refused(const char* call, const absl::Status& status) {
  if (absl::IsFailedPrecondition(status) &&
      absl::StrContains(status.message(), "this process was forked from")) {
    return true;
  }
  std::printf("in the child, %s: %s\n", call, status.ToString().c_str());
  return false;
}

// Returns true if every call of the objects that the child has from its parent
// is refused.
bool AllRefused(World* world, Communicator& group, const Work& work) {
  std::vector<float> in(kElements, 100), out(kSize * kElements);
  std::vector<float> parts(kSize * kElements);
  const ConstBuffer from = ConstBufferOf(in);
  const Buffer same = BufferOf(in);
  const Buffer whole = BufferOf(out);
  const ConstBuffer each = ConstBufferOf(parts);
  const std::vector<int64_t> counts(kSize, kElements);
  const ReduceOp sum = ReduceOp::kSum;
  bool all = true;
  const auto check = [&all](const char* call, const absl::Status& status) {
    all &= Refused(call, status);
  };
  check("AllReduce", group.AllReduce(same, same, sum).status());
  check("Reduce", group.Reduce(same, same, sum, 0).status());
  check("ReduceScatter", group.ReduceScatter(each, same, sum).status());
  check("Broadcast", group.Broadcast(from, same, 0).status());
  check("AllGather", group.AllGather(from, whole).status());
  check("AllGatherV", group.AllGatherV(from, whole, counts).status());
  check("Gather", group.Gather(from, whole, 0).status());
  check("GatherV", group.GatherV(from, whole, counts, 0).status());
  check("Scatter", group.Scatter(each, same, 0).status());
  check("ScatterV", group.ScatterV(each, same, counts, 0).status());
  check("AllToAll", group.AllToAll(each, whole).status());
  check("AllToAllV", group.AllToAllV(each, counts, whole, counts).status());
  check("Barrier", group.Barrier().status());
  check("Send", group.Send(from, 1).status());
  check("Recv", group.Recv(same, 1).status());
  check("SendRecv", group.SendRecv(each, 1, whole, 1).status());
  check("Split", group.Split("part", {0, 1}).status());
  group.Abort(absl::InternalError("by the child"));
  check("Close", group.Close());
  check("Work::Wait", work.Wait());
  check("Work::WaitUntil", work.WaitUntil(absl::InfinitePast()));
  check("Work::WaitOnStream", work.WaitOnStream(Stream(nullptr)));
  check("Work::status", work.status());
  if (world != nullptr) check("MakeGroup", world->MakeGroup().status());
  return all && work.Done() && group.RecentOperations().empty();
}

// Returns true if a new world of one, independent of the parent's, works.
bool JoinsAnother(const std::string& folder) {
  WorldOptions options;
  options.init = absl::StrCat("file://", folder, "/child");
  options.rank = 0;
  options.size = 1;
  const auto world = World::Join(options);
  if (!world.ok()) return Refused("World::Join", world.status());
  const auto group = (*world)->MakeGroup();
  if (!group.ok()) return Refused("MakeGroup", group.status());
  const absl::Status status = Wait((*group)->Barrier());
  return status.ok() || Refused("Barrier", status);
}

// Returns "OK", or how a child ended.
std::string EndOf(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "OK";
  return absl::StrCat("the child ended with status ", status);
}

bool is_forked_child = false;

// The argument is the backend, and the task of rank 0's child.
int ForkingRank(const RankProcesses::Self& self) {
  const std::vector<std::string> words = absl::StrSplit(self.argument, ' ');
  const std::string& does = words[1];
  GroupOptions group_options;
  group_options.backend = words[0];
  absl::StatusOr<std::unique_ptr<World>> world = World::Join(OptionsOf(self));
  absl::StatusOr<Group> group =
      world.ok() ? MakeGroupForHost(**world, group_options) : world.status();
  absl::Status status = group.status();
  if (status.ok()) status = Reduce(**group, 10);
  if (status.ok() && self.rank == 0) {
    const auto work = (*group)->Barrier();  // rank 1 has yet to come to it
    const pid_t child = fork();
    if (child == 0) {
      is_forked_child = true;
      alarm(kMostSecondsOfChild);
      bool well = work.ok();
      if (does == "calls") well &= AllRefused(world->get(), **group, *work);
      if (does == "joins") well &= JoinsAnother(self.folder);
      if (does == "destroys") {
        *group = nullptr;
        *world = nullptr;
      }
      std::fflush(stdout);
      if (does != "returns") _exit(well ? 0 : 1);
      return well ? 0 : 1;  // from main
    }
    const std::string end = EndOf(child);
    if (end != "OK") std::printf("%s\n", end.c_str());
    status = Wait(work);
  } else if (status.ok()) {
    status = Wait((*group)->Barrier());
  }
  if (status.ok()) status = Reduce(**group, 100);
  if (status.ok()) status = (*group)->Close();
  std::printf("%s\n", status.ToString().c_str());
  return 0;
}

class Fork
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Fork, LeavesTheRanksAlone) {
  const auto& [backend, does] = GetParam();
  RankProcesses ranks("forks", kSize, absl::StrCat(backend, " ", does));
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), "OK\n") << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Fork,
                         testing::Combine(testing::Values("shm", "tcp", "nccl"),
                                          testing::ValuesIn(WhatChildrenDo())),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param));
                         });

TEST(LocalFork, LeavesTheRanksAlone) {
  LocalGroupOptions options;
  options.size = kSize;
  auto ranks = MakeLocalGroup(options);
  ASSERT_TRUE(ranks.ok());
  const auto work = (*ranks)[0]->Barrier();
  ASSERT_TRUE(work.ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSecondsOfChild);
    const bool well = AllRefused(nullptr, *(*ranks)[0], *work);
    ranks->clear();
    std::fflush(stdout);
    _exit(well ? 0 : 1);
  }
  EXPECT_EQ(EndOf(child), "OK");
  EXPECT_TRUE(Wait((*ranks)[1]->Barrier()).ok());
  EXPECT_TRUE(work->Wait().ok());
}

// Returns the descriptors of this process, and the file of each.
std::map<int, std::string> Descriptors() {
  std::map<int, std::string> found;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    int fd = -1;
    std::error_code gone;  // the folder's own descriptor may be gone
    const std::filesystem::path what =
        std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && absl::SimpleAtoi(entry.path().filename().string(), &fd)) {
      found[fd] = what.string();
    }
  }
  return found;
}

// A child outlives its parent and does nothing.
[[noreturn]] void LiveOn(const std::map<int, std::string>& before) {
  alarm(kMostSecondsOfChild);
  int sockets = 0;
  for (const auto& [fd, what] : Descriptors()) {
    sockets += before.count(fd) == 0 && absl::StartsWith(what, "socket:");
  }
  std::printf("child %d has %d sockets\n", getpid(), sockets);
  std::fflush(stdout);
  // The test waits until no process can write to its output.
  close(STDOUT_FILENO);
  while (true) pause();
}

// The argument is the backend, and the rank that has a child and will be
// killed.
int KilledParent(const RankProcesses::Self& self) {
  const std::vector<std::string> words = absl::StrSplit(self.argument, ' ');
  const std::map<int, std::string> before = Descriptors();
  GroupOptions group_options;
  group_options.backend = words[0];
  const auto world = World::Join(OptionsOf(self));
  absl::StatusOr<Group> group =
      world.ok() ? (*world)->MakeGroup(group_options) : world.status();
  absl::Status status = group.status();
  if (status.ok()) status = Reduce(**group, 10);
  if (status.ok() && absl::StrCat(self.rank) == words[1] && fork() == 0) {
    LiveOn(before);
  }
  while (status.ok()) status = Reduce(**group, 1);
  std::printf("%s\n", status.ToString().c_str());
  return 0;
}

class ForkedChild
    : public testing::TestWithParam<std::tuple<std::string, int>> {};

// Otherwise the others would learn of the death only from the child's end, or
// after an hour of silence.
TEST_P(ForkedChild, DoesNotHideItsParentsDeath) {
  const auto& [backend, victim] = GetParam();
  const int other = 1 - victim;
  RankProcesses ranks("killed", kSize, absl::StrCat(backend, " ", victim));
  const std::string told = ranks.AwaitLine(victim, "sockets");
  int child = 0, sockets = -1;
  ASSERT_EQ(std::sscanf(told.c_str(), "child %d has %d", &child, &sockets), 2)
      << told;
  EXPECT_EQ(sockets, 0) << told;
  ranks.Signal(victim, SIGKILL);
  EXPECT_THAT(
      ranks.Wait(other),
      testing::AllOf(testing::StartsWith("UNAVAILABLE"),
                     testing::HasSubstr(absl::StrCat("rank ", victim, " (")),
                     testing::HasSubstr("is lost")));
  EXPECT_EQ(kill(child, 0), 0) << "the child has ended";
  kill(child, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Backends, ForkedChild,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::Values(0, 1)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param));
                         });

// Prints which of the descriptors that a group and its World have opened would
// be open in a program that the rank starts.
int ListingRank(const RankProcesses::Self& self) {
  const std::map<int, std::string> before = Descriptors();
  GroupOptions group_options;
  group_options.backend = self.argument;
  const auto world = World::Join(OptionsOf(self));
  absl::StatusOr<Group> group =
      world.ok() ? (*world)->MakeGroup(group_options) : world.status();
  absl::Status status = group.status();
  if (status.ok()) status = Reduce(**group, 10);
  int opened = 0;
  for (const auto& [fd, what] : Descriptors()) {
    if (before.count(fd) != 0) continue;
    ++opened;
    if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) {
      std::printf("%d: %s\n", fd, what.c_str());
    }
  }
  if (opened < 3) std::printf("only %d were opened\n", opened);
  if (status.ok()) status = (*group)->Close();
  std::printf("%s\n", status.ToString().c_str());
  return 0;
}

class StartedProgram : public testing::TestWithParam<std::string> {};

TEST_P(StartedProgram, HasNoDescriptorOfLocksteps) {
  RankProcesses ranks("lists", kSize, GetParam());
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), "OK\n") << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StartedProgram,
                         testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep

// LeakSanitizer calls this before it looks for leaks. A forked child has none
// of its parent's threads, so memory that only their stacks refer to would look
// lost.
extern "C" int __lsan_is_turned_off() {  // NOLINT: the sanitizer's name
  return lockstep::is_forked_child ? 1 : 0;
}

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv,
                                       {{"forks", lockstep::ForkingRank},
                                        {"killed", lockstep::KilledParent},
                                        {"lists", lockstep::ListingRank}});
}
