// The file from which a job goes on, for training.cc and recovery.cc.
#ifndef LOCKSTEP_EXAMPLES_CHECKPOINT_H_
#define LOCKSTEP_EXAMPLES_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/collective/communicator.h"

namespace examples {

// Whenever the process ends, or the machine, the file is the old one or the new
// one, and whole. For one rank to call.
absl::Status WriteCheckpoint(const std::string& path, absl::string_view bytes);

// What rank 0 finds in the file, on every rank, so that no other has to reach
// it; "" where there is none. For all ranks to call.
absl::StatusOr<std::string> ReadCheckpoint(lockstep::Communicator& group,
                                           const std::string& path);

}  // namespace examples

#endif  // LOCKSTEP_EXAMPLES_CHECKPOINT_H_
