#include "lockstep/loader/row_buffer.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/random_streams.h"

namespace lockstep {

RowBuffer::RowBuffer() : row_(layout_, nullptr, 0, nullptr, nullptr) {}

absl::StatusOr<std::unique_ptr<RowBuffer>> RowBuffer::Create(
    absl::Span<const FieldSpec> fields) {
  std::unique_ptr<RowBuffer> buffer(new RowBuffer);
  LOCKSTEP_RETURN_IF_ERROR(
      internal_loader::MakeLayout(fields, 1, buffer->layout_));
  LOCKSTEP_RETURN_IF_ERROR(CatchAll("a row buffer", [&] {
    buffer->memory_.resize(buffer->layout_.bytes);
    buffer->shapes_.resize(buffer->layout_.ragged_fields * kMaxDimensions);
    return absl::OkStatus();
  }));
  buffer->row_ = SampleRow(buffer->layout_, buffer->memory_.data(), 0,
                           buffer->shapes_.data(), &buffer->written_);
  return buffer;
}

absl::Status RowBuffer::Read(Dataset& dataset, int64_t index,
                             SampleContext& context) {
  Clear();
  return internal_loader::ReadChecked(dataset, index, context, row_, written_,
                                      layout_);
}

absl::Status RowBuffer::Read(Dataset& dataset, int64_t index) {
  const WorkerInfo worker;
  SampleContext context(worker, RandomKey(0, kSampleStream, 0), /*epoch=*/0,
                        index,
                        /*position=*/index);
  return Read(dataset, index, context);
}

namespace internal_loader {

absl::Status ReadChecked(Dataset& dataset, int64_t index,
                         SampleContext& context, SampleRow& row,
                         const uint64_t& written, const BatchLayout& layout) {
  LOCKSTEP_RETURN_IF_ERROR(
      CatchAll("Read", [&] { return dataset.Read(index, context, row); }));
  const uint64_t missing = layout.AllFields() & ~written;
  if (missing == 0) return absl::OkStatus();
  int field = 0;
  while ((missing >> field & 1) == 0) ++field;
  return absl::InternalError(
      absl::StrCat("Read did not write field '", layout.specs[field].name,
                   "'; every field must be written for every sample"));
}

}  // namespace internal_loader
}  // namespace lockstep
