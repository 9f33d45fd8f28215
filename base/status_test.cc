// Tests the status macros, and the matchers that all other tests use.
#include "absl/status/status.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointee;

absl::Status FailIf(bool fail) {
  return fail ? absl::NotFoundError("no such rank") : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> BoxIf(bool ok) {
  if (!ok) return absl::DataLossError("torn");
  return std::make_unique<int>(7);
}

absl::StatusOr<int> Unbox(bool first_ok, bool second_ok) {
  LOCKSTEP_RETURN_IF_ERROR(FailIf(!first_ok));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<int> box, BoxIf(second_ok));
  LOCKSTEP_ASSIGN_OR_RETURN(auto other, BoxIf(true));
  return *box + *other;
}

TEST(StatusMacros, PassErrorsOnAndMoveValues) {
  EXPECT_THAT(Unbox(true, true), IsOkAndHolds(14));
  EXPECT_THAT(Unbox(false, true),
              StatusIs(absl::StatusCode::kNotFound, "no such rank"));
  EXPECT_THAT(Unbox(true, false), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(StatusMacros, AreOneStatement) {
  auto branch = [](bool fail) -> absl::Status {
    if (fail)
      LOCKSTEP_RETURN_IF_ERROR(FailIf(true));
    else
      LOCKSTEP_RETURN_IF_ERROR(FailIf(false));
    return absl::OkStatus();
  };
  EXPECT_THAT(branch(false), IsOk());
  EXPECT_THAT(branch(true), Not(IsOk()));
}

TEST(StatusMatchers, TellCodesMessagesAndValuesApart) {
  const absl::Status lost = absl::DataLossError("shard 3 is torn");
  EXPECT_THAT(lost, Not(IsOk()));
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("3")));
  EXPECT_THAT(lost, Not(StatusIs(absl::StatusCode::kDataLoss, "torn")));
  EXPECT_THAT(lost, Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(absl::StatusOr<int>(lost), Not(IsOkAndHolds(7)));
  EXPECT_THAT(absl::StatusOr<int>(7), IsOkAndHolds(Gt(6)));
  EXPECT_THAT(absl::StatusOr<int>(7), Not(IsOkAndHolds(8)));
  EXPECT_THAT(BoxIf(true), IsOkAndHolds(Pointee(7)));
  EXPECT_THAT(absl::StatusOr<std::string>("x"), IsOkAndHolds("x"));
}

TEST(StatusMatchers, SayWhatTheySaw) {
  testing::StringMatchResultListener listener;
  testing::ExplainMatchResult(IsOkAndHolds(7),
                              absl::StatusOr<int>(absl::DataLossError("torn")),
                              &listener);
  EXPECT_EQ(listener.str(), "which has status DATA_LOSS: torn");
}

TEST(StatusMatchers, AssertOkAndAssign) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<int> box, BoxIf(true));
  EXPECT_EQ(*box, 7);
  LOCKSTEP_EXPECT_OK(FailIf(false));
  LOCKSTEP_ASSERT_OK(BoxIf(true));
}

}  // namespace
}  // namespace lockstep
