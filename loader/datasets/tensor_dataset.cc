#include "lockstep/loader/datasets/tensor_dataset.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/scalar_column.h"

namespace lockstep {
namespace {

constexpr int64_t kLine = 64;

// The most bytes of a row that are fetched ahead. The processor fetches the
// rest of a longer row by itself.
constexpr int64_t kAheadInRow = 1024;

// The most bytes and rows that are being fetched at a time.
constexpr int64_t kAhead = 4096;
constexpr int64_t kRowsAhead = 16;

// Begins to fetch a row into the caches.
void Prefetch(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
}

// Returns uninitialized memory, in large pages if possible. With pages of 4
// KiB, nearly each random row would need a page table entry that no cache has.
std::shared_ptr<char> NewMemory(int64_t bytes) {
  constexpr int64_t kLargePage = int64_t{2} << 20;
  const std::align_val_t alignment{
      static_cast<size_t>(bytes < 2 * kLargePage ? kLine : kLargePage)};
  const auto size = static_cast<size_t>(bytes);
  std::shared_ptr<char> memory(
      static_cast<char*>(::operator new(size, alignment)),
      [alignment](char* data) { ::operator delete(data, alignment); });
#ifdef MADV_HUGEPAGE
  // A system that ignores this advice is only slower.
  if (bytes >= 2 * kLargePage) {
    madvise(memory.get(), size / kLargePage * kLargePage, MADV_HUGEPAGE);
  }
#endif
  return memory;
}

absl::Status WrongTensor(const NamedTensor& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor_dataset: tensor '", tensor.name, "' of shape [",
                   absl::StrJoin(tensor.shape, ","), "] ", what));
}

absl::Status CheckShape(const NamedTensor& tensor) {
  if (tensor.shape.empty()) {
    return WrongTensor(tensor,
                       "has no dimension that counts the samples; the first "
                       "one should");
  }
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return WrongTensor(tensor,
                         absl::StrCat("has a dimension of ", dimension,
                                      "; each should be 0 or more, since a "
                                      "tensor has no ragged rows"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckData(const NamedTensor& tensor, int64_t row_bytes) {
  const int64_t samples = tensor.shape[0];
  if (row_bytes > 0 &&
      samples > std::numeric_limits<int64_t>::max() / row_bytes) {
    return WrongTensor(tensor, "has more elements than memory can hold");
  }
  if (tensor.bytes != samples * row_bytes) {
    return WrongTensor(
        tensor,
        absl::StrCat("should have ", samples * row_bytes, " bytes of ",
                     Name(tensor.dtype), ", but its data has ", tensor.bytes));
  }
  if (tensor.bytes > 0 && tensor.data == nullptr) {
    return WrongTensor(tensor, "has a null pointer as its data");
  }
  return absl::OkStatus();
}

}  // namespace

NamedTensor NamedTensor::CopyBytes(std::string name, DType dtype,
                                   std::vector<int64_t> shape, const void* data,
                                   int64_t bytes) {
  std::shared_ptr<char> copy;
  if (data != nullptr && bytes > 0) {
    copy = NewMemory(bytes);
    std::memcpy(copy.get(), data, static_cast<size_t>(bytes));
  }
  return Share(std::move(name), dtype, std::move(shape), std::move(copy),
               bytes);
}

absl::StatusOr<std::shared_ptr<TensorDataset>> TensorDataset::Create(
    std::vector<NamedTensor> tensors) {
  if (tensors.empty()) {
    return absl::InvalidArgumentError(
        "tensor_dataset: there are no tensors, and so no number of samples; "
        "give one at least");
  }
  std::vector<FieldSpec> fields;
  for (const NamedTensor& tensor : tensors) {
    LOCKSTEP_RETURN_IF_ERROR(CheckShape(tensor));
    FieldSpec field;
    field.name = tensor.name;
    field.dtype = tensor.dtype;
    field.shape.assign(tensor.shape.begin() + 1, tensor.shape.end());
    fields.push_back(std::move(field));
  }
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  const int64_t size = tensors[0].shape[0];
  std::vector<Source> sources;
  for (NamedTensor& tensor : tensors) {
    if (tensor.shape[0] != size) {
      return WrongTensor(
          tensor, absl::StrCat("has ", tensor.shape[0], " samples, but '",
                               tensors[0].name, "' has ", size,
                               "; the first dimension should be the same"));
    }
    int64_t row_bytes = SizeOf(tensor.dtype);
    for (size_t i = 1; i < tensor.shape.size(); ++i) {
      row_bytes *= tensor.shape[i];
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckData(tensor, row_bytes));
    sources.push_back({std::move(tensor.data), row_bytes});
  }
  return std::shared_ptr<TensorDataset>(
      new TensorDataset(size, std::move(fields), std::move(sources)));
}

absl::Status TensorDataset::Read(int64_t index, SampleContext& context,
                                 SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(
      internal_loader::CheckIndex("tensor_dataset", index, size_));
  for (size_t field = 0; field < sources_.size(); ++field) {
    const Source& source = sources_[field];
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> to,
                              row.MutableBytes(static_cast<int>(field)));
    LOCKSTEP_DCHECK(static_cast<int64_t>(to.size()) == source.row_bytes);
    if (!to.empty()) std::memcpy(to.data(), source.Row(index), to.size());
  }
  return absl::OkStatus();
}

absl::Status TensorDataset::ReadMany(absl::Span<const int64_t> indices,
                                     absl::Span<SampleContext> contexts,
                                     absl::Span<SampleRow> rows) {
  for (const int64_t index : indices) {
    LOCKSTEP_RETURN_IF_ERROR(
        internal_loader::CheckIndex("tensor_dataset", index, size_));
  }
  const auto count = static_cast<int64_t>(indices.size());
  for (size_t field = 0; field < sources_.size(); ++field) {
    const Source& source = sources_[field];
    const int64_t in_row = std::min(source.row_bytes, kAheadInRow);
    const int64_t distance = std::clamp<int64_t>(
        kAhead / std::max<int64_t>(in_row, 1), 1, kRowsAhead);
    for (int64_t i = 0; i < std::min(distance, count); ++i) {
      Prefetch(source.Row(indices[i]), in_row);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i + distance < count) {
        Prefetch(source.Row(indices[i + distance]), in_row);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> to,
                                rows[i].MutableBytes(static_cast<int>(field)));
      LOCKSTEP_DCHECK(static_cast<int64_t>(to.size()) == source.row_bytes);
      if (!to.empty())
        std::memcpy(to.data(), source.Row(indices[i]), to.size());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset::Column> TensorDataset::ReadColumn(
    absl::string_view name) {
  for (size_t field = 0; field < sources_.size(); ++field) {
    const FieldSpec& spec = fields_[field];
    if (spec.name != name || !internal_loader::IsScalar(spec)) continue;
    return internal_loader::ScalarColumn(
        spec, size_, [&](int64_t index, absl::Span<char> out) {
          std::memcpy(out.data(), sources_[field].Row(index), out.size());
          return absl::OkStatus();
        });
  }
  return Dataset::ReadColumn(name);
}

}  // namespace lockstep
