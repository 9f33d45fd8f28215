// A job that is killed and restored again and again sees what one that is never
// interrupted sees, byte for byte.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_state.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/iteration_sampler.h"
#include "lockstep/sampler/native_shuffle.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::unique_ptr<Loader> Make(const TestJob& job, const LoaderOptions& options) {
  auto loader = Loader::Create(std::make_shared<TestDataset>(job.size),
                               TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

LoaderOptions AnyOptions(Random& random) {
  LoaderOptions options;
  options.seed = 5;
  options.num_workers = random.Integer(0, 6);
  options.workers = static_cast<Workers>(random.Below(2));
  options.prefetch_batches = random.Integer(1, 9);
  options.prefetch_next_epoch = random.Below(2) == 0;
  return options;
}

// The bytes of the next step, over epochs; "" after epoch `last`.
std::string NextBytes(Loader& loader, int64_t last) {
  Batch batch;
  while (true) {
    const absl::StatusOr<bool> more = loader.Next(batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok()) return "";
    if (*more) return BytesOf(batch);
    if (loader.progress().epoch == last) return "";
    LOCKSTEP_EXPECT_OK(loader.StartEpoch(loader.progress().epoch + 1));
  }
}

TEST(Resume, KilledAndRestoredChainsEqualOneRun) {
  Random random(RandomKey(4, 4, 4));
  for (int chain = 0; chain < 50; ++chain) {
    TestJob job;
    job.size = random.Integer(1, 400);
    job.batch_size = random.Integer(1, 12);
    job.world = random.Integer(1, 3);
    job.rank = random.Integer(0, job.world);
    job.tail = static_cast<Tail>(random.Below(4));
    const auto whole = Make(job, AnyOptions(random));
    LOCKSTEP_ASSERT_OK(whole->StartEpoch(0));
    auto loader = Make(job, AnyOptions(random));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    while (true) {
      const std::string bytes = NextBytes(*whole, 2);
      ASSERT_EQ(NextBytes(*loader, 2), bytes);
      if (bytes.empty()) break;
      ASSERT_EQ(*loader->SaveState(), *whole->SaveState());
      if (random.Below(4) != 0) continue;
      const std::string state = *loader->SaveState();
      EXPECT_LE(state.size(), 256u);
      // Sometimes the same loader goes back to where it is.
      if (random.Below(4) != 0) loader = Make(job, AnyOptions(random));
      LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
    }
  }
}

// Every sample once, with the same random numbers, on any number of ranks.
TEST(Resume, GoesOnOnOtherNumbersOfRanks) {
  Random random(RandomKey(8, 8, 8));
  for (int chain = 0; chain < 30; ++chain) {
    TestJob job;
    job.size = random.Integer(1, 500);
    job.batch_size = random.Integer(1, 10);
    job.tail = Tail::kUneven;
    std::vector<std::string> rows(job.size);
    std::string state;
    bool more = true;
    while (more) {
      job.world = random.Integer(1, 5);
      int64_t steps = random.Integer(1, 8);
      std::vector<std::unique_ptr<Loader>> ranks;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        ranks.push_back(Make(job, AnyOptions(random)));
        LOCKSTEP_ASSERT_OK(state.empty() ? ranks.back()->StartEpoch(0)
                                         : ranks.back()->RestoreState(state));
      }
      while (more && steps-- > 0) {
        Batch batch;
        for (const auto& loader : ranks) {
          more = *loader->Next(batch);
          if (!more) continue;
          for (int64_t row = 0; row < batch.valid(); ++row) {
            const auto x = *batch.Row<float>("x", row);
            std::string& place = rows[batch.positions()[row]];
            EXPECT_TRUE(place.empty()) << batch.positions()[row];
            place = std::string(reinterpret_cast<const char*>(x.data()), 16) +
                    std::to_string(batch.indices()[row]);
          }
        }
        state = *ranks[0]->SaveState();
      }
    }
    TestJob alone = job;
    alone.world = 1;
    alone.rank = 0;
    LoaderOptions options;
    options.seed = 5;
    const auto whole = Make(alone, options);
    for (auto& batch : whole->Epoch(0)) {
      for (int64_t row = 0; row < batch->valid(); ++row) {
        const auto x = *batch->Row<float>("x", row);
        EXPECT_EQ(rows[batch->positions()[row]],
                  std::string(reinterpret_cast<const char*>(x.data()), 16) +
                      std::to_string(batch->indices()[row]));
      }
    }
  }
}

// What IterationSampler does, a loader does with two options.
TEST(Resume, TakesTheStateOfASampler) {
  const TestJob job;
  const auto iterations =
      *IterationSampler::Create(TestSampler(job), /*num_iterations=*/60,
                                /*start_iteration=*/31);
  LoaderOptions options;
  options.advance_epochs = true;
  options.max_steps = 60;
  const auto loader = Make(job, options);
  LOCKSTEP_ASSERT_OK(loader->RestoreState(iterations->sampler().SaveState()));
  BatchIndices expected;
  Batch batch;
  int64_t steps = 0;
  while (*iterations->Next(expected)) {
    ASSERT_TRUE(*loader->Next(batch));
    EXPECT_EQ(batch.indices(), expected.indices);
    EXPECT_EQ(batch.epoch(), expected.epoch);
    ++steps;
  }
  EXPECT_EQ(steps, 29);
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST(Resume, AStateOfAnEpochsEndIsItsEnd) {
  LoaderOptions options;
  const auto loader = Make({}, options);
  DigestOfEpoch(*loader, 6);
  const std::string state = *loader->SaveState();
  const auto restored = Make({}, options);
  LOCKSTEP_ASSERT_OK(restored->RestoreState(state));
  Batch batch;
  EXPECT_THAT(restored->Next(batch), IsOkAndHolds(false));
  LOCKSTEP_ASSERT_OK(restored->StartEpoch(7));
  EXPECT_THAT(restored->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(loader->progress().steps_in_total + 1,
            restored->progress().steps_in_total);
}

TEST(Resume, RefusesOtherStatesAndGoesOn) {
  LoaderOptions options;
  options.num_workers = 2;
  const auto loader = Make({}, options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  const std::string state = *loader->SaveState();

  EXPECT_THAT(loader->RestoreState("what"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("LSLD")));
  for (size_t size = 4; size < state.size(); ++size) {
    EXPECT_THAT(loader->RestoreState(state.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  for (size_t i = 0; i < state.size(); ++i) {
    std::string torn = state;
    torn[i] ^= 4;
    EXPECT_FALSE(loader->RestoreState(torn).ok()) << i;
  }
  options.seed = 1;
  EXPECT_THAT(Make({}, options)->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("saved by a loader with seed=0, and this one "
                                 "has seed=1")));
  TestJob other;
  other.seed = 8;
  EXPECT_THAT(Make(other, {})->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'seed'")));
  // Unless that is what one wants.
  RestoreOptions allow;
  allow.allow_different = {"seed"};
  const auto allowed = Make(other, {});
  LOCKSTEP_EXPECT_OK(allowed->RestoreState(state, allow));
  EXPECT_TRUE(*allowed->Next(batch));
  // Nothing has changed for the one that refused.
  ASSERT_TRUE(*loader->Next(batch));
  EXPECT_EQ(batch.step(), 1);
}

TEST(Resume, LargeOrdersAreRestoredWithoutReadingThem) {
  // A restore that walked would not end within the test's time.
  class Huge : public Dataset {
   public:
    int64_t size() const override { return int64_t{1} << 61; }
    absl::Span<const FieldSpec> fields() const override { return {}; }
    absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
      return absl::OkStatus();
    }
  };
  NativeShuffleOptions shuffle;
  shuffle.size = int64_t{1} << 61;
  SamplerOptions cut;
  cut.cut.batch_size = 16;
  const auto make = [&] {
    return *Loader::Create(
        std::make_shared<Huge>(),
        *Sampler::Create(*NativeShuffle::Create(shuffle), cut));
  };
  const auto loader = make();
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
  Batch batch;
  ASSERT_TRUE(*loader->Next(batch));
  LOCKSTEP_ASSERT_OK(loader->Skip(16, (int64_t{1} << 60) + 5));
  ASSERT_TRUE(*loader->Next(batch));
  const std::string state = *loader->SaveState();
  EXPECT_EQ(state.size(), 184u);
  const auto restored = make();
  LOCKSTEP_ASSERT_OK(restored->RestoreState(state));
  Batch other;
  ASSERT_TRUE(*loader->Next(batch));
  ASSERT_TRUE(*restored->Next(other));
  EXPECT_EQ(batch.indices(), other.indices());
  EXPECT_GT(other.positions()[0], int64_t{1} << 60);
}

}  // namespace
}  // namespace lockstep
