#include "lockstep/collective/gloo/gloo_device.h"

#include <memory>

#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

// Each Standstill has the memory of the one before, so the thread sanitizer
// reports it where Gloo's thread has not let go of that one.
TEST(Standstill, LeavesItsMemoryToTheNext) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<GlooDevice> device,
                                MakeGlooDevice("127.0.0.1"));
  for (int i = 0; i < 100; ++i) const Standstill standstill(*device);
}

TEST(Rounds, LeaveTheirMemoryToTheNext) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<GlooDevice> device,
                                MakeGlooDevice("127.0.0.1"));
  for (int i = 0; i < 100; ++i) const Rounds rounds(*device);
}

}  // namespace
}  // namespace lockstep::internal_collective
