// These tests read tar files through a Loader.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSamples = 103;

// Writes three shards. Sample i has the label i, an array of i and -i, and
// i * 37 % 101 bytes of text; some have none.
std::vector<std::string> WriteShards(const TokenFolder& folder) {
  std::vector<std::string> paths;
  int64_t i = 0;
  for (const int64_t end : {40, 41, 103}) {
    ShardContent members;
    for (; i < end; ++i) {
      const auto number = static_cast<float>(i);
      members.emplace_back(absl::StrCat(i, ".cls"), absl::StrCat(i));
      members.emplace_back(absl::StrCat(i, ".npy"),
                           NpyBytes<float>({2}, {number, -number}));
      if (i % 10 == 3) continue;
      members.emplace_back(absl::StrCat(i, ".txt"),
                           std::string(static_cast<size_t>(i * 37 % 101),
                                       static_cast<char>('a' + i % 26)));
    }
    paths.push_back(WriteShard(folder, absl::StrCat(end, ".tar"), members));
  }
  return paths;
}

TarFilesOptions OptionsOf(std::vector<std::string> paths) {
  TarFilesOptions options;
  options.files = std::move(paths);
  options.fields = {{"label", {"cls"}}, {"array", {"npy"}}, {"text", {"txt"}}};
  options.fields[2].missing = TarMissing::kEmpty;
  options.key = true;
  return options;
}

enum class Kind { kShuffle, kBlocks, kSequential };
constexpr Kind kKinds[] = {Kind::kShuffle, Kind::kBlocks, Kind::kSequential};

std::unique_ptr<Sampler> SamplerOf(Kind kind, const TestJob& job) {
  if (kind == Kind::kShuffle) return TestSampler(job);
  std::shared_ptr<const Order> order;
  if (kind == Kind::kBlocks) {
    BlockShuffleOptions blocks;
    blocks.size = job.size;
    blocks.chunk_size = 10;
    blocks.open_chunks = 3;
    blocks.seed = job.seed;
    order = *BlockShuffle::Create(blocks);
  } else {
    order = *SequentialOrder::Create(job.size);
  }
  SamplerOptions options;
  options.cut.batch_size = job.batch_size;
  options.cut.world = job.world;
  options.cut.tail = job.tail;
  options.rank = job.rank;
  return *Sampler::Create(std::move(order), options);
}

std::unique_ptr<Loader> Make(const TarFilesOptions& options, Kind kind,
                             TestJob job, int workers,
                             Workers executor = Workers::kTbb) {
  auto dataset = TarFiles::Create(options);
  EXPECT_THAT(dataset, IsOk());
  job.size = (*dataset)->size();
  EXPECT_EQ(job.size, kSamples);
  LoaderOptions loader_options;
  loader_options.num_workers = workers;
  loader_options.workers = executor;
  auto loader =
      Loader::Create(*std::move(dataset), SamplerOf(kind, job), loader_options);
  EXPECT_THAT(loader, IsOk());
  return *std::move(loader);
}

TEST(TarFilesLoader, BatchesAreTheSameWithAnyWorkersAndIndex) {
  const TokenFolder folder;
  TarFilesOptions options = OptionsOf(WriteShards(folder));
  for (const Kind kind : kKinds) {
    std::string expected;
    for (const TarIndex index :
         {TarIndex::kIgnore, TarIndex::kWrite, TarIndex::kRead}) {
      options.index = index;
      options.access =
          index == TarIndex::kIgnore ? FileAccess::kRead : FileAccess::kMapped;
      for (const Workers executor : {Workers::kTbb, Workers::kThreads}) {
        for (const int workers : {0, 1, 3}) {
          const std::string digest = DigestOfEpoch(
              *Make(options, kind, TestJob(), workers, executor), 1);
          if (expected.empty()) expected = digest;
          EXPECT_EQ(digest, expected) << workers;
        }
      }
    }
  }
}

// Returns a row as a text, after a look at its contents.
std::string RowOf(const Batch& batch, int64_t row) {
  const auto label = batch.Row<int64_t>("label", row);
  const auto array = batch.Row<float>("array", row);
  const auto text = batch.Row<uint8_t>("text", row);
  const auto key = batch.Row<uint8_t>("key", row);
  EXPECT_THAT(label, IsOk());
  EXPECT_THAT(array, IsOk());
  EXPECT_THAT(text, IsOk());
  EXPECT_THAT(key, IsOk());
  const int64_t i = (*label)[0];
  EXPECT_EQ(batch.indices()[row], i);
  const auto number = static_cast<float>(i);
  EXPECT_THAT(*array, ElementsAre(number, -number));
  EXPECT_EQ(std::string(key->begin(), key->end()), absl::StrCat(i));
  const std::string expected(
      static_cast<size_t>(i % 10 == 3 ? 0 : i * 37 % 101),
      static_cast<char>('a' + i % 26));
  EXPECT_EQ(std::string(text->begin(), text->end()), expected);
  return absl::StrCat(i);
}

// Takes the rows of batches to their places in the stream.
// Thread-safety: thread-compatible.
class Rows {
 public:
  void Take(const Batch& batch) {
    for (int64_t row = 0; row < batch.valid(); ++row) {
      std::string& place = rows_[static_cast<size_t>(batch.positions()[row])];
      EXPECT_EQ(place, "");
      place = RowOf(batch, row);
    }
  }
  void TakeRest(Loader& loader) {
    Batch batch;
    while (true) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader.Next(batch));
      if (!more) return;
      Take(batch);
    }
  }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  std::vector<std::string> rows_ = std::vector<std::string>(kSamples);
};

// Three ranks begin an epoch, and two go on from their state.
TEST(TarFilesLoader, AnEpochGoesOnAtAnyStepOnAnotherNumberOfRanks) {
  const TokenFolder folder;
  const TarFilesOptions options = OptionsOf(WriteShards(folder));
  for (const Kind kind : kKinds) {
    TestJob job;
    job.tail = Tail::kUneven;
    Rows whole;
    const auto alone = Make(options, kind, job, 0);
    LOCKSTEP_ASSERT_OK(alone->StartEpoch(0));
    whole.TakeRest(*alone);
    for (int steps = 0; steps <= 9; ++steps) {
      Rows rows;
      std::string state;
      job.world = 3;
      job.batch_size = 4;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        const auto loader =
            Make(options, kind, job, static_cast<int>(job.rank));
        LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
        for (int step = 0; step < steps; ++step) {
          Batch batch;
          ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
          rows.Take(batch);
        }
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(state, loader->SaveState());
      }
      job.world = 2;
      job.batch_size = 5;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        const auto loader =
            Make(options, kind, job, 3 - static_cast<int>(job.rank));
        LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
        rows.TakeRest(*loader);
      }
      EXPECT_EQ(rows.rows(), whole.rows()) << steps;
    }
  }
}

TEST(TarFilesLoader, PartsAreThoseOfConcat) {
  const TokenFolder folder;
  const std::vector<std::string> paths = WriteShards(folder);
  const auto open = [&](std::vector<std::string> some) {
    return *TarFiles::Create(OptionsOf(std::move(some)));
  };
  EXPECT_THAT(open(paths)->parts(), ElementsAre(kSamples));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto concat,
      ConcatDataset::Create({open({paths[2]}), open({paths[0]})}));
  EXPECT_THAT(concat->parts(), ElementsAre(62, 40));
  EXPECT_THAT(TextField(*concat, 62, "key"), IsOkAndHolds("0"));
}

// A sample that can't be read is left out with its index and its place.
TEST(TarFilesLoader, ABadMemberIsTheErrorOfItsSample) {
  const TokenFolder folder;
  ShardContent members;
  for (int i = 0; i < 20; ++i) {
    members.emplace_back(absl::StrCat(i, ".cls"), i == 7 ? "x" : "1");
  }
  TestJob job;
  job.size = 20;
  job.batch_size = 20;
  LoaderOptions options;
  options.on_error = OnError::kSkip;
  options.max_failures = 1;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader,
      Loader::Create(*OpenShards({WriteShard(folder, "a.tar", members)},
                                 {{"label", {"cls"}}}),
                     SamplerOf(Kind::kSequential, job), options));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.valid(), 19);
  ASSERT_EQ(batch.errors().size(), 1u);
  EXPECT_EQ(batch.errors()[0].index, 7);
  EXPECT_THAT(batch.errors()[0].status,
              StatusIs(absl::StatusCode::kDataLoss,
                       testing::HasSubstr("byte 7168, member '7.cls'")));
}

}  // namespace
}  // namespace lockstep
