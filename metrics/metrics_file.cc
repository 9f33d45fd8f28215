#include "lockstep/metrics/metrics_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
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
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/no_sigpipe.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_metrics {
namespace {

// Everyone may read and write the file, unless the process's umask forbids it.
constexpr int kMode = 0666;

// Returns the last byte, or '\n' if the file can't be read.
char LastByteOf(const std::string& path, int64_t size) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char last = '\n';
  if (file.ok() && ::pread(file.fd(), &last, 1, size - 1) != 1) last = '\n';
  return last;
}

// Returns true if a write does not block now. Otherwise sets errno.
bool TakesMore(int fd) {
  pollfd output = {fd, POLLOUT, 0};
  const int ready = ::poll(&output, 1, /*timeout=*/0);
  if (ready == 0) errno = EAGAIN;
  return ready > 0;
}

}  // namespace

absl::Status MakeFolderOf(const std::string& path) {
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(
      error.value(),
      absl::StrCat("can't create ", folder.string(), RemedyFor(error.value())));
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(
    const std::string& path, absl::Duration pace) {
  LOCKSTEP_RETURN_IF_ERROR(MakeFolderOf(path));
  // With O_NONBLOCK, a pipe without a reader is an error, and neither open nor
  // a write to a full pipe blocks.
  Descriptor descriptor(RetryOnSignal([&] {
    return ::open(path.c_str(),
                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                  kMode);
  }));
  if (!descriptor.ok()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("can't open ", path, RemedyFor(errno)));
  }
  std::unique_ptr<MetricsFile> file(
      new MetricsFile(path, std::move(descriptor), pace));
  const int fd = file->descriptor_.fd();
  struct stat found = {};
  if (::fstat(fd, &found) != 0) return file->Failed(errno);
  file->is_regular_ = S_ISREG(found.st_mode);
  if (!file->is_regular_ || found.st_size == 0) return file;
  file->size_ = found.st_size;
  file->is_torn_ = LastByteOf(path, found.st_size) != '\n';
  return file;
}

std::unique_ptr<MetricsFile> MetricsFile::StandardOutput() {
  return std::unique_ptr<MetricsFile>(new MetricsFile(
      "the standard output", Descriptor(), absl::ZeroDuration()));
}

MetricsFile::~MetricsFile() {
  if (fork_guard_.forked()) {
    descriptor_.Release();  // it is closed, and may be another file's now
    return;
  }
  Flush().IgnoreError();
  // A process that is just being forked may hold a copy of the descriptor, and
  // so the lock, a little longer.
  if (descriptor_.ok()) ::flock(descriptor_.fd(), LOCK_UN);
}

absl::Status MetricsFile::Add(absl::string_view bytes) {
  if (fork_guard_.forked()) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics go to ", path_,
                     " from the process that opened it, and not "
                     "from one that was forked from it"));
  }
  if (is_regular_) return AddToFile(bytes);
  // A pipe may have no reader any more, which must not end the training.
  const NoSigpipe guard;
  return descriptor_.ok() ? AddToFile(bytes) : AddToOutput(bytes);
}

absl::Status MetricsFile::AddLine(absl::string_view line) {
  return Add(is_torn_ ? absl::StrCat("\n", line) : line);
}

absl::Status MetricsFile::AddSoon(absl::string_view line) {
  absl::StrAppend(&gathered_, line);
  if (descriptor_.ok() && SteadyNow() < next_) return absl::OkStatus();
  return Flush();
}

absl::Status MetricsFile::Flush() {
  next_ = After(pace_);
  if (gathered_.empty()) return absl::OkStatus();
  return AddLine(std::exchange(gathered_, std::string()));
}

absl::Status MetricsFile::AddToOutput(absl::string_view bytes) {
  std::string line(bytes);
  // Returns to the beginning of the terminal's line, and clears it.
  if (::isatty(STDOUT_FILENO) == 1) line.insert(0, "\r\x1b[K");
  // A pipe that is ready takes so many bytes without blocking.
  constexpr size_t kPiece = PIPE_BUF;
  for (size_t at = 0; at < line.size(); at += kPiece) {
    const size_t size = std::min(kPiece, line.size() - at);
    errno = 0;
    if (!TakesMore(STDOUT_FILENO) ||
        std::fwrite(&line[at], 1, size, stdout) != size ||
        std::fflush(stdout) != 0) {
      is_torn_ = is_torn_ || at > 0;
      return Failed(errno);
    }
  }
  is_torn_ = false;
  return absl::OkStatus();
}

absl::Status MetricsFile::AddToFile(absl::string_view bytes) {
  size_t added = 0;
  while (added < bytes.size()) {
    const ssize_t more =
        ::write(descriptor_.fd(), bytes.data() + added, bytes.size() - added);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      const int error = errno;
      if (added > 0 && !TakeBack(static_cast<int64_t>(added))) {
        is_torn_ = true;
        size_ += static_cast<int64_t>(added);
      }
      return Failed(error);
    }
    added += static_cast<size_t>(more);
  }
  is_torn_ = false;
  size_ += static_cast<int64_t>(added);
  return absl::OkStatus();
}

absl::Status MetricsFile::Lock() {
  if (::flock(descriptor_.fd(), LOCK_EX | LOCK_NB) == 0) {
    return absl::OkStatus();
  }
  // Some file systems do not support locks.
  if (errno != EWOULDBLOCK) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another job or another sink writes metrics to ", path_,
                   ": give each a path of its own"));
}

absl::Status MetricsFile::Failed(int error) const {
  if (error == EAGAIN) {
    return absl::UnavailableError(absl::StrCat(
        "can't write metrics to ", path_,
        ", because its reader does not read: let the reader continue, or "
        "write to a file"));
  }
  return absl::ErrnoToStatus(
      error, absl::StrCat("can't write metrics to ", path_, RemedyFor(error)));
}

// Removes a partial write from the file, if it is at the end.
bool MetricsFile::TakeBack(int64_t added) const {
  struct stat found = {};
  if (!is_regular_ || ::fstat(descriptor_.fd(), &found) != 0) return false;
  // After a write, the offset is behind the written bytes.
  if (::lseek(descriptor_.fd(), 0, SEEK_CUR) != found.st_size) return false;
  return ::ftruncate(descriptor_.fd(), found.st_size - added) == 0;
}

}  // namespace lockstep::internal_metrics
