#include "lockstep/examples/checkpoint.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace examples {
namespace {

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    if (errno == ENOENT) return std::string();
    return SystemError("can't open", path);
  }
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

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, absl::string_view bytes) {
  const std::string fresh = path + ".new";
  FILE* const file = std::fopen(fresh.c_str(), "wb");
  if (file == nullptr) return SystemError("can't create", fresh);
  // On the disk before it has the name: otherwise a machine that fails could
  // leave the name with nothing behind it.
  const bool written =
      std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
      std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  const absl::Status result =
      written ? absl::OkStatus() : SystemError("can't write", fresh);
  std::fclose(file);
  LOCKSTEP_RETURN_IF_ERROR(result);
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    return SystemError("can't replace", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadCheckpoint(lockstep::Communicator& group,
                                           const std::string& path) {
  std::string bytes;
  if (group.rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(bytes, ReadFile(path));
  }
  auto size = static_cast<int64_t>(bytes.size());
  const lockstep::Buffer length = lockstep::BufferOf(&size, 1);
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::Wait(group.Broadcast(length, length, /*root=*/0)));
  bytes.resize(size);
  const lockstep::Buffer content =
      lockstep::BufferOf(reinterpret_cast<uint8_t*>(bytes.data()), size);
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::Wait(group.Broadcast(content, content, /*root=*/0)));
  return bytes;
}

}  // namespace examples
