// A file to read, and a part of one as memory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const File file, File::Open("labels.npy"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
//   char magic[6];
//   LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(magic)));
//
// Every error has the path and what the system says: NOT_FOUND,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED (file descriptors or memory), DATA_LOSS
// for a file that is shorter than it should be, UNAVAILABLE for the rest.
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

// Thread-safety: const functions may be called from many threads at once.
class File {
 public:
  // Opens a regular file; anything else is INVALID_ARGUMENT. Keeps `path`,
  // which must outlive the File, for its errors: to open allocates nothing.
  static absl::StatusOr<File> Open(const char* path);

  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // In bytes, now.
  absl::StatusOr<int64_t> Size() const;

  // DATA_LOSS if the file has fewer than `bytes` bytes now, which it had
  // before.
  absl::Status CheckHas(int64_t bytes) const;

  // Fills `out` from `offset` on. DATA_LOSS if the file ends before.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const;

  const char* path() const { return path_; }

 private:
  friend class Mapping;

  File(int descriptor, const char* path)
      : descriptor_(descriptor), path_(path) {}

  int descriptor_ = -1;
  const char* path_ = "";
};

// Outlives the File that it was made of. To touch memory that the file has no
// longer is a SIGBUS: call File::CheckHas before.
class Mapping {
 public:
  // The first `bytes` bytes of the file, which has them.
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

// The status of a failed call of the system: "'a.npy': can't open: No such file
// or directory".
absl::Status SystemError(int error, absl::string_view path,
                         absl::string_view what);

// `status` with "'a.npy': " before its message.
absl::Status InFile(absl::string_view path, const absl::Status& status);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_H_
