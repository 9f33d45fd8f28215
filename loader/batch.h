// A batch: the rows of one step, or of a part of it, field by field, in memory
// of the loader.
//
//   Batch batch;
//   while (*loader->Next(batch)) {
//     absl::Span<const float> x = *batch.Values<float>("x");
//     absl::Span<const int64_t> labels = *batch.Values<int64_t>("label");
//     Train(x, labels, batch.valid());
//   }
//
// (Give a span a name before you loop over it: in `for (float v :
// *batch.Values<float>("x"))` C++17 destroys the StatusOr too early.)
//
// Rows [0, valid()) are data. The rows after them are padding: samples that
// were already given out (tail policy kPad), or zeros with index -1 (kMask, and
// rows that failed under OnError::kSkip).
//
// A ragged field has its rows one after the other without gaps, and splits that
// say where each row begins:
//
//   absl::Span<const int32_t> tokens = *batch.Values<int32_t>("tokens");
//   absl::Span<const int64_t> splits = *batch.Splits("tokens");
//   // Row i is tokens[splits[i]] to tokens[splits[i + 1] - 1].
#ifndef LOCKSTEP_LOADER_BATCH_H_
#define LOCKSTEP_LOADER_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/sample_error.h"

namespace lockstep {

namespace internal_loader {
struct Slot;
class SlotOwner;
}  // namespace internal_loader

// A view of a batch: the argument of collate, and the base of Batch. A field
// name that does not exist is NOT_FOUND, and a type that is not the field's is
// INVALID_ARGUMENT.
// Requires: the batch lives as long as the view and its spans.
// Thread-safety: thread-compatible.
class BatchView {
 public:
  int64_t epoch() const;
  int64_t step() const;  // in the epoch, from 0

  // The number of this batch in its step, from 0, and how many batches the step
  // has: 1, unless LoaderOptions::micro_batch_size or CutOptions::shards is
  // set.
  int64_t part() const;
  int64_t parts() const;

  // The shard that the rows are of: one of the shards of a step, which are the
  // same on any number of ranks (CutOptions::shards). Otherwise, it is the
  // number of this rank among those with different data. -1 for the empty parts
  // that a rank with fewer shards than others gets at the end of a step, so
  // that all have as many parts, and for Loader::EmptyBatch. Such a part has no
  // rows, whatever the tail policy is, and collate was called for it.
  int64_t shard() const;

  int64_t rows() const;
  int64_t valid() const;  // rows [0, valid()) are data

  // Return the dataset index of each row, and its position in the stream. A
  // masked row has index -1; a row that is left over after failed ones has
  // index and position -1. If rows have several samples, there are an index and
  // a position for each of them, and a sample that failed has -1 for both.
  absl::Span<const int64_t> indices() const;
  absl::Span<const int64_t> positions() const;

  // Returns rows() + 1 numbers if the order packs several samples into a row
  // (packed.h): row i has the samples from indices()[splits[i]] to
  // indices()[splits[i + 1] - 1], and a masked row has none. Otherwise it is
  // empty.
  absl::Span<const int64_t> sample_splits() const;

  absl::Span<const FieldSpec> fields() const;

  // Returns all elements of all rows.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Values(absl::string_view field) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    return absl::Span<T>(static_cast<T*>(Data(number)),
                         static_cast<size_t>(Elements(number)));
  }

  // Returns the elements of one row, without what PadToLongest added.
  // OUT_OF_RANGE for a row that does not exist.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Row(absl::string_view field,
                                    int64_t row) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(CheckRow(row));
    const auto [begin, end] = RowRange(number, row);
    return absl::Span<T>(static_cast<T*>(Data(number)) + begin,
                         static_cast<size_t>(end - begin));
  }

  // Returns the bytes of a field of any type. Requires 0 <= field <
  // fields().size().
  absl::Span<char> Bytes(int field) const {
    return {static_cast<char*>(Data(field)),
            static_cast<size_t>(
                Elements(field) *
                SizeOf(fields()[static_cast<size_t>(field)].dtype))};
  }

  // Returns the size of all fields together.
  int64_t TotalBytes() const;

  // Returns rows() + 1 numbers that say where the rows of a ragged field begin
  // and end, in elements. PadToLongest does not change them; their differences
  // are then the lengths of the rows.
  absl::StatusOr<absl::Span<const int64_t>> Splits(
      absl::string_view field) const;

  // Returns the shape of a whole field, rows first. FAILED_PRECONDITION for a
  // ragged field whose rows were not padded.
  absl::StatusOr<std::vector<int64_t>> Shape(absl::string_view field) const;

  // Returns the shape of one row. OUT_OF_RANGE for a row that does not exist.
  absl::StatusOr<absl::Span<const int64_t>> RowShape(absl::string_view field,
                                                     int64_t row) const;

  // Extends the rows of a ragged field to the length of the longest one, with
  // elements of value `fill`, and returns that length. Only the first dimension
  // may be -1. It is meant for collate; a second call changes nothing.
  //
  // With `multiple_of` above 1, the length is the next multiple of it, and at
  // least one, also if all rows are empty. INVALID_ARGUMENT if the memory of a
  // row, FieldSpec::max_elements, is too small for that. If a row has room for
  // exactly `multiple_of`, all batches have the same length. It is also
  // INVALID_ARGUMENT if rows are already padded to another multiple.
  template <typename T>
  absl::StatusOr<int64_t> PadToLongest(absl::string_view field, T fill,
                                       int64_t multiple_of = 1) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    return Pad(number, &fill, multiple_of);
  }

  // Return the samples that failed and the samples that were read instead of
  // failed ones, each sorted by row.
  absl::Span<const SampleError> errors() const;
  absl::Span<const Substitution> substitutions() const;

  explicit BatchView(internal_loader::Slot* slot) : slot_(slot) {}

 protected:
  absl::StatusOr<int> Find(absl::string_view field) const;
  absl::StatusOr<int> Find(absl::string_view field, DType dtype) const;
  absl::Status CheckRow(int64_t row) const;
  void* Data(int field) const;
  int64_t Elements(int field) const;
  std::pair<int64_t, int64_t> RowRange(int field, int64_t row) const;
  absl::StatusOr<int64_t> Pad(int field, const void* fill,
                              int64_t multiple_of) const;

  internal_loader::Slot* slot_;
};

// The result of Batch::ToDevice: a batch whose values are in device memory.
// Kernels on the stream that was given to ToDevice may read them; the host may
// not.
// Requires: the Batch is not released while this is used.
// Thread-safety: thread-compatible.
class DeviceBatch : private BatchView {
 public:
  using BatchView::epoch;
  using BatchView::fields;
  using BatchView::part;
  using BatchView::parts;
  using BatchView::rows;
  using BatchView::Shape;
  using BatchView::shard;
  using BatchView::step;
  using BatchView::TotalBytes;
  using BatchView::valid;

  // These are in memory of the host.
  using BatchView::indices;
  using BatchView::positions;
  using BatchView::RowShape;
  using BatchView::sample_splits;

  // Returns false if the memory has no device (PinnedMemory::fallback). The
  // values are then the batch's own, on the host.
  bool on_device() const { return copy_ != host_; }

  // These return device memory, and otherwise do what BatchView's do.
  template <typename T>
  absl::StatusOr<absl::Span<const T>> Values(absl::string_view field) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values,
                              BatchView::Values<T>(field));
    return OfCopy<T>(values);
  }
  template <typename T>
  absl::StatusOr<absl::Span<const T>> Row(absl::string_view field,
                                          int64_t row) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values,
                              BatchView::Row<T>(field, row));
    return OfCopy<T>(values);
  }
  absl::Span<const char> Bytes(int field) const {
    return OfCopy<char>(BatchView::Bytes(field));
  }
  absl::StatusOr<absl::Span<const int64_t>> Splits(
      absl::string_view field) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<const int64_t> splits,
                              BatchView::Splits(field));
    return OfCopy<int64_t>(splits);
  }

 private:
  friend class Batch;

  DeviceBatch(internal_loader::Slot* slot, const char* host, const char* copy)
      : BatchView(slot), host_(host), copy_(copy) {}

  // Returns the copy of `values`, which are on the host.
  template <typename T>
  absl::Span<const T> OfCopy(absl::Span<const T> values) const {
    const char* const first = reinterpret_cast<const char*>(values.data());
    return {reinterpret_cast<const T*>(copy_ + (first - host_)), values.size()};
  }

  const char* host_;
  const char* copy_;
};

// Owns the memory of a batch until it is destroyed, assigned to or released;
// the loader then fills that memory anew. It may outlive the loader. A Batch is
// empty when it is constructed and after Release: it has no rows and no fields.
// Thread-safety: thread-compatible.
class Batch : public BatchView {
 public:
  Batch() : BatchView(nullptr) {}
  ~Batch() { Release(); }
  Batch(Batch&& other) noexcept
      : BatchView(std::exchange(other.slot_, nullptr)),
        owner_(std::move(other.owner_)) {}
  Batch& operator=(Batch&& other) noexcept {
    if (this != &other) {
      Release();
      slot_ = std::exchange(other.slot_, nullptr);
      owner_ = std::move(other.owner_);
    }
    return *this;
  }

  bool empty() const { return slot_ == nullptr; }

  // Returns the batch in device memory, as it was after collate, if the
  // loader's memory copies batches (pinned_memory.h). Kernels that are queued
  // on `stream` from now on find the copy done; the host does not wait. It may
  // be called for several streams. Requires that the streams live until the
  // batch is released, and that the batch is released after their kernels were
  // queued. FAILED_PRECONDITION if batches are not copied, UNIMPLEMENTED while
  // the stream is being captured into a graph.
  absl::StatusOr<DeviceBatch> ToDevice(Stream stream);

  // Gives the memory back. It may be called on any thread.
  void Release() {
    ReleaseSlot();
    owner_ = nullptr;
  }

 private:
  friend class Loader;

  // Gives the memory back and keeps the owner, so that a Batch that is filled
  // again and again does not count references.
  void ReleaseSlot();
  template <typename Owner>
  void Fill(internal_loader::Slot* slot, const std::shared_ptr<Owner>& owner) {
    if (owner_ != owner) owner_ = owner;
    slot_ = slot;
  }

  std::shared_ptr<internal_loader::SlotOwner> owner_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_BATCH_H_
