#include "lockstep/loader/dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace internal_loader {
namespace {

// "int" of a text that ends in "[with T = int]" or in "[T = int]".
absl::string_view NameIn(absl::string_view text) {
  constexpr absl::string_view kBefore = "T = ";
  const size_t at = text.rfind(kBefore);
  if (at == absl::string_view::npos) return text;
  text.remove_prefix(at + kBefore.size());
  return text.substr(0, text.size() - 1);
}

}  // namespace

void NoSuchState(const char* wanted, const char* held) {
  const std::string has =
      held == nullptr ? "no state" : std::string(NameIn(held));
  std::fprintf(stderr,
               "WorkerInfo::State<T>() was called for T = %s, and the worker "
               "has %s: let worker_init set worker.state to a "
               "std::shared_ptr of that type\n",
               std::string(NameIn(wanted)).c_str(), has.c_str());
  std::abort();
}

}  // namespace internal_loader

absl::Span<const int64_t> SampleRow::shape(int field) const {
  const internal_loader::FieldLayout& layout = LayoutOf(field);
  if (!layout.ragged) return layout.spec->shape;
  return {Shape(field), layout.spec->shape.size()};
}

SampleRow SampleRow::Part(int first, int count) const {
  LOCKSTEP_CHECK(first >= 0 && count >= 0 && first + count <= count_);
  SampleRow part = *this;
  part.first_ += first;
  part.count_ = count;
  return part;
}

absl::Status SampleRow::CheckNumber(int field) const {
  if (field >= 0 && field < count_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no field number ",
                                                 field, "; the dataset has ",
                                                 count_, ", counted from 0"));
}

absl::Status SampleRow::CheckWritten(int field) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber(field));
  if ((*written_ >> (first_ + field)) & 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "field '", spec(field).name, "' was not written yet in this row"));
}

absl::Status SampleRow::TypeError(int field, DType dtype) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber(field));
  return internal_loader::WrongType(spec(field), dtype);
}

absl::Status SampleRow::FixedError(int field) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber(field));
  return absl::InvalidArgumentError(absl::StrCat(
      "field '", spec(field).name,
      "' is ragged: write it by Copy, MutableRagged or MutableRaggedBytes, "
      "which say how much this sample has"));
}

absl::Status SampleRow::SetShape(int field, absl::Span<const int64_t> shape) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber(field));
  const FieldSpec& declared = spec(field);
  bool fits = shape.size() == declared.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits =
        declared.shape[i] == -1 ? shape[i] >= 0 : shape[i] == declared.shape[i];
  }
  if (!fits ||
      internal_loader::CountElements(shape) > LayoutOf(field).elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("field ", declared.ToString(), " can't hold a sample of ",
                     "shape [", absl::StrJoin(shape, ","), "]"));
  }
  if (LayoutOf(field).ragged) {
    std::copy(shape.begin(), shape.end(), Shape(field));
  }
  *written_ |= uint64_t{1} << (first_ + field);
  return absl::OkStatus();
}

absl::Status SampleRow::SetCount(int field, int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber(field));
  const FieldSpec& declared = spec(field);
  if (!LayoutOf(field).ragged) {
    if (elements != LayoutOf(field).elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field ", declared.ToString(), " takes ", LayoutOf(field).elements,
          " elements, but got ", elements));
    }
    *written_ |= uint64_t{1} << (first_ + field);
    return absl::OkStatus();
  }
  // The dimension of -1 follows from the others if there is only one.
  int64_t shape[kMaxDimensions];
  int64_t known = 1;
  int unknown = 0;
  for (const int64_t dimension : declared.shape) {
    unknown += dimension == -1;
    if (dimension != -1) known *= dimension;
  }
  if (unknown != 1 || known == 0 || elements % known != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shape of ", elements, " elements of field ", declared.ToString(),
        " does not follow from their number; give it by MutableRagged"));
  }
  for (size_t i = 0; i < declared.shape.size(); ++i) {
    shape[i] = declared.shape[i] == -1 ? elements / known : declared.shape[i];
  }
  return SetShape(field, absl::MakeConstSpan(shape, declared.shape.size()));
}

absl::Status Dataset::ReadMany(absl::Span<const int64_t> indices,
                               absl::Span<SampleContext> contexts,
                               absl::Span<SampleRow> rows) {
  for (size_t i = 0; i < indices.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Read(indices[i], contexts[i], rows[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset::Column> Dataset::ReadColumn(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat(
      "the dataset has no column '", absl::CHexEscape(name),
      "': a dataset offers what is known of each sample without reading it by "
      "overriding Dataset::ReadColumn"));
}

absl::StatusOr<Dataset::Column> ReadWholeColumn(Dataset& dataset,
                                                absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset::Column column, dataset.ReadColumn(name));
  const size_t values =
      std::visit([](const auto& each) { return each.size(); }, column);
  if (static_cast<int64_t>(values) == dataset.size()) return column;
  return absl::InternalError(
      absl::StrCat("column '", absl::CHexEscape(name), "' has ", values,
                   " values, and the dataset ", dataset.size(), " samples"));
}

absl::StatusOr<std::vector<int64_t>> ReadIntegers(Dataset& dataset,
                                                  absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset::Column column,
                            ReadWholeColumn(dataset, name));
  auto* const integers = std::get_if<std::vector<int64_t>>(&column);
  if (integers == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("column '", absl::CHexEscape(name),
                     "' should have integers, and has floating-point numbers"));
  }
  return std::move(*integers);
}

absl::StatusOr<std::vector<double>> ReadNumbers(Dataset& dataset,
                                                absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(Dataset::Column column,
                            ReadWholeColumn(dataset, name));
  return std::visit(
      [](auto& values) {
        return std::vector<double>(values.begin(), values.end());
      },
      column);
}

}  // namespace lockstep
