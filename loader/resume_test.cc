// These tests check that a job that is killed and restored again and again gets
// the same bytes as a job that is never interrupted.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
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

// Returns the bytes of the next step, over epochs, or "" after epoch `last`.
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

// Every sample comes once, with the same random numbers, on any number of
// ranks.
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

// ---- The loop over epochs, which is the same fresh and resumed.

constexpr int64_t kEpochs = 3;
constexpr size_t kAll = 1000;

// Runs the loop of a trainer until it has had `most` batches.
std::vector<std::string> Train(Loader& loader, size_t most) {
  std::vector<std::string> batches;
  for (int64_t epoch = loader.progress().epoch; epoch < kEpochs; ++epoch) {
    for (absl::StatusOr<Batch>& batch : loader.Epoch(epoch)) {
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return batches;
      batches.push_back(BytesOf(*batch));
      if (batches.size() == most) return batches;
    }
  }
  return batches;
}

std::vector<std::string> BytesOfEpoch(Loader& loader, int64_t epoch) {
  std::vector<std::string> batches;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(epoch)) {
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (batch.ok()) batches.push_back(BytesOf(*batch));
  }
  return batches;
}

TestJob FiveSteps() {
  TestJob job;
  job.size = 19;
  job.batch_size = 4;
  return job;
}

// A loader that is restored from the state of another one, which has given out
// `steps` steps from epoch 0 on.
std::unique_ptr<Loader> RestoredAfter(size_t steps,
                                      const LoaderOptions& options = {}) {
  const auto loader = Make(FiveSteps(), options);
  EXPECT_EQ(Train(*loader, steps).size(), steps);
  auto restored = Make(FiveSteps(), options);
  LOCKSTEP_EXPECT_OK(restored->RestoreState(*loader->SaveState()));
  return restored;
}

// A loop over epochs goes on from the state of each of its steps, with any
// workers. It may end by a number of steps, in epochs of its own or in one
// range over all of them.
TEST(EpochLoop, GoesOnFromEveryStep) {
  Random random(RandomKey(6, 6, 6));
  for (const auto& [advance, most] : std::vector<std::pair<bool, int64_t>>{
           {false, 0}, {false, 12}, {true, 12}}) {
    const auto any_options = [&, advance = advance, most = most] {
      LoaderOptions options = AnyOptions(random);
      options.advance_epochs = advance;
      if (most > 0) options.max_steps = most;
      return options;
    };
    const std::vector<std::string> whole =
        Train(*Make(FiveSteps(), any_options()), kAll);
    ASSERT_EQ(whole.size(), most > 0 ? most : 15);
    for (size_t steps = 1; steps <= whole.size(); ++steps) {
      const auto loader = Make(FiveSteps(), any_options());
      std::vector<std::string> batches = Train(*loader, steps);
      const auto restored = Make(FiveSteps(), any_options());
      LOCKSTEP_ASSERT_OK(restored->RestoreState(*loader->SaveState()));
      EXPECT_EQ(restored->progress().epoch,
                static_cast<int64_t>(steps - 1) / 5);
      for (std::string& bytes : Train(*restored, kAll)) {
        batches.push_back(std::move(bytes));
      }
      EXPECT_EQ(batches, whole) << steps;
    }
    if (most == 0) continue;
    // The state of a sampler says the same.
    const auto iterations =
        *IterationSampler::Create(TestSampler(FiveSteps()), most, 8);
    const auto loader = Make(FiveSteps(), any_options());
    EXPECT_EQ(loader->progress().epoch, 0);
    LOCKSTEP_ASSERT_OK(loader->RestoreState(iterations->sampler().SaveState()));
    EXPECT_EQ(loader->progress().epoch, 1);
    EXPECT_EQ(loader->progress().steps_taken, 3);
    EXPECT_EQ(Train(*loader, kAll),
              std::vector<std::string>(whole.begin() + 8, whole.end()));
  }
}

TEST(EpochLoop, GoesOnOnceAndThenReadsAnew) {
  const std::vector<std::string> whole = BytesOfEpoch(*RestoredAfter(5), 1);
  // The epoch is read to its end, left in its middle, or was restored at its
  // end.
  const auto read = RestoredAfter(8);
  EXPECT_EQ(BytesOfEpoch(*read, 1).size(), 2u);
  EXPECT_EQ(BytesOfEpoch(*read, 1), whole);
  const auto left = RestoredAfter(7);
  EXPECT_EQ(Train(*left, 2).size(), 2u);
  EXPECT_EQ(BytesOfEpoch(*left, 1), whole);
  const auto at_end = RestoredAfter(10);
  EXPECT_TRUE(BytesOfEpoch(*at_end, 1).empty());
  EXPECT_EQ(BytesOfEpoch(*at_end, 1), whole);
  // Next goes on as well. When it has come to the end, the epoch is over.
  const auto next = RestoredAfter(7);
  Batch batch;
  ASSERT_THAT(next->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(BytesOfEpoch(*next, 1).size(), 2u);
  const auto ended = RestoredAfter(9);
  ASSERT_THAT(ended->Next(batch), IsOkAndHolds(true));
  ASSERT_THAT(ended->Next(batch), IsOkAndHolds(false));
  EXPECT_EQ(BytesOfEpoch(*ended, 1), whole);
  // StartEpoch begins it anew.
  const auto started = RestoredAfter(7);
  LOCKSTEP_ASSERT_OK(started->StartEpoch(1));
  EXPECT_EQ(BytesOfEpoch(*started, 1), whole);
}

TEST(EpochLoop, AStateThatIsRefusedChangesNothing) {
  const auto loader = RestoredAfter(7);
  EXPECT_FALSE(loader->RestoreState("what").ok());
  EXPECT_EQ(BytesOfEpoch(*loader, 1).size(), 3u);
  const auto fresh = Make(FiveSteps(), {});
  EXPECT_FALSE(fresh->RestoreState("what").ok());
  EXPECT_EQ(Train(*fresh, kAll).size(), 15u);
}

TEST(EpochLoop, KeepsWhatIsSkipped) {
  const auto loader = RestoredAfter(6);
  LOCKSTEP_ASSERT_OK(loader->Skip(4, 12));
  EXPECT_EQ(BytesOfEpoch(*loader, 1).size(), 2u);
  EXPECT_EQ(BytesOfEpoch(*loader, 1).size(), 5u);
}

TEST(EpochLoop, GoesOnAfterADrain) {
  Random random(RandomKey(9, 9, 9));
  for (const int64_t before : {1, 7, 12, 13}) {
    TestJob job;
    LoaderOptions options = AnyOptions(random);
    options.delivery = Delivery::kAsReady;
    const auto loader = Make(job, options);
    std::multiset<std::string> got;
    for (absl::StatusOr<Batch>& batch : loader->Epoch(2)) {
      LOCKSTEP_ASSERT_OK(batch.status());
      got.insert(BytesOf(*batch));
      if (static_cast<int64_t>(got.size()) == before) loader->Drain();
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, loader->SaveState());
    std::multiset<std::string> others = got;
    options = AnyOptions(random);
    const auto restored = Make(job, options);
    LOCKSTEP_ASSERT_OK(restored->RestoreState(state));
    for (const auto& bytes : BytesOfEpoch(*loader, 2)) got.insert(bytes);
    for (const auto& bytes : BytesOfEpoch(*restored, 2)) others.insert(bytes);
    const std::vector<std::string> whole =
        BytesOfEpoch(*Make(job, AnyOptions(random)), 2);
    EXPECT_EQ(got, std::multiset<std::string>(whole.begin(), whole.end()));
    EXPECT_EQ(others, got);
    EXPECT_EQ(BytesOfEpoch(*loader, 2).size(), whole.size());
  }
}

// The loop goes on when there are no more steps, and the state stays.
TEST(EpochLoop, StaysWhereTheStepsEnded) {
  LoaderOptions options;
  options.max_steps = 7;
  const auto loader = Make(FiveSteps(), options);
  std::vector<std::string> batches = Train(*loader, kAll);
  EXPECT_EQ(batches.size(), 7u);
  EXPECT_EQ(loader->progress().epoch, 1);
  EXPECT_EQ(loader->progress().steps_taken, 2);
  options.max_steps = 15;
  const auto restored = Make(FiveSteps(), options);
  LOCKSTEP_ASSERT_OK(restored->RestoreState(*loader->SaveState()));
  for (std::string& bytes : Train(*restored, kAll)) {
    batches.push_back(std::move(bytes));
  }
  EXPECT_EQ(batches, Train(*Make(FiveSteps(), {}), kAll));
}

// ---- States that are refused.

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
  // The difference can be allowed.
  RestoreOptions allow;
  allow.allow_different = {"seed"};
  const auto allowed = Make(other, {});
  LOCKSTEP_EXPECT_OK(allowed->RestoreState(state, allow));
  EXPECT_TRUE(*allowed->Next(batch));
  // Nothing has changed for the loader that refused the state.
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

// A loop that is left by `break` can be continued by another one.
TEST(Resume, LoopsThatKeepTheirPlaceGoOn) {
  Random random(RandomKey(6, 6, 6));
  for (int round = 0; round < 30; ++round) {
    TestJob job;
    job.size = random.Integer(1, 400);
    job.batch_size = random.Integer(1, 12);
    const auto whole = Make(job, AnyOptions(random));
    const auto loader = Make(job, AnyOptions(random));
    loader->KeepPlace();  // before the first epoch, it does nothing
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::string> expected, got;
      for (const auto& batch : whole->Epoch(epoch)) {
        LOCKSTEP_ASSERT_OK(batch.status());
        expected.push_back(BytesOf(*batch));
      }
      while (got.size() < expected.size()) {
        for (const auto& batch : loader->Epoch(epoch)) {
          LOCKSTEP_ASSERT_OK(batch.status());
          got.push_back(BytesOf(*batch));
          if (random.Below(3) > 0) continue;
          loader->KeepPlace();
          break;
        }
      }
      ASSERT_EQ(got, expected);
    }
    // The end of the last epoch may not have been read. When it was, the epoch
    // begins anew.
    for (const auto& batch : loader->Epoch(2)) LOCKSTEP_ASSERT_OK(batch);
    loader->KeepPlace();
    int64_t steps = 0;
    for (const auto& batch : loader->Epoch(2)) {
      LOCKSTEP_ASSERT_OK(batch);
      ++steps;
    }
    EXPECT_GT(steps, 0);
  }
}

}  // namespace
}  // namespace lockstep
