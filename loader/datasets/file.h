// A file that is read, and a mapping of a file into memory. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const File file, File::Open("labels.npy"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
//   char magic[6];
//   LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(magic)));
//
// Every error has the path and the system's message: NOT_FOUND,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED (file descriptors or memory), DATA_LOSS
// for a file that is shorter than it should be, and UNAVAILABLE for all others.
#ifndef LOCKSTEP_LOADER_DATASETS_FILE_H_
#define LOCKSTEP_LOADER_DATASETS_FILE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_loader {

// A FileIdentity tells a file from another one, and from itself after a change.
struct FileIdentity {
  int64_t device = 0;
  int64_t inode = 0;
  int64_t size = 0;
  int64_t changed = 0;  // the time of the last change, in nanoseconds

  friend bool operator==(const FileIdentity& a, const FileIdentity& b) {
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.changed == b.changed;
  }
};

// An open file.
// Thread-safety: const functions may be called from many threads at once.
class File {
 public:
  // Opens a regular file; anything else is INVALID_ARGUMENT. Requires that
  // `path` outlives the File, which uses it in errors. Allocates nothing.
  static absl::StatusOr<File> Open(const char* path);

  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Returns the present size in bytes.
  absl::StatusOr<int64_t> Size() const;
  absl::StatusOr<FileIdentity> Identity() const;

  // Returns true if the file lies on a file system that is known to be one of a
  // network or of a program's (FUSE).
  bool IsOnNetwork() const;

  // Returns DATA_LOSS if the file now has fewer than `bytes` bytes, which it
  // had before.
  absl::Status CheckHas(int64_t bytes) const;

  // Fills `out` from `offset` on. Returns DATA_LOSS if the file ends too early.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const {
    return ReadAt(offset, absl::MakeConstSpan(&out, 1));
  }
  // Fills several spans with bytes that follow each other, by one system call
  // if there are at most 16.
  absl::Status ReadAt(int64_t offset,
                      absl::Span<const absl::Span<char>> parts) const;

  // Returns true if the byte is known to be in memory.
  bool IsInMemory(int64_t offset) const;

  // Asks the system to have these bytes in memory soon, if they are not, and
  // returns at once.
  void ReadAhead(int64_t offset, int64_t bytes) const;

  const char* path() const { return path_; }

 private:
  friend class Mapping;

  File(int descriptor, const char* path)
      : descriptor_(descriptor), path_(path) {}

  int descriptor_ = -1;
  const char* path_ = "";
};

// The first bytes of a file as memory. It may outlive the File.
// Requires: the file still has the bytes when they are read, or SIGBUS kills
// the process: call File::CheckHas before.
//
// Thread-safety: const functions may be called from many threads at once.
class Mapping {
 public:
  // Maps the first `bytes` bytes. Requires that the file has them.
  static absl::StatusOr<Mapping> Create(const File& file, int64_t bytes);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  const char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  Mapping(const char* data, int64_t size) : data_(data), size_(size) {}

  const char* data_ = nullptr;
  int64_t size_ = 0;
};

// Returns the status of a failed system call: "'a.npy': can't open: No such
// file or directory".
absl::Status SystemError(int error, absl::string_view path,
                         absl::string_view what);

// Returns `status` with "'a.npy': " before its message.
absl::Status InFile(absl::string_view path, const absl::Status& status);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_H_
