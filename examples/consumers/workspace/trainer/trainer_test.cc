#include "trainer/trainer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loader/loader.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "trainer/lockstep_plugin.h"
#include "trainer/plugins.h"

namespace acme {
namespace {

using ::lockstep::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    AddOwnLoader(plugins_);
    ASSERT_TRUE(RegisterLockstep(plugins_).ok());
  }

  // Trains on ranks that are threads of this process.
  std::vector<absl::StatusOr<Line>> TrainOnRanks(size_t ranks,
                                                 const std::string& loader) {
    lockstep::LocalGroupOptions options;
    options.size = static_cast<int>(ranks);
    auto group = lockstep::MakeLocalGroup(options);
    EXPECT_TRUE(group.ok()) << group.status();
    std::vector<absl::StatusOr<Line>> lines(ranks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        lines[rank] = Train(plugins_, loader, 200, *(*group)[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return lines;
  }

  Plugins plugins_;
};

TEST_F(TrainerTest, LockstepIsAPlugin) {
  EXPECT_THAT(plugins_.names(), ElementsAre("lockstep 0.1.0"));
}

TEST_F(TrainerTest, EveryLoaderTrainsOnAnyNumberOfRanks) {
  for (const char* const loader :
       {"acme.in_order", "lockstep.distributed", "lockstep.native_shuffle"}) {
    for (const size_t ranks : {1U, 2U, 3U}) {
      const auto lines = TrainOnRanks(ranks, loader);
      for (const auto& line : lines) {
        ASSERT_TRUE(line.ok()) << line.status();
        EXPECT_NEAR(line->slope, 2, 0.01) << loader;
        EXPECT_NEAR(line->offset, 1, 0.01) << loader;
        EXPECT_EQ(line->slope, lines[0]->slope);
      }
    }
  }
}

TEST_F(TrainerTest, EachSampleComesOnceAnEpoch) {
  std::vector<int> times(103);
  for (int rank = 0; rank < 3; ++rank) {
    LoaderSettings settings;
    settings.samples = 103;
    settings.batch_size = 8;
    settings.rank = rank;
    settings.ranks = 3;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Loader> loader,
        plugins_.MakeLoader("lockstep.native_shuffle", settings));
    ASSERT_TRUE(loader->StartEpoch(0).ok());
    Points batch;
    while (true) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader->Next(batch));
      if (!more) break;
      for (const int64_t number : batch.numbers) {
        ++times[static_cast<size_t>(number)];
      }
    }
  }
  EXPECT_THAT(times, testing::Each(1));
}

TEST_F(TrainerTest, AnUnknownLoaderIsAnError) {
  EXPECT_THAT(
      TrainOnRanks(1, "lockstep.distribted")[0],
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("lockstep.distribted")));
}

}  // namespace
}  // namespace acme
