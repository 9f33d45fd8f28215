#include "lockstep/loader/field.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

// This is more than any memory has, and so small that the sum of 64 such
// numbers does not overflow.
constexpr int64_t kMostBytes = int64_t{1} << 50;

absl::Status WrongField(const FieldSpec& spec, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("field '", spec.name, "' ", what));
}

absl::Status ValidateField(const FieldSpec& spec) {
  if (SizeOf(spec.dtype) == 0) {
    return WrongField(spec, absl::StrCat("has no dtype, but the number ",
                                         static_cast<int>(spec.dtype)));
  }
  if (spec.shape.size() > kMaxDimensions) {
    return WrongField(spec, absl::StrCat("has ", spec.shape.size(),
                                         " dimensions, and can have ",
                                         kMaxDimensions, " at most"));
  }
  std::vector<int64_t> least = spec.shape;
  for (int64_t& dimension : least) {
    if (dimension < -1) {
      return WrongField(
          spec, absl::StrCat("has a dimension of ", dimension,
                             ", which should be 0 or more, or -1 where it "
                             "differs from sample to sample"));
    }
    if (dimension == -1) dimension = 1;
  }
  const int64_t elements =
      std::max(internal_loader::CountElements(least), spec.max_elements);
  if (elements > kMostBytes / SizeOf(spec.dtype)) {
    return WrongField(spec, "has more elements than memory can hold");
  }
  if (spec.ragged() && spec.max_elements <= 0) {
    return WrongField(
        spec,
        absl::StrCat("is ragged, and so needs a bound: set max_elements "
                     "to the most elements that a sample can have; it is ",
                     spec.max_elements));
  }
  if (spec.ragged() &&
      spec.max_elements < internal_loader::CountElements(least)) {
    return WrongField(
        spec, absl::StrCat("has max_elements=", spec.max_elements,
                           ", and so has room for nothing: one step of its "
                           "first dimension takes ",
                           internal_loader::CountElements(least)));
  }
  if (!spec.ragged() && spec.max_elements != 0) {
    return WrongField(
        spec, absl::StrCat("has a fixed shape, and so max_elements should be "
                           "0, but it is ",
                           spec.max_elements));
  }
  return absl::OkStatus();
}

}  // namespace

bool FieldSpec::ragged() const {
  return std::find(shape.begin(), shape.end(), -1) != shape.end();
}

std::string FieldSpec::ToString() const {
  std::string text =
      absl::StrCat(name, " ", Name(dtype), "[", absl::StrJoin(shape, ","), "]");
  if (ragged()) {
    absl::StrAppend(&text, " of at most ", max_elements, " elements");
  }
  return text;
}

absl::Status ValidateFields(absl::Span<const FieldSpec> fields) {
  if (fields.size() > kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dataset can have ", kMaxFields, " fields at most, and ",
                     "has ", fields.size()));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field number ", i, " has no name"));
    }
    LOCKSTEP_RETURN_IF_ERROR(ValidateField(fields[i]));
    for (size_t j = 0; j < i; ++j) {
      if (fields[j].name == fields[i].name) {
        return WrongField(fields[i], "stands twice among the fields");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> FindField(absl::Span<const FieldSpec> fields,
                              absl::string_view name) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == name) return static_cast<int>(i);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no field '", name, "'; the fields are ",
      absl::StrJoin(fields, ", ", [](std::string* out, const FieldSpec& spec) {
        out->append(spec.name);
      })));
}

namespace internal_loader {

int64_t CountElements(absl::Span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (elements > kMostBytes / dimension) return kMostBytes + 1;
    elements *= dimension;
  }
  return elements;
}

absl::Status MakeLayout(absl::Span<const FieldSpec> fields, int64_t rows,
                        BatchLayout& layout) {
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  layout.specs.assign(fields.begin(), fields.end());
  layout.fields.clear();
  layout.rows = rows;
  layout.bytes = 0;
  layout.ragged_fields = 0;
  layout.fixed_row_bytes = 0;
  const auto take = [&layout](int64_t bytes) {
    const int64_t offset = layout.bytes;
    layout.bytes += (bytes + BatchLayout::kAlignment - 1) /
                    BatchLayout::kAlignment * BatchLayout::kAlignment;
    return offset;
  };
  for (const FieldSpec& spec : layout.specs) {
    FieldLayout field;
    field.spec = &spec;
    field.ragged = spec.ragged();
    field.elements =
        field.ragged ? spec.max_elements : CountElements(spec.shape);
    if (field.ragged) {
      field.ragged_number = layout.ragged_fields++;
    }
    if (field.elements >
        kMostBytes / SizeOf(spec.dtype) / std::max<int64_t>(1, rows)) {
      return WrongField(
          spec, absl::StrCat("takes more memory than there can be: ", rows,
                             " rows of ", field.elements, " elements"));
    }
    field.row_bytes = field.elements * SizeOf(spec.dtype);
    if (!field.ragged) layout.fixed_row_bytes += field.row_bytes;
    field.offset = take(rows * field.row_bytes);
    layout.fields.push_back(field);
  }
  for (FieldLayout& field : layout.fields) {
    if (field.ragged) field.splits_offset = take((rows + 1) * sizeof(int64_t));
  }
  return absl::OkStatus();
}

absl::Status WrongType(const FieldSpec& spec, DType asked) {
  return absl::InvalidArgumentError(
      absl::StrCat("field '", spec.name, "' has elements of ", Name(spec.dtype),
                   ", and was asked for as ", Name(asked)));
}

absl::Status CheckPadding(const FieldSpec& spec) {
  if (!spec.shape.empty() && spec.shape[0] == -1 &&
      std::count(spec.shape.begin(), spec.shape.end(), -1) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("field ", spec.ToString(),
                   " can't be padded: its first dimension must be -1, and no "
                   "other"));
}

int64_t InnerElements(const FieldSpec& spec) {
  return CountElements(absl::MakeConstSpan(spec.shape).subspan(1));
}

absl::Status WrongMultiple(int64_t multiple_of) {
  return absl::InvalidArgumentError(
      absl::StrCat("multiple_of should be 1 (any length) or more, but got "
                   "multiple_of=",
                   multiple_of));
}

absl::Status NoRoomForMultiple(const FieldSpec& spec, int64_t multiple_of) {
  const int64_t bound = spec.max_elements / InnerElements(spec);
  return absl::InvalidArgumentError(absl::StrCat(
      "field ", spec.ToString(), " can't be padded to each multiple of ",
      multiple_of, ": the memory of a row has room for the length ", bound,
      ", which should be such a multiple; set the bound in the dataset, such "
      "as `length` of `tokens`, to ",
      bound - bound % multiple_of + multiple_of, " for example"));
}

}  // namespace internal_loader
}  // namespace lockstep
