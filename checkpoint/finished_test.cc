// These tests start jobs again that have finished, without a Session.
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_testing.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class CheckpointFinishedTest : public CheckpointTest {
 protected:
  // Trains 5 steps on two ranks, unless the job has finished. Returns the first
  // step, or -1 if the job has finished.
  int64_t Train(absl::string_view setting, bool saves = true) {
    int64_t first = -1;
    EXPECT_THAT(
        Run(2,
            [&](Communicator& group) -> absl::Status {
              Checkpoint checkpoint(group, options_, Log());
              Fingerprint job;
              job.Add("setting", setting);
              checkpoint.set_job(job);
              LOCKSTEP_ASSIGN_OR_RETURN(const auto finished,
                                        checkpoint.FindFinished());
              if (finished.has_value()) {
                EXPECT_EQ(*finished, 5);
                return absl::OkStatus();
              }
              EXPECT_THAT(
                  checkpoint.MarkFinished(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("MarkFinished comes before Restore")));
              LOCKSTEP_ASSIGN_OR_RETURN(const auto restored,
                                        checkpoint.Restore());
              EXPECT_THAT(
                  checkpoint.FindFinished(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("FindFinished comes after Restore")));
              if (group.rank() == 0) first = restored.value_or(0);
              if (saves) LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(5));
              return checkpoint.MarkFinished();
            }),
        Each(IsOk()));
    return first;
  }
};

TEST_F(CheckpointFinishedTest, DoNothing) {
  EXPECT_EQ(Train("1", /*saves=*/false), 0);
  // Without a checkpoint, there is nothing that could be finished.
  EXPECT_EQ(Train("1"), 0);
  EXPECT_EQ(Train("1"), -1);
  EXPECT_EQ(Train("2"), 5);
  EXPECT_EQ(Train("2"), -1);
  EXPECT_EQ(Train("1"), 5);
}

TEST_F(CheckpointFinishedTest, NeedAPath) {
  options_.path = "";
  EXPECT_EQ(Train("1"), 0);
  EXPECT_EQ(Train("1"), 0);
}

// FindFinished locks the path, so that no other process can train meanwhile.
TEST_F(CheckpointFinishedTest, LockThePath) {
  EXPECT_EQ(Train("1"), 0);
  EXPECT_THAT(
      Run(1,
          [&](Communicator& group) -> absl::Status {
            Checkpoint checkpoint(group, options_, Log());
            Fingerprint job;
            job.Add("setting", "1");
            checkpoint.set_job(job);
            LOCKSTEP_RETURN_IF_ERROR(checkpoint.FindFinished().status());
            Checkpoint other(group, options_, Log());
            return other.Restore().status();
          }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("has locked"))));
}

}  // namespace
}  // namespace lockstep
