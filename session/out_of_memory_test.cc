// This tests what a session and its group do where memory runs out. The making
// of a session is tried with each of its allocations: it ends in a Status or,
// within a call of the group, ends the process.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace {

// Counts down to the allocation of this thread that fails.
thread_local int64_t left = 0;

bool Fails() { return left > 0 && --left == 0; }

}  // namespace

void* operator new(size_t size) {
  void* const memory = Fails() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

// The exit codes of a process that makes a session in which an allocation
// fails. Sanitizers and other programs use lower codes.
enum Result { kMade = 40, kExhausted, kNotMade, kDidNotFail };

Result Make(PluginRegistry& registry, int64_t fails) {
  LocalGroupOptions options;
  options.size = 1;
  const auto ranks = MakeLocalGroup(options);
  SessionOptions session_options;
  session_options.group = (*ranks)[0].get();
  NoOptions none;
  absl::StatusOr<Job> job = ReadJob(Config(), &none);
  left = fails;
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(*std::move(job), registry, session_options);
  if (std::exchange(left, 0) > 0) return kDidNotFail;
  // It may be made without something that it can do without.
  if (session.ok()) return kMade;
  return absl::IsResourceExhausted(session.status()) ? kExhausted : kNotMade;
}

// The end of such a process, and its standard error.
struct Ended {
  int status = 0;
  std::string said;
};

Ended MakeInChild(PluginRegistry& registry, int64_t fails) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    dup2(ends[1], STDERR_FILENO);
    _exit(Make(registry, fails));
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

TEST(OutOfMemoryDeathTest, ACallOfAGroupEndsTheProcess) {
  const auto call = [] {
    LocalGroupOptions options;
    options.size = 1;
    const auto ranks = MakeLocalGroup(options);
    left = 1;
    static_cast<void>((*ranks)[0]->Barrier());
  };
  EXPECT_DEATH(call(), "^a call of a group ran out of memory");
}

TEST(OutOfMemory, ASessionIsNotMade) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(RegisterLockstep(registry));
  int64_t exhausted = 0;
  for (int64_t fails = 1; !HasFailure(); ++fails) {
    SCOPED_TRACE(fails);
    const Ended ended = MakeInChild(registry, fails);
    if (WIFSIGNALED(ended.status)) {
      EXPECT_EQ(WTERMSIG(ended.status), SIGABRT);
      EXPECT_THAT(ended.said,
                  testing::ContainsRegex(
                      "^(a call of a group|waiting for an operation) ran out"));
      continue;
    }
    const int result = WEXITSTATUS(ended.status);
    if (result == kDidNotFail) break;
    EXPECT_THAT(result, testing::AnyOf(kMade, kExhausted)) << ended.said;
    exhausted += result == kExhausted;
  }
  EXPECT_GT(exhausted, 10);
}

}  // namespace
}  // namespace lockstep
