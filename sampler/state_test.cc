#include "lockstep/sampler/state.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OrderDescription Description() {
  OrderDescription description;
  description.order = "native_shuffle";
  description.size = 1000;
  description.seed = 7;
  return description;
}

SamplerState State() {
  SamplerState state;
  state.progress = {3, 400, 12, 96};
  EXPECT_THAT(state.skip.Add(500, 600), IsOk());
  EXPECT_THAT(state.skip.Add(700, 800), IsOk());
  state.order_digests = OrderDigests(Description());
  return state;
}

TEST(State, ComesBack) {
  const std::string bytes = EncodeState(State());
  EXPECT_EQ(bytes.size(), 128u + 2 * 16);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SamplerState state, DecodeState(bytes));
  EXPECT_EQ(state.progress.epoch, 3);
  EXPECT_EQ(state.progress.position, 400);
  EXPECT_EQ(state.progress.steps_taken, 12);
  EXPECT_EQ(state.progress.steps_in_total, 96);
  ASSERT_EQ(state.skip.ranges().size(), 2u);
  EXPECT_EQ(state.skip.ranges()[1].end, 800);
  EXPECT_EQ(state.order_digests, OrderDigests(Description()));
}

TEST(State, IsAtMost128BytesAnd16ARange) {
  EXPECT_EQ(EncodeState(SamplerState()).size(), 128u);
  SamplerState full;
  for (int i = 0; i < 64; ++i) {
    LOCKSTEP_ASSERT_OK(full.skip.Add(10 * i, 10 * i + 5));
  }
  EXPECT_EQ(EncodeState(full).size(), 128u + 64 * 16);
  LOCKSTEP_EXPECT_OK(DecodeState(EncodeState(full)));
}

// The bytes are part of checkpoints, so they must never change.
TEST(State, BytesStay) {
  const std::string bytes = EncodeState(State());
  EXPECT_EQ(bytes.substr(0, 8), std::string("LSSP\1\2\0\0", 8));
  EXPECT_EQ(bytes[8], 3);                                       // epoch
  EXPECT_EQ(bytes.substr(16, 2), std::string("\x90\x01", 2));   // 400
  EXPECT_EQ(bytes.substr(128, 2), std::string("\xf4\x01", 2));  // 500
  EXPECT_EQ(DigestOf(bytes).ToString(), "e5ae83307c1fc85ddb44556abaa261a9");
}

TEST(State, AnyDamageIsFound) {
  const std::string bytes = EncodeState(State());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeState(bytes.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(DecodeState(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      EXPECT_FALSE(DecodeState(damaged).ok()) << i;
    }
  }
}

TEST(State, SaysWhatIsWrong) {
  const std::string bytes = EncodeState(State());
  EXPECT_THAT(DecodeState("{\"yielded\": 7}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no sampler state")));
  EXPECT_THAT(DecodeState(std::string("LSLD\1\0\0\0", 8)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the state of a Loader"),
                             HasSubstr("by Loader::RestoreState"))));
  EXPECT_THAT(
      DecodeState(bytes.substr(0, 100)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("100 bytes of 128")));
  EXPECT_THAT(DecodeState(bytes.substr(0, 140)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("140 bytes, and should have 160")));
  std::string newer = bytes;
  newer[4] = 3;
  EXPECT_THAT(DecodeState(newer),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("version 3, and this release reads the "
                                 "versions up to 2")));
  std::string older = bytes;
  older[4] = 0;
  EXPECT_THAT(DecodeState(older), StatusIs(absl::StatusCode::kUnimplemented,
                                           HasSubstr("version 0")));
}

TEST(State, RefusesNumbersThatNoJobReaches) {
  const SamplerProgress right[] = {
      {}, {kMostCounted, 0, 0, 0}, {0, 0, kMostCounted, kMostCounted}};
  const SamplerProgress wrong[] = {{-1, 0, 0, 0}, {kMostCounted + 1, 0, 0, 0},
                                   {0, -1, 0, 0}, {0, 0, -1, 0},
                                   {0, 0, 1, 0},  {0, 0, 0, kMostCounted + 1}};
  SamplerState state;
  for (const SamplerProgress& progress : right) {
    state.progress = progress;
    LOCKSTEP_EXPECT_OK(DecodeState(EncodeState(state)).status());
  }
  for (const SamplerProgress& progress : wrong) {
    state.progress = progress;
    EXPECT_THAT(DecodeState(EncodeState(state)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("the sampler state is corrupt: epoch=")));
  }
}

TEST(State, RandomBytesAreHarmless) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random.Below(300), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (bytes.size() > 8 && i % 2 == 0) bytes.replace(0, 5, "LSSP\1", 5);
    EXPECT_FALSE(DecodeState(bytes).ok());
  }
}

TEST(State, NamesTheFieldInWhichStreamsDiffer) {
  const SamplerState state = State();
  LOCKSTEP_EXPECT_OK(CheckSameOrder(state, Description(), {}));
  OrderDescription other = Description();
  other.size = 1001;
  EXPECT_THAT(CheckSameOrder(state, other, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("differs in 'size'"),
                             HasSubstr("native_shuffle(size:1001,seed:7)"))));
  LOCKSTEP_EXPECT_OK(CheckSameOrder(state, other, {"size"}));
  other.seed = 8;
  EXPECT_THAT(CheckSameOrder(state, other, {"size"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'seed'")));
  EXPECT_THAT(CheckSameOrder(state, other, {"world"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("can't differ in 'world'; allowed are order, "
                                 "size, seed, profile, details, data")));
}

}  // namespace
}  // namespace lockstep
