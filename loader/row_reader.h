// Reads the rows of a slot from the dataset, and handles rows that fail.
// Internal.
#ifndef LOCKSTEP_LOADER_ROW_READER_H_
#define LOCKSTEP_LOADER_ROW_READER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/packed_rows.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/loader/row_buffer.h"
#include "lockstep/loader/slot.h"
#include "lockstep/sampler/order.h"

namespace lockstep::internal_loader {

// The data of one worker.
// Thread-safety: the thread that has set `taken` may use all of it; other
// threads may load the atomics. `taken` is set with acquire (at least) and
// cleared with release, so that the next thread sees what the last one wrote;
// pipeline.h says why it is set in the default order. Where there
// are no workers, the caller of Next uses the first one without setting it.
struct alignas(64) Worker {
  std::atomic<bool> taken{false};
  bool initialised = false;
  WorkerInfo info;
  // The number of chunks since one was timed.
  int untimed = 0;

  // The arguments of bulk reads; their memory is reserved.
  std::vector<SampleContext> contexts;
  std::vector<SampleRow> rows;
  std::vector<uint64_t> written;

  // Packed rows need these: the memory of one sample, and the samples of the
  // row that could not be read.
  std::unique_ptr<RowBuffer> sample;
  std::vector<std::pair<int64_t, absl::Status>> failed;

  // Other threads load these. Each is a number by itself, so relaxed order is
  // enough, except where pipeline.h says so of `reading`.
  alignas(64) std::atomic<int64_t> busy_nanoseconds{0};
  std::atomic<bool> started{false};
  std::atomic<int64_t> reading{-1};  // an index, or -1
  std::atomic<int64_t> since{0};     // when its chunk began

  void AddBusy(int64_t nanoseconds) {
    busy_nanoseconds.store(
        busy_nanoseconds.load(std::memory_order_relaxed) + nanoseconds,
        std::memory_order_relaxed);
  }
};

// Reads the rows of slots.
// Thread-safety: Read may be called on many threads at once, each with another
// worker and other rows. Complete is called once for a slot, after all its
// rows.
class RowReader {
 public:
  // `packing` is that of the sampler's order.
  RowReader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options,
            std::optional<Order::Packing> packing);

  // Reserves the memory of a worker. RESOURCE_EXHAUSTED if there is too little
  // for a sample.
  absl::Status Prepare(Worker& worker) const;

  // Reads rows [begin, end), until `stop` becomes true. Returns the number of
  // rows that were read or have failed.
  int64_t Read(Slot& slot, int64_t begin, int64_t end, Worker& worker,
               const std::atomic<bool>& stop);

  // Does what follows the last row: packing, collate, BatchMemory::Filled.
  void Complete(Slot& slot);

 private:
  void ReadRow(Slot& slot, int64_t row, Worker& worker);
  void ReadPackedRow(Slot& slot, int64_t row, Worker& worker);
  int64_t ReadBulk(Slot& slot, int64_t begin, int64_t end, Worker& worker);

  // A place is the number of a sample in its slot. Where rows have several
  // samples, `packed` is the row.
  struct Place {
    int64_t row;
    int64_t sample;
    PackedRow* packed = nullptr;
  };
  absl::Status ReadIndex(Slot& slot, const Place& place, int64_t index,
                         Worker& worker);
  // Does the same for a row of one sample.
  absl::Status ReadAlone(Slot& slot, int64_t row, int64_t index,
                         Worker& worker);
  absl::Status NoSuchIndex(int64_t index) const;
  void Failed(Slot& slot, const Place& place, Worker& worker, absl::Status why);
  bool Substitute(Slot& slot, const Place& place, Worker& worker,
                  const absl::Status& why);
  absl::Status RunCollate(Slot& slot) const;

  const std::shared_ptr<Dataset> dataset_;
  const LoaderOptions& options_;
  const int64_t size_;
  const int64_t max_bulk_;
  const std::optional<Order::Packing> packing_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_ROW_READER_H_
