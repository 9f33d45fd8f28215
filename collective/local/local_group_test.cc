#include "lockstep/collective/local/local_group.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/conformance.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<std::unique_ptr<Communicator>> Make(int size) {
  LocalGroupOptions options;
  options.size = size;
  return *MakeLocalGroup(options);
}

TEST(LocalGroup, Conforms) { ExpectConforms(Make); }

TEST(LocalGroup, RefusesWhatMakesNoSense) {
  LocalGroupOptions options;
  options.size = 0;
  EXPECT_THAT(MakeLocalGroup(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("size should be 1 to 4096, but got size=0")));
  options.size = 2;
  options.deadline = absl::ZeroDuration();
  EXPECT_THAT(
      MakeLocalGroup(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deadline=0")));
}

TEST(LocalGroup, TakesHostMemoryAlone) {
  const auto ranks = Make(1);
  float value = 0;
  Buffer buffer = BufferOf(absl::Span<float>(&value, 1));
  buffer.device.kind = Device::Kind::kCuda;
  EXPECT_THAT(ranks[0]->AllReduce(buffer, buffer, ReduceOp::kSum),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("use the nccl backend")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  EXPECT_THAT(work.WaitOnStream(Stream(nullptr)),
              StatusIs(absl::StatusCode::kUnimplemented));
  // The refused call has no number.
  EXPECT_TRUE(work.Done());
}

TEST(LocalGroup, CanBeMadeAgainAfterAFailure) {
  for (int i = 0; i < 100; ++i) {
    const auto ranks = Make(3);
    OnAllRanks(ranks, [](Communicator& rank) {
      if (rank.rank() == 0) rank.Abort(absl::InternalError("again"));
      const absl::StatusOr<Work> work = rank.Barrier();
      EXPECT_FALSE(work.ok() && work->Wait().ok());
    });
  }
}

// A communicator that is dropped has left, whatever its operations.
TEST(LocalGroup, ADroppedRankHasLeft) {
  auto ranks = Make(2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  ranks[1] = nullptr;
  EXPECT_THAT(work.Wait(), StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("rank 1 has left the group; "
                                              "rank 1 has issued nothing")));
  ranks[0] = nullptr;
  EXPECT_TRUE(work.Done());
}

}  // namespace
}  // namespace lockstep
