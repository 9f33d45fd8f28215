#include "lockstep/base/memory_testing.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<bool (*)()> asked{nullptr};

void* Allocate(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bool (*const fails)() = asked.load(std::memory_order_relaxed);
  return fails != nullptr && fails() ? nullptr : std::malloc(size);
}

}  // namespace

void* operator new(size_t size) {
  void* const memory = Allocate(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

// The exit codes of a process that makes a call. Sanitizers and other programs
// use lower codes.
enum Code { kOk = 40, kExhausted, kOtherStatus, kNothingFailed };

// Counts down to the allocation of this thread that fails.
thread_local int64_t left = 0;

Code Call(const CallWithoutMemory& row, int64_t which) {
  const absl::Status status = row.call([&] {
    left = which;
    FailAllocations(row.expected == WithoutMemory::kEnds
                        ? [] { return true; }
                        : [] { return left > 0 && --left == 0; });
  });
  FailAllocations(nullptr);
  if (std::exchange(left, 0) > 0) return kNothingFailed;
  if (status.ok()) return kOk;
  return absl::IsResourceExhausted(status) ? kExhausted : kOtherStatus;
}

// The end of a process, and its standard error.
struct Ended {
  int status = 0;
  std::string said;
};

Ended CallInChild(const CallWithoutMemory& row, int64_t which) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a call that hangs
    dup2(ends[1], STDERR_FILENO);
    _exit(Call(row, which));
  }
  close(ends[1]);
  Ended ended;
  char bytes[4096];
  ssize_t size = 0;
  while ((size = read(ends[0], bytes, sizeof(bytes))) > 0) {
    ended.said.append(bytes, size);
  }
  close(ends[0]);
  waitpid(child, &ended.status, 0);
  return ended;
}

void ExpectEnd(const CallWithoutMemory& row, const Ended& ended) {
  EXPECT_TRUE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGABRT)
      << "it does not abort: " << ended.status;
  EXPECT_THAT(ended.said, testing::ContainsRegex(row.line));
}

void ExpectEachFails(const CallWithoutMemory& row) {
  int64_t exhausted = 0;
  for (int64_t which = 1; !testing::Test::HasFailure(); ++which) {
    SCOPED_TRACE(which);
    const Ended ended = CallInChild(row, which);
    const bool is_strict = row.expected == WithoutMemory::kStatus;
    if (!is_strict && WIFSIGNALED(ended.status)) {
      ExpectEnd(row, ended);
      continue;
    }
    const int code = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : -1;
    if (code == kNothingFailed) break;
    if (!is_strict && code == kOk) continue;
    EXPECT_EQ(code, kExhausted) << ended.said;
    ++exhausted;
  }
  EXPECT_GT(exhausted, 10);
}

}  // namespace

int64_t Allocations() { return allocations; }

void FailAllocations(bool (*fails)()) { asked = fails; }

void ExpectWithoutMemory(const std::vector<CallWithoutMemory>& calls) {
  for (const CallWithoutMemory& row : calls) {
    SCOPED_TRACE(row.name);
    if (row.expected == WithoutMemory::kEnds) {
      ExpectEnd(row, CallInChild(row, /*which=*/0));
    } else {
      ExpectEachFails(row);
    }
  }
}

}  // namespace lockstep
