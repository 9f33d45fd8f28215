#include "lockstep/base/fork_guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <new>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Returns true if `test` returns true in a forked child.
bool InChild(const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) _exit(test() ? 0 : 1);
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(ForkGuard, KnowsTheProcessThatMadeIt) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.forked());
  EXPECT_TRUE(InChild([&] {
    const ForkGuard own;
    return guard.forked() && !own.forked() &&
           InChild([&] { return guard.forked() && own.forked(); });
  }));
  EXPECT_FALSE(guard.forked());
}

TEST(ClosedInForks, ClosesInChildrenAlone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    const ClosedInForks closed(ends[0]);
    EXPECT_TRUE(InChild([&] { return !IsOpen(ends[0]) && IsOpen(ends[1]); }));
    EXPECT_TRUE(IsOpen(ends[0]));
  }
  EXPECT_TRUE(InChild([&] { return IsOpen(ends[0]); }));
  close(ends[0]);
  close(ends[1]);
}

TEST(ClosedInForks, LeavesAloneWhatAChildOpensAfterwards) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::optional<ClosedInForks> closed(std::in_place, ends[0]);
  EXPECT_TRUE(InChild([&] {
    const bool is_same = dup(ends[1]) == ends[0];
    return is_same && InChild([&] {
             closed.reset();
             return IsOpen(ends[0]);
           });
  }));
  closed.reset();
  close(ends[0]);
  close(ends[1]);
}

TEST(ClosedInForks, GoInAnyOrder) {
  int ends[2], others[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(others, O_CLOEXEC), 0);
  std::optional<ClosedInForks> first(std::in_place, ends[0]);
  std::optional<ClosedInForks> second(std::in_place, ends[1]);
  std::optional<ClosedInForks> third(std::in_place, others[0]);
  second.reset();
  EXPECT_TRUE(InChild([&] {
    return !IsOpen(ends[0]) && IsOpen(ends[1]) && !IsOpen(others[0]);
  }));
  third.reset();
  EXPECT_TRUE(InChild([&] { return !IsOpen(ends[0]) && IsOpen(others[0]); }));
  first.reset();
  EXPECT_TRUE(InChild([&] { return IsOpen(ends[0]); }));
  for (const int fd : {ends[0], ends[1], others[0], others[1]}) close(fd);
}

// An object without a descriptor leaves nothing behind that others would use.
TEST(ClosedInForks, NeedsADescriptor) {
  constexpr unsigned char kFreed = 0xab;
  alignas(ClosedInForks) std::array<unsigned char, sizeof(ClosedInForks)>
      memory;
  auto* const none = new (memory.data()) ClosedInForks(-1);
  none->~ClosedInForks();
  memory.fill(kFreed);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    const ClosedInForks closed(ends[0]);
    EXPECT_THAT(memory, testing::Each(kFreed));
  }
  EXPECT_THAT(memory, testing::Each(kFreed));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lockstep
