// A sample consists of named fields, each with an element type and a shape.
//
//   std::vector<FieldSpec> fields = {
//       {"image", DType::kU8, {224, 224, 3}},
//       {"label", DType::kI64, {}},                    // a scalar
//       {"tokens", DType::kI32, {-1}, /*max_elements=*/2048},
//   };
//
// A dimension of -1 differs from sample to sample. Such a field is ragged, and
// needs a bound, since the memory of batches is allocated once.
#ifndef LOCKSTEP_LOADER_FIELD_H_
#define LOCKSTEP_LOADER_FIELD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A field of a sample.
struct FieldSpec {
  // Must not be empty, and must differ from the names of other fields.
  std::string name;

  DType dtype = DType::kF32;

  // The shape of one sample; {} is a scalar.
  std::vector<int64_t> shape;

  // The most elements that a sample can have; only for a ragged field. There
  // must be room for a sample in which every -1 is 1: shape {-1, 3} needs 3 or
  // more.
  int64_t max_elements = 0;

  // Returns true if a dimension is -1.
  bool ragged() const;

  // Returns "tokens i32[-1] of at most 2048 elements".
  std::string ToString() const;

  friend bool operator==(const FieldSpec& a, const FieldSpec& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
           a.max_elements == b.max_elements;
  }
  friend bool operator!=(const FieldSpec& a, const FieldSpec& b) {
    return !(a == b);
  }
};

// The most fields that a dataset can have, and the most dimensions of one.
inline constexpr int kMaxFields = 64;
inline constexpr int kMaxDimensions = 8;

// Returns INVALID_ARGUMENT with the field, what is wrong with it and what is
// accepted, or OK.
absl::Status ValidateFields(absl::Span<const FieldSpec> fields);

// Returns the number of the field with that name. NOT_FOUND lists the names.
absl::StatusOr<int> FindField(absl::Span<const FieldSpec> fields,
                              absl::string_view name);

namespace internal_loader {

// The place of a field's rows in the memory of a batch.
struct FieldLayout {
  const FieldSpec* spec = nullptr;
  bool ragged = false;
  int64_t elements = 0;       // of a row; the most if it is ragged
  int64_t row_bytes = 0;      // from one row to the next
  int64_t offset = 0;         // of row 0, a multiple of kAlignment
  int ragged_number = -1;     // among the ragged fields, or -1
  int64_t splits_offset = 0;  // of a ragged field, a multiple of kAlignment
};

// The places of all fields of a batch with up to `rows` rows, and, after them,
// of the ragged fields' splits. It can't be copied, since `fields` has pointers
// to `specs`.
struct BatchLayout {
  static constexpr int64_t kAlignment = 64;

  std::vector<FieldSpec> specs;
  std::vector<FieldLayout> fields;  // one for each of `specs`
  int64_t rows = 0;
  int64_t bytes = 0;  // of the whole batch
  int ragged_fields = 0;
  int64_t fixed_row_bytes = 0;  // of a row's fields that are not ragged

  BatchLayout() = default;
  BatchLayout(const BatchLayout&) = delete;
  BatchLayout& operator=(const BatchLayout&) = delete;

  // Returns a number in which the bit of each field is set.
  uint64_t AllFields() const {
    return specs.size() == 64 ? ~uint64_t{0}
                              : (uint64_t{1} << specs.size()) - 1;
  }
};

// Returns how many elements a shape has. If memory can't hold so many, it
// returns some number that is too large for memory as well.
int64_t CountElements(absl::Span<const int64_t> shape);

// Fills `layout`. Returns INVALID_ARGUMENT for fields that ValidateFields
// refuses, or that take more memory than there can be.
absl::Status MakeLayout(absl::Span<const FieldSpec> fields, int64_t rows,
                        BatchLayout& layout);

// Returns the error for a typed view of a field that has another type.
absl::Status WrongType(const FieldSpec& spec, DType asked);

// Returns INVALID_ARGUMENT if rows of the field can't be padded to one length:
// if not exactly its first dimension is -1.
absl::Status CheckPadding(const FieldSpec& spec);

// Returns how many elements one step of the first dimension has.
int64_t InnerElements(const FieldSpec& spec);

// Return the errors for a `multiple_of` that is below 1, or for which the
// memory of a row is too small.
absl::Status WrongMultiple(int64_t multiple_of);
absl::Status NoRoomForMultiple(const FieldSpec& spec, int64_t multiple_of);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_FIELD_H_
