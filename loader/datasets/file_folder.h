// Reads a folder of files that has one sub-folder for each class, as
// torchvision's ImageFolder does:
//
//   images/cat/0001.jpg
//   images/cat/0002.jpg
//   images/dog/0001.jpg
//
//   FileFolderOptions options;
//   options.path = "images";
//   options.extensions = {".jpg", ".jpeg"};
//   absl::StatusOr<std::shared_ptr<FileFolder>> dataset =
//       FileFolder::Create(std::move(options));
//
// The fields are "data", the bytes of a file, u8[-1], and "label", the number
// of its class, an i64. A dataset on top decodes the bytes.
#ifndef LOCKSTEP_LOADER_DATASETS_FILE_FOLDER_H_
#define LOCKSTEP_LOADER_DATASETS_FILE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// The options of a FileFolder.
struct FileFolderOptions {
  // The path of the folder.
  std::string path;

  // The endings of the files to take, such as ".bin", in upper or lower case.
  // Empty: all files.
  std::vector<std::string> extensions;

  // The bound of "data", and so the memory that a sample takes in a batch.
  // Create returns an error if a file is larger. 0: the largest file.
  int64_t max_file_bytes = 0;
};

// The files of a folder.
// Thread-safety: thread-safe.
class FileFolder : public Dataset {
 public:
  // Lists the folder. Classes are its sub-folders, sorted by the bytes of their
  // names. Samples are the regular files directly in them, class by class,
  // sorted in the same way. Links are followed, and names that begin with '.'
  // are left out. NOT_FOUND means that the folder is missing or has no
  // sub-folders, or that a class has no file to take.
  static absl::StatusOr<std::shared_ptr<FileFolder>> Create(
      FileFolderOptions options);

  int64_t size() const override {
    return static_cast<int64_t>(samples_.size());
  }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  // Opens the file and reads it. NOT_FOUND if it no longer exists, DATA_LOSS if
  // its size is not the one when the folder was listed.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;

  // The columns are "label", and "bytes", the size of each file.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

  // Returns the path of the sample's file.
  std::string PlaceOf(int64_t index, int field) const override;

  // Returns the names of the classes: label i is classes()[i].
  absl::Span<const std::string> classes() const { return classes_; }

  // Returns the path of the sample's file. Requires 0 <= index < size().
  absl::string_view path(int64_t index) const;

 private:
  struct Sample {
    int64_t path;  // the place in `paths_` where its path begins
    int64_t bytes;
    int64_t label;
  };

  explicit FileFolder(FileFolderOptions options);
  absl::Status List();
  absl::Status ListClass(int64_t label);

  const FileFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  std::string paths_;  // of all samples, each followed by a zero
  int64_t largest_ = 0;
  std::vector<FieldSpec> fields_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_FOLDER_H_
