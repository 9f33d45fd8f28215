// The files of a dataset, which must stay as they were when it was made.
// Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::unique_ptr<FileSet> files,
//       FileSet::Create({"a.bin", "b.bin"}, FileAccess::kAuto));
//   LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file, files->Use(1));
//   LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(0, out));
#ifndef LOCKSTEP_LOADER_DATASETS_FILE_SET_H_
#define LOCKSTEP_LOADER_DATASETS_FILE_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/file_access.h"

namespace lockstep {
namespace internal_loader {

// Returns the paths that match the patterns: those of one pattern sorted by
// their bytes, and the patterns in their order. Braces are those of a shell:
// {08..11} stands for 08, 09, 10 and 11, which have zeros in front since one of
// the ends has, and {a,b} for a and b. What has none of *, ? and [, or is the
// path of a file, is taken as it is. NOT_FOUND if a pattern matches no file;
// INVALID_ARGUMENT if braces stand for more than a million paths, or go down.
absl::StatusOr<std::vector<std::string>> ExpandPaths(
    absl::Span<const std::string> patterns);

// A file of a set that is open. Thread-safety: const functions are thread-safe.
class OpenFile {
 public:
  // Fills `out` from `offset` on, from memory if the file is mapped.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const {
    return ReadAt(offset, absl::MakeConstSpan(&out, 1));
  }
  // Fills several spans with bytes that follow each other.
  absl::Status ReadAt(int64_t offset,
                      absl::Span<const absl::Span<char>> parts) const;

  bool IsInMemory(int64_t offset) const { return file_.IsInMemory(offset); }

  // Asks the system to have these bytes in memory soon, and returns at once.
  void ReadAhead(int64_t offset, int64_t bytes) const {
    file_.ReadAhead(offset, bytes);
  }

 private:
  friend class FileSet;

  File file_;
  Mapping mapping_;
};

// Thread-safety: thread-safe.
class FileSet {
 public:
  // The most files that are open at a time, unless they are mapped.
  static constexpr int64_t kMostOpen = 256;

  using Pointer = std::shared_ptr<const OpenFile>;

  // Opens each file once. Errors name it.
  static absl::StatusOr<std::unique_ptr<FileSet>> Create(
      std::vector<std::string> paths, FileAccess access);

  int64_t count() const { return static_cast<int64_t>(paths_.size()); }
  const std::string& path(int64_t file) const {
    return paths_[static_cast<size_t>(file)];
  }
  int64_t size(int64_t file) const {
    return identities_[static_cast<size_t>(file)].size;
  }
  bool is_mapped() const { return is_mapped_; }

  // Adds what tells the content of each file from another one: a field for each
  // file, with its name, or one for all if they are more than kMostOpen.
  // Requires one text for each file.
  void AddTo(absl::Span<const std::string> contents,
             Fingerprint& fingerprint) const;

  // Opens the file if it is not open, and returns it. It stays open for as long
  // as the pointer lives. DATA_LOSS if it is not the file that it was when the
  // set was made.
  absl::StatusOr<Pointer> Use(int64_t file);

  // Returns the bytes of a mapped file. Requires is_mapped(). Use tells if they
  // may be read.
  const char* data(int64_t file) const {
    return mapped_[static_cast<size_t>(file)]->mapping_.data();
  }

 private:
  explicit FileSet(std::vector<std::string> paths)
      : paths_(std::move(paths)), open_(paths_.size()) {}

  absl::Status OpenAll(FileAccess access);
  absl::Status Check(int64_t file, const OpenFile& open) const;
  Pointer FindOpen(int64_t file);
  void Keep(int64_t file, Pointer open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::string> paths_;  // a File refers to its path
  std::vector<FileIdentity> identities_;
  bool is_mapped_ = false;
  std::vector<Pointer> mapped_;  // all files, if they are mapped

  // Otherwise: the files that are open, and when each was used last.
  struct Kept {
    Pointer file;
    int64_t used = 0;
  };
  Mutex mutex_;
  std::vector<Kept> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> numbers_ ABSL_GUARDED_BY(mutex_);  // of those
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_SET_H_
