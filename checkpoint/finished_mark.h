// The mark of a finished job is a small file beside the job's checkpoints. It
// says that the job has finished, so that another start does nothing. Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(WriteFinishedMark("/data/model", {600, digest}));
//   ...
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<FinishedMark> mark,
//                             ReadFinishedMark("/data/model"));
#ifndef LOCKSTEP_CHECKPOINT_FINISHED_MARK_H_
#define LOCKSTEP_CHECKPOINT_FINISHED_MARK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_checkpoint {

// The contents of the file.
struct FinishedMark {
  int64_t steps = 0;  // the number of steps that the job has done
  std::string job;    // the digest of its settings
};

// Returns the name of the mark: PATH.finished.
std::string PathOfMark(const std::string& path);

// Returns nullopt if there is no file, and INVALID_ARGUMENT if a file of this
// name is no mark.
absl::StatusOr<std::optional<FinishedMark>> ReadFinishedMark(
    const std::string& path);

// Removes the mark, if there is one. Returns INVALID_ARGUMENT if a file of this
// name is no mark.
absl::Status RemoveFinishedMark(const std::string& path);

// Writes the mark, and replaces an earlier one. Returns INVALID_ARGUMENT if a
// file of this name is no mark.
absl::Status WriteFinishedMark(const std::string& path,
                               const FinishedMark& mark);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_FINISHED_MARK_H_
