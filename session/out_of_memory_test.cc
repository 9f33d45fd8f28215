// This test makes a session where memory runs out: once for each allocation of
// the call. Each call ends in a Status.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

TEST(OutOfMemory, ASessionIsNotMade) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(RegisterLockstep(registry));
  int64_t failed = 0;
  for (int64_t fails = 1;; ++fails) {
    LocalGroupOptions options;
    options.size = 1;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ranks, MakeLocalGroup(options));
    SessionOptions session_options;
    session_options.group = ranks[0].get();
    NoOptions none;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(Job job, ReadJob(Config(), &none));
    left = fails;
    absl::StatusOr<std::unique_ptr<Session>> session =
        Session::Create(std::move(job), registry, session_options);
    const bool ran_out = std::exchange(left, 0) == 0;
    if (!ran_out) {
      LOCKSTEP_EXPECT_OK(session);
      break;
    }
    // Memory may run out where it is not needed, as in the log's thread.
    if (session.ok()) continue;
    ++failed;
    EXPECT_THAT(session.status(),
                StatusIs(absl::StatusCode::kResourceExhausted))
        << fails;
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace lockstep
