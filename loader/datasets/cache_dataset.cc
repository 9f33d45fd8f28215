#include "lockstep/loader/datasets/cache_dataset.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/inner_dataset.h"

namespace lockstep {
namespace {

using internal_loader::CheckIndex;
using internal_loader::kBulk;
using internal_loader::kHintBulk;
using internal_loader::ReadInner;

// Returns the bytes that malloc takes for `bytes`, so that the budget also
// holds for small samples.
int64_t WithOverhead(int64_t bytes) {
  return std::max<int64_t>(32, (bytes + 8 + 15) / 16 * 16);
}

// Returns the bytes of a row as an entry, or -1 if a field was not written. The
// caller of Read reports that error.
int64_t EntryBytes(SampleRow& row) {
  int64_t bytes = 0;
  for (int field = 0; field < row.fields(); ++field) {
    const absl::StatusOr<absl::Span<char>> from = row.WrittenBytes(field);
    if (!from.ok()) return -1;
    bytes += static_cast<int64_t>(from->size());
    if (row.spec(field).ragged()) {
      bytes += static_cast<int64_t>(row.shape(field).size() * sizeof(int64_t));
    }
  }
  return bytes;
}

char* Append(const void* data, size_t bytes, char* to) {
  if (bytes > 0) std::memcpy(to, data, bytes);
  return to + bytes;
}

// Writes a row to an entry, which has EntryBytes(row) bytes.
void WriteEntry(SampleRow& row, char* entry) {
  // Shapes come first, so that they are aligned.
  for (int field = 0; field < row.fields(); ++field) {
    if (!row.spec(field).ragged()) continue;
    const absl::Span<const int64_t> shape = row.shape(field);
    entry = Append(shape.data(), shape.size() * sizeof(int64_t), entry);
  }
  for (int field = 0; field < row.fields(); ++field) {
    const absl::Span<char> from = *row.WrittenBytes(field);
    entry = Append(from.data(), from.size(), entry);
  }
}

// Writes a row from its entry.
absl::Status ReadEntry(const char* entry, SampleRow& row) {
  const auto* shapes = reinterpret_cast<const int64_t*>(entry);
  for (int field = 0; field < row.fields(); ++field) {
    if (row.spec(field).ragged()) {
      entry += row.spec(field).shape.size() * sizeof(int64_t);
    }
  }
  for (int field = 0; field < row.fields(); ++field) {
    absl::Span<char> to;
    if (row.spec(field).ragged()) {
      const size_t dimensions = row.spec(field).shape.size();
      LOCKSTEP_ASSIGN_OR_RETURN(
          to, row.MutableRaggedBytes(field,
                                     absl::MakeConstSpan(shapes, dimensions)));
      shapes += dimensions;
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(to, row.MutableBytes(field));
    }
    if (!to.empty()) std::memcpy(to.data(), entry, to.size());
    entry += to.size();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<CacheDataset>> CacheDataset::Create(
    std::shared_ptr<Dataset> inner, const CacheOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(
      internal_loader::CheckInner("cache_dataset", inner.get()));
  if (options.max_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache_dataset: max_bytes is ", options.max_bytes,
        ", but should be the bytes of memory that samples may take, 1 or "
        "more"));
  }
  const auto size = static_cast<size_t>(inner->size());
  // new throws for larger arrays.
  std::unique_ptr<Entry[]> entries;
  if (size <= static_cast<size_t>(PTRDIFF_MAX) / sizeof(Entry)) {
    entries.reset(new (std::nothrow) Entry[size]());
  }
  if (entries == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cache_dataset: there are no ", sizeof(Entry), " bytes for each of ",
        size, " samples; leave the cache out, or cache a SubsetDataset"));
  }
  return std::shared_ptr<CacheDataset>(new CacheDataset(
      std::move(inner), options.max_bytes, std::move(entries)));
}

CacheDataset::CacheDataset(std::shared_ptr<Dataset> inner, int64_t max_bytes,
                           std::unique_ptr<Entry[]> entries)
    : inner_(std::move(inner)),
      size_(inner_->size()),
      max_bytes_(max_bytes),
      entries_(std::move(entries)) {}

CacheDataset::~CacheDataset() {
  for (int64_t i = 0; i < size_; ++i) std::free(entries_[i].load());
}

absl::Status CacheDataset::Read(int64_t index, SampleContext& context,
                                SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("cache_dataset", index, size_));
  Counts& counts = CountsOf(context);
  if (const char* const entry = Find(index); entry != nullptr) {
    counts.hits.fetch_add(1, std::memory_order_relaxed);
    return ReadEntry(entry, row);
  }
  counts.misses.fetch_add(1, std::memory_order_relaxed);
  const uint64_t draws = context.rng().draws();
  LOCKSTEP_RETURN_IF_ERROR(inner_->Read(index, context, row));
  Keep(index, draws, context, row);
  return absl::OkStatus();
}

int64_t CacheDataset::max_bulk() const {
  return internal_loader::BulkOf(*inner_);
}

absl::Status CacheDataset::ReadMany(absl::Span<const int64_t> indices,
                                    absl::Span<SampleContext> contexts,
                                    absl::Span<SampleRow> rows) {
  for (const int64_t index : indices) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("cache_dataset", index, size_));
  }
  std::array<uint64_t, kBulk> draws;
  size_t first = 0;
  while (first < indices.size()) {
    if (const char* const entry = Find(indices[first]); entry != nullptr) {
      CountsOf(contexts[first]).hits.fetch_add(1, std::memory_order_relaxed);
      LOCKSTEP_RETURN_IF_ERROR(ReadEntry(entry, rows[first]));
      ++first;
      continue;
    }
    // Missing samples are read together, up to the next one in memory.
    size_t count = 0;
    while (count < draws.size() && first + count < indices.size() &&
           Find(indices[first + count]) == nullptr) {
      draws[count] = contexts[first + count].rng().draws();
      ++count;
    }
    // Another thread may have kept the first sample meanwhile.
    if (count == 0) continue;
    CountsOf(contexts[first])
        .misses.fetch_add(static_cast<int64_t>(count),
                          std::memory_order_relaxed);
    LOCKSTEP_RETURN_IF_ERROR(ReadInner(*inner_, indices.subspan(first, count),
                                       contexts.subspan(first, count),
                                       rows.subspan(first, count)));
    for (size_t i = first; i < first + count; ++i) {
      Keep(indices[i], draws[i - first], contexts[i], rows[i]);
    }
    first += count;
  }
  return absl::OkStatus();
}

void CacheDataset::Hint(absl::Span<const int64_t> indices) {
  std::array<int64_t, kHintBulk> missing;
  size_t count = 0;
  for (const int64_t index : indices) {
    if (index < 0 || index >= size_ || Find(index) != nullptr) continue;
    missing[count++] = index;
    if (count == missing.size()) {
      inner_->Hint(missing);
      count = 0;
    }
  }
  if (count > 0) inner_->Hint(absl::MakeConstSpan(missing).first(count));
}

CacheStatistics CacheDataset::Statistics() const {
  CacheStatistics statistics;
  for (const Counts& counts : counts_) {
    statistics.hits += counts.hits.load(std::memory_order_relaxed);
    statistics.misses += counts.misses.load(std::memory_order_relaxed);
    statistics.random += counts.random.load(std::memory_order_relaxed);
  }
  statistics.samples = samples_.load(std::memory_order_relaxed);
  statistics.bytes = bytes_.load(std::memory_order_relaxed);
  return statistics;
}

bool CacheDataset::Reserve(int64_t bytes) {
  int64_t used = bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > max_bytes_ - used) return false;
  } while (!bytes_.compare_exchange_weak(used, used + bytes,
                                         std::memory_order_relaxed));
  return true;
}

void CacheDataset::Keep(int64_t index, uint64_t draws, SampleContext& context,
                        SampleRow& row) {
  if (context.rng().draws() != draws) {
    CountsOf(context).random.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const int64_t bytes = EntryBytes(row);
  if (bytes < 0 || !Reserve(WithOverhead(bytes))) return;
  // If there is no memory, the sample is read again the next time.
  auto* const entry = static_cast<char*>(
      std::malloc(static_cast<size_t>(std::max<int64_t>(1, bytes))));
  if (entry != nullptr) {
    WriteEntry(row, entry);
    char* none = nullptr;
    if (entries_[index].compare_exchange_strong(none, entry,
                                                std::memory_order_acq_rel)) {
      samples_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    std::free(entry);  // another thread kept this sample first
  }
  bytes_.fetch_sub(WithOverhead(bytes), std::memory_order_relaxed);
}

}  // namespace lockstep
