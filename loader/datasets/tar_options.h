// The options of TarFiles (tar_files.h).
//
//   TarFilesOptions options;
//   options.files = {"data/train-{000..127}.tar"};
//   options.fields = {{"image", {"jpg", "png"}}, {"width", {"json"}}};
//   options.fields[1].json_key = "size.width";
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_OPTIONS_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file_access.h"

namespace lockstep {

// The kinds of content that a member can have.
enum class TarContent {
  // The bytes as they are, u8[-1]: images, texts, and anything else.
  kBytes,
  // A number as text, such as "7\n", or a number in a JSON object.
  kNumber,
  // An array in the form of NumPy's .npy.
  kArray,
};

// The ways to go on if a sample has no member for a field.
enum class TarMissing {
  // Create returns an error that names the sample.
  kError,
  // The sample is left out, and counted.
  kSkip,
  // The field is empty if it is ragged, and otherwise has zeros, also if a JSON
  // object has no value at the key.
  kEmpty,
};

// A field of a TarFiles.
struct TarField {
  // The name of the field.
  std::string field;

  // The parts of its members' names behind the first dot, such as "jpg" or
  // "seg.png", in upper or lower case. If a sample has several of them, the
  // one that stands first here is read.
  std::vector<std::string> extensions;

  // The kind of its content. Unset: an array for "npy", a number for "cls",
  // "cls2", "id", "index" and "inx", or if json_key is set, and otherwise
  // bytes, as the first extension says.
  std::optional<TarContent> content = {};

  // The place of the number in a JSON object: "label", or "size.width" for
  // {"size": {"width": 7}}. Keys are compared as the file has them: Python
  // writes other characters than ASCII as escapes. Empty: the member is the
  // number.
  std::string json_key = {};

  // The type of a number; unset: i64. For an array it is a check: Create
  // returns an error if the first sample has another type, or another shape.
  std::optional<DType> dtype = {};

  // The shape of an array. A dimension of -1 differs from sample to sample.
  // Unset: the shape of the first sample, which all others must have.
  std::optional<std::vector<int64_t>> shape = {};

  // The most bytes that a member may have. For bytes and arrays with a -1, it
  // is the memory that a sample takes in a batch. Create returns an error if a
  // member is larger. 0: the largest member.
  int64_t max_bytes = 0;

  TarMissing missing = TarMissing::kError;
};

// The ways to use the index beside a tar file.
enum class TarIndex {
  // It is read if it is there and fits to the file.
  kRead,
  // The same, and otherwise it is written, under another name first, so that
  // others never see a part of it.
  kWrite,
  // It is not looked for.
  kIgnore,
};

// The progress of Create.
struct TarProgress {
  int64_t files = 0;  // that are done
  int64_t all_files = 0;
  int64_t members = 0;
};

// The options of a TarFiles.
struct TarFilesOptions {
  // Paths, or patterns with *, ?, [...] and braces, as in {train,val}-{00..63},
  // each of which must match a file. The files of a pattern are sorted by the
  // bytes of their names. What is given twice is read twice.
  std::vector<std::string> files;

  // The fields to read. Members that are in none of them are left out.
  std::vector<TarField> fields;

  // True if there is a last field, "key", with what comes before the first dot
  // in the names of the sample's members, u8[-1]. All keys are in memory then.
  bool key = false;

  TarIndex index = TarIndex::kRead;

  // The way in which the files are read.
  FileAccess access = FileAccess::kAuto;

  // Called about every two seconds while Create reads the files, on the thread
  // that called it.
  std::function<void(const TarProgress&)> progress;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_OPTIONS_H_
