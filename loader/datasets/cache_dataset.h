// Keeps in memory what an inner dataset read, for the next epochs.
//
//   CacheOptions options;
//   options.max_bytes = int64_t{32} << 30;
//   auto cached = CacheDataset::Create(decoded_images, options);
//   auto augmented = MapDataset::Create(*cached, RandomCrop);
//
// Samples are kept, by index, until the memory is used up. From then on the
// others are read through, and nothing is thrown out: an epoch needs each
// sample once, so whatever was used last is what is needed last, and an LRU
// cache that is smaller than the dataset would hit nearly nothing.
//
// Put what is random above the cache, as RandomCrop is here: below it, a sample
// would have the same random numbers in every epoch. A sample whose Read drew
// from context.rng() is therefore not kept, and counted in `random`. What else
// Read takes from its context (epoch, position, worker) goes unnoticed: below
// the cache it must not make a difference.
#ifndef LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

struct CacheOptions {
  // For the samples, each of which takes the bytes that it has (not those that
  // it could have, for ragged fields) and a few more for the allocator. There
  // are 8 bytes for each sample of the inner dataset beside.
  int64_t max_bytes = 0;
};

struct CacheStatistics {
  int64_t hits = 0;     // samples that came from memory
  int64_t misses = 0;   // samples that were asked of the inner dataset
  int64_t samples = 0;  // that are in memory
  int64_t bytes = 0;    // that they take; at most max_bytes
  int64_t random = 0;   // reads that were not kept since they drew from rng()
};

class CacheDataset : public Dataset {
 public:
  // RESOURCE_EXHAUSTED where there is no memory for 8 bytes a sample.
  static absl::StatusOr<std::shared_ptr<CacheDataset>> Create(
      std::shared_ptr<Dataset> inner, const CacheOptions& options);

  ~CacheDataset() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }

  // Errors are not kept: the inner dataset is asked again the next time.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // Passes those on that are not in memory.
  void Hint(absl::Span<const int64_t> indices) override;

  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    return inner_->ReadColumn(name);
  }

  // Exact when nobody reads meanwhile.
  CacheStatistics Statistics() const;

 private:
  // A sample: the shapes of its ragged fields, and then all fields' elements.
  using Entry = std::atomic<char*>;

  // In a line of its own, so that workers don't wait for each other to count.
  struct alignas(64) Counts {
    std::atomic<int64_t> hits{0};
    std::atomic<int64_t> misses{0};
    std::atomic<int64_t> random{0};
  };

  CacheDataset(std::shared_ptr<Dataset> inner, int64_t max_bytes,
               std::unique_ptr<Entry[]> entries);

  const char* Find(int64_t index) const {
    return entries_[static_cast<size_t>(index)].load(std::memory_order_acquire);
  }
  Counts& CountsOf(const SampleContext& context) {
    return counts_[static_cast<uint32_t>(context.worker().id) % counts_.size()];
  }

  // Whether there was room for that many bytes, which are then taken.
  bool Reserve(int64_t bytes);

  // Keeps a row that was just read, if there is room and it is not random.
  // `draws` is how many its context had drawn before.
  void Keep(int64_t index, uint64_t draws, SampleContext& context,
            SampleRow& row);

  const std::shared_ptr<Dataset> inner_;
  const int64_t size_;
  const int64_t max_bytes_;

  // Null for a sample that is not in memory; once set, never changed.
  const std::unique_ptr<Entry[]> entries_;

  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> samples_{0};
  std::array<Counts, 16> counts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_
