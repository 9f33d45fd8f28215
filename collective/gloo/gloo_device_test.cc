#include "lockstep/collective/gloo/gloo_device.h"

#include <memory>

#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/gloo/gloo_releases.h"

namespace lockstep::internal_collective {
namespace {

// Each Standstill has the memory of the one before. So the thread sanitizer
// reports a race if Gloo's thread still uses that one.
TEST(Standstill, ItsThreadDoesNotUseADestroyedStandstill) {
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
