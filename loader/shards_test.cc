// These tests check loaders of steps that are cut into shards
// (CutOptions::shards): the batches of a shard have the same bytes on any
// number of ranks.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/packed_testing.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// The bytes of the parts of each shard, one after another, by epoch, step and
// shard.
using Bytes = std::map<std::tuple<int64_t, int64_t, int64_t>, std::string>;

// Collate draws random numbers, changes a field by them, and pads rows to the
// longest one of the batch.
absl::Status DrawAndPad(BatchView& batch, Random& random) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x,
                            batch.Values<float>("x"));
  for (float& value : x) value += static_cast<float>(random.Below(1000));
  return batch.PadToLongest<int32_t>("tokens", -1).status();
}

std::string Describe(const Batch& batch) {
  std::string text = BytesOf(batch);
  for (const SampleError& error : batch.errors()) {
    absl::StrAppend(&text, "error ", error.row, " ", error.index, " ",
                    error.position, "\n");
  }
  for (const Substitution& substitution : batch.substitutions()) {
    absl::StrAppend(&text, "substitute ", substitution.row, " ",
                    substitution.wanted, " ", substitution.used, "\n");
  }
  return text;
}

// Reads up to `most` steps of each rank, and adds the bytes of their shards.
// `make` returns the loader of a rank, at its place. Returns the state of the
// last rank.
template <typename MakeRank, typename Text>
std::string Read(int64_t world, int64_t most, const MakeRank& make,
                 const Text& describe, Bytes& bytes) {
  std::string state;
  std::vector<int64_t> parts;  // of each step
  for (int64_t rank = 0; rank < world; ++rank) {
    const std::unique_ptr<Loader> loader = make(rank);
    int64_t last = -1;
    for (int64_t step = 0; step < most; ++step) {
      Batch batch;
      int64_t part = 0;
      do {
        const NextResult next = loader->Next(batch);
        EXPECT_TRUE(next.ok()) << next.status();
        if (!next.ok() || !*next) break;
        EXPECT_EQ(batch.part(), part++);
        if (batch.shard() < 0) {  // there is no shard left for this rank
          EXPECT_EQ(batch.rows(), 0);
          EXPECT_EQ(batch.valid(), 0);
          continue;
        }
        EXPECT_TRUE(part == 1 || batch.shard() == last ||
                    batch.shard() == last + 1);
        last = batch.shard();
        bytes[{batch.epoch(), batch.step(), batch.shard()}] += describe(batch);
      } while (part < batch.parts());
      if (part == 0) break;
      if (rank == 0) {
        parts.push_back(part);
      } else {
        EXPECT_EQ(part, parts.at(static_cast<size_t>(step)));
      }
    }
    const absl::StatusOr<std::string> own = loader->SaveState();
    LOCKSTEP_EXPECT_OK(own.status());
    EXPECT_TRUE(rank == 0 || own.value_or("") == state);
    state = own.value_or("");
  }
  return state;
}

std::unique_ptr<Loader> Make(const TestJob& job, const LoaderOptions& options) {
  auto dataset = std::make_shared<TestDataset>(job.size);
  if (options.on_error != OnError::kFail) {
    dataset->before = [](int64_t index, SampleContext&) {
      return index % 5 == 2 ? absl::DataLossError("the file is torn")
                            : absl::OkStatus();
    };
  }
  auto loader = Loader::Create(dataset, TestSampler(job), options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return std::move(loader).value();
}

TEST(Shards, HaveTheSameBytesOnAnyNumberOfRanks) {
  Random random(11);
  for (int trial = 0; trial < 40; ++trial) {
    TestJob job;
    job.size = random.Integer(20, 120);
    const int64_t shards = std::vector<int64_t>{4, 8, 12, 24}[random.Below(4)];
    job.batch_size = random.Integer(1, 6);
    job.tail = static_cast<Tail>(random.Below(4));
    job.layout = static_cast<Layout>(random.Below(2));
    job.min_last_batch = random.Integer(0, job.batch_size + 1);
    job.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
    LoaderOptions options;
    options.on_error =
        random.Below(2) == 0 ? OnError::kSkip : OnError::kSubstitute;
    options.collate = DrawAndPad;
    options.micro_batch_size = random.Integer(0, 4);
    Bytes expected;
    // As many ranks as shards, without shards, are the reference.
    for (const int64_t world : {int64_t{0}, int64_t{1}, random.Integer(2, 4),
                                random.Integer(2, shards), shards}) {
      SCOPED_TRACE(testing::Message()
                   << "trial " << trial << ", " << world << " ranks");
      job.shards = world == 0 ? 0 : shards;
      job.world = world == 0 ? shards : world;
      const auto start = [&](int64_t rank) {
        job.rank = rank;
        options.num_workers = static_cast<int>(random.Below(2));
        auto loader = Make(job, options);
        LOCKSTEP_EXPECT_OK(loader->StartEpoch(1));
        if (trial % 2 == 1) {
          LOCKSTEP_EXPECT_OK(loader->Skip(3, 9));
        }
        return loader;
      };
      Bytes bytes;
      const std::string state =
          Read(job.world, random.Integer(0, 3), start, Describe, bytes);
      // Another number of ranks goes on.
      if (world > 0) job.world = random.Integer(1, shards + 1);
      const auto go_on = [&](int64_t rank) {
        job.rank = rank;
        auto loader = Make(job, options);
        LOCKSTEP_EXPECT_OK(loader->RestoreState(state));
        return loader;
      };
      Read(job.world, job.size, go_on, Describe, bytes);
      if (world == 0) expected = bytes;
      EXPECT_TRUE(bytes == expected);
    }
    EXPECT_FALSE(expected.empty() && job.tail != Tail::kDrop &&
                 job.min_last_batch == 0);
  }
}

void ExpectPackedShards(PackedJob job) {
  job.loader.num_workers = 0;
  job.loader.on_error = OnError::kSkip;
  Bytes expected;
  // As many ranks as shards, without shards, are the reference.
  for (const int64_t world : {0, 1, 2, 4, 5, 6}) {
    job.shards = world == 0 ? 0 : 6;
    job.world = world == 0 ? 6 : world;
    const auto make = [&job](int64_t rank) {
      job.rank = rank;
      auto dataset = std::make_shared<RaggedDataset>(job.lengths);
      dataset->before = [](int64_t index) {
        return index % 7 == 3 ? absl::DataLossError("torn") : absl::OkStatus();
      };
      auto loader = MakePackedLoader(job, dataset);
      LOCKSTEP_EXPECT_OK(loader->StartEpoch(0));
      return loader;
    };
    Bytes bytes;
    Read(
        job.world, 1000, make, [](const Batch& batch) { return RowsOf(batch); },
        bytes);
    if (world == 0) expected = bytes;
    EXPECT_TRUE(bytes == expected) << world << " ranks";
  }
  EXPECT_FALSE(expected.empty());
}

TEST(Shards, OfPackedRowsHaveTheSameBytesOnAnyNumberOfRanks) {
  for (const Tail tail :
       {Tail::kPad, Tail::kDrop, Tail::kUneven, Tail::kMask}) {
    for (const int64_t batch_size : {2, 3, 5}) {
      for (const int64_t micro : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << "tail " << static_cast<int>(tail)
                                        << ", " << batch_size << " rows");
        PackedJob job;
        job.tail = tail;
        job.batch_size = batch_size;
        job.loader.micro_batch_size = micro;
        ExpectPackedShards(job);
      }
    }
  }
}

TEST(Shards, AreTheRanksIfTheyAreNotSet) {
  TestJob job;
  job.world = 3;
  job.rank = 2;
  LoaderOptions options;
  options.num_workers = 0;
  const auto loader = Make(job, options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  EXPECT_EQ(batch.shard(), -1);
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.shard(), 2);
  EXPECT_EQ(batch.parts(), 1);
  const absl::StatusOr<Batch> empty = loader->EmptyBatch(0, 1);
  LOCKSTEP_ASSERT_OK(empty.status());
  EXPECT_EQ(empty->shard(), -1);
}

TEST(Shards, AnErrorNamesThePartAndTheShard) {
  TestJob job;
  job.size = 16;
  job.batch_size = 2;
  job.shards = 8;
  job.world = 3;
  job.rank = 1;  // with the shards 3, 4 and 5
  const auto sampler = TestSampler(job);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(0));
  BatchIndices step;
  ASSERT_THAT(sampler->Next(step), IsOkAndHolds(true));
  const int64_t bad = step.indices[3];
  auto dataset = std::make_shared<TestDataset>(job.size);
  dataset->before = [bad](int64_t index, SampleContext&) {
    return index == bad ? absl::DataLossError("the file is torn")
                        : absl::OkStatus();
  };
  LoaderOptions options;
  options.num_workers = 0;
  const auto loader = *Loader::Create(dataset, TestSampler(job), options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(
      loader->Next(batch).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("epoch 0, step 0, part 1, shard 4, row 1: sample")));
  ASSERT_EQ(loader->errors().size(), 1);
  EXPECT_EQ(loader->errors()[0].shard, 4);
  // The other shards of this rank are lost, too.
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST(Shards, AreReadAheadLikeWholeSteps) {
  TestJob job;
  job.shards = 8;
  job.batch_size = 1;
  LoaderOptions options;
  options.num_workers = 0;
  const auto loader = Make(job, options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  // By default, there is memory for four steps at least.
  std::vector<Batch> held(4 * 8);
  for (Batch& batch : held) {
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  }
}

TEST(Shards, AStateOfAnotherNumberChangesNothing) {
  TestJob job;
  job.shards = 4;
  LoaderOptions options;
  options.num_workers = 0;
  const auto other = Make(job, options);
  LOCKSTEP_ASSERT_OK(other->StartEpoch(3));
  job.shards = 8;
  const auto loader = Make(job, options);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(loader->RestoreState(*other->SaveState()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("shards=4, and this one has shards=8")));
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.part(), 1);
  RestoreOptions allowed;
  allowed.allow_different = {"shards"};
  LOCKSTEP_EXPECT_OK(loader->RestoreState(*other->SaveState(), allowed));
  EXPECT_EQ(loader->progress().epoch, 3);
}

TEST(Shards, RefuseOptionsThatDependOnTheNumberOfRanks) {
  TestJob job;
  job.shards = 4;
  const auto make = [&job](const LoaderOptions& options) {
    return Loader::Create(std::make_shared<TestDataset>(job.size),
                          TestSampler(job), options)
        .status();
  };
  LoaderOptions options;
  options.num_workers = 0;
  options.max_failures = 3;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("leave max_failures unset")));
  options.max_failures.reset();
  options.delivery = Delivery::kAsReady;
  EXPECT_THAT(make(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("shards=4 needs the delivery in_order")));
}

}  // namespace
}  // namespace lockstep
