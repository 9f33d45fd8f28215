// Reads rows of a slot from the dataset, and deals with those that fail.
// Internal.
#ifndef LOCKSTEP_LOADER_ROW_READER_H_
#define LOCKSTEP_LOADER_ROW_READER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/loader/slot.h"

namespace lockstep::internal_loader {

// What belongs to one worker. Whoever has taken it is alone with it.
struct alignas(64) Worker {
  std::atomic<bool> taken{false};
  bool initialised = false;
  WorkerInfo info;
  // Chunks since one was timed.
  int untimed = 0;

  // For bulk reads; reserved.
  std::vector<SampleContext> contexts;
  std::vector<SampleRow> rows;
  std::vector<uint64_t> written;

  // What others look at.
  alignas(64) std::atomic<int64_t> busy_nanoseconds{0};
  std::atomic<bool> started{false};
  std::atomic<int64_t> reading{-1};  // an index, -1 for none
  std::atomic<int64_t> since{0};     // when its chunk began

  void AddBusy(int64_t nanoseconds) {
    busy_nanoseconds.store(
        busy_nanoseconds.load(std::memory_order_relaxed) + nanoseconds,
        std::memory_order_relaxed);
  }
};

// Thread-safe, each call with a worker and rows of its own.
class RowReader {
 public:
  RowReader(std::shared_ptr<Dataset> dataset, const LoaderOptions& options);

  void Prepare(Worker& worker) const;

  // Reads rows [begin, end), until `stop` becomes true. Returns how many rows
  // it has dealt with.
  int64_t Read(Slot& slot, int64_t begin, int64_t end, Worker& worker,
               const std::atomic<bool>& stop);

  // What comes after the last row: packing, collate, the memory's hook.
  void Complete(Slot& slot);

 private:
  void ReadRow(Slot& slot, int64_t row, Worker& worker);
  int64_t ReadBulk(Slot& slot, int64_t begin, int64_t end, Worker& worker);
  absl::Status ReadIndex(Slot& slot, int64_t row, int64_t index,
                         Worker& worker);
  void Failed(Slot& slot, int64_t row, Worker& worker, absl::Status why);
  bool Substitute(Slot& slot, int64_t row, Worker& worker,
                  const absl::Status& why);
  absl::Status RunCollate(Slot& slot) const;

  const std::shared_ptr<Dataset> dataset_;
  const LoaderOptions& options_;
  const int64_t size_;
  const int64_t max_bulk_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_ROW_READER_H_
