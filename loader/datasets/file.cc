#include "lockstep/loader/datasets/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace internal_loader {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status SystemError(int error, absl::string_view path,
                         absl::string_view what) {
  return lockstep::SystemError(error, absl::StrCat("'", path, "': ", what),
                               CodeOf(error));
}

absl::Status InFile(absl::string_view path, const absl::Status& status) {
  return Annotate(status, absl::StrCat("'", path, "'"));
}

absl::StatusOr<File> File::Open(const char* path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer. The flag
  // changes nothing for regular files.
  const int descriptor = RetryOnSignal(
      [&] { return ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) return SystemError(errno, path, "can't open");
  File file(descriptor, path);
  struct stat info;
  if (::fstat(descriptor, &info) != 0) {
    return SystemError(errno, path, "can't get the size");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' is ", S_ISDIR(info.st_mode) ? "a directory" : "special",
        ", and not a regular file"));
  }
  return file;
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(other.path_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<int64_t> File::Size() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileIdentity identity, Identity());
  return identity.size;
}

absl::StatusOr<FileIdentity> File::Identity() const {
  struct stat info;
  if (::fstat(descriptor_, &info) != 0) {
    return SystemError(errno, path_, "can't get the size");
  }
  FileIdentity identity;
  identity.device = static_cast<int64_t>(info.st_dev);
  identity.inode = static_cast<int64_t>(info.st_ino);
  identity.size = static_cast<int64_t>(info.st_size);
  // After the year 2262 it wraps, and still tells one time from another.
  identity.changed = static_cast<int64_t>(
      static_cast<uint64_t>(info.st_mtim.tv_sec) * 1000000000 +
      static_cast<uint64_t>(info.st_mtim.tv_nsec));
  return identity;
}

bool File::IsOnNetwork() const {
  struct statfs info;
  if (::fstatfs(descriptor_, &info) != 0) return false;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x6969:      // NFS
    case 0x517b:      // SMB
    case 0xff534d42:  // CIFS
    case 0xfe534d42:  // SMB 2
    case 0x01021997:  // 9P
    case 0x65735546:  // FUSE, and virtiofs
    case 0x00c36400:  // Ceph
    case 0x0bd00bd0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x19830326:  // BeeGFS
    case 0x18031977:  // WekaFS
    case 0x5346414f:  // AFS
    case 0x6b414653:  // kAFS
    case 0x73757245:  // Coda
      return true;
    default:
      return false;
  }
}

absl::Status File::CheckHas(int64_t bytes) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, Size());
  if (size >= bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "'", path_, "' ends at byte ", size, ", and had data up to byte ", bytes,
      " when it was opened: it was truncated; restore it and start again"));
}

absl::Status File::ReadAt(int64_t offset,
                          absl::Span<const absl::Span<char>> parts) const {
  constexpr size_t kMost = 16;
  int64_t at = offset;
  size_t done = 0;  // bytes of parts[0]
  while (!parts.empty()) {
    iovec left[kMost];
    const size_t count = std::min(parts.size(), kMost);
    int64_t wanted = 0;
    for (size_t i = 0; i < count; ++i) {
      const absl::Span<char> part = parts[i].subspan(i == 0 ? done : 0);
      left[i] = {part.data(), part.size()};
      wanted += static_cast<int64_t>(part.size());
    }
    const ssize_t got =
        wanted == 0 ? 0
                    : ::preadv(descriptor_, left, static_cast<int>(count), at);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(
          errno, path_,
          absl::StrCat("can't read ", wanted, " bytes at byte ", at));
    }
    if (got == 0 && wanted > 0) {
      return absl::DataLossError(
          absl::StrCat("'", path_, "' ends at byte ", Size().value_or(at),
                       ", and should have bytes ", offset, " to ", at + wanted,
                       ": it was truncated; restore it"));
    }
    at += got;
    done += static_cast<size_t>(got);
    while (!parts.empty() && done >= parts[0].size()) {
      done -= parts[0].size();
      parts.remove_prefix(1);
    }
  }
  return absl::OkStatus();
}

bool File::IsInMemory(int64_t offset) const {
  char byte;
  const iovec part = {&byte, 1};
  return ::preadv2(descriptor_, &part, 1, offset, RWF_NOWAIT) == 1;
}

void File::ReadAhead(int64_t offset, int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

absl::StatusOr<Mapping> Mapping::Create(const File& file, int64_t bytes) {
  if (bytes == 0) return Mapping();  // mmap refuses 0 bytes
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED,
                            file.descriptor_, /*offset=*/0);
  if (data == MAP_FAILED) {
    return SystemError(errno, file.path(),
                       absl::StrCat("can't map ", bytes, " bytes"));
  }
  return Mapping(static_cast<const char*>(data), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace internal_loader
}  // namespace lockstep
