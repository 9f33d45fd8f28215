#include "lockstep/tools/doctor/self_test.h"

#include <cstdint>
#include <future>  // NOLINT: ranks wait for each other here
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

void ExpectRight(Communicator& group, const SelfTestOptions& test) {
  const absl::StatusOr<SelfTestResult> result = SelfTest(group, test);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->wrong, "");
  EXPECT_TRUE(result->is_whole);
}

TEST(SelfTest, PassesGroupsOfAnySize) {
  for (const int size : {1, 2, 3, 5, 8}) {
    LocalGroupOptions options;
    options.size = size;
    const auto ranks = MakeLocalGroup(options);
    ASSERT_TRUE(ranks.ok());
    OnAllRanks(*ranks, [](Communicator& group) {
      SelfTestOptions test;
      test.most_elements = 5000;
      ExpectRight(group, test);
      // There may be more ranks than elements.
      test.most_elements = 1;
      ExpectRight(group, test);
    });
  }
}

// Whichever operation writes a wrong number is named, on the rank where it is
// wrong.
TEST(SelfTest, NamesAnOperationWithAWrongResult) {
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter,
        OpKind::kBroadcast, OpKind::kAllGather, OpKind::kGather,
        OpKind::kScatter, OpKind::kAllToAll, OpKind::kAllReduceShards}) {
    const int wrong_rank = kind == OpKind::kGather ? 0 : 2;
    OnWorlds(3, [kind, wrong_rank](World& world) {
      const auto group = MakeWrongGroup(world, kind, wrong_rank, "wrong");
      ASSERT_TRUE(group.ok()) << group.status();
      SelfTestOptions test;
      test.most_elements = 2000;
      const auto result = SelfTest(**group, test);
      ASSERT_TRUE(result.ok()) << result.status();
      const std::string& wrong = result->wrong;
      if (world.rank() == wrong_rank) {
        EXPECT_THAT(wrong, HasSubstr(std::string(Name(kind)) + " of "));
        EXPECT_THAT(wrong, HasSubstr(" x f32: element 0 is "));
      } else {
        EXPECT_EQ(wrong, "");
      }
    });
  }
}

TEST(SelfTest, LeavesOutWhatThereIsNoTimeFor) {
  LocalGroupOptions options;
  const auto ranks = MakeLocalGroup(options);
  ASSERT_TRUE(ranks.ok());
  SelfTestOptions test;
  int sizes = 0;
  test.goes_on = [&sizes](absl::Duration) { return sizes++ < 1; };
  const auto result = SelfTest(*(*ranks)[0], test);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->is_whole);
  EXPECT_EQ(sizes, 2);
}

TEST(SelfTest, ReturnsTheFailureOfItsGroup) {
  std::promise<void> rank_zero_has_its_group;
  OnWorlds(2, [&rank_zero_has_its_group](World& world) {
    GroupOptions options;
    options.backend = "tcp";
    const auto group = world.MakeGroup(options);
    if (world.rank() == 0) rank_zero_has_its_group.set_value();
    ASSERT_TRUE(group.ok()) << group.status();
    if (world.rank() == 1) {
      // An abort that comes sooner would fail rank 0's MakeGroup.
      rank_zero_has_its_group.get_future().wait();
      (*group)->Abort(absl::InternalError("a planted failure"));
      return;
    }
    EXPECT_THAT(SelfTest(**group, {}).status(),
                StatusIs(absl::StatusCode::kAborted));
  });
}

}  // namespace
}  // namespace lockstep
