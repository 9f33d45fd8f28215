// Reads arrays that NumPy saved: sample i is row i of every file.
//
//   NpyDatasetOptions options;
//   options.files = {{"image", "images.npy"}, {"label", "labels.npy"}};
//   absl::StatusOr<std::shared_ptr<NpyDataset>> dataset =
//       NpyDataset::Create(std::move(options));
//
// A file of shape (60000, 28, 28) makes a field of shape [28,28], and one of
// shape (60000,) a scalar. Bytes after the array are ignored, as NumPy does.
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

// A file, and the field that its array becomes.
struct NpyFile {
  // The name of the field.
  std::string field;

  std::string path;

  // True if the elements are bfloat16. NumPy does not know this type, and saves
  // the one of ml_dtypes as '<V2', which is refused if this is false.
  bool bf16 = false;
};

// The ways to read the files.
enum class NpyAccess {
  // The files are mapped into memory. This is fast, and rows that are read
  // often stay in the page cache. Each read first checks the size of the files,
  // and returns DATA_LOSS for one that was truncated. But if a file is
  // truncated between that check and the copy, SIGBUS kills the process.
  // Replace files by renaming new ones over them, which is always safe, or use
  // kRead.
  kMapped,

  // Each row of each file is read by a system call. This is safe for files that
  // others may truncate. It does not support files in Fortran order, whose rows
  // are scattered.
  kRead,
};

// The options of an NpyDataset.
struct NpyDatasetOptions {
  // Each file becomes a field, in this order. All must have the same number of
  // rows. Elements may be of any DType, little-endian, in C or Fortran order.
  // Structured arrays, strings and objects are refused.
  std::vector<NpyFile> files;

  // The way in which the files are read.
  NpyAccess access = NpyAccess::kMapped;
};

// The rows of .npy files.
// Thread-safety: thread-safe.
class NpyDataset : public Dataset {
 public:
  // Opens the files and reads their headers; they stay open. Errors name the
  // file: NOT_FOUND and PERMISSION_DENIED come from the system.
  // INVALID_ARGUMENT means an array that is not supported, and says what to do.
  // DATA_LOSS means a file that is corrupt or shorter than its header says, and
  // names the byte.
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

  // The columns are the arrays of one dimension.
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
