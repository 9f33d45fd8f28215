// WriteAll writes all bytes to a file, however many the system takes at a time.
//
//   if (!WriteAll(file.fd(), text)) return SystemError(errno, path);
#ifndef LOCKSTEP_BASE_WRITE_ALL_H_
#define LOCKSTEP_BASE_WRITE_ALL_H_

#include <unistd.h>

#include <cstddef>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/retry.h"

namespace lockstep {

// Returns false if the system can't write, with the reason in errno. Some of
// the bytes may be written then. Requires that `fd` blocks.
inline bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        RetryOnSignal([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_WRITE_ALL_H_
