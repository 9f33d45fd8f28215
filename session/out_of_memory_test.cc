// This tests what a session and its group do where memory runs out: a session
// that is made ends in a Status or, within a call of the group, ends the
// process.
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace lockstep {
namespace {

TEST(OutOfMemory, IsAStatusOrEndsTheProcess) {
  PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(RegisterLockstep(registry));
  // Each process makes a group of its own, since a fork has no part in that of
  // its parent.
  const auto barrier = [](const RunOut& run_out) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, MakeLocalGroup({}));
    run_out();
    return ranks[0]->Barrier().status();
  };
  const auto create = [&](const RunOut& run_out) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, MakeLocalGroup({}));
    SessionOptions options;
    options.group = ranks[0].get();
    NoOptions none;
    LOCKSTEP_ASSIGN_OR_RETURN(Job job, ReadJob(Config(), &none));
    run_out();
    return Session::Create(std::move(job), registry, options).status();
  };
  LOCKSTEP_ASSERT_OK(barrier([] {}));
  LOCKSTEP_ASSERT_OK(create([] {}));
  ExpectWithoutMemory({
      {"Barrier", barrier, WithoutMemory::kEnds,
       "^a call of a group, so Lockstep ends this process"},
      {"Session::Create", create, WithoutMemory::kStatusOrOk,
       "^.+ ran out of memory .*so Lockstep ends this process"},
  });
}

}  // namespace
}  // namespace lockstep
