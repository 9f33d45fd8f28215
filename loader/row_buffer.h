// A RowBuffer has memory for one row, to read a sample without a loader: in
// tests, in caches, and in datasets that make other fields of an inner
// dataset's samples.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<RowBuffer> buffer,
//                             RowBuffer::Create(dataset.fields()));
//   LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, /*index=*/7));
//   LOCKSTEP_ASSIGN_OR_RETURN(absl::Span<float> x,
//                             buffer->row().Written<float>(0));
#ifndef LOCKSTEP_LOADER_ROW_BUFFER_H_
#define LOCKSTEP_LOADER_ROW_BUFFER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// The memory of one row.
// Thread-safety: thread-compatible.
class RowBuffer {
 public:
  // Returns a buffer, or the INVALID_ARGUMENT of ValidateFields.
  static absl::StatusOr<std::unique_ptr<RowBuffer>> Create(
      absl::Span<const FieldSpec> fields);

  RowBuffer(const RowBuffer&) = delete;
  RowBuffer& operator=(const RowBuffer&) = delete;

  // Returns the row, with what was written to it.
  SampleRow& row() { return row_; }

  // Forgets what was written.
  void Clear() { written_ = 0; }

  // Reads a sample of `dataset`, whose fields must be those of Create. It is an
  // error, which names the field, if Read does not write one.
  absl::Status Read(Dataset& dataset, int64_t index, SampleContext& context);

  // Reads a sample as a loader with seed 0 and no workers does at epoch 0 and
  // position `index`.
  absl::Status Read(Dataset& dataset, int64_t index);

 private:
  RowBuffer();

  internal_loader::BatchLayout layout_;
  std::vector<char> memory_;
  std::vector<int64_t> shapes_;
  uint64_t written_ = 0;
  SampleRow row_;
};

namespace internal_loader {

// Calls dataset.Read and checks the result: an exception becomes a Status, and
// a field that was not written is an error. `written` is the row's.
absl::Status ReadChecked(Dataset& dataset, int64_t index,
                         SampleContext& context, SampleRow& row,
                         const uint64_t& written, const BatchLayout& layout);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_ROW_BUFFER_H_
