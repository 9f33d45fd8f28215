#include "lockstep/loader/datasets/combinators.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/inner_dataset.h"
#include "lockstep/loader/datasets/lender.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using internal_loader::BulkOf;
using internal_loader::CheckIndex;
using internal_loader::CheckInner;
using internal_loader::kBulk;
using internal_loader::kHintBulk;
using internal_loader::Lender;
using internal_loader::ReadInner;

// The function may take long. Then many workers with few samples each are
// better than few workers with many.
constexpr int64_t kChangeBulk = 16;

class ChangeDataset : public MapDataset {
 public:
  ChangeDataset(std::shared_ptr<Dataset> inner, Change change)
      : inner_(std::move(inner)), change_(std::move(change)) {}

  int64_t size() const override { return inner_->size(); }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("map_dataset", index, size()));
    LOCKSTEP_RETURN_IF_ERROR(inner_->Read(index, context, row));
    return change_(context, row);
  }

  int64_t max_bulk() const override {
    return std::min(BulkOf(*inner_), kChangeBulk);
  }

  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override {
    for (const int64_t index : indices) {
      LOCKSTEP_RETURN_IF_ERROR(CheckIndex("map_dataset", index, size()));
    }
    LOCKSTEP_RETURN_IF_ERROR(ReadInner(*inner_, indices, contexts, rows));
    for (size_t i = 0; i < indices.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(change_(contexts[i], rows[i]));
    }
    return absl::OkStatus();
  }

  void Hint(absl::Span<const int64_t> indices) override {
    inner_->Hint(indices);
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    return inner_->ReadColumn(name);
  }
  void AddTo(Fingerprint& fingerprint) const override {
    inner_->AddTo(fingerprint);
  }
  std::string Describe() const override { return inner_->Describe(); }
  std::string PlaceOf(int64_t index, int field) const override {
    return inner_->PlaceOf(index, field);
  }
  std::vector<int64_t> parts() const override { return inner_->parts(); }

 private:
  const std::shared_ptr<Dataset> inner_;
  const Change change_;
};

class MakeDataset : public MapDataset {
 public:
  MakeDataset(std::shared_ptr<Dataset> inner, std::vector<FieldSpec> fields,
              Make make)
      : inner_(std::move(inner)),
        fields_(std::move(fields)),
        make_(std::move(make)) {}

  // Returns the error of making a row of the inner fields, or OK.
  absl::Status Prepare() { return TakeBuffer().status(); }

  int64_t size() const override { return inner_->size(); }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("map_dataset", index, size()));
    LOCKSTEP_ASSIGN_OR_RETURN(const Lender<RowBuffer>::Lease from,
                              TakeBuffer());
    LOCKSTEP_RETURN_IF_ERROR(from->Read(*inner_, index, context));
    return make_(context, from->row(), row);
  }

  void Hint(absl::Span<const int64_t> indices) override {
    inner_->Hint(indices);
  }
  // A field that Make writes is not the column of the inner dataset.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    for (const FieldSpec& field : fields_) {
      if (field.name == name) return Dataset::ReadColumn(name);
    }
    return inner_->ReadColumn(name);
  }
  void AddTo(Fingerprint& fingerprint) const override {
    inner_->AddTo(fingerprint);
  }
  std::string Describe() const override { return inner_->Describe(); }
  std::vector<int64_t> parts() const override { return inner_->parts(); }

 private:
  absl::StatusOr<Lender<RowBuffer>::Lease> TakeBuffer() {
    return buffers_.Take(
        [this] { return RowBuffer::Create(inner_->fields()); });
  }

  const std::shared_ptr<Dataset> inner_;
  const std::vector<FieldSpec> fields_;
  const Make make_;
  Lender<RowBuffer> buffers_;
};

absl::Status CheckFunction(bool given) {
  if (given) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "map_dataset: the function is empty; give one to call");
}

void AddAll(absl::Span<const std::shared_ptr<Dataset>> parts,
            Fingerprint& fingerprint) {
  for (const std::shared_ptr<Dataset>& part : parts) part->AddTo(fingerprint);
}

std::string DescribeAll(absl::Span<const std::shared_ptr<Dataset>> parts) {
  std::vector<std::string> texts;
  for (const std::shared_ptr<Dataset>& part : parts) {
    std::string text = part->Describe();
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return absl::StrJoin(texts, "; ");
}

absl::Status CheckParts(absl::string_view dataset,
                        absl::Span<const std::shared_ptr<Dataset>> parts) {
  if (parts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dataset, ": there are no datasets; give one at least"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          dataset, ": dataset ", i, " of ", parts.size(),
          " (counted from 0) is a null pointer; it should be a dataset that "
          "was created without an error"));
    }
  }
  return absl::OkStatus();
}

int64_t LargestBulk(absl::Span<const std::shared_ptr<Dataset>> parts) {
  int64_t largest = 1;
  for (const std::shared_ptr<Dataset>& part : parts) {
    largest = std::max(largest, BulkOf(*part));
  }
  return largest;
}

// Raises the bounds of ragged fields to those of `got`. Returns an error with
// the first field of `got` that otherwise differs from that of `first`, or OK.
absl::Status MergeFields(absl::Span<FieldSpec> first,
                         absl::Span<const FieldSpec> got, size_t part) {
  constexpr absl::string_view kAdvice =
      "; all should have the same, in the same order (a MapDataset can change "
      "them)";
  for (size_t i = 0; i < std::min(first.size(), got.size()); ++i) {
    FieldSpec other = got[i];
    const int64_t bound = std::max(first[i].max_elements, other.max_elements);
    if (first[i].ragged() && other.ragged()) {
      first[i].max_elements = other.max_elements = bound;
    }
    if (first[i] == other) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("concat_dataset: field ", i, " of dataset ", part, " is ",
                     got[i].ToString(), ", but that of dataset 0 is ",
                     first[i].ToString(), kAdvice));
  }
  if (first.size() == got.size()) return absl::OkStatus();
  const bool more = got.size() > first.size();
  const FieldSpec& extra = more ? got[first.size()] : first[got.size()];
  return absl::InvalidArgumentError(absl::StrCat(
      "concat_dataset: field '", extra.name, "' is in dataset ",
      more ? part : 0, ", but not in dataset ", more ? 0 : part, kAdvice));
}

}  // namespace

absl::StatusOr<std::shared_ptr<MapDataset>> MapDataset::Create(
    std::shared_ptr<Dataset> inner, Change change) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("map_dataset", inner.get()));
  LOCKSTEP_RETURN_IF_ERROR(CheckFunction(change != nullptr));
  return std::make_shared<ChangeDataset>(std::move(inner), std::move(change));
}

absl::StatusOr<std::shared_ptr<MapDataset>> MapDataset::Create(
    std::shared_ptr<Dataset> inner, std::vector<FieldSpec> fields, Make make) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("map_dataset", inner.get()));
  LOCKSTEP_RETURN_IF_ERROR(CheckFunction(make != nullptr));
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  auto dataset = std::make_shared<MakeDataset>(
      std::move(inner), std::move(fields), std::move(make));
  LOCKSTEP_RETURN_IF_ERROR(dataset->Prepare());
  return dataset;
}

absl::StatusOr<std::shared_ptr<SubsetDataset>> SubsetDataset::Create(
    std::shared_ptr<Dataset> inner, std::vector<int64_t> indices) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInner("subset_dataset", inner.get()));
  const int64_t size = inner->size();
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("subset_dataset: indices[", i, "] is ", indices[i],
                     ", but the inner dataset has ", size,
                     " samples; each index should be from 0 to below that"));
  }
  return std::shared_ptr<SubsetDataset>(
      new SubsetDataset(std::move(inner), std::move(indices)));
}

absl::Status SubsetDataset::Read(int64_t index, SampleContext& context,
                                 SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("subset_dataset", index, size()));
  return inner_->Read(indices_[index], context, row);
}

int64_t SubsetDataset::max_bulk() const { return BulkOf(*inner_); }

absl::Status SubsetDataset::ReadMany(absl::Span<const int64_t> indices,
                                     absl::Span<SampleContext> contexts,
                                     absl::Span<SampleRow> rows) {
  std::array<int64_t, kBulk> mapped;
  for (size_t first = 0; first < indices.size(); first += kBulk) {
    const absl::Span<const int64_t> some = indices.subspan(first, kBulk);
    for (size_t i = 0; i < some.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(CheckIndex("subset_dataset", some[i], size()));
      mapped[i] = indices_[some[i]];
    }
    LOCKSTEP_RETURN_IF_ERROR(
        ReadInner(*inner_, absl::MakeConstSpan(mapped).first(some.size()),
                  contexts.subspan(first, kBulk), rows.subspan(first, kBulk)));
  }
  return absl::OkStatus();
}

void SubsetDataset::Hint(absl::Span<const int64_t> indices) {
  std::array<int64_t, kHintBulk> mapped;
  size_t count = 0;
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) continue;
    mapped[count++] = indices_[index];
    if (count == mapped.size()) {
      inner_->Hint(mapped);
      count = 0;
    }
  }
  if (count > 0) inner_->Hint(absl::MakeConstSpan(mapped).first(count));
}

std::string SubsetDataset::PlaceOf(int64_t index, int field) const {
  if (index < 0 || index >= size()) return "";
  return inner_->PlaceOf(indices_[index], field);
}

absl::StatusOr<Dataset::Column> SubsetDataset::ReadColumn(
    absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Column column,
                            ReadWholeColumn(*inner_, name));
  return std::visit(
      [this](const auto& values) {
        std::decay_t<decltype(values)> some;
        some.reserve(indices_.size());
        for (const int64_t index : indices_) some.push_back(values[index]);
        return Column(std::move(some));
      },
      column);
}

absl::StatusOr<std::shared_ptr<ConcatDataset>> ConcatDataset::Create(
    std::vector<std::shared_ptr<Dataset>> parts) {
  LOCKSTEP_RETURN_IF_ERROR(CheckParts("concat_dataset", parts));
  const absl::Span<const FieldSpec> first = parts[0]->fields();
  std::vector<FieldSpec> fields(first.begin(), first.end());
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        MergeFields(absl::MakeSpan(fields), parts[i]->fields(), i));
    const int64_t size = parts[i]->size();
    if (size > std::numeric_limits<int64_t>::max() - end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "concat_dataset: with the ", size, " samples of dataset ", i,
          " there would be more than an index of 64 bits can count"));
    }
    end += size;
    ends.push_back(end);
  }
  return std::shared_ptr<ConcatDataset>(
      new ConcatDataset(std::move(parts), std::move(ends), std::move(fields)));
}

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<Dataset>> parts,
                             std::vector<int64_t> ends,
                             std::vector<FieldSpec> fields)
    : parts_(std::move(parts)),
      ends_(std::move(ends)),
      fields_(std::move(fields)),
      max_bulk_(LargestBulk(parts_)) {}

int ConcatDataset::PartOf(int64_t index) const {
  return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), index) -
                          ends_.begin());
}

absl::Status ConcatDataset::Read(int64_t index, SampleContext& context,
                                 SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("concat_dataset", index, size()));
  const int part = PartOf(index);
  return parts_[part]->Read(index - StartOf(part), context, row);
}

absl::Status ConcatDataset::ReadMany(absl::Span<const int64_t> indices,
                                     absl::Span<SampleContext> contexts,
                                     absl::Span<SampleRow> rows) {
  for (const int64_t index : indices) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("concat_dataset", index, size()));
  }
  std::array<int64_t, kBulk> local;
  size_t first = 0;
  while (first < indices.size()) {
    const int part = PartOf(indices[first]);
    const int64_t start = StartOf(part);
    size_t count = 0;
    while (count < local.size() && first + count < indices.size() &&
           indices[first + count] >= start &&
           indices[first + count] < ends_[part]) {
      local[count] = indices[first + count] - start;
      ++count;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        ReadInner(*parts_[part], absl::MakeConstSpan(local).first(count),
                  contexts.subspan(first, count), rows.subspan(first, count)));
    first += count;
  }
  return absl::OkStatus();
}

void ConcatDataset::Hint(absl::Span<const int64_t> indices) {
  // A part gets all its samples in one call, since it may read neighbours
  // together, and in their order, since the first one is needed first.
  struct Place {
    int part;
    int order;
    int64_t local;
  };
  std::array<Place, kHintBulk> places;
  std::array<int64_t, kHintBulk> local;
  for (size_t first = 0; first < indices.size(); first += kHintBulk) {
    int count = 0;
    for (const int64_t index : indices.subspan(first, kHintBulk)) {
      if (index < 0 || index >= size()) continue;
      const int part = PartOf(index);
      places[count] = {part, count, index - StartOf(part)};
      ++count;
    }
    std::sort(places.begin(), places.begin() + count,
              [](const Place& a, const Place& b) {
                return a.part != b.part ? a.part < b.part : a.order < b.order;
              });
    for (int i = 0; i < count; ++i) local[i] = places[i].local;
    for (int i = 0; i < count;) {
      int end = i;
      while (end < count && places[end].part == places[i].part) ++end;
      parts_[places[i].part]->Hint(
          absl::MakeConstSpan(local).subspan(i, end - i));
      i = end;
    }
  }
}

absl::StatusOr<Dataset::Column> ConcatDataset::ReadColumn(
    absl::string_view name) {
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  for (const std::shared_ptr<Dataset>& part : parts_) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Column column,
                              ReadWholeColumn(*part, name));
    std::visit(
        [&numbers](const auto& values) {
          numbers.insert(numbers.end(), values.begin(), values.end());
        },
        column);
    const auto* const some = std::get_if<std::vector<int64_t>>(&column);
    if (some == nullptr) continue;
    integers.insert(integers.end(), some->begin(), some->end());
  }
  if (integers.size() == numbers.size()) return Column(std::move(integers));
  return Column(std::move(numbers));
}

absl::StatusOr<std::shared_ptr<ZipDataset>> ZipDataset::Create(
    std::vector<std::shared_ptr<Dataset>> parts) {
  LOCKSTEP_RETURN_IF_ERROR(CheckParts("zip_dataset", parts));
  std::vector<FieldSpec> fields;
  std::vector<size_t> from;  // the part of each field
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]->size() != parts[0]->size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "zip_dataset: dataset ", i, " has ", parts[i]->size(),
          " samples, but dataset 0 has ", parts[0]->size(),
          "; all should have the same number (a SubsetDataset can leave some "
          "out)"));
    }
    for (const FieldSpec& field : parts[i]->fields()) {
      for (size_t j = 0; j < fields.size(); ++j) {
        if (fields[j].name != field.name) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "zip_dataset: datasets ", from[j], " and ", i,
            " both have a field '", field.name,
            "'; give one of them another name, by a MapDataset with fields of "
            "its own"));
      }
      fields.push_back(field);
      from.push_back(i);
    }
  }
  if (fields.size() > kMaxFields) {
    return absl::InvalidArgumentError(absl::StrCat(
        "zip_dataset: the datasets have ", fields.size(),
        " fields together, but can have ", kMaxFields,
        " at most; leave some out, by a MapDataset with fields of its own"));
  }
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  return std::shared_ptr<ZipDataset>(
      new ZipDataset(std::move(parts), std::move(fields)));
}

ZipDataset::ZipDataset(std::vector<std::shared_ptr<Dataset>> parts,
                       std::vector<FieldSpec> fields)
    : parts_(std::move(parts)),
      fields_(std::move(fields)),
      max_bulk_(LargestBulk(parts_)) {}

absl::Status ZipDataset::Read(int64_t index, SampleContext& context,
                              SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("zip_dataset", index, size()));
  int field = 0;
  for (const std::shared_ptr<Dataset>& part : parts_) {
    const int count = static_cast<int>(part->fields().size());
    SampleRow some = row.Part(field, count);
    LOCKSTEP_RETURN_IF_ERROR(part->Read(index, context, some));
    field += count;
  }
  return absl::OkStatus();
}

absl::Status ZipDataset::ReadMany(absl::Span<const int64_t> indices,
                                  absl::Span<SampleContext> contexts,
                                  absl::Span<SampleRow> rows) {
  for (const int64_t index : indices) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("zip_dataset", index, size()));
  }
  // Memory for rows, since SampleRow has no default constructor.
  alignas(SampleRow) std::array<char, kBulk * sizeof(SampleRow)> memory;
  static_assert(std::is_trivially_destructible_v<SampleRow>);
  for (size_t first = 0; first < indices.size(); first += kBulk) {
    const size_t some = std::min<size_t>(kBulk, indices.size() - first);
    int field = 0;
    for (const std::shared_ptr<Dataset>& part : parts_) {
      const int count = static_cast<int>(part->fields().size());
      auto* const parts_of_rows = reinterpret_cast<SampleRow*>(memory.data());
      for (size_t i = 0; i < some; ++i) {
        new (parts_of_rows + i) SampleRow(rows[first + i].Part(field, count));
      }
      LOCKSTEP_RETURN_IF_ERROR(ReadInner(*part, indices.subspan(first, some),
                                         contexts.subspan(first, some),
                                         absl::MakeSpan(parts_of_rows, some)));
      field += count;
    }
  }
  return absl::OkStatus();
}

void ConcatDataset::AddTo(Fingerprint& fingerprint) const {
  AddAll(parts_, fingerprint);
}

std::vector<int64_t> ConcatDataset::parts() const {
  std::vector<int64_t> sizes;
  for (const std::shared_ptr<Dataset>& part : parts_) {
    sizes.push_back(part->size());
  }
  return sizes;
}
std::string ConcatDataset::Describe() const { return DescribeAll(parts_); }

std::string ConcatDataset::PlaceOf(int64_t index, int field) const {
  if (index < 0 || index >= size()) return "";
  const int part = PartOf(index);
  return parts_[part]->PlaceOf(index - StartOf(part), field);
}

void ZipDataset::AddTo(Fingerprint& fingerprint) const {
  AddAll(parts_, fingerprint);
}

std::string ZipDataset::Describe() const { return DescribeAll(parts_); }

std::string ZipDataset::PlaceOf(int64_t index, int field) const {
  for (const std::shared_ptr<Dataset>& part : parts_) {
    const auto fields = static_cast<int>(part->fields().size());
    if (field < fields) return part->PlaceOf(index, field);
    field -= fields;
  }
  return "";
}

void ZipDataset::Hint(absl::Span<const int64_t> indices) {
  for (const std::shared_ptr<Dataset>& part : parts_) part->Hint(indices);
}

absl::StatusOr<Dataset::Column> ZipDataset::ReadColumn(absl::string_view name) {
  for (const std::shared_ptr<Dataset>& part : parts_) {
    absl::StatusOr<Column> column = part->ReadColumn(name);
    if (!absl::IsNotFound(column.status())) return column;
  }
  return Dataset::ReadColumn(name);
}

}  // namespace lockstep
