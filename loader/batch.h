// A batch: the rows of one step, field by field, in memory of the loader's.
//
//   Batch batch;
//   while (*loader->Next(batch)) {
//     absl::Span<const float> x = *batch.Values<float>("x");
//     absl::Span<const int64_t> labels = *batch.Values<int64_t>("label");
//     Train(x, labels, batch.valid());
//   }
//
// (Name a span before you loop over it: in `for (float v :
// *batch.Values<float>( "x"))` C++17 destroys the StatusOr too early.)
//
// Rows [0, valid()) are data. Those after them are padding: samples that were
// already given (tail policy kPad), or zeros with index -1 (kMask, and rows
// that failed under OnError::kSkip).
//
// A ragged field has its rows one after the other, without gaps, and splits:
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

// What collate gets, and what Batch offers too. Field names that do not exist
// are NOT_FOUND, other types than a field's INVALID_ARGUMENT.
// Thread-safety: thread-compatible.
class BatchView {
 public:
  int64_t epoch() const;
  int64_t step() const;  // in the epoch, from 0
  int64_t rows() const;
  int64_t valid() const;  // rows [0, valid()) are data

  // The dataset index of each row, and its position in the stream; -1 where
  // there is none.
  absl::Span<const int64_t> indices() const;
  absl::Span<const int64_t> positions() const;

  absl::Span<const FieldSpec> fields() const;

  // All elements of all rows.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Values(absl::string_view field) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    return absl::Span<T>(static_cast<T*>(Data(number)),
                         static_cast<size_t>(Elements(number)));
  }

  // The elements of one row, without what PadToLongest added. OUT_OF_RANGE for
  // a row that is not there.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Row(absl::string_view field,
                                    int64_t row) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    LOCKSTEP_RETURN_IF_ERROR(CheckRow(row));
    const auto [begin, end] = RowRange(number, row);
    return absl::Span<T>(static_cast<T*>(Data(number)) + begin,
                         static_cast<size_t>(end - begin));
  }

  // The bytes of a field, of whatever type. Requires a number of fields().
  absl::Span<char> Bytes(int field) const {
    return {static_cast<char*>(Data(field)),
            static_cast<size_t>(
                Elements(field) *
                SizeOf(fields()[static_cast<size_t>(field)].dtype))};
  }

  // The size of all fields.
  int64_t TotalBytes() const;

  // Where the rows of a ragged field begin and end, in elements: rows() + 1
  // numbers. They stay after PadToLongest, and then tell the rows' lengths.
  absl::StatusOr<absl::Span<const int64_t>> Splits(
      absl::string_view field) const;

  // The shape of a whole field, rows first. FAILED_PRECONDITION for a ragged
  // one whose rows were not padded, which has none.
  absl::StatusOr<std::vector<int64_t>> Shape(absl::string_view field) const;

  // The shape of one row. OUT_OF_RANGE for a row that is not there.
  absl::StatusOr<absl::Span<const int64_t>> RowShape(absl::string_view field,
                                                     int64_t row) const;

  // Brings the rows of a ragged field to the same length, that of the longest,
  // by elements of value `fill`; only the first dimension may be -1. Returns
  // that length. Meant for collate; a second call does nothing.
  template <typename T>
  absl::StatusOr<int64_t> PadToLongest(absl::string_view field, T fill) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field, DTypeOf<T>()));
    return Pad(number, &fill);
  }

  // The samples that failed, by row, and those that stand in for such.
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
  absl::StatusOr<int64_t> Pad(int field, const void* fill) const;

  internal_loader::Slot* slot_;
};

// What Batch::ToDevice gives: a batch whose values are in device memory, to be
// read by kernels on the stream that it was asked for, and not by the host.
// Valid until the Batch is released.
// Thread-safety: thread-compatible.
class DeviceBatch : private BatchView {
 public:
  using BatchView::epoch;
  using BatchView::fields;
  using BatchView::rows;
  using BatchView::Shape;
  using BatchView::step;
  using BatchView::TotalBytes;
  using BatchView::valid;

  // On the host, as RowShape's result is.
  using BatchView::indices;
  using BatchView::positions;
  using BatchView::RowShape;

  // False where the memory has no device (PinnedMemory::fallback): then this is
  // the batch itself, on the host.
  bool on_device() const { return copy_ != host_; }

  // Device memory, and otherwise as BatchView has them.
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

  // What has the place in the copy that `values` have on the host.
  template <typename T>
  absl::Span<const T> OfCopy(absl::Span<const T> values) const {
    const char* const first = reinterpret_cast<const char*>(values.data());
    return {reinterpret_cast<const T*>(copy_ + (first - host_)), values.size()};
  }

  const char* host_;
  const char* copy_;
};

// Owns a batch's memory until it is destroyed, assigned to or released; the
// loader then fills it anew. May outlive the loader. An empty Batch, as
// constructed and after Release, has no rows and no fields.
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

  // The batch in device memory, where the loader's memory copies it
  // (pinned_memory.h): as it was after collate, for what is queued on `stream`
  // from now on. The host does not wait. May be called for several streams, all
  // of which must live until the batch is released, and the batch until their
  // kernels are queued. FAILED_PRECONDITION where batches are not copied,
  // UNIMPLEMENTED while the stream is being captured into a graph.
  absl::StatusOr<DeviceBatch> ToDevice(Stream stream);

  // Gives the memory back. May be called on any thread.
  void Release() {
    ReleaseSlot();
    owner_ = nullptr;
  }

 private:
  friend class Loader;

  // Gives the memory back, but keeps the owner, for a Batch that is filled
  // again and again.
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
