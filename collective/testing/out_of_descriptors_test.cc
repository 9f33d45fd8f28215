// Tests a job in which one rank can open only a few descriptors more. This rank
// returns RESOURCE_EXHAUSTED, with advice, or goes on. The others go on, or are
// told. No rank crashes or waits for a deadline.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

constexpr int kSize = 4;

// A process that hangs ends before any deadline passes.
constexpr unsigned kMostSeconds = 200;
constexpr absl::Duration kNever = absl::Hours(1);

// Takes up all descriptors but `left` while it exists.
// Thread-safety: thread-compatible.
class FewDescriptors {
 public:
  explicit FewDescriptors(int left) {
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
      taken_.push_back(fd);
    }
    for (; left > 0; --left) Free();
  }
  ~FewDescriptors() {
    while (!taken_.empty()) Free();
  }

  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  void Free() {
    close(taken_.back());
    taken_.pop_back();
  }

  std::vector<int> taken_;
};

absl::Status Use(World& world, const GroupOptions& options, bool& joined) {
  joined = true;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
  std::vector<float> values(1000, 1);
  const Buffer buffer = BufferOf(values);
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group->AllReduce(buffer, buffer, ReduceOp::kSum)));
  return group->Close();
}

// The argument has the backend, the rank with few descriptors, and their
// number.
int Rank(const RankProcesses::Self& self) {
  alarm(kMostSeconds);
  const std::vector<std::string> words = absl::StrSplit(self.argument, ' ');
  int rank = -1, left = 0;
  if (!absl::SimpleAtoi(words[1], &rank) ||
      !absl::SimpleAtoi(words[2], &left)) {
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
  const FewDescriptors few(self.rank == rank ? left : 100);
  bool joined = false;
  absl::Status status;
  {
    const auto world = World::Join(options);
    status = world.ok() ? Use(**world, group_options, joined) : world.status();
  }
  std::printf("%s\n%s\n", joined ? "joined" : "not joined",
              std::string(status.ToString()).c_str());
  return 0;
}

class OutOfDescriptors
    : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(OutOfDescriptors, EndsInAStatusThatSaysSo) {
  const auto& [backend, rank] = GetParam();
  int failed = 0;
  for (int left = 0, well = 0; well < 3 && left < 60; ++left) {
    RankProcesses ranks("rank", kSize,
                        absl::StrCat(backend, " ", rank, " ", left));
    const std::string said = ranks.Wait(rank);
    // A rank waits for another that could not join, as for any missing one.
    const bool joined = absl::StartsWith(said, "joined");
    std::vector<std::string> others;
    for (int other = 0; other < kSize; ++other) {
      if (other == rank) continue;
      if (!joined) ranks.Signal(other, SIGKILL);
      others.push_back(ranks.Wait(other));
    }
    const std::string told = absl::StrCat(left, " descriptors: ", said, "; ",
                                          absl::StrJoin(others, "; "));
    SCOPED_TRACE(told);
    if (said == "joined\nOK\n") {
      EXPECT_THAT(others, testing::Each("joined\nOK\n"));
      ++well;
      continue;
    }
    ++failed;
    EXPECT_THAT(said, testing::HasSubstr("joined\nRESOURCE_EXHAUSTED: "));
    EXPECT_THAT(said, testing::HasSubstr("raise the limit of open files"));
    if (joined) {
      const testing::Matcher<std::string> names_it =
          testing::AllOf(testing::StartsWith("joined\nRESOURCE_EXHAUSTED: "),
                         testing::HasSubstr(absl::StrCat("rank ", rank)));
      EXPECT_THAT(others, testing::Each(names_it));
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(failed, 3);
}

INSTANTIATE_TEST_SUITE_P(Ranks, OutOfDescriptors,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::Values(0, 1)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv, {{"rank", lockstep::Rank}});
}
