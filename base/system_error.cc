#include "lockstep/base/system_error.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>  // NOLINT: the texts of errors
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

bool IsShortage(int error) {
  switch (error) {
    case EAGAIN:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC:
      return true;
    default:
      return false;
  }
}

absl::string_view RemedyFor(int error) {
  switch (error) {
    case EAGAIN:
      return "; raise the limit of threads and processes, which `ulimit -u` "
             "and the container's pids.max show";
    case EMFILE:
      return "; raise the limit of open files, which `ulimit -n` shows";
    case ENFILE:
      return "; raise the host's limit of open files, which fs.file-max is";
    default:
      return "";
  }
}

std::string ErrorText(int error) {
  // strerror is not thread-safe, so the text comes from a std::error_category.
  return absl::StrCat(std::generic_category().message(error), RemedyFor(error));
}

absl::Status SystemError(int error, absl::string_view what,
                         absl::StatusCode otherwise) {
  return absl::Status(
      IsShortage(error) ? absl::StatusCode::kResourceExhausted : otherwise,
      absl::StrCat(what, ": ", ErrorText(error)));
}

int ShortageOfDescriptors(int count) {
  std::vector<int> opened;
  opened.reserve(count);
  int shortage = 0;
  while (shortage == 0 && static_cast<int>(opened.size()) < count) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) {
      shortage = errno;
    } else {
      opened.push_back(descriptor);
    }
  }
  for (const int descriptor : opened) close(descriptor);
  return shortage;
}

}  // namespace lockstep
