#include "lockstep/examples/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace examples {
namespace {

// A file holds this line, the content, and 32 digits: the digest of both.
constexpr absl::string_view kFirstLine =
    "a checkpoint of Lockstep's examples\n";
constexpr size_t kDigits = 32;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return SystemError("can't open", path);
  std::string bytes;
  char some[4096];
  while (const size_t got = std::fread(some, 1, sizeof(some), file)) {
    bytes.append(some, got);
  }
  const absl::Status read = std::ferror(file) != 0
                                ? SystemError("can't read", path)
                                : absl::OkStatus();
  std::fclose(file);
  LOCKSTEP_RETURN_IF_ERROR(read);
  return bytes;
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return SystemError("can't create", path);
  const bool written =
      std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
      std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  absl::Status result =
      written ? absl::OkStatus() : SystemError("can't write", path);
  std::fclose(file);
  return result;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return SystemError(absl::StrCat("can't give the name ", to, " to"), from);
}

// Names are safe from a machine that fails when their folder is on the disk.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("can't open", folder);
  absl::Status result =
      fsync(fd) == 0 ? absl::OkStatus() : SystemError("can't sync", folder);
  close(fd);
  return result;
}

std::string Before(const std::string& path) { return path + ".before"; }

// The content of a whole checkpoint. NOT_FOUND, or DATA_LOSS.
absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::string_view content = bytes;
  const bool has_all =
      absl::ConsumePrefix(&content, kFirstLine) && content.size() >= kDigits;
  const size_t end = bytes.size() - (has_all ? kDigits : 0);
  const std::string digest =
      lockstep::DigestOf(absl::string_view(bytes).substr(0, end)).ToString();
  if (!has_all || bytes.substr(end) != digest) {
    return absl::DataLossError(absl::StrCat(
        path, ", with ", bytes.size(), " bytes, is damaged or no checkpoint"));
  }
  content.remove_suffix(kDigits);
  return std::string(content);
}

// nullopt: there is none yet.
absl::StatusOr<std::optional<std::string>> ReadLastWhole(
    const std::string& path) {
  absl::StatusOr<std::string> last = ReadWhole(path);
  if (last.ok()) return *std::move(last);
  if (!absl::IsNotFound(last.status()) && !absl::IsDataLoss(last.status())) {
    return last.status();
  }
  absl::StatusOr<std::string> before = ReadWhole(Before(path));
  if (before.ok()) {
    std::fprintf(stderr, "%s; %s is used\n",
                 std::string(last.status().message()).c_str(),
                 Before(path).c_str());
    return *std::move(before);
  }
  if (absl::IsNotFound(last.status()) && absl::IsNotFound(before.status())) {
    return std::nullopt;
  }
  return absl::DataLossError(
      absl::StrCat(last.status().message(), ", and ", before.status().message(),
                   ": put a whole one there, or remove both to begin anew"));
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, absl::string_view bytes) {
  const std::string fresh = path + ".new";
  std::string whole = absl::StrCat(kFirstLine, bytes);
  whole += lockstep::DigestOf(whole).ToString();
  // The file is on the disk before it has the name: otherwise a machine that
  // fails could leave the name with nothing behind it.
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(fresh, whole));
  // A damaged checkpoint does not take the place of a whole one.
  if (ReadWhole(path).ok()) {
    LOCKSTEP_RETURN_IF_ERROR(Rename(path, Before(path)));
  }
  LOCKSTEP_RETURN_IF_ERROR(Rename(fresh, path));
  return SyncFolderOf(path);
}

absl::StatusOr<std::optional<std::string>> ReadCheckpoint(
    lockstep::Communicator& group, const std::string& path) {
  std::optional<std::string> found;
  if (group.rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(found, ReadLastWhole(path));
  }
  int64_t size = found.has_value() ? static_cast<int64_t>(found->size()) : -1;
  const lockstep::Buffer length = lockstep::BufferOf(&size, 1);
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::Wait(group.Broadcast(length, length, /*root=*/0)));
  if (size < 0) return std::nullopt;
  if (!found.has_value()) found.emplace(size, '\0');
  const lockstep::Buffer content =
      lockstep::BufferOf(reinterpret_cast<uint8_t*>(found->data()), size);
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::Wait(group.Broadcast(content, content, /*root=*/0)));
  return found;
}

}  // namespace examples
