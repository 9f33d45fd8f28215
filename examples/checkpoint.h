// The file from which a job goes on, for training.cc and recovery.cc:
//
//   if (group.rank() == 0) {
//     LOCKSTEP_RETURN_IF_ERROR(WriteCheckpoint("/data/model", bytes));
//   }
//   ...
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
//                             ReadCheckpoint(group, "/data/model"));
//   if (bytes.has_value()) ...  // otherwise this is the job's first start
//
// The checkpoint before the last one is kept as "/data/model.before", and is
// used where the last one is damaged.
#ifndef LOCKSTEP_EXAMPLES_CHECKPOINT_H_
#define LOCKSTEP_EXAMPLES_CHECKPOINT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/collective/communicator.h"

namespace examples {

// Whenever the process ends, or the machine, a whole checkpoint is there: the
// new one or an older one. For one rank to call.
absl::Status WriteCheckpoint(const std::string& path, absl::string_view bytes);

// Gives every rank what rank 0 finds, so that no other has to reach the file;
// nullopt where there is none. DATA_LOSS where all that there is is damaged:
// an empty file is. For all ranks to call.
absl::StatusOr<std::optional<std::string>> ReadCheckpoint(
    lockstep::Communicator& group, const std::string& path);

}  // namespace examples

#endif  // LOCKSTEP_EXAMPLES_CHECKPOINT_H_
