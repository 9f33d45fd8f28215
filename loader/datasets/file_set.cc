#include "lockstep/loader/datasets/file_set.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace internal_loader {

absl::StatusOr<std::vector<std::string>> ExpandPaths(
    absl::Span<const std::string> patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    struct stat info;
    if (pattern.find_first_of("*?[") == std::string::npos ||
        ::stat(pattern.c_str(), &info) == 0) {
      paths.push_back(pattern);
      continue;
    }
    glob_t found = {};
    const int error = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    const size_t begin = paths.size();
    for (size_t i = 0; error == 0 && i < found.gl_pathc; ++i) {
      paths.emplace_back(found.gl_pathv[i]);
    }
    ::globfree(&found);
    if (error == GLOB_NOSPACE) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "there is no memory for the files that match '", pattern, "'"));
    }
    if (paths.size() == begin) {
      return absl::NotFoundError(absl::StrCat("no file matches '", pattern,
                                              "': check the path, and that "
                                              "its folders can be read"));
    }
    std::sort(paths.begin() + static_cast<int64_t>(begin), paths.end());
  }
  return paths;
}

absl::Status OpenFile::ReadAt(int64_t offset, absl::Span<char> out) const {
  if (mapping_.data() == nullptr) return file_.ReadAt(offset, out);
  std::memcpy(out.data(), mapping_.data() + offset, out.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileSet>> FileSet::Create(
    std::vector<std::string> paths, FileAccess access) {
  std::unique_ptr<FileSet> files(new FileSet(std::move(paths)));
  LOCKSTEP_RETURN_IF_ERROR(files->OpenAll(access));
  return files;
}

absl::Status FileSet::OpenAll(FileAccess access) {
  is_mapped_ = access == FileAccess::kMapped ||
               (access == FileAccess::kAuto && count() <= kMostOpen);
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<OpenFile>> opened;
  for (int64_t file = 0; file < count(); ++file) {
    auto open = std::make_shared<OpenFile>();
    LOCKSTEP_ASSIGN_OR_RETURN(open->file_, File::Open(path(file).c_str()));
    LOCKSTEP_ASSIGN_OR_RETURN(const FileIdentity identity,
                              open->file_.Identity());
    identities_.push_back(identity);
    if (access == FileAccess::kAuto && open->file_.IsOnNetwork()) {
      is_mapped_ = false;
    }
    if (is_mapped_) {
      opened.push_back(std::move(open));
    } else {
      Keep(file, std::move(open));
    }
  }
  // Where files were opened to be mapped before one was found on the network,
  // they are opened again later.
  for (int64_t file = 0; is_mapped_ && file < count(); ++file) {
    std::shared_ptr<OpenFile>& open = opened[static_cast<size_t>(file)];
    LOCKSTEP_ASSIGN_OR_RETURN(open->mapping_,
                              Mapping::Create(open->file_, size(file)));
    mapped_.push_back(std::move(open));
  }
  return absl::OkStatus();
}

absl::Status FileSet::Check(int64_t file, const OpenFile& open) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileIdentity now, open.file_.Identity());
  const FileIdentity& before = identities_[static_cast<size_t>(file)];
  if (now == before) return absl::OkStatus();
  if (now.device != before.device || now.inode != before.inode) {
    return absl::DataLossError(absl::StrCat(
        "'", path(file),
        "' is another file than when it was opened first: it was replaced; "
        "start again, or restore the old one"));
  }
  return absl::DataLossError(absl::StrCat(
      "'", path(file), "' was changed after it was opened: it had ",
      before.size, " bytes, and has ", now.size,
      now.size == before.size ? " others" : "",
      "; start again. To replace a file, rename the new one over it"));
}

absl::StatusOr<FileSet::Pointer> FileSet::Use(int64_t file) {
  if (is_mapped_) {
    const Pointer& open = mapped_[static_cast<size_t>(file)];
    LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
    return open;
  }
  if (const Pointer open = FindOpen(file)) {
    LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
    return open;
  }
  const auto open = std::make_shared<OpenFile>();
  LOCKSTEP_ASSIGN_OR_RETURN(open->file_, File::Open(path(file).c_str()));
  LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
  MutexLock lock(mutex_);
  Keep(file, open);
  return Pointer(open);
}

FileSet::Pointer FileSet::FindOpen(int64_t file) {
  MutexLock lock(mutex_);
  Kept& kept = open_[static_cast<size_t>(file)];
  kept.used = ++uses_;
  return kept.file;
}

// Closes the file that was used longest ago, if there are too many. A file that
// another thread reads stays open until it has done so.
void FileSet::Keep(int64_t file, Pointer open) {
  if (open_[static_cast<size_t>(file)].file == nullptr) {
    if (static_cast<int64_t>(numbers_.size()) == kMostOpen) {
      const auto oldest = std::min_element(
          numbers_.begin(), numbers_.end(), [this](int64_t a, int64_t b) {
            mutex_.AssertHeld();
            return open_[static_cast<size_t>(a)].used <
                   open_[static_cast<size_t>(b)].used;
          });
      open_[static_cast<size_t>(*oldest)].file = nullptr;
      *oldest = file;
    } else {
      numbers_.push_back(file);
    }
  }
  open_[static_cast<size_t>(file)] = {std::move(open), ++uses_};
}

}  // namespace internal_loader
}  // namespace lockstep
