// The functions of Checkpoint that tell whether the job has finished.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/finished_mark.h"
#include "lockstep/checkpoint/share.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

using internal_checkpoint::FinishedMark;
using internal_checkpoint::PathOfMark;
using internal_checkpoint::ReadFinishedMark;
using internal_checkpoint::RemoveFinishedMark;
using internal_checkpoint::ShareText;
using internal_checkpoint::WriteFinishedMark;

absl::StatusOr<std::optional<int64_t>> Checkpoint::FindFinished() {
  if (forked()) return NotInAFork();
  if (has_restored_) {
    return absl::FailedPreconditionError(
        "FindFinished comes after Restore, when the job goes on: call it "
        "before");
  }
  if (options_.path.empty()) return std::nullopt;
  return CatchAll("looking for a finished job",
                  [&] { return FindMarkedStep(); });
}

absl::StatusOr<std::optional<int64_t>> Checkpoint::FindMarkedStep() {
  std::string marked;
  if (group_.rank() == 0) {
    const absl::StatusOr<std::optional<FinishedMark>> mark =
        ReadFinishedMark(options_.path);
    // The job can be trained without it.
    if (!mark.ok()) {
      Log(absl::StrCat(mark.status().message(), "; it is ignored"));
    } else if (mark->has_value() && (*mark)->job == job_.summary().ToString()) {
      marked = absl::StrCat((*mark)->steps);
    } else if (mark->has_value()) {
      Log(absl::StrCat("the job had finished after ", (*mark)->steps,
                       " steps, but with other settings, so it goes on"));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string shared,
      ShareText(group_, "the mark of a finished job", marked));
  int64_t steps = 0;
  if (!absl::SimpleAtoi(shared, &steps)) return std::nullopt;
  LOCKSTEP_RETURN_IF_ERROR(FindNewest());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> newest,
                            StepOfNewest());
  if (newest != steps) {
    Log(absl::StrCat(
        PathOfMark(options_.path), " says that the job has finished after ",
        steps, " steps, but ",
        newest.has_value()
            ? absl::StrCat("the newest checkpoint was saved after ", *newest,
                           " steps")
            : "there is no checkpoint",
        ", so the job is trained again"));
    return std::nullopt;
  }
  Log(absl::StrCat(
      "the job has finished after ", steps, " steps, as ",
      PathOfMark(options_.path),
      " says, and nothing is left to do: to train on, change its settings, "
      "such as the number of epochs or steps, or remove that file"));
  return steps;
}

absl::Status Checkpoint::MarkFinished() {
  if (forked()) return NotInAFork();
  if (!has_restored_) {
    return absl::FailedPreconditionError(
        "MarkFinished comes before Restore: call it when the job is done");
  }
  if (options_.path.empty() || last_step_ < 0 || group_.rank() > 0) {
    return absl::OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(WaitHere());
  may_have_mark_ = true;
  return CatchAll("marking a finished job", [&] {
    return WriteFinishedMark(options_.path,
                             {last_step_, job_.summary().ToString()});
  });
}

// Removes the mark of an earlier start, since the job has gone on.
void Checkpoint::RemoveMark() {
  if (store_ == nullptr || !std::exchange(may_have_mark_, false)) return;
  const absl::Status removed = RemoveFinishedMark(options_.path);
  if (!removed.ok()) Log(removed.message());
}

}  // namespace lockstep
