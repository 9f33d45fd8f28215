// A slot: the memory of one batch, while it is filled and while the user holds
// it. Internal.
#ifndef LOCKSTEP_LOADER_SLOT_H_
#define LOCKSTEP_LOADER_SLOT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/sample_error.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::internal_loader {

// The life of a slot: it is free, is planned (Plan), its rows are read by
// several workers, the last of them calls Complete, the user holds it, it is
// free again.
//
// Thread-safety: thread-compatible. While rows are read, each worker writes its
// own rows, and the lists under `mutex`.
struct alignas(64) Slot {
  std::atomic<bool> free{true};
  // The number of rows that are still to be read.
  std::atomic<int64_t> left{0};

  const BatchLayout* layout = nullptr;
  char* memory = nullptr;
  bool used_before = false;

  int64_t epoch = 0;
  int64_t step = 0;
  int64_t part = 0;             // in its step
  int64_t parts = 1;            // of its step
  int64_t shard = -1;           // or -1 in an empty part after a rank's shards
  bool has_shard_name = false;  // if CutOptions::shards is set
  int64_t valid = 0;
  int64_t first_position = 0;  // of row 0, as planned
  size_t number = 0;           // in its pool
  uint64_t key = 0;            // for the random numbers of its rows
  std::vector<int64_t> indices;
  std::vector<int64_t> positions;
  // As in BatchIndices: empty unless rows have several samples.
  std::vector<int64_t> splits;
  // The elements of packed rows that samples have filled.
  std::atomic<int64_t> filled{0};

  // The shapes of ragged fields: kMaxDimensions numbers for each such field of
  // each row.
  std::vector<int64_t> shapes;
  // For each ragged field: the elements of a padded row, or -1 if rows are
  // packed.
  std::vector<int64_t> padded;
  // The numbers to multiples of which they were padded.
  std::vector<int64_t> multiples;

  Mutex mutex;  // guards the two lists while rows are read
  std::vector<SampleError> errors;
  std::vector<Substitution> substitutions;
  // Not OK if the whole step fails.
  absl::Status status;

  int64_t rows() const {
    return static_cast<int64_t>(splits.empty() ? indices.size()
                                               : splits.size() - 1);
  }
  bool is_packed() const { return !splits.empty(); }

  // Return the indices that are data, and those of one row: [begin, end).
  int64_t samples() const {
    return is_packed() ? splits[static_cast<size_t>(valid)] : valid;
  }
  int64_t SamplesBegin(int64_t row) const {
    return is_packed() ? splits[static_cast<size_t>(row)] : row;
  }
  int64_t SamplesEnd(int64_t row) const {
    return is_packed() ? splits[static_cast<size_t>(row) + 1] : row + 1;
  }

  // Returns how many samples that are data were read. Requires that Complete
  // was called.
  int64_t SamplesRead() const;

  int64_t* RowShapes(int64_t row) {
    return shapes.data() + row * layout->ragged_fields * kMaxDimensions;
  }

  // Returns the rows() + 1 splits of a ragged field.
  int64_t* Splits(const FieldLayout& field) const {
    return reinterpret_cast<int64_t*>(memory + field.splits_offset);
  }

  bool is_last_part() const { return part + 1 == parts; }

  // Returns "epoch 0, step 3", with the part if the step has several, and with
  // the shard if CutOptions::shards is set.
  std::string Place() const;

  // Returns the error of `what`, with the step that it fails; or OK.
  absl::Status AtStep(absl::string_view what, absl::Status status) const;

  // Copies the rows of a part of a step, some of those of a shard. Allocates
  // nothing, except for packed rows that have more samples than any before.
  void Plan(const BatchIndices& of_step, int64_t part_number,
            int64_t part_count, uint64_t epoch_key);

  // Sorts the errors, moves rows up over failed ones, fills masked rows with
  // zeros, and packs ragged fields. Rows with several samples are whole.
  void Complete();

 private:
  void Append(const BatchIndices& of_step, int64_t begin, int64_t end);
  void CloseUp();
  void ZeroRow(int64_t row);
  void Pack(int field);
};

// Takes back the slots of batches that were released.
// Thread-safety: thread-safe.
class SlotOwner {
 public:
  virtual ~SlotOwner() = default;
  virtual void GiveBack(Slot& slot) = 0;
  virtual BatchMemory& memory() const = 0;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_SLOT_H_
