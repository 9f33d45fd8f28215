#include "lockstep/tools/cli/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/system_error.h"
#include "lockstep/tools/cli/remove_at_signal.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {

absl::StatusOr<OutputFile> OutputFile::Choose(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return OutputFile("");
  std::error_code error;
  fs::path target = path;
  if (fs::exists(target, error)) {
    target = fs::canonical(target, error);
    if (error || !fs::is_regular_file(target, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output should be a file, but ", path,
                       " is something else; without --output, the output goes "
                       "to the standard output"));
    }
  } else if (fs::is_symlink(target, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output should be a file, but ", path, " is a link to nothing"));
  }
  if (IsNameOfRankFile(target.filename().string())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output should be another file than those of records, but it is ",
        target.string()));
  }
  return OutputFile(target.string());
}

absl::Status OutputFile::Print(
    std::ostream& out,
    const std::function<void(std::ostream& file)>& print) const {
  if (path_.empty()) {
    print(out);
    return absl::OkStatus();
  }
  const std::string draft = absl::StrCat(path_, ".", ::getpid(), ".new");
  const Descriptor made(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  int error = errno;
  if (made.ok()) {
    const RemoveAtSignal unfinished(draft);
    errno = 0;
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    print(file);
    file.close();
    if (file && std::rename(draft.c_str(), path_.c_str()) == 0) {
      return absl::OkStatus();
    }
    error = errno != 0 ? errno : EIO;
    std::remove(draft.c_str());
  }
  return SystemError(error, absl::StrCat("can't write ", path_),
                     absl::StatusCode::kUnavailable);
}

}  // namespace lockstep
