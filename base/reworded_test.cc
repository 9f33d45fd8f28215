#include "lockstep/base/reworded.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace lockstep {
namespace {

TEST(RewordedTest, KeepsTheCodeAndThePayloads) {
  absl::Status status = absl::NotFoundError("no file");
  status.SetPayload("a", absl::Cord("one"));
  status.SetPayload("b", absl::Cord("two"));
  absl::Status expected = absl::NotFoundError("loader 'train': no file");
  expected.SetPayload("a", absl::Cord("one"));
  expected.SetPayload("b", absl::Cord("two"));
  EXPECT_EQ(Reworded(status, "loader 'train': no file"), expected);
  EXPECT_EQ(status.message(), "no file");
}

TEST(RewordedTest, LeavesOkAsItIs) {
  EXPECT_TRUE(Reworded(absl::OkStatus(), "why").ok());
}

}  // namespace
}  // namespace lockstep
