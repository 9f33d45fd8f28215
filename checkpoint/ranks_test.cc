// These tests look at what ranks have when a job begins, saves and restores.
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_testing.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RanksTest : public CheckpointTest {};

// ---- The first start.

TEST_F(RanksTest, BeginWithTheContentOfRank0) {
  for (const bool has_path : {true, false}) {
    if (!has_path) options_.path.clear();
    const Rank rank = [&](Communicator& group) -> absl::Status {
      const auto own = static_cast<float>(group.rank());
      std::vector<float> frozen = {own, own + 1};
      std::vector<float> large(700'000, own);
      std::vector<float> buffer = {own};
      std::vector<float> part = {own};
      std::vector<float> on_device = {own};
      CheckpointMemory memory;
      memory.count = 1;
      memory.read = [&](int64_t, absl::Span<char> to) {
        std::memcpy(to.data(), on_device.data(), to.size());
        return absl::OkStatus();
      };
      memory.write = [&](int64_t, absl::string_view from) {
        std::memcpy(on_device.data(), from.data(), from.size());
        return absl::OkStatus();
      };
      CheckpointState state;
      state.save = [] { return "bytes"; };
      state.load = [](absl::string_view) {
        return absl::InternalError("load was called");
      };
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("frozen", &frozen));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("large", &large));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("buffer", BufferOf(buffer)));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", &part));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("device", memory));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("state", state));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
      EXPECT_THAT(frozen, ElementsAre(0, 1));
      EXPECT_THAT(large, Each(0));
      EXPECT_THAT(buffer, ElementsAre(0));
      EXPECT_THAT(part, ElementsAre(own));
      EXPECT_THAT(on_device, ElementsAre(0));
      return absl::OkStatus();
    };
    EXPECT_THAT(Run(3, rank), Each(IsOk()));
  }
}

// ---- Vectors.

TEST_F(RanksTest, AVectorMayMoveItsMemory) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    const auto rank = [&](Communicator& group) -> absl::Status {
      std::vector<float> values(3, 1);
      std::vector<int64_t> part(2, 1);
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("values", &values));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", &part));
      values = std::vector<float>(3, 2);
      LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                                checkpoint.Restore());
      if (restored.has_value()) {
        EXPECT_THAT(values, Each(4));
        EXPECT_THAT(part, Each(group.rank()));
        return absl::OkStatus();
      }
      EXPECT_THAT(values, Each(2));
      std::vector<float> other(3, 4);
      values.swap(other);
      part = std::vector<int64_t>(2, group.rank());
      return checkpoint.Save(1);
    };
    EXPECT_THAT(Run(2, rank), Each(IsOk()));
    EXPECT_THAT(Run(2, rank), Each(IsOk()));
  }
}

TEST_F(RanksTest, AVectorKeepsItsSize) {
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(3, 1);
    Checkpoint checkpoint(group, options_, Log());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("values", &values));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    values.resize(4);
    EXPECT_THAT(
        checkpoint.Save(1),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("section 'values'"),
                       HasSubstr("its vector has 4 elements, but had 3"))));
    return absl::OkStatus();
  })[0]);
}

// ---- Failures of the group.

// A rank that is lost while sections are restored is no fault of a section.
TEST_F(RanksTest, ALostRankIsNoErrorOfASection) {
  const auto rank = [&](Communicator& group, bool is_lost) -> absl::Status {
    std::vector<float> values(10);
    Checkpoint checkpoint(group, options_, Log());
    CheckpointState state;
    state.save = [] { return "bytes"; };
    state.load = [&](absl::string_view) {
      if (is_lost && group.rank() == 1) {
        group.Abort(absl::InternalError("it is gone"));
      }
      return absl::OkStatus();
    };
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("state", state));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("values", &values));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    return checkpoint.Save(1);
  };
  EXPECT_THAT(Run(2, [&](Communicator& group) { return rank(group, false); }),
              Each(IsOk()));
  const std::vector<absl::Status> ended =
      Run(2, [&](Communicator& group) { return rank(group, true); });
  EXPECT_THAT(ended[0].message(),
              AllOf(HasSubstr("it is gone"), Not(HasSubstr("section '")),
                    Not(HasSubstr("begin anew"))));
}

// The other ranks don't wait for a rank 0 whose section or disk fails.
TEST_F(RanksTest, AnErrorOfRank0IsToldToAllRanks) {
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    CheckpointMemory memory;
                    memory.count = 1'000'000;
                    memory.read = [](int64_t offset, absl::Span<char>) {
                      return offset == 0 ? absl::OkStatus()
                                         : absl::InternalError("no device");
                    };
                    memory.write = [](int64_t, absl::string_view) {
                      return absl::OkStatus();
                    };
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", memory));
                    absl::Status restored = checkpoint.Restore().status();
                    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
                    return restored;
                  }),
              Each(StatusIs(absl::StatusCode::kInternal, "no device")));
}

TEST_F(RanksTest, AnErrorOfThePartOfRank0IsToldToAllRanks) {
  for (const bool background : {true, false}) {
    options_.background = background;
    EXPECT_THAT(
        Run(2,
            [&](Communicator& group) -> absl::Status {
              std::vector<float> part(600'000);
              Checkpoint checkpoint(group, options_, Log());
              LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", &part));
              LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
              if (group.rank() == 0) part.resize(1);
              absl::Status saved = checkpoint.Save(1);
              LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
              return saved;
            }),
        Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("its vector has 1 elements"))));
  }
}

// An error of a section has the section's name and advice.
TEST_F(RanksTest, AnErrorOfASectionNamesIt) {
  LOCKSTEP_ASSERT_OK(Save("weights", {1, 2}));
  EXPECT_THAT(Run(1,
                  [&](Communicator& group) -> absl::Status {
                    CheckpointMemory memory;
                    memory.count = 2;
                    memory.read = [](int64_t, absl::Span<char>) {
                      return absl::OkStatus();
                    };
                    memory.write = [](int64_t, absl::string_view) {
                      return absl::InternalError("the device is gone");
                    };
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", memory));
                    return checkpoint.Restore().status();
                  })[0],
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("section 'weights' of the checkpoint"),
                             HasSubstr("the device is gone; to begin anew"))));
}

}  // namespace
}  // namespace lockstep
