// Arrays that NumPy saved: sample i is row i of every file.
//
//   NpyDatasetOptions options;
//   options.files = {{"image", "images.npy"}, {"label", "labels.npy"}};
//   absl::StatusOr<std::shared_ptr<NpyDataset>> dataset =
//       NpyDataset::Create(std::move(options));
//
// A file of shape (60000, 28, 28) makes a field of shape [28,28], and one of
// shape (60000,) a scalar. Bytes behind the array are left alone, as NumPy
// does.
#ifndef LOCKSTEP_LOADER_DATASETS_NPY_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_NPY_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

struct NpyFile {
  // The name of the field that the file becomes.
  std::string field;

  std::string path;

  // The elements are bfloat16. NumPy has none, and saves those of ml_dtypes as
  // '<V2', which is refused otherwise.
  bool bf16 = false;
};

enum class NpyAccess {
  // The files are mapped into memory: fast, and what is read often stays in the
  // page cache. A file that was truncated is seen before each read, and is
  // DATA_LOSS; but one that is truncated in the instant between that look and
  // the copy kills the process by SIGBUS. Replace files by renaming new ones
  // over them, which is always safe, or use kRead.
  kMapped,

  // A system call for each row and file, for files that others may truncate: no
  // instant is left. Not for files in Fortran order, whose rows are scattered.
  kRead,
};

struct NpyDatasetOptions {
  // A field each, in this order; all with the same number of rows. Elements are
  // any DType, little-endian, in C or Fortran order; structured arrays, strings
  // and objects are refused.
  std::vector<NpyFile> files;

  NpyAccess access = NpyAccess::kMapped;
};

class NpyDataset : public Dataset {
 public:
  // Opens the files and reads their headers; they stay open. Errors name the
  // file: NOT_FOUND and PERMISSION_DENIED as the system has it,
  // INVALID_ARGUMENT for arrays that are not taken, with what to do, and
  // DATA_LOSS, with the byte, for files that are corrupt or shorter than their
  // header says.
  static absl::StatusOr<std::shared_ptr<NpyDataset>> Create(
      NpyDatasetOptions options);

  ~NpyDataset() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // The arrays of one dimension.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

 private:
  struct Array;

  explicit NpyDataset(NpyDatasetOptions options);
  absl::Status Open();
  absl::Status OpenArray(const NpyFile& file);
  absl::Status CheckFiles() const;
  absl::Status ReadRow(int64_t index, SampleRow& row) const;

  const NpyDatasetOptions options_;
  int64_t size_ = 0;
  std::vector<FieldSpec> fields_;
  std::vector<Array> arrays_;  // one for each of `fields_`
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_NPY_DATASET_H_
