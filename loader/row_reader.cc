#include "lockstep/loader/row_reader.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/random_streams.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep::internal_loader {
namespace {

// The number of samples that are tried instead of one that can't be read.
constexpr int kSubstitutes = 16;

// The most rows of a bulk read. It bounds the memory of a worker's contexts.
constexpr int64_t kMostBulk = 1024;

}  // namespace

RowReader::RowReader(std::shared_ptr<Dataset> dataset,
                     const LoaderOptions& options,
                     std::optional<Order::Packing> packing)
    : dataset_(std::move(dataset)),
      options_(options),
      size_(dataset_->size()),
      max_bulk_(packing ? 1 : std::min(dataset_->max_bulk(), kMostBulk)),
      packing_(packing) {}

absl::Status RowReader::Prepare(Worker& worker) const {
  if (packing_.has_value()) {
    LOCKSTEP_ASSIGN_OR_RETURN(worker.sample,
                              RowBuffer::Create(dataset_->fields()));
  }
  if (max_bulk_ <= 1) return absl::OkStatus();
  worker.contexts.reserve(max_bulk_);
  worker.rows.reserve(max_bulk_);
  worker.written.reserve(max_bulk_);
  return absl::OkStatus();
}

int64_t RowReader::Read(Slot& slot, int64_t begin, int64_t end, Worker& worker,
                        const std::atomic<bool>& stop) {
  int64_t row = begin;
  while (row < end && !stop.load(std::memory_order_relaxed)) {
    if (max_bulk_ > 1 && end - row > 1) {
      row = ReadBulk(slot, row, end, worker);
    } else {
      ReadRow(slot, row, worker);
      ++row;
    }
  }
  worker.reading.store(-1);  // in order with stop_ (pipeline.h)
  return row - begin;
}

void RowReader::ReadRow(Slot& slot, int64_t row, Worker& worker) {
  if (packing_.has_value()) return ReadPackedRow(slot, row, worker);
  const int64_t index = slot.indices[row];
  if (index < 0 && row >= slot.valid) return;  // masked
  worker.reading.store(index, std::memory_order_relaxed);
  absl::Status status = ReadAlone(slot, row, index, worker);
  if (!status.ok()) Failed(slot, {row, row}, worker, std::move(status));
}

// Samples that could not be read come last, so that substitutes take no room of
// others.
void RowReader::ReadPackedRow(Slot& slot, int64_t row, Worker& worker) {
  PackedRow packed(*slot.layout, slot.memory, row, *packing_);
  worker.failed.clear();
  for (int64_t i = slot.SamplesBegin(row); i < slot.SamplesEnd(row); ++i) {
    const int64_t index = slot.indices[i];
    worker.reading.store(index, std::memory_order_relaxed);
    absl::Status status = ReadIndex(slot, {row, i, &packed}, index, worker);
    if (!status.ok()) worker.failed.emplace_back(i, std::move(status));
  }
  for (auto& [sample, why] : worker.failed) {
    worker.reading.store(slot.indices[sample], std::memory_order_relaxed);
    Failed(slot, {row, sample, &packed}, worker, std::move(why));
  }
  packed.Finish();
  if (row < slot.valid) {
    slot.filled.fetch_add(packed.filled(), std::memory_order_relaxed);
  }
}

absl::Status RowReader::NoSuchIndex(int64_t index) const {
  return absl::OutOfRangeError(
      absl::StrCat("the order gave index ", index, ", and the dataset has ",
                   size_, " samples: make the order for the dataset's size"));
}

absl::Status RowReader::ReadAlone(Slot& slot, int64_t row, int64_t index,
                                  Worker& worker) {
  if (index < 0 || index >= size_) return NoSuchIndex(index);
  uint64_t written = 0;
  SampleContext context(worker.info, slot.key, slot.epoch, index,
                        slot.positions[row]);
  SampleRow sample(*slot.layout, slot.memory, row, slot.RowShapes(row),
                   &written);
  return ReadChecked(*dataset_, index, context, sample, written, *slot.layout);
}

absl::Status RowReader::ReadIndex(Slot& slot, const Place& place, int64_t index,
                                  Worker& worker) {
  if (place.packed == nullptr) {
    return ReadAlone(slot, place.row, index, worker);
  }
  if (index < 0 || index >= size_) return NoSuchIndex(index);
  SampleContext context(worker.info, slot.key, slot.epoch, index,
                        slot.positions[place.sample]);
  LOCKSTEP_RETURN_IF_ERROR(worker.sample->Read(*dataset_, index, context));
  return place.packed->Append(worker.sample->row(),
                              place.sample - slot.SamplesBegin(place.row));
}

// Reads as many rows as possible in one call of ReadMany, and returns the first
// row that it has not read.
int64_t RowReader::ReadBulk(Slot& slot, int64_t begin, int64_t end,
                            Worker& worker) {
  end = std::min(end, begin + max_bulk_);
  worker.contexts.clear();
  worker.rows.clear();
  worker.written.assign(end - begin, 0);
  int64_t row = begin;
  for (; row < end; ++row) {
    const int64_t index = slot.indices[row];
    if (index < 0 || index >= size_) break;
    worker.contexts.emplace_back(worker.info, slot.key, slot.epoch, index,
                                 slot.positions[row]);
    worker.rows.emplace_back(*slot.layout, slot.memory, row,
                             slot.RowShapes(row), &worker.written[row - begin]);
  }
  if (row == begin) {  // the row is masked, or fails
    ReadRow(slot, row, worker);
    return row + 1;
  }
  worker.reading.store(slot.indices[begin], std::memory_order_relaxed);
  const absl::Status status = CatchAll("ReadMany", [&] {
    return dataset_->ReadMany(
        absl::MakeConstSpan(slot.indices).subspan(begin, row - begin),
        absl::MakeSpan(worker.contexts), absl::MakeSpan(worker.rows));
  });
  const uint64_t all = slot.layout->AllFields();
  for (int64_t i = begin; i < row; ++i) {
    if (!status.ok() || worker.written[i - begin] != all) {
      ReadRow(slot, i, worker);
    }
  }
  return row;
}

void RowReader::Failed(Slot& slot, const Place& place, Worker& worker,
                       absl::Status why) {
  if (options_.on_error == OnError::kSubstitute &&
      Substitute(slot, place, worker, why)) {
    return;
  }
  SampleError error{slot.epoch,
                    slot.step,
                    slot.part,
                    place.row,
                    slot.indices[place.sample],
                    slot.positions[place.sample],
                    worker.info.id,
                    std::move(why),
                    slot.shard};
  if (place.packed != nullptr) {
    slot.indices[place.sample] = -1;
    slot.positions[place.sample] = -1;
  }
  MutexLock lock(slot.mutex);
  slot.errors.push_back(std::move(error));
}

// The substitute depends only on the place in the stream.
bool RowReader::Substitute(Slot& slot, const Place& place, Worker& worker,
                           const absl::Status& why) {
  Random random(RandomKey(options_.seed, kSubstituteStream,
                          static_cast<uint64_t>(slot.epoch)),
                static_cast<uint64_t>(slot.positions[place.sample]));
  const int64_t wanted = slot.indices[place.sample];
  for (int tried = 0; tried < kSubstitutes; ++tried) {
    const int64_t index = random.Integer(0, size_);
    if (index == wanted || !ReadIndex(slot, place, index, worker).ok()) {
      continue;
    }
    slot.indices[place.sample] = index;
    MutexLock lock(slot.mutex);
    slot.substitutions.push_back({place.row, wanted, index, why});
    return true;
  }
  return false;
}

void RowReader::Complete(Slot& slot) {
  slot.Complete();
  if (options_.on_error == OnError::kFail && !slot.errors.empty()) {
    const SampleError& first = slot.errors.front();
    const size_t more = slot.errors.size() - 1;
    slot.status = Annotate(
        first.status,
        absl::StrCat(slot.Place(), ", row ", first.row, ": sample ",
                     first.index, " (position ", first.position,
                     ") could not be read by worker ", first.worker),
        absl::StrCat(
            more == 0 ? ""
                      : absl::StrCat(" (and ", more, " more samples of this ",
                                     slot.parts > 1 ? "part" : "step",
                                     "; Loader::errors() has them)"),
            "; a loader with on_error=skip goes on without such "
            "samples"));
    return;
  }
  if (options_.collate) slot.status = RunCollate(slot);
  if (options_.memory != nullptr && slot.status.ok()) {
    slot.status = slot.AtStep("BatchMemory::Filled", CatchAll("it", [&] {
                                return options_.memory->Filled(
                                    slot.memory, BatchView(&slot));
                              }));
  }
}

absl::Status RowReader::RunCollate(Slot& slot) const {
  // No other rank and no other batch with samples has this position.
  Random random(RandomKey(options_.seed, kCollateStream,
                          static_cast<uint64_t>(slot.epoch)),
                static_cast<uint64_t>(slot.first_position));
  BatchView view(&slot);
  return slot.AtStep("collate", CatchAll("it", [&] {
                       return options_.collate(view, random);
                     }));
}

}  // namespace lockstep::internal_loader
