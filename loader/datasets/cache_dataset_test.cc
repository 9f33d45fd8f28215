#include "lockstep/loader/datasets/cache_dataset.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/dataset_conformance.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A dataset with fixed and ragged fields. It counts its reads, and fails or
// draws random numbers if a test says so.
class Inner : public Dataset {
 public:
  explicit Inner(int64_t size, int64_t max_bulk = 1)
      : size_(size), max_bulk_(max_bulk) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    ++reads;
    if (fail) return absl::UnavailableError("not today");
    if (fly) throw std::runtime_error("not today");
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(
        0, draw && index % 2 == 1 ? static_cast<int64_t>(context.rng()())
                                  : index * index));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const absl::Span<int16_t> image,
        row.MutableRagged<int16_t>(1, {index % 7, 2, index % 3}));
    std::iota(image.begin(), image.end(), static_cast<int16_t>(index));
    if (forget) return absl::OkStatus();
    return row.Set<uint8_t>(2, static_cast<uint8_t>(index));
  }

  int64_t max_bulk() const override { return max_bulk_; }

  void Hint(absl::Span<const int64_t> indices) override {
    MutexLock lock(mutex_);
    hints_.assign(indices.begin(), indices.end());
  }
  std::vector<int64_t> hints() {
    MutexLock lock(mutex_);
    return hints_;
  }

  std::atomic<int64_t> reads{0};
  std::atomic<bool> fail{false}, fly{false}, draw{false}, forget{false};

 private:
  const std::vector<FieldSpec> fields_ = {
      {"square", DType::kI64, {}},
      {"image", DType::kI16, {-1, 2, -1}, 24},
      {"byte", DType::kU8, {}}};
  const int64_t size_, max_bulk_;
  Mutex mutex_;
  std::vector<int64_t> hints_ ABSL_GUARDED_BY(mutex_);
};

std::shared_ptr<CacheDataset> Cached(const std::shared_ptr<Dataset>& inner,
                                     int64_t max_bytes = 1 << 20) {
  CacheOptions options;
  options.max_bytes = max_bytes;
  return *CacheDataset::Create(inner, options);
}

TEST(CacheDataset, ReadsOnce) {
  const auto inner = std::make_shared<Inner>(50);
  const auto dataset = Cached(inner);
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 50; ++i) {
      ASSERT_EQ(*ReadSample(*dataset, i), *ReadSample(*Cached(inner), i));
    }
  }
  const CacheStatistics statistics = dataset->Statistics();
  EXPECT_EQ(statistics.misses, 50);
  EXPECT_EQ(statistics.hits, 100);
  EXPECT_EQ(statistics.samples, 50);
  EXPECT_EQ(statistics.random, 0);
  EXPECT_GT(statistics.bytes, 50 * (8 + 1 + 3 * 8));
  EXPECT_LT(statistics.bytes, 50 * (8 + 1 + 3 * 8 + 24 * 2 + 24));
}

TEST(CacheDataset, Conforms) {
  for (const int64_t max_bytes : {1, 5000, 1 << 20}) {
    for (const int64_t bulk : {1, 10, 1000}) {
      const auto inner = std::make_shared<Inner>(300, bulk);
      ExpectConforms(*Cached(inner, max_bytes));
      // It reads many samples at a time from the start.
      const auto dataset = Cached(inner, max_bytes);
      std::vector<int64_t> all(300);
      std::iota(all.begin(), all.end(), 0);
      for (int round = 0; round < 2; ++round) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> got,
                                      ReadSamples(*dataset, all));
        EXPECT_EQ(got, *ReadSamples(*inner, all));
      }
      EXPECT_EQ(dataset->Statistics().hits + dataset->Statistics().misses, 600);
      ExpectConforms(*dataset);
    }
  }
}

TEST(CacheDataset, IsThreadSafe) {
  for (const int64_t max_bytes : {5000, 1 << 20}) {
    for (const int64_t bulk : {1, 10}) {
      const auto inner = std::make_shared<Inner>(300, bulk);
      const auto dataset = Cached(inner, max_bytes);
      ExpectThreadSafe(*dataset);
      const CacheStatistics statistics = dataset->Statistics();
      EXPECT_LE(statistics.bytes, max_bytes);
      EXPECT_EQ(statistics.hits + statistics.misses, 300 * (1 + 4 * 2));
    }
  }
}

// Many threads read the same samples at once.
TEST(CacheDataset, FillsFromManyThreads) {
  for (const int64_t max_bytes : {5000, 1 << 20}) {
    const auto inner = std::make_shared<Inner>(200);
    const auto dataset = Cached(inner, max_bytes);
    std::vector<std::string> expected;
    for (int64_t i = 0; i < 200; ++i) {
      expected.push_back(*ReadSample(*inner, i));
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&dataset, &expected] {
        for (int round = 0; round < 3; ++round) {
          for (int64_t i = 0; i < 200; ++i) {
            ASSERT_THAT(ReadSample(*dataset, i), IsOkAndHolds(expected[i]));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const CacheStatistics statistics = dataset->Statistics();
    EXPECT_EQ(statistics.hits + statistics.misses, 4 * 3 * 200);
    EXPECT_LE(statistics.bytes, max_bytes);
    EXPECT_GT(statistics.bytes, 4000);
    if (max_bytes > 5000) {
      EXPECT_EQ(statistics.samples, 200);
    }
  }
}

// Samples that do not fit are read from the inner dataset, and replace none.
TEST(CacheDataset, ReadsThroughWhenFull) {
  const auto inner = std::make_shared<Inner>(100);
  const auto dataset = Cached(inner, 2000);
  for (int round = 0; round < 2; ++round) {
    for (int64_t i = 0; i < 100; ++i)
      ASSERT_THAT(ReadSample(*dataset, i), IsOk());
  }
  const CacheStatistics statistics = dataset->Statistics();
  EXPECT_LE(statistics.bytes, 2000);
  EXPECT_GT(statistics.bytes, 1900);
  EXPECT_GT(statistics.samples, 10);
  EXPECT_EQ(statistics.hits, statistics.samples);
  EXPECT_EQ(statistics.misses, 200 - statistics.samples);
  EXPECT_EQ(inner->reads, statistics.misses);
}

TEST(CacheDataset, IsFullAtExactlyItsBytes) {
  const auto inner = std::make_shared<Inner>(10);
  const auto bytes_kept = [&inner](int64_t max_bytes) {
    const auto dataset = Cached(inner, max_bytes);
    LOCKSTEP_EXPECT_OK(ReadSample(*dataset, 3));
    return dataset->Statistics().bytes;
  };
  const int64_t bytes = bytes_kept(1000);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes_kept(bytes), bytes);
  EXPECT_EQ(bytes_kept(bytes - 1), 0);
}

TEST(CacheDataset, KeepsNoErrors) {
  const auto inner = std::make_shared<Inner>(10);
  const auto dataset = Cached(inner);
  inner->fail = true;
  EXPECT_THAT(ReadSample(*dataset, 3),
              StatusIs(absl::StatusCode::kUnavailable, "not today"));
  EXPECT_THAT(ReadSamples(*dataset, {1, 2}),
              StatusIs(absl::StatusCode::kUnavailable));
  inner->fail = false;
  inner->fly = true;
  EXPECT_THROW((void)ReadSample(*dataset, 3), std::runtime_error);
  inner->fly = false;
  inner->forget = true;
  EXPECT_THAT(ReadSample(*dataset, 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'byte' was not written")));
  inner->forget = false;
  EXPECT_EQ(dataset->Statistics().samples, 0);
  EXPECT_EQ(dataset->Statistics().bytes, 0);
  EXPECT_THAT(ReadSample(*dataset, 3), IsOkAndHolds(*ReadSample(*inner, 3)));
  EXPECT_EQ(dataset->Statistics().samples, 1);
}

TEST(CacheDataset, KeepsNothingRandom) {
  const auto inner = std::make_shared<Inner>(10, 10);
  inner->draw = true;
  const auto dataset = Cached(inner);
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(*ReadSample(*dataset, i), *ReadSample(*inner, i));
    }
    EXPECT_EQ(*ReadSamples(*dataset, {3, 4, 5}),
              *ReadSamples(*inner, {3, 4, 5}));
  }
  EXPECT_EQ(dataset->Statistics().samples, 5);
  EXPECT_EQ(dataset->Statistics().random, 3 * (5 + 2));
  EXPECT_EQ(dataset->Statistics().hits, 2 * 6 + 1);
}

// A random map above the cache draws the same whether the cache hits or not.
TEST(CacheDataset, RandomMapsStandAboveIt) {
  const auto inner = std::make_shared<Inner>(10);
  const auto dataset = *MapDataset::Create(
      Cached(inner), [](SampleContext& context, SampleRow& row) {
        return row.Set<int64_t>(0, static_cast<int64_t>(context.rng()()));
      });
  const std::string first = *ReadSample(*dataset, 3);
  EXPECT_EQ(*ReadSample(*dataset, 3), first);
  EXPECT_EQ(inner->reads, 1);
}

TEST(CacheDataset, HintsAtWhatIsMissing) {
  const auto inner = std::make_shared<Inner>(10);
  const auto dataset = Cached(inner);
  LOCKSTEP_ASSERT_OK(ReadSample(*dataset, 4));
  dataset->Hint({3, 4, 5, -1, 10});
  EXPECT_THAT(inner->hints(), ElementsAre(3, 5));
}

TEST(CacheDataset, SaysWhatIsWrong) {
  EXPECT_THAT(
      CacheDataset::Create(nullptr, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("null pointer")));
  EXPECT_THAT(CacheDataset::Create(std::make_shared<Inner>(10), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_bytes is 0")));
  CacheOptions options;
  options.max_bytes = 1;
  EXPECT_THAT(
      CacheDataset::Create(std::make_shared<Inner>(INT64_MAX), options),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("8 bytes")));
}

}  // namespace
}  // namespace lockstep
