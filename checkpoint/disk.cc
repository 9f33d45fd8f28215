#include "lockstep/checkpoint/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/write_all.h"

namespace lockstep::internal_checkpoint {
namespace {

absl::Status Exists(absl::string_view path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path,
                   " is there already, and nothing is overwritten: remove it, "
                   "or take another name"));
}

}  // namespace

absl::Status SystemSays(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(
      error,
      absl::StrCat(
          what, " ", path,
          error == ENOSPC || error == EDQUOT ? ": make room there" : ""));
}

int SyncFile(const Descriptor& file) {
  return RetryOnSignal([&] { return ::fsync(file.fd()); });
}

absl::Status SyncFolder(const std::string& folder) {
  Descriptor file(RetryOnSignal([&] {
    return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }));
  if (!file.ok()) return SystemSays("can't open", folder);
  // Some file systems can't sync folders.
  if (SyncFile(file) != 0 && errno != EINVAL) {
    return SystemSays("can't sync", folder);
  }
  return absl::OkStatus();
}

absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return SyncFolder(slash == std::string::npos ? "."
                                               : path.substr(0, slash + 1));
}

absl::Status CheckFree(const std::string& path) {
  struct stat facts = {};
  if (::lstat(path.c_str(), &facts) == 0) return Exists(path);
  const std::string fresh = path + ".new";
  if (::lstat(fresh.c_str(), &facts) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        fresh, " is there already: another process is writing ", path,
        ", or one was killed before it was finished; in that case, remove it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> OpenNew(const std::string& path) {
  Descriptor file(RetryOnSignal([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }));
  if (!file.ok()) {
    return errno == EEXIST ? Exists(path) : SystemSays("can't create", path);
  }
  return file;
}

absl::Status Rename(const std::string& from, const std::string& to,
                    bool replaces) {
  // Some file systems can't check the name in one step with the renaming.
  int result = replaces ? -1
                        : ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD,
                                      to.c_str(), RENAME_NOREPLACE);
  if (result != 0 && (replaces || errno == EINVAL || errno == ENOSYS)) {
    result = std::rename(from.c_str(), to.c_str());
  }
  if (result != 0) {
    return errno == EEXIST
               ? Exists(to)
               : SystemSays(absl::StrCat("can't give the name ", to, " to"),
                            from);
  }
  return SyncFolderOf(to);
}

// ---- Reading.

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(
    const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its other end.
  Descriptor file(RetryOnSignal(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!file.ok()) return SystemSays("can't open", path);
  struct stat facts = {};
  if (::fstat(file.fd(), &facts) != 0) return SystemSays("can't read", path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no regular file, and can't be read as one"));
  }
  return std::unique_ptr<InputFile>(
      new InputFile(path, std::move(file), facts.st_size));
}

absl::Status InputFile::Read(int64_t offset, absl::Span<char> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = RetryOnSignal([&] {
      return ::pread(file_.fd(), bytes.data(), bytes.size(), offset);
    });
    if (got < 0) return SystemSays("can't read", path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(
          path_, " ends at byte ", offset, ", but had ", bytes_,
          " bytes before: it was truncated meanwhile; restore it"));
    }
    bytes.remove_prefix(got);
    offset += got;
  }
  return absl::OkStatus();
}

// ---- Writing.

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor file, OpenNew(path));
  return std::unique_ptr<OutputFile>(new OutputFile(path, std::move(file)));
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  return WriteAll(file_.fd(), bytes) ? absl::OkStatus()
                                     : SystemSays("can't write", path_);
}

absl::Status OutputFile::Finish() {
  if (SyncFile(file_) != 0) {
    return SystemSays("can't sync", path_);
  }
  // After an interrupted close, Linux has closed the descriptor, too.
  if (file_.Close() != 0 && errno != EINTR) {
    return SystemSays("can't close", path_);
  }
  return absl::OkStatus();
}

Draft::~Draft() {
  if (!is_ours_) return;
  std::error_code ignored;
  std::filesystem::remove_all(fresh(), ignored);
}

absl::StatusOr<std::unique_ptr<OutputFile>> Draft::CreateFile() {
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(path_));
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, OutputFile::Create(fresh()));
  is_ours_ = true;
  return file;
}

absl::Status Draft::CreateFolder() {
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(path_));
  if (::mkdir(fresh().c_str(), 0777) != 0) {
    return errno == EEXIST ? Exists(fresh())
                           : SystemSays("can't create", fresh());
  }
  is_ours_ = true;
  return absl::OkStatus();
}

absl::Status Draft::Finish() {
  LOCKSTEP_RETURN_IF_ERROR(Rename(fresh(), path_, /*replaces=*/false));
  is_ours_ = false;
  return absl::OkStatus();
}

}  // namespace lockstep::internal_checkpoint
