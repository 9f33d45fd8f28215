#include "lockstep/loader/datasets/file_folder.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>  // NOLINT: with std::error_code, so that it never throws
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/file.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::CheckIndex;
using ::lockstep::internal_loader::File;
using ::lockstep::internal_loader::SystemError;

enum class Kind { kFolder, kFile };

struct Entry {
  std::string name;
  int64_t bytes = 0;  // of a file
};

// Returns the entries of that kind, sorted by name.
absl::StatusOr<std::vector<Entry>> ListFolder(const std::string& folder,
                                              Kind kind) {
  const auto failed = [&folder](const std::error_code& error) {
    return SystemError(error.value(), folder, "can't list the folder");
  };
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  if (error) return failed(error);
  std::vector<Entry> entries;
  while (at != std::filesystem::directory_iterator()) {
    Entry entry;
    entry.name = at->path().filename().string();
    // A link whose target does not exist is neither a file nor a folder.
    const std::filesystem::file_status status = at->status(error);
    if (status.type() == std::filesystem::file_type::none) {
      return SystemError(error.value(), at->path().string(),
                         "can't get the type");
    }
    const bool wanted = kind == Kind::kFolder
                            ? std::filesystem::is_directory(status)
                            : std::filesystem::is_regular_file(status);
    if (wanted && entry.name[0] != '.') {
      if (kind == Kind::kFile) {
        entry.bytes = static_cast<int64_t>(at->file_size(error));
        if (error) {
          return SystemError(error.value(), at->path().string(),
                             "can't get the size");
        }
      }
      entries.push_back(std::move(entry));
    }
    at.increment(error);
    if (error) return failed(error);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool IsTaken(absl::string_view name,
             const std::vector<std::string>& extensions) {
  return extensions.empty() ||
         std::any_of(extensions.begin(), extensions.end(),
                     [name](absl::string_view extension) {
                       return absl::EndsWithIgnoreCase(name, extension);
                     });
}

}  // namespace

FileFolder::FileFolder(FileFolderOptions options)
    : options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<FileFolder>> FileFolder::Create(
    FileFolderOptions options) {
  for (const std::string& extension : options.extensions) {
    if (extension.size() < 2 || extension[0] != '.') {
      return absl::InvalidArgumentError(
          absl::StrCat("file_folder: the extension '", extension,
                       "' should begin with a dot, such as '.bin'"));
    }
  }
  if (options.max_file_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("file_folder: max_file_bytes is ", options.max_file_bytes,
                     ", and should be 0, for the largest file, or more"));
  }
  std::shared_ptr<FileFolder> dataset(new FileFolder(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(dataset->List());
  return dataset;
}

absl::Status FileFolder::List() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Entry> folders,
                            ListFolder(options_.path, Kind::kFolder));
  if (folders.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "'", options_.path,
        "': has no sub-folders; looked for one for each class, with the files "
        "of the class in it"));
  }
  for (const Entry& folder : folders) classes_.push_back(folder.name);
  for (size_t label = 0; label < classes_.size(); ++label) {
    LOCKSTEP_RETURN_IF_ERROR(ListClass(static_cast<int64_t>(label)));
  }
  samples_.shrink_to_fit();
  paths_.shrink_to_fit();
  const int64_t bound = options_.max_file_bytes > 0
                            ? options_.max_file_bytes
                            : std::max<int64_t>(largest_, 1);
  fields_ = {{"data", DType::kU8, {-1}, bound}, {"label", DType::kI64, {}}};
  return ValidateFields(fields_);
}

absl::Status FileFolder::ListClass(int64_t label) {
  const std::string folder =
      absl::StrCat(options_.path, absl::EndsWith(options_.path, "/") ? "" : "/",
                   classes_[label]);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Entry> files,
                            ListFolder(folder, Kind::kFile));
  const size_t before = samples_.size();
  for (const Entry& file : files) {
    if (!IsTaken(file.name, options_.extensions)) continue;
    const auto begin = static_cast<int64_t>(paths_.size());
    absl::StrAppend(&paths_, folder, "/", file.name);
    if (options_.max_file_bytes > 0 && file.bytes > options_.max_file_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", paths_.substr(begin), "': has ", file.bytes,
          " bytes, more than max_file_bytes=", options_.max_file_bytes,
          "; raise it"));
    }
    paths_ += '\0';
    samples_.push_back({begin, file.bytes, label});
    largest_ = std::max(largest_, file.bytes);
  }
  if (samples_.size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "'", folder, "': has none of the files that were looked for: ",
      options_.extensions.empty()
          ? std::string("regular ones of any name")
          : absl::StrCat("*", absl::StrJoin(options_.extensions, ", *")),
      ". Every sub-folder is a class; remove those that are not"));
}

absl::string_view FileFolder::path(int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index < size());
  return &paths_[samples_[index].path];
}

std::string FileFolder::PlaceOf(int64_t index, int /*field*/) const {
  if (index < 0 || index >= size()) return "";
  return absl::StrCat("'", path(index), "'");
}

absl::Status FileFolder::Read(int64_t index, SampleContext& context,
                              SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("file_folder", index, size()));
  const Sample& sample = samples_[index];
  LOCKSTEP_ASSIGN_OR_RETURN(const File file, File::Open(&paths_[sample.path]));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
  if (bytes != sample.bytes) {
    return absl::DataLossError(absl::StrCat(
        "'", file.path(), "': has ", bytes, " bytes, and had ", sample.bytes,
        " when the folder was listed; restore it, or start again"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const absl::Span<char> data,
      row.MutableRaggedBytes(0, absl::MakeConstSpan(&bytes, 1)));
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, data));
  return row.Set<int64_t>(1, sample.label);
}

absl::StatusOr<Dataset::Column> FileFolder::ReadColumn(absl::string_view name) {
  if (name != "label" && name != "bytes") return Dataset::ReadColumn(name);
  std::vector<int64_t> values;
  values.reserve(samples_.size());
  for (const Sample& sample : samples_) {
    values.push_back(name == "label" ? sample.label : sample.bytes);
  }
  return Column(std::move(values));
}

}  // namespace lockstep
