#include "lockstep/collective/transport_util.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::HasSubstr;

TEST(SlicesOf, FollowEachOtherInBytes) {
  std::vector<Slice> slices = SlicesOf({2, 0, 5}, DType::kF32);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].first, 0);
  EXPECT_EQ(slices[1].first, 8);
  EXPECT_EQ(slices[1].bytes, 0);
  EXPECT_EQ(slices[2].first, 8);
  EXPECT_EQ(slices[2].bytes, 20);
  EXPECT_EQ(LargestOf(slices), 20);

  SetSlices({3}, DType::kF64, slices);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(LargestOf(slices), 24);
  EXPECT_EQ(LargestOf({}), 0);
}

TEST(AwaitKey, ReturnsWhatIsSetLater) {
  MemoryStore store;
  int checks = 0;
  const auto check = [&]() -> absl::Status {
    return ++checks < 2 ? absl::OkStatus() : store.Set("key", "value");
  };
  EXPECT_THAT(AwaitKey(store, "key", check), IsOkAndHolds("value"));
  EXPECT_EQ(checks, 2);
}

TEST(AwaitKey, EndsByTheCheck) {
  MemoryStore store;
  EXPECT_THAT(AwaitKey(store, "key", TransportCancelled),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST(AwaitKey, ReturnsOtherErrorsOfTheStore) {
  MemoryStore store;
  EXPECT_THAT(AwaitKey(store, "", [] { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CheckOnHost, RefusesEitherBufferOnADevice) {
  Operation op;
  EXPECT_TRUE(CheckOnHost("shm", op).ok());
  op.out.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(CheckOnHost("shm", op), StatusIs(absl::StatusCode::kUnimplemented,
                                               HasSubstr("shm moves memory")));
}

TEST(CheckRank, RefusesRanksOutsideOfTheGroup) {
  TransportContext context;
  EXPECT_TRUE(CheckRank(context).ok());
  for (const int rank : {-1, 1}) {
    context.rank = rank;
    EXPECT_THAT(CheckRank(context),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank should be 0 to size - 1")));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective
