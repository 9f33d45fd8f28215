// Tests the NCCL that a program is linked with, which is the fake here.
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/nccl/nccl_api.h"

namespace lockstep::internal_collective {
namespace {

TEST(LinkedNccl, IsTheDefault) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NcclApi* const nccl, LoadNccl(""));
  EXPECT_EQ(nccl->version, 22809);
  NcclUniqueId id = {};
  EXPECT_EQ(nccl->GetUniqueId(&id), NcclResult::kSuccess);
  EXPECT_NE(std::string(id.internal, sizeof(id.internal)),
            std::string(sizeof(id.internal), '\0'));
  EXPECT_EQ(*LoadNccl(""), nccl);
}

TEST(LinkedNccl, APathTakesPrecedence) {
  EXPECT_THAT(LoadNccl("gpu/libfake_without_functions.so"),
              StatusIs(absl::StatusCode::kUnavailable,
                       testing::HasSubstr("libfake_without_functions.so")));
}

}  // namespace
}  // namespace lockstep::internal_collective
