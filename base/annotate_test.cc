#include "lockstep/base/annotate.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace lockstep {
namespace {

absl::Status WithPayloads(absl::Status status) {
  status.SetPayload("a", absl::Cord("one"));
  status.SetPayload("b", absl::Cord("two"));
  return status;
}

TEST(AnnotateTest, KeepsTheCodeAndThePayloads) {
  const absl::Status status = WithPayloads(absl::NotFoundError("no file"));
  EXPECT_EQ(Annotate(status, "loader 'train'"),
            WithPayloads(absl::NotFoundError("loader 'train': no file")));
  EXPECT_EQ(Annotate(status, "", "; in job.toml:3"),
            WithPayloads(absl::NotFoundError("no file; in job.toml:3")));
  EXPECT_EQ(status.message(), "no file");
}

TEST(AnnotateTest, LeavesOkAsItIs) {
  EXPECT_TRUE(Annotate(absl::OkStatus(), "where", "behind").ok());
}

TEST(AnnotateTest, MayGiveThePayloadsToAnotherError) {
  const absl::Status status = WithPayloads(absl::NotFoundError("no file"));
  EXPECT_EQ(InPlaceOf(status, absl::UnknownError("no step")),
            WithPayloads(absl::UnknownError("no step")));
  EXPECT_TRUE(InPlaceOf(status, absl::OkStatus()).ok());
}

}  // namespace
}  // namespace lockstep
