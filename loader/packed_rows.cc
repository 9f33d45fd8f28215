#include "lockstep/loader/packed_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {
namespace {

constexpr char kSegment[] = "segment";
constexpr char kPosition[] = "position";

}  // namespace

absl::StatusOr<std::vector<FieldSpec>> PackedFields(
    absl::Span<const FieldSpec> fields, const Order::Packing& packing) {
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  std::vector<FieldSpec> packed;
  for (const FieldSpec& field : fields) {
    if (field.name == kSegment || field.name == kPosition) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows that pack several samples get a field '", field.name,
          "', so the dataset should have none of that name"));
    }
    FieldSpec of_row = field;
    if (of_row.shape.empty() || of_row.shape[0] != -1 ||
        std::count(of_row.shape.begin(), of_row.shape.end(), -1) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows that pack several samples need fields whose first dimension "
          "is -1, and no other one, but the dataset has the field ",
          field.ToString(), "; leave it out, or pad in place of packing"));
    }
    of_row.shape[0] = packing.row_length;
    of_row.max_elements = 0;
    packed.push_back(std::move(of_row));
  }
  if (packed.empty()) {
    return absl::InvalidArgumentError(
        "rows that pack several samples need a field, but the dataset has "
        "none");
  }
  packed.push_back({kSegment, DType::kI32, {packing.row_length}});
  packed.push_back({kPosition, DType::kI32, {packing.row_length}});
  return packed;
}

absl::Status PackedRow::Append(SampleRow& sample, int64_t number) {
  int64_t length = sample.shape(0)[0];
  for (int field = 1; field < sample.fields(); ++field) {
    if (sample.shape(field)[0] == length) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the fields of a sample that is packed should have the same length, "
        "but '",
        sample.spec(0).name, "' has ", length, " and '",
        sample.spec(field).name, "' has ", sample.shape(field)[0]));
  }
  if (packing_.cut) length = std::min(length, packing_.row_length);
  if (length > packing_.row_length - filled_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sample has ", length, " elements, and its row has room for ",
        packing_.row_length - filled_,
        ": the lengths by which the order packs should be those of the "
        "samples"));
  }
  const auto fields = static_cast<size_t>(sample.fields());
  for (size_t field = 0; field < fields; ++field) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                              sample.WrittenBytes(static_cast<int>(field)));
    char* const first = At(field, filled_);
    const auto size = static_cast<size_t>(At(field, filled_ + length) - first);
    if (size > 0) std::memcpy(first, bytes.data(), size);
  }
  auto* const segments = reinterpret_cast<int32_t*>(At(fields, filled_));
  auto* const positions = reinterpret_cast<int32_t*>(At(fields + 1, filled_));
  for (int64_t i = 0; i < length; ++i) {
    segments[i] = static_cast<int32_t>(number);
    positions[i] = static_cast<int32_t>(i);
  }
  filled_ += length;
  return absl::OkStatus();
}

void PackedRow::Finish() {
  const int64_t end = packing_.row_length;
  for (size_t field = 0; field < layout_->fields.size(); ++field) {
    char* const first = At(field, filled_);
    const bool is_segment = field + 2 == layout_->fields.size();
    std::memset(first, is_segment ? 0xff : 0,
                static_cast<size_t>(At(field, end) - first));
  }
}

}  // namespace lockstep::internal_loader
