#include "lockstep/loader/datasets/npy_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/scalar_column.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::kNpyPrefixBytes;
using ::lockstep::internal_base::NpyHeader;
using ::lockstep::internal_base::NpyHeaderBytes;
using ::lockstep::internal_base::ParseNpyHeader;
using ::lockstep::internal_loader::CheckIndex;
using ::lockstep::internal_loader::File;
using ::lockstep::internal_loader::InFile;
using ::lockstep::internal_loader::IsScalar;
using ::lockstep::internal_loader::Mapping;
using ::lockstep::internal_loader::ScalarColumn;

// With so many rows, checking the size of the files costs little.
constexpr int64_t kBulk = 64;

// A dimension of a row, and the bytes from one of its elements to the next.
struct Axis {
  int64_t size;
  int64_t stride;
};

// Copies the elements of a row, which are scattered from `in` on, to `out` in C
// order.
template <typename Word>
void Gather(const char* in, absl::Span<const Axis> axes, absl::Span<char> out) {
  int64_t position[kMaxDimensions] = {};
  const Axis inner = axes.back();
  char* to = out.data();
  char* const end = to + out.size();
  while (to != end) {
    for (int64_t i = 0; i < inner.size; ++i) {
      // The array begins at any byte of the file, so words may be unaligned.
      std::memcpy(to, in + i * inner.stride, sizeof(Word));
      to += sizeof(Word);
    }
    for (size_t axis = axes.size() - 1; axis-- > 0;) {
      in += axes[axis].stride;
      if (++position[axis] < axes[axis].size) break;
      in -= axes[axis].size * axes[axis].stride;
      position[axis] = 0;
    }
  }
}

void GatherElements(int64_t element_bytes, const char* in,
                    absl::Span<const Axis> axes, absl::Span<char> out) {
  switch (element_bytes) {
    case 1:
      return Gather<uint8_t>(in, axes, out);
    case 2:
      return Gather<uint16_t>(in, axes, out);
    case 4:
      return Gather<uint32_t>(in, axes, out);
    default:
      return Gather<uint64_t>(in, axes, out);
  }
}

}  // namespace

struct NpyDataset::Array {
  File file;
  Mapping mapping;         // empty for kRead
  int64_t data_begin = 0;  // in the file
  int64_t data_end = 0;    // in the file
  int64_t row_stride = 0;  // from one row to the next
  std::vector<Axis> axes;  // of a row in Fortran order; empty if it is dense
  int64_t element_bytes = 0;
  bool is_bool = false;

  absl::Status ReadRow(int64_t index, absl::Span<char> out) const {
    if (out.empty()) return absl::OkStatus();
    const int64_t offset = data_begin + index * row_stride;
    if (mapping.data() == nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(offset, out));
    } else if (axes.empty()) {
      std::memcpy(out.data(), mapping.data() + offset, out.size());
    } else {
      GatherElements(element_bytes, mapping.data() + offset, axes, out);
    }
    if (is_bool) {
      // Views of other types can leave other bytes than 0 and 1. They are true
      // in NumPy, and undefined in C++.
      for (char& byte : out) byte = byte != 0 ? 1 : 0;
    }
    return absl::OkStatus();
  }
};

NpyDataset::NpyDataset(NpyDatasetOptions options)
    : options_(std::move(options)) {}

NpyDataset::~NpyDataset() = default;

absl::StatusOr<std::shared_ptr<NpyDataset>> NpyDataset::Create(
    NpyDatasetOptions options) {
  // The files keep pointers to the paths in the options.
  std::shared_ptr<NpyDataset> dataset(new NpyDataset(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(dataset->Open());
  return dataset;
}

absl::Status NpyDataset::Open() {
  if (options_.files.empty()) {
    return absl::InvalidArgumentError(
        "npy_dataset: no files; give at least one, with the name of its field");
  }
  if (options_.access != NpyAccess::kMapped &&
      options_.access != NpyAccess::kRead) {
    return absl::InvalidArgumentError(absl::StrCat(
        "npy_dataset: access is ", static_cast<int>(options_.access),
        ", and should be kMapped or kRead"));
  }
  arrays_.reserve(options_.files.size());
  for (const NpyFile& file : options_.files) {
    LOCKSTEP_RETURN_IF_ERROR(OpenArray(file));
  }
  return ValidateFields(fields_);
}

absl::Status NpyDataset::OpenArray(const NpyFile& npy) {
  Array array;
  LOCKSTEP_ASSIGN_OR_RETURN(array.file, File::Open(npy.path.c_str()));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t file_bytes, array.file.Size());

  std::string bytes(std::min(file_bytes, kNpyPrefixBytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR(array.file.ReadAt(0, absl::MakeSpan(bytes)));
  const absl::StatusOr<int64_t> header_bytes = NpyHeaderBytes(bytes);
  if (!header_bytes.ok()) return InFile(npy.path, header_bytes.status());
  bytes.resize(std::min(file_bytes, *header_bytes));
  LOCKSTEP_RETURN_IF_ERROR(array.file.ReadAt(0, absl::MakeSpan(bytes)));
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes, npy.bf16);
  if (!header.ok()) return InFile(npy.path, header.status());

  if (header->shape.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", npy.path,
                     "': is a single number, of shape (), and has no samples; "
                     "save an array of one dimension at least"));
  }
  if (header->data_bytes > file_bytes - *header_bytes) {
    return absl::DataLossError(
        absl::StrCat("'", npy.path, "': ends at byte ", file_bytes,
                     ", but its header announces ", header->data_bytes,
                     " bytes of data from byte ", *header_bytes,
                     " on: it was truncated; restore it"));
  }
  const int64_t rows = header->shape[0];
  if (arrays_.empty()) {
    size_ = rows;
  } else if (rows != size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("npy_dataset: '", npy.path, "' has ", rows,
                     " samples, but '", options_.files[0].path, "' has ", size_,
                     "; the files of a dataset should have the same number"));
  }

  FieldSpec spec;
  spec.name = npy.field;
  spec.dtype = header->dtype;
  spec.shape.assign(header->shape.begin() + 1, header->shape.end());
  fields_.push_back(std::move(spec));

  array.data_begin = *header_bytes;
  array.data_end = *header_bytes + header->data_bytes;
  array.element_bytes = SizeOf(header->dtype);
  array.is_bool = header->dtype == DType::kBool;
  // With one dimension, both orders are the same.
  if (header->fortran_order && header->shape.size() > 1) {
    if (options_.access == NpyAccess::kRead) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", npy.path,
          "': is in Fortran order, which access=kRead does not read; save it "
          "by numpy.save(path, numpy.ascontiguousarray(array)), or set "
          "access=kMapped"));
    }
    array.row_stride = array.element_bytes;
    int64_t stride = array.element_bytes * std::max<int64_t>(rows, 1);
    for (size_t i = 1; i < header->shape.size(); ++i) {
      array.axes.push_back({header->shape[i], stride});
      stride *= std::max<int64_t>(header->shape[i], 1);
    }
  } else {
    array.row_stride = rows > 0 ? header->data_bytes / rows : 0;
  }
  if (options_.access == NpyAccess::kMapped) {
    LOCKSTEP_ASSIGN_OR_RETURN(array.mapping,
                              Mapping::Create(array.file, array.data_end));
  }
  arrays_.push_back(std::move(array));
  return absl::OkStatus();
}

absl::Status NpyDataset::CheckFiles() const {
  if (options_.access != NpyAccess::kMapped) return absl::OkStatus();
  for (const Array& array : arrays_) {
    LOCKSTEP_RETURN_IF_ERROR(array.file.CheckHas(array.data_end));
  }
  return absl::OkStatus();
}

absl::Status NpyDataset::ReadRow(int64_t index, SampleRow& row) const {
  for (size_t field = 0; field < arrays_.size(); ++field) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> out,
                              row.MutableBytes(static_cast<int>(field)));
    LOCKSTEP_RETURN_IF_ERROR(arrays_[field].ReadRow(index, out));
  }
  return absl::OkStatus();
}

absl::Status NpyDataset::Read(int64_t index, SampleContext& context,
                              SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("npy_dataset", index, size_));
  LOCKSTEP_RETURN_IF_ERROR(CheckFiles());
  return ReadRow(index, row);
}

int64_t NpyDataset::max_bulk() const {
  return options_.access == NpyAccess::kMapped ? kBulk : 1;
}

absl::Status NpyDataset::ReadMany(absl::Span<const int64_t> indices,
                                  absl::Span<SampleContext> contexts,
                                  absl::Span<SampleRow> rows) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFiles());
  for (size_t i = 0; i < indices.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("npy_dataset", indices[i], size_));
    LOCKSTEP_RETURN_IF_ERROR(ReadRow(indices[i], rows[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset::Column> NpyDataset::ReadColumn(absl::string_view name) {
  for (size_t field = 0; field < arrays_.size(); ++field) {
    if (fields_[field].name != name || !IsScalar(fields_[field])) continue;
    LOCKSTEP_RETURN_IF_ERROR(CheckFiles());
    return ScalarColumn(fields_[field], size_,
                        [&](int64_t index, absl::Span<char> out) {
                          return arrays_[field].ReadRow(index, out);
                        });
  }
  return Dataset::ReadColumn(name);
}

}  // namespace lockstep
