// Tests a job in which one rank's memory runs out at some allocation: one of
// those that its main thread and Lockstep's threads make between joining and
// leaving. Either this allocation alone fails, or all later ones fail as well.
// The rank returns RESOURCE_EXHAUSTED, goes on, or ends. The others go on, or
// are told. A rank that ends is stopped first, as if the system wrote its core
// file, so that the others must be told before it is gone. No rank throws,
// crashes or waits for a deadline.
//
// Every fifth allocation is tried, and each one with LOCKSTEP_STRIDE=1, as
// tools/ci/exhaustive runs it. LOCKSTEP_WHERE=1 prints the stack of the failing
// one, and that of a rank's end.
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace {

// The number of the allocation that fails, from 1. If `for_good` is true, all
// later ones fail as well.
std::atomic<int64_t> fails{0};
std::atomic<bool> for_good{false};
std::atomic<int64_t> allocations{0};
std::atomic<bool> has_failed{false};

// Returns true if this is the program's main thread or one of Lockstep's.
bool IsOurs() {
  thread_local const bool is_main = gettid() == getpid();
  if (is_main) return true;
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return std::strncmp(name, "lockstep", 8) == 0;
}

void PrintWhere() {
  if (std::getenv("LOCKSTEP_WHERE") == nullptr) return;
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
}

bool Fails() {
  if (!IsOurs()) return false;
  const int64_t number = allocations.fetch_add(1) + 1;
  if (for_good ? number < fails : number != fails) return false;
  if (!has_failed.exchange(true)) PrintWhere();
  return true;
}

}  // namespace

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kSize = 2;

// A process that hangs ends before any deadline passes.
constexpr unsigned kMostSeconds = 200;
constexpr absl::Duration kNever = absl::Hours(1);

// Returns the distance between the allocations that are tried.
int64_t Stride() {
  int64_t stride = 0;
  const char* const text = std::getenv("LOCKSTEP_STRIDE");
  if (text != nullptr && absl::SimpleAtoi(text, &stride)) return stride;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 23;
#else
  return 5;
#endif
}

// The memory that a rank sends and receives. It outlives the group, which may
// still write to it after a failure.
struct Memory {
  std::vector<float> values = std::vector<float>(1000, 1);
  std::vector<float> all = std::vector<float>(kSize * values.size());
  std::vector<float> got = std::vector<float>(values.size());
};

// Makes one call of each kind in a group.
absl::Status Use(Communicator& group, Memory& memory) {
  auto& [values, all, got] = memory;
  Fingerprint same;
  same.Add("seed", "7");
  LOCKSTEP_RETURN_IF_ERROR(CheckSame(group, "what it uses", same));
  CallOptions options;
  options.name = "a name that is too long for a string without memory";
  LOCKSTEP_ASSIGN_OR_RETURN(const Work reduced,
                            group.AllReduce(BufferOf(values), BufferOf(values),
                                            ReduceOp::kSum, options));
  LOCKSTEP_ASSIGN_OR_RETURN(const Work barrier, group.Barrier());
  LOCKSTEP_RETURN_IF_ERROR(barrier.Wait());
  LOCKSTEP_RETURN_IF_ERROR(reduced.Wait());
  if (values[0] != kSize) return absl::DataLossError("a wrong sum");
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllGather(ConstBufferOf(values), BufferOf(all))));
  const int other = 1 - group.rank();
  LOCKSTEP_RETURN_IF_ERROR(Wait(group.SendRecv(ConstBufferOf(values), other,
                                               BufferOf(got), other, options)));
  if (got != values) return absl::DataLossError("a wrong message");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto part, group.Split("part", {0, 1}));
  LOCKSTEP_RETURN_IF_ERROR(Wait(part->Barrier()));
  LOCKSTEP_RETURN_IF_ERROR(part->Close());
  return group.Close();
}

// Stops the process, with its descriptors, as if its core file were written.
void StopHere(int /*signal*/) {
  PrintWhere();
  constexpr absl::string_view kOver = "failed\nover: it has ended\n";
  static_cast<void>(!write(STDOUT_FILENO, kOver.data(), kOver.size()));
  kill(getpid(), SIGSTOP);
}

// Prints the result of joining, and then that of the rest.
int Rank(const RankProcesses::Self& self) {
  alarm(kMostSeconds);
  dup2(STDOUT_FILENO, STDERR_FILENO);
  signal(SIGABRT, StopHere);
  const std::vector<std::string> words = absl::StrSplit(self.argument, ' ');
  int rank = -1;
  int64_t which = 0;
  if (!absl::SimpleAtoi(words[1], &rank) ||
      !absl::SimpleAtoi(words[3], &which)) {
    return 2;
  }
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  options.join_deadline = kNever;
  options.silence = kNever;
  options.leave_patience = kNever;
  GroupOptions group_options;
  group_options.backend = words[0];
  group_options.deadline = kNever;
  Memory memory;
  for_good = words[2] == "for_good";
  if (self.rank == rank) {
    fails = which;
    FailAllocations(Fails);
  }
  absl::Status status;
  {
    const auto world = World::Join(options);
    status = world.status();
    static_cast<void>(!write(STDOUT_FILENO, "joined\n", world.ok() ? 7 : 0));
    if (world.ok()) {
      const auto group = (*world)->MakeGroup(group_options);
      // The rank's own allocations may fail as well, and it handles their
      // exceptions itself.
      status = group.ok() ? CatchAll("the trainer",
                                     [&] { return Use(**group, memory); })
                          : group.status();
    }
  }
  FailAllocations(nullptr);
  const std::optional<Blame> blame = BlameOf(status);
  const int blamed =
      blame.has_value() && !blame->ranks.empty() ? blame->ranks[0].rank : -1;
  std::printf("%s\nover: blames %d: %s\n",
              has_failed ? "failed" : "did not fail", blamed,
              status.ToString().c_str());
  std::fflush(stdout);
  return 0;
}

// Returns the result in what a rank has printed, such as "OK".
std::string ResultIn(const std::string& printed) {
  const std::vector<std::string> parts =
      absl::StrSplit(printed, absl::MaxSplits(": ", 3));
  return parts.size() < 3 ? "" : parts[2];
}

using Way = std::tuple<std::string, int, std::string>;

class OutOfMemory : public testing::TestWithParam<Way> {};

TEST_P(OutOfMemory, IsToldToAll) {
  const auto& [backend, rank, how_often] = GetParam();
  const int other = 1 - rank;
  const int64_t stride = Stride();
  int64_t failed = 0;
  int64_t ended = 0;
  int64_t unfailed_in_a_row = 0;
  // The number of allocations varies between runs. So the loop goes on some way
  // after the last one that failed.
  constexpr int64_t kPastTheEnd = 60;
  for (int64_t i = 1;
       unfailed_in_a_row < kPastTheEnd / stride + 1 && !HasFailure();
       i += stride) {
    const std::string argument =
        absl::StrCat(backend, " ", rank, " ", how_often, " ", i);
    RankProcesses ranks("rank", kSize, argument);
    const std::string said = ranks.AwaitLine(rank, "over: ");
    const bool joined = absl::StartsWith(said, "joined\n");
    const bool has_failed = absl::StrContains(said, "failed\nover: ") &&
                            !absl::StrContains(said, "did not fail");
    const bool has_ended = absl::StrContains(said, "over: it has ended");
    unfailed_in_a_row = has_failed ? 0 : unfailed_in_a_row + 1;
    failed += has_failed;
    ended += has_ended;
    // A rank waits for another that could not join, as for any missing one.
    if (!joined) ranks.Signal(other, SIGKILL);
    const std::string others = ranks.Wait(other);
    // It is stopped, or about to be, or has printed all that matters.
    if (has_failed) ranks.Signal(rank, SIGKILL);
    ranks.Wait(rank);
    const std::string told = absl::StrCat(argument, ": ", said, others);
    const std::string result = ResultIn(said);
    const std::string result_of_other = ResultIn(others);
    if (!has_failed) {
      EXPECT_EQ(result, "OK\n") << told;
      EXPECT_EQ(result_of_other, "OK\n") << told;
      continue;
    }
    if (has_ended) {
      EXPECT_THAT(said, HasSubstr("so Lockstep ends this process"));
    } else {
      EXPECT_THAT(result, AnyOf("OK\n", "RESOURCE_EXHAUSTED")) << told;
    }
    if (!joined) continue;
    if (result_of_other != "OK\n") {
      EXPECT_THAT(others, HasSubstr(absl::StrCat("blames ", rank, ": ")))
          << told;
    }
  }
  EXPECT_GT(failed, 100 / stride);
  EXPECT_GT(ended, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, OutOfMemory,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::Values(0, 1),
                                          testing::Values("once", "for_good")),
                         [](const testing::TestParamInfo<Way>& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param), "_",
                                               std::get<2>(info.param));
                         });

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv, {{"rank", lockstep::Rank}});
}
