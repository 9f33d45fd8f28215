// A folder of files, sorted into one sub-folder for each class, as
// torchvision's ImageFolder has it:
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
// of its class, an i64. To decode the bytes is for a dataset on top.
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

struct FileFolderOptions {
  std::string path;

  // The endings of the files to take, in upper or lower case, such as ".bin".
  // Empty: all.
  std::vector<std::string> extensions;

  // The bound of "data", and so the memory that a sample takes in a batch: a
  // larger file is an error of Create. 0: the largest of the files.
  int64_t max_file_bytes = 0;
};

class FileFolder : public Dataset {
 public:
  // Lists the folder. Classes are its sub-folders, sorted by the bytes of their
  // names; samples the regular files right in them, class by class, sorted in
  // the same way. Links are followed, and names that begin with '.' left out.
  // NOT_FOUND for a missing folder, one without sub-folders, and a class
  // without a file to take.
  static absl::StatusOr<std::shared_ptr<FileFolder>> Create(
      FileFolderOptions options);

  int64_t size() const override {
    return static_cast<int64_t>(samples_.size());
  }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  // Opens the file and reads it. NOT_FOUND if it is gone, DATA_LOSS if it has
  // another size than when the folder was listed.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;

  // "label", and "bytes": the size of each file.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

  // The names of the classes: label i is classes()[i].
  absl::Span<const std::string> classes() const { return classes_; }

  // Where the sample is. Requires 0 <= index < size().
  absl::string_view path(int64_t index) const;

 private:
  struct Sample {
    int64_t path;  // where it begins in `paths_`
    int64_t bytes;
    int64_t label;
  };

  explicit FileFolder(FileFolderOptions options);
  absl::Status List();
  absl::Status ListClass(int64_t label);

  const FileFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  std::string paths_;  // each with a zero behind it
  int64_t largest_ = 0;
  std::vector<FieldSpec> fields_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_FOLDER_H_
