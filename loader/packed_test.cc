// Tests of loaders whose order packs several samples into each row.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/packed_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Returns the bytes of each step, whose parts are put together.
std::vector<std::string> StepsOf(Loader& loader, int64_t epoch) {
  std::vector<std::string> steps;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(epoch)) {
    EXPECT_THAT(batch, IsOk());
    if (!batch.ok()) break;
    if (batch->part() == 0) steps.emplace_back();
    steps.back() += RowsOf(*batch);
  }
  return steps;
}

TEST(PackedLoader, RowsHaveTheirSamplesSideBySide) {
  for (const bool cut : {false, true}) {
    PackedJob job;
    job.cut = cut;
    if (cut) job.lengths = {0, 1, 9, 10, 11, 12, 3, 3, 3, 8, 0, 2, 40, 0};
    const auto dataset = std::make_shared<RaggedDataset>(job.lengths);
    const auto loader = MakePackedLoader(job, dataset);
    EXPECT_THAT(loader->order().packing()->row_length,
                testing::Eq(job.row_length));
    std::multiset<int64_t> seen;
    for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      ASSERT_THAT(batch, IsOk());
      ExpectPacked(*batch, job);
      const auto indices =
          batch->indices().first(batch->sample_splits()[batch->valid()]);
      seen.insert(indices.begin(), indices.end());
    }
    std::vector<int64_t> all;
    for (size_t i = 0; i < job.lengths.size(); ++i) {
      all.push_back(static_cast<int64_t>(i));
    }
    EXPECT_THAT(seen, ElementsAreArray(all));
  }
}

TEST(PackedLoader, FieldsHaveTheLengthOfARow) {
  PackedJob job;
  const auto loader =
      MakePackedLoader(job, std::make_shared<RaggedDataset>(job.lengths));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Shape("tokens"), IsOkAndHolds(ElementsAre(4, 10)));
  EXPECT_THAT(batch.Shape("boxes"), IsOkAndHolds(ElementsAre(4, 10, 3)));
  EXPECT_THAT(batch.Shape("segment"), IsOkAndHolds(ElementsAre(4, 10)));
  EXPECT_THAT(batch.Shape("position"), IsOkAndHolds(ElementsAre(4, 10)));
  EXPECT_EQ(batch.fields().size(), 4u);
}

// Random numbers of a sample are those of its position, so no worker matters.
TEST(PackedLoader, BytesDoNotDependOnWorkersOrParts) {
  for (const Tail tail : {Tail::kPad, Tail::kMask, Tail::kUneven}) {
    PackedJob job;
    job.tail = tail;
    job.world = 3;
    job.rank = 2;
    const auto dataset = std::make_shared<RaggedDataset>(job.lengths);
    const std::vector<std::string> expected =
        StepsOf(*MakePackedLoader(job, dataset), 1);
    ASSERT_GE(expected.size(), 3u);
    for (const int workers : {0, 1, 3}) {
      for (const Workers kind : {Workers::kTbb, Workers::kThreads}) {
        for (const int64_t micro : {0, 1, 3}) {
          job.loader.num_workers = workers;
          job.loader.workers = kind;
          job.loader.micro_batch_size = micro;
          job.loader.prefetch_batches = 1 + workers;
          EXPECT_EQ(StepsOf(*MakePackedLoader(job, dataset), 1), expected);
        }
      }
    }
    job.loader.micro_batch_size = 0;
    job.loader.delivery = Delivery::kAsReady;
    const std::vector<std::string> ready =
        StepsOf(*MakePackedLoader(job, dataset), 1);
    EXPECT_THAT(ready, testing::UnorderedElementsAreArray(expected));
  }
}

// Takes steps on all ranks, and notes how often each position has come.
void TakeSteps(const std::vector<std::unique_ptr<Loader>>& ranks, int64_t most,
               std::map<int64_t, int>& times, const PackedJob& job) {
  for (int64_t step = 0; step < most; ++step) {
    int64_t stepped = 0;
    for (const auto& rank : ranks) {
      Batch batch;
      const NextResult more = rank->Next(batch);
      ASSERT_THAT(more, IsOk());
      if (!*more) continue;
      ++stepped;
      ExpectPacked(batch, job);
      const auto samples = batch.sample_splits()[batch.valid()];
      for (const int64_t at : batch.positions().first(samples)) ++times[at];
    }
    if (stepped == 0) return;
    ASSERT_EQ(stepped, static_cast<int64_t>(ranks.size()));
  }
}

std::vector<std::unique_ptr<Loader>> AllRanks(PackedJob job, int64_t world) {
  job.world = world;
  std::vector<std::unique_ptr<Loader>> ranks;
  for (job.rank = 0; job.rank < world; ++job.rank) {
    ranks.push_back(
        MakePackedLoader(job, std::make_shared<RaggedDataset>(job.lengths)));
  }
  return ranks;
}

TEST(PackedLoader, GoesOnAfterAnyStepOnAnyNumberOfRanks) {
  for (const Tail tail : {Tail::kPad, Tail::kMask, Tail::kUneven}) {
    PackedJob job;
    job.tail = tail;
    for (int64_t steps = 0; steps < 6; ++steps) {
      for (const int64_t world : {1, 3}) {
        std::map<int64_t, int> times;
        const auto before = AllRanks(job, 2);
        for (const auto& rank : before) {
          LOCKSTEP_ASSERT_OK(rank->StartEpoch(0));
        }
        TakeSteps(before, steps, times, job);
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state,
                                      before[1]->SaveState());
        const auto after = AllRanks(job, world);
        for (const auto& rank : after) {
          LOCKSTEP_ASSERT_OK(rank->RestoreState(state));
        }
        TakeSteps(after, 1000, times, job);
        EXPECT_EQ(times.size(), job.lengths.size());
        for (const auto& [position, count] : times) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(PackedLoader, SkippedPositionsDoNotCome) {
  PackedJob job;
  std::map<int64_t, int> times;
  const auto ranks = AllRanks(job, 2);
  for (const auto& rank : ranks) LOCKSTEP_ASSERT_OK(rank->StartEpoch(0));
  TakeSteps(ranks, 2, times, job);
  const int64_t position = ranks[0]->progress().position;
  ASSERT_LT(position, 50);
  for (const auto& rank : ranks) LOCKSTEP_ASSERT_OK(rank->Skip(51, 94));
  TakeSteps(ranks, 1000, times, job);
  for (int64_t at = 0; at < 120; ++at) {
    EXPECT_EQ(times.count(at), at >= 51 && at < 94 ? 0u : 1u) << at;
  }
  for (const auto& [at, count] : times) EXPECT_EQ(count, 1) << at;
}

TEST(PackedLoader, MaskedRowsAreEmptyAndPaddedRowsRepeat) {
  PackedJob job;
  job.lengths = {10, 4, 6, 10};  // three rows
  job.tail = Tail::kMask;
  const auto read = [&job](Batch& batch) {
    const auto loader =
        MakePackedLoader(job, std::make_shared<RaggedDataset>(job.lengths));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    ExpectPacked(batch, job);
  };
  Batch batch;
  read(batch);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.valid(), 3);
  EXPECT_EQ(batch.sample_splits()[4], 4);
  EXPECT_THAT(*batch.Row<int32_t>("segment", 3), testing::Each(-1));
  job.world = 4;
  job.rank = 3;
  read(batch);
  EXPECT_EQ(batch.valid(), 0);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_TRUE(batch.indices().empty());
  EXPECT_THAT(*batch.Values<int32_t>("tokens"), testing::Each(0));
  job.tail = Tail::kPad;
  read(batch);
  EXPECT_EQ(batch.valid(), 0);
  EXPECT_EQ(batch.rows(), 1);
  EXPECT_THAT(*batch.Row<int32_t>("segment", 0), testing::Each(testing::Ge(0)));
  for (const int64_t position : batch.positions()) EXPECT_GE(position, 4);
  job.tail = Tail::kUneven;
  read(batch);
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_THAT(batch.sample_splits(), ElementsAre(0));
}

TEST(PackedLoader, HintAndCollateGetTheSamplesOfABatch) {
  PackedJob job;
  const auto dataset = std::make_shared<RaggedDataset>(job.lengths);
  Mutex mutex;
  std::vector<std::vector<int64_t>> hinted, collated;
  dataset->on_hint = [&](absl::Span<const int64_t> indices) {
    MutexLock lock(mutex);
    hinted.emplace_back(indices.begin(), indices.end());
  };
  job.loader.num_workers = 3;
  job.loader.collate = [&](BatchView& batch, Random&) {
    ExpectPacked(batch, job);
    MutexLock lock(mutex);
    collated.emplace_back(
        batch.indices().begin(),
        batch.indices().begin() + batch.sample_splits()[batch.valid()]);
    const auto tokens = *batch.Values<int32_t>("tokens");
    std::fill(tokens.begin(), tokens.end(), 7);
    return absl::OkStatus();
  };
  job.loader.prefetch_next_epoch = false;
  const auto loader = MakePackedLoader(job, dataset);
  for (absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    ASSERT_THAT(batch, IsOk());
    EXPECT_THAT(*batch->Values<int32_t>("tokens"), testing::Each(7));
  }
  EXPECT_GE(hinted.size(), 5u);
  EXPECT_THAT(collated, testing::UnorderedElementsAreArray(hinted));
}

TEST(PackedLoader, AnEmptyBatchHasTheShapeOfOthers) {
  PackedJob job;
  const auto loader =
      MakePackedLoader(job, std::make_shared<RaggedDataset>(job.lengths));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Batch batch, loader->EmptyBatch(0, 3));
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_THAT(batch.sample_splits(), testing::ElementsAre(0));
  EXPECT_THAT(batch.Shape("segment"),
              IsOkAndHolds(testing::ElementsAre(0, job.row_length)));
}

TEST(PackedLoader, CountsWhatStaysEmpty) {
  PackedJob job;
  job.lengths = {10, 4, 3, 0, 9};  // three rows of 10, of which 4 are empty
  const auto loader =
      MakePackedLoader(job, std::make_shared<RaggedDataset>(job.lengths));
  StepsOf(*loader, 0);
  const LoaderMetrics metrics = loader->Metrics();
  EXPECT_EQ(metrics.samples, 5);
  EXPECT_EQ(metrics.packed_elements, 30);
  EXPECT_EQ(metrics.empty_elements, 4);
  EXPECT_THAT(metrics.ToString(),
              HasSubstr("packed rows: 13.33 % of 30 elements are empty"));
}

// Padded rows are none of the epoch's, and masked rows have no elements.
TEST(PackedLoader, CountsOnlyRowsThatAreData) {
  for (const Tail tail : {Tail::kPad, Tail::kMask}) {
    PackedJob job;
    job.lengths = {10, 9, 10};
    job.tail = tail;
    int64_t elements = 0, empty = 0, samples = 0;
    for (const auto& rank : AllRanks(job, 4)) {
      StepsOf(*rank, 0);
      elements += rank->Metrics().packed_elements;
      empty += rank->Metrics().empty_elements;
      samples += rank->Metrics().samples;
    }
    EXPECT_EQ(elements, 30);
    EXPECT_EQ(empty, 1);
    EXPECT_EQ(samples, 3);
  }
}

// A dataset without samples, whose fields are those of the test.
class FieldsOnly : public Dataset {
 public:
  explicit FieldsOnly(std::vector<FieldSpec> fields)
      : fields_(std::move(fields)) {}
  int64_t size() const override { return 0; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
    return absl::OkStatus();
  }

 private:
  const std::vector<FieldSpec> fields_;
};

absl::Status StatusOfFields(std::vector<FieldSpec> fields) {
  PackedJob job;
  job.lengths.clear();
  return Loader::Create(std::make_shared<FieldsOnly>(std::move(fields)),
                        PackedSampler(job), {})
      .status();
}

TEST(PackedLoader, NamesFieldsThatCannotBePacked) {
  const FieldSpec tokens = {"tokens", DType::kI32, {-1}, 6};
  LOCKSTEP_EXPECT_OK(StatusOfFields({tokens}));
  const auto refuses = [](const auto& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, text);
  };
  EXPECT_THAT(StatusOfFields({tokens, {"label", DType::kI64, {}, 0}}),
              refuses(AllOf(HasSubstr("label"), HasSubstr("leave it out"))));
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{4}, {4, -1}, {-1, -1}}) {
    const int64_t most = std::count(shape.begin(), shape.end(), -1) * 6;
    EXPECT_THAT(StatusOfFields({tokens, {"image", DType::kU8, shape, most}}),
                refuses(HasSubstr("image")));
  }
  for (const std::string name : {"segment", "position"}) {
    EXPECT_THAT(StatusOfFields({{name, DType::kI32, {-1}, 6}}),
                refuses(HasSubstr(absl::StrCat("get a field '", name, "'"))));
  }
  EXPECT_THAT(StatusOfFields({}), refuses(HasSubstr("has none")));
}

}  // namespace
}  // namespace lockstep
