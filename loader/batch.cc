#include "lockstep/loader/batch.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/slot.h"

namespace lockstep {
namespace {

// Fills `bytes` bytes at `to`, a multiple of `size`, with copies of an element.
// Each copy is as long as all that came before it.
void Repeat(const void* element, int64_t size, char* to, int64_t bytes) {
  if (bytes == 0) return;
  std::memcpy(to, element, size);
  for (int64_t done = size; done < bytes; done *= 2) {
    std::memcpy(to + done, to, std::min(done, bytes - done));
  }
}

}  // namespace

int64_t BatchView::epoch() const { return slot_ ? slot_->epoch : 0; }
int64_t BatchView::step() const { return slot_ ? slot_->step : 0; }

int64_t BatchView::part() const { return slot_ ? slot_->part : 0; }

int64_t BatchView::parts() const { return slot_ ? slot_->parts : 1; }
int64_t BatchView::shard() const { return slot_ ? slot_->shard : -1; }
int64_t BatchView::rows() const { return slot_ ? slot_->rows() : 0; }
int64_t BatchView::valid() const { return slot_ ? slot_->valid : 0; }

absl::Span<const int64_t> BatchView::indices() const {
  if (slot_ == nullptr) return {};
  return slot_->indices;
}

absl::Span<const int64_t> BatchView::positions() const {
  if (slot_ == nullptr) return {};
  return slot_->positions;
}

absl::Span<const int64_t> BatchView::sample_splits() const {
  if (slot_ == nullptr) return {};
  return slot_->splits;
}

absl::Span<const FieldSpec> BatchView::fields() const {
  if (slot_ == nullptr) return {};
  return slot_->layout->specs;
}

absl::Span<const SampleError> BatchView::errors() const {
  if (slot_ == nullptr) return {};
  return slot_->errors;
}

absl::Span<const Substitution> BatchView::substitutions() const {
  if (slot_ == nullptr) return {};
  return slot_->substitutions;
}

int64_t BatchView::TotalBytes() const {
  if (slot_ == nullptr) return 0;
  int64_t bytes = rows() * slot_->layout->fixed_row_bytes;
  if (slot_->layout->ragged_fields == 0) return bytes;
  for (size_t field = 0; field < fields().size(); ++field) {
    if (!slot_->layout->fields[field].ragged) continue;
    bytes += Elements(static_cast<int>(field)) * SizeOf(fields()[field].dtype);
  }
  return bytes;
}

absl::StatusOr<int> BatchView::Find(absl::string_view field) const {
  if (slot_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "field '", field, "' was asked of an empty batch: one that Next did ",
        "not fill, or that was released or moved from"));
  }
  return FindField(fields(), field);
}

absl::StatusOr<int> BatchView::Find(absl::string_view field,
                                    DType dtype) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field));
  if (fields()[number].dtype != dtype) {
    return internal_loader::WrongType(fields()[number], dtype);
  }
  return number;
}

absl::Status BatchView::CheckRow(int64_t row) const {
  if (row >= 0 && row < rows()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("there is no row ", row, "; the batch has ", rows()));
}

void* BatchView::Data(int field) const {
  return slot_->memory + slot_->layout->fields[field].offset;
}

int64_t BatchView::Elements(int field) const {
  const internal_loader::FieldLayout& layout = slot_->layout->fields[field];
  if (!layout.ragged) return rows() * layout.elements;
  const int64_t padded = slot_->padded[layout.ragged_number];
  return padded >= 0 ? rows() * padded : slot_->Splits(layout)[rows()];
}

std::pair<int64_t, int64_t> BatchView::RowRange(int field, int64_t row) const {
  const internal_loader::FieldLayout& layout = slot_->layout->fields[field];
  if (!layout.ragged) {
    return {row * layout.elements, (row + 1) * layout.elements};
  }
  const int64_t* const splits = slot_->Splits(layout);
  const int64_t padded = slot_->padded[layout.ragged_number];
  if (padded < 0) return {splits[row], splits[row + 1]};
  return {row * padded, row * padded + splits[row + 1] - splits[row]};
}

absl::StatusOr<std::vector<int64_t>> BatchView::Shape(
    absl::string_view field) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field));
  const internal_loader::FieldLayout& layout = slot_->layout->fields[number];
  std::vector<int64_t> shape = {rows()};
  shape.insert(shape.end(), layout.spec->shape.begin(),
               layout.spec->shape.end());
  if (!layout.ragged) return shape;
  const int64_t padded = slot_->padded[layout.ragged_number];
  if (padded < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("field ", layout.spec->ToString(),
                     " has rows of different shapes: see RowShape and Splits, "
                     "or pad them by PadToLongest in collate"));
  }
  int64_t inner = 1;
  for (size_t i = 2; i < shape.size(); ++i) inner *= shape[i];
  shape[1] = inner == 0 ? 0 : padded / inner;
  return shape;
}

absl::StatusOr<absl::Span<const int64_t>> BatchView::Splits(
    absl::string_view field) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field));
  const internal_loader::FieldLayout& layout = slot_->layout->fields[number];
  if (!layout.ragged) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field ", layout.spec->ToString(), " is not ragged: it has no splits"));
  }
  return absl::MakeConstSpan(slot_->Splits(layout), rows() + 1);
}

absl::StatusOr<absl::Span<const int64_t>> BatchView::RowShape(
    absl::string_view field, int64_t row) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int number, Find(field));
  LOCKSTEP_RETURN_IF_ERROR(CheckRow(row));
  const internal_loader::FieldLayout& layout = slot_->layout->fields[number];
  if (!layout.ragged) return absl::MakeConstSpan(layout.spec->shape);
  return absl::MakeConstSpan(
      slot_->RowShapes(row) + layout.ragged_number * kMaxDimensions,
      layout.spec->shape.size());
}

absl::StatusOr<int64_t> BatchView::Pad(int field, const void* fill,
                                       int64_t multiple_of) const {
  const internal_loader::FieldLayout& layout = slot_->layout->fields[field];
  LOCKSTEP_RETURN_IF_ERROR(internal_loader::CheckPadding(*layout.spec));
  if (multiple_of < 1) return internal_loader::WrongMultiple(multiple_of);
  const int64_t inner = internal_loader::InnerElements(*layout.spec);
  int64_t& padded = slot_->padded[layout.ragged_number];
  int64_t& multiple = slot_->multiples[layout.ragged_number];
  if (inner == 0) return padded = 0;
  if (padded >= 0) {
    if (multiple % multiple_of == 0) return padded / inner;
    return absl::InvalidArgumentError(
        absl::StrCat("field ", layout.spec->ToString(),
                     " is padded already, to a multiple of ", multiple,
                     ", which need not be one of ", multiple_of,
                     ": pad it once, with that multiple"));
  }
  multiple = multiple_of;
  const int64_t* const splits = slot_->Splits(layout);
  int64_t longest = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    longest = std::max(longest, splits[row + 1] - splits[row]);
  }
  int64_t length = longest / inner;
  const int64_t over = length % multiple_of;
  if (over > 0 || (length == 0 && multiple_of > 1)) {
    const int64_t added = multiple_of - over;
    if (added > layout.elements / inner - length) {
      return internal_loader::NoRoomForMultiple(*layout.spec, multiple_of);
    }
    length += added;
  }
  padded = length * inner;
  const int64_t element = SizeOf(layout.spec->dtype);
  const int64_t row_bytes = padded * element;
  char* const first = slot_->memory + layout.offset;
  // It begins with the last row, since rows move to the back.
  for (int64_t row = rows(); row-- > 0;) {
    const int64_t bytes = (splits[row + 1] - splits[row]) * element;
    char* const target = first + row * row_bytes;
    std::memmove(target, first + splits[row] * element, bytes);
    Repeat(fill, element, target + bytes, row_bytes - bytes);
  }
  return length;
}

absl::StatusOr<DeviceBatch> Batch::ToDevice(Stream stream) {
  if (empty()) {
    return absl::FailedPreconditionError(
        "ToDevice was asked of an empty batch: one that Next did not fill, or "
        "that was released or moved from");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(void* const copy,
                            owner_->memory().OnDevice(slot_->memory, stream));
  return DeviceBatch(slot_, slot_->memory, static_cast<const char*>(copy));
}

void Batch::ReleaseSlot() {
  if (slot_ != nullptr) owner_->GiveBack(*std::exchange(slot_, nullptr));
}

}  // namespace lockstep
