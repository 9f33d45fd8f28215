#include "lockstep/checkpoint/finished_mark.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/disk.h"

namespace lockstep::internal_checkpoint {
namespace {

constexpr char kFirstLine[] = "lockstep finished 1";
constexpr int64_t kMostBytes = 1024;

std::string TextOf(const FinishedMark& mark) {
  return absl::StrCat(kFirstLine, "\nsteps ", mark.steps, "\njob ", mark.job,
                      "\n");
}

// Returns nullopt if TextOf has not written the text.
std::optional<FinishedMark> MarkOf(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() != 4 || lines[0] != kFirstLine) return std::nullopt;
  absl::string_view steps = lines[1], job = lines[2];
  FinishedMark mark;
  if (!absl::ConsumePrefix(&steps, "steps ") ||
      !absl::SimpleAtoi(steps, &mark.steps) ||
      !absl::ConsumePrefix(&job, "job ")) {
    return std::nullopt;
  }
  mark.job = std::string(job);
  return mark;
}

}  // namespace

std::string PathOfMark(const std::string& path) { return path + ".finished"; }

absl::StatusOr<std::optional<FinishedMark>> ReadFinishedMark(
    const std::string& path) {
  const std::string name = PathOfMark(path);
  const absl::StatusOr<std::unique_ptr<InputFile>> file = InputFile::Open(name);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  LOCKSTEP_RETURN_IF_ERROR(file.status());
  std::string text(std::min((*file)->bytes(), kMostBytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR((*file)->Read(0, absl::MakeSpan(text)));
  std::optional<FinishedMark> mark = MarkOf(text);
  if (mark.has_value()) return mark;
  return absl::InvalidArgumentError(absl::StrCat(
      name,
      " is not the mark of a finished job; another program may have written "
      "it: rename the file, or give the job another path for checkpoints"));
}

absl::Status RemoveFinishedMark(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<FinishedMark> mark,
                            ReadFinishedMark(path));
  if (!mark.has_value()) return absl::OkStatus();
  const std::string name = PathOfMark(path);
  if (::unlink(name.c_str()) != 0) return SystemSays("can't remove", name);
  return SyncFolderOf(name);
}

absl::Status WriteFinishedMark(const std::string& path,
                               const FinishedMark& mark) {
  LOCKSTEP_RETURN_IF_ERROR(RemoveFinishedMark(path));
  Draft draft(PathOfMark(path));
  ::unlink(draft.fresh().c_str());  // a killed process may have left it
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, draft.CreateFile());
  LOCKSTEP_RETURN_IF_ERROR(file->Write(TextOf(mark)));
  LOCKSTEP_RETURN_IF_ERROR(file->Finish());
  return draft.Finish();
}

}  // namespace lockstep::internal_checkpoint
