#include "lockstep/plugin/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_plugin {
namespace {

// Everybody may read and write it, as far as the process's mask allows.
constexpr int kMode = 0666;

// Returns '\n' where the file can't be read.
char LastByteOf(const std::string& path, int64_t size) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char last = '\n';
  if (file.ok() && ::pread(file.fd(), &last, 1, size - 1) != 1) last = '\n';
  return last;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(
    const std::string& path) {
  Descriptor descriptor(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode));
  if (!descriptor.ok()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("can't open ", path, RemedyFor(errno)));
  }
  std::unique_ptr<MetricsFile> file(
      new MetricsFile(path, std::move(descriptor)));
  struct stat found = {};
  if (::fstat(file->descriptor_.fd(), &found) != 0) return file->Failed(errno);
  if (!S_ISREG(found.st_mode) || found.st_size == 0) return file;
  file->size_ = found.st_size;
  file->is_torn_ = LastByteOf(path, found.st_size) != '\n';
  return file;
}

std::unique_ptr<MetricsFile> MetricsFile::StandardOutput() {
  return std::unique_ptr<MetricsFile>(
      new MetricsFile("the standard output", Descriptor()));
}

absl::Status MetricsFile::Add(absl::string_view bytes) {
  if (!descriptor_.ok()) {
    const bool done =
        std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() &&
        std::fflush(stdout) == 0;
    return done ? absl::OkStatus() : Failed(errno);
  }
  size_t added = 0;
  while (added < bytes.size()) {
    const ssize_t more =
        ::write(descriptor_.fd(), bytes.data() + added, bytes.size() - added);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      const int error = errno;
      TakeBack(static_cast<int64_t>(added));
      return Failed(error);
    }
    added += static_cast<size_t>(more);
  }
  size_ += static_cast<int64_t>(added);
  return absl::OkStatus();
}

absl::Status MetricsFile::EndTornLine() {
  if (!is_torn_) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Add("\n"));
  is_torn_ = false;
  return absl::OkStatus();
}

absl::Status MetricsFile::Failed(int error) const {
  return absl::ErrnoToStatus(
      error, absl::StrCat("can't write metrics to ", path_, RemedyFor(error)));
}

// Takes back what was added in part, if it is the end of a file.
void MetricsFile::TakeBack(int64_t added) const {
  if (added == 0) return;
  struct stat found = {};
  if (::fstat(descriptor_.fd(), &found) != 0 || !S_ISREG(found.st_mode)) return;
  // A write leaves the offset behind what it has added.
  if (::lseek(descriptor_.fd(), 0, SEEK_CUR) != found.st_size) return;
  while (::ftruncate(descriptor_.fd(), found.st_size - added) != 0 &&
         errno == EINTR) {
  }
}

}  // namespace lockstep::internal_plugin
