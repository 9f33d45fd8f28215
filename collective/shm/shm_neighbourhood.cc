#include "lockstep/collective/shm/shm_neighbourhood.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_collective {

absl::StatusOr<std::string> ShmNeighbourhood() {
  char boot[64] = {};
  const int file =
      open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0 && (errno == EMFILE || errno == ENFILE)) {
    return SystemError(errno, "can't tell which host this is");
  }
  ssize_t bytes = 0;
  if (file >= 0) {
    bytes = read(file, boot, sizeof(boot) - 1);
    close(file);
  }
  if (bytes <= 0) {
    // Without /proc, processes can't reach each other's memory, so this one
    // gets a text that no other process has.
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
      random = static_cast<uint64_t>(getpid());
    }
    std::snprintf(boot, sizeof(boot), "unknown %llu",
                  static_cast<unsigned long long>(random));  // NOLINT
  }
  struct stat processes = {};
  stat("/proc/self/ns/pid", &processes);
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(boot), "/",
                      processes.st_ino, "/", geteuid());
}

}  // namespace lockstep::internal_collective
