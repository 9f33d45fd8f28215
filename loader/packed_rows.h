// Puts several samples side by side into a row of a fixed length, as an order
// that packs them has planned (sampler/packed.h). Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(std::vector<FieldSpec> fields,
//                             PackedFields(dataset.fields(), packing));
//   PackedRow packed(layout, memory, row, packing);
//   LOCKSTEP_RETURN_IF_ERROR(packed.Append(sample, number));
//   packed.Finish();
#ifndef LOCKSTEP_LOADER_PACKED_ROWS_H_
#define LOCKSTEP_LOADER_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/sampler/order.h"

namespace lockstep::internal_loader {

// Returns the fields of packed rows: those of the samples, with the length of a
// row as first dimension, then `segment` and `position`. INVALID_ARGUMENT if a
// field can't be packed.
absl::StatusOr<std::vector<FieldSpec>> PackedFields(
    absl::Span<const FieldSpec> fields, const Order::Packing& packing);

// A row that is filled.
// Thread-safety: thread-compatible.
class PackedRow {
 public:
  // Requires: the fields of `layout` are those of PackedFields.
  PackedRow(const BatchLayout& layout, char* memory, int64_t row,
            const Order::Packing& packing)
      : layout_(&layout), memory_(memory), row_(row), packing_(packing) {}

  // Appends a sample that was read, with its number in the row. Writes nothing
  // and returns INVALID_ARGUMENT if its fields differ in length or there is no
  // room for it.
  absl::Status Append(SampleRow& sample, int64_t number);

  // Fills the rest of the row.
  void Finish();

  // Returns the number of elements that samples have filled.
  int64_t filled() const { return filled_; }

 private:
  char* At(size_t field, int64_t element) const {
    const FieldLayout& of = layout_->fields[field];
    return memory_ + of.offset + row_ * of.row_bytes +
           element * (of.row_bytes / packing_.row_length);
  }

  const BatchLayout* layout_;
  char* memory_;
  int64_t row_;
  Order::Packing packing_;
  int64_t filled_ = 0;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_PACKED_ROWS_H_
