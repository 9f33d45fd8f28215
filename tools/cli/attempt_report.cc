#include "lockstep/tools/cli/attempt_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/json.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/system_error.h"
#include "lockstep/base/write_all.h"

namespace lockstep {

std::string AttemptReport::ToJson() const {
  std::string json = absl::StrCat(
      "{\"version\":1,\"attempt\":", attempt, ",\"node_rank\":", node_rank,
      ",\"exit_code\":", exit_code,
      ",\"blame\":", blame.has_value() ? lockstep::ToJson(*blame) : "null",
      ",\"message\":");
  internal_base::AppendJson(message, json);
  absl::StrAppend(&json, ",\"reported_by\":", reported_by, ",\"ranks\":[");
  const char* between = "";
  for (const Rank& rank : ranks) {
    absl::StrAppend(&json, std::exchange(between, ","),
                    "{\"rank\":", rank.number, ",\"pid\":", rank.pid,
                    ",\"exit_code\":", rank.end.exit_code(), ",\"end\":");
    internal_base::AppendJson(rank.end.ToString(), json);
    absl::StrAppend(&json, ",\"sent_by_launcher\":",
                    rank.sent_by_launcher ? "true" : "false", "}");
  }
  return absl::StrCat(json, "]}");
}

absl::StatusOr<ReportFile> ReportFile::Open(const std::string& path) {
  if (path.empty()) return ReportFile(Descriptor(), path);
  Descriptor file(RetryOnSignal([&] {
    return ::open(path.c_str(),
                  O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC |
                      O_NOCTTY | O_NONBLOCK,
                  0644);
  }));
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--report=", path, ": ",
        SystemError(errno, "the file can't be written").message()));
  }
  struct stat info;
  if (::fstat(file.fd(), &info) != 0 || S_ISFIFO(info.st_mode) ||
      S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--report=", path, " is a pipe; give the path of a file"));
  }
  return ReportFile(std::move(file), path);
}

absl::Status ReportFile::Write(const AttemptReport& report) {
  if (path_.empty()) return absl::OkStatus();
  if (WriteAll(file_.fd(), report.ToJson() + '\n')) return absl::OkStatus();
  return SystemError(errno,
                     absl::StrCat("the report ", path_, " can't be written"));
}

}  // namespace lockstep
