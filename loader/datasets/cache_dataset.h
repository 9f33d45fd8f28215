// Keeps in memory what an inner dataset read, for the next epochs.
//
//   CacheOptions options;
//   options.max_bytes = int64_t{32} << 30;
//   auto cached = CacheDataset::Create(decoded_images, options);
//   auto augmented = MapDataset::Create(*cached, RandomCrop);
//
// Samples are kept, by index, until the memory is used up. From then on other
// samples are read from the inner dataset, and no sample is dropped: an epoch
// needs each sample once, so the sample that was used last is needed last, and
// an LRU cache that is smaller than the dataset would hit nearly nothing.
//
// Put random changes above the cache, as RandomCrop is here: below it, a sample
// would have the same random numbers in every epoch. Therefore a sample whose
// Read drew from context.rng() is not kept, and counted in `random`. The cache
// does not notice if Read uses other things of its context (epoch, position,
// worker): below the cache they must not make a difference.
#ifndef LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// The options of a CacheDataset.
struct CacheOptions {
  // The memory for samples, in bytes. A sample takes the bytes that it has (for
  // ragged fields, not those that it could have) and a few more for the
  // allocator. In addition, each sample of the inner dataset takes 8 bytes that
  // are not counted here.
  int64_t max_bytes = 0;
};

// The numbers of a CacheDataset since it was made.
struct CacheStatistics {
  int64_t hits = 0;     // samples that came from memory
  int64_t misses = 0;   // samples that the inner dataset read
  int64_t samples = 0;  // samples that are in memory
  int64_t bytes = 0;    // the bytes that they take; at most max_bytes
  int64_t random = 0;   // reads that were not kept since they drew from rng()
};

// A dataset with the samples of another one, which keeps them in memory.
// Thread-safety: thread-safe.
// Memory ordering: a pointer to an entry is stored with release and loaded with
// acquire, so that a reader sees the bytes of the entry. Counters are relaxed.
class CacheDataset : public Dataset {
 public:
  // Returns RESOURCE_EXHAUSTED if there is no memory for 8 bytes a sample.
  static absl::StatusOr<std::shared_ptr<CacheDataset>> Create(
      std::shared_ptr<Dataset> inner, const CacheOptions& options);

  ~CacheDataset() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }

  // Errors are not kept: the next call reads from the inner dataset again.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // Passes on the indices of samples that are not in memory.
  void Hint(absl::Span<const int64_t> indices) override;

  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    return inner_->ReadColumn(name);
  }
  void AddTo(Fingerprint& fingerprint) const override {
    inner_->AddTo(fingerprint);
  }
  std::string Describe() const override { return inner_->Describe(); }
  std::string PlaceOf(int64_t index, int field) const override {
    return inner_->PlaceOf(index, field);
  }
  std::vector<int64_t> parts() const override { return inner_->parts(); }

  // Returns numbers that are exact if no thread reads meanwhile.
  CacheStatistics Statistics() const;

 private:
  // The bytes of a sample: the shapes of its ragged fields, and then the
  // elements of all fields.
  using Entry = std::atomic<char*>;

  // Counters in a cache line of their own, so that workers do not slow each
  // other down.
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

  // Takes that many bytes of the budget. Returns false if there is no room.
  bool Reserve(int64_t bytes);

  // Keeps a row that was just read, if there is room and it is not random.
  // `draws` is how many numbers its context had drawn before the read.
  void Keep(int64_t index, uint64_t draws, SampleContext& context,
            SampleRow& row);

  const std::shared_ptr<Dataset> inner_;
  const int64_t size_;
  const int64_t max_bytes_;

  // By index; null for a sample that is not in memory. A pointer that is set is
  // never changed.
  const std::unique_ptr<Entry[]> entries_;

  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> samples_{0};
  std::array<Counts, 16> counts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_CACHE_DATASET_H_
