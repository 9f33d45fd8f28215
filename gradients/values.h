// The values of parameters, which all ranks must have. Internal.
#ifndef LOCKSTEP_GRADIENTS_VALUES_H_
#define LOCKSTEP_GRADIENTS_VALUES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gradients/gradients_options.h"
#include "lockstep/gradients/memory_place.h"

namespace lockstep::internal_gradients {

// Gives all ranks the values of rank 0. `group` moves their memory.
absl::Status ShareValues(Communicator& group,
                         absl::Span<const GradientView> views,
                         const MemoryPlace& place, CallOptions call);

// Returns FAILED_PRECONDITION on all ranks if their values differ, with the
// name of the parameter. `group` moves the host's memory.
absl::Status CompareValues(Communicator& group, const std::string& what,
                           absl::Span<const GradientView> views,
                           const MemoryPlace& place, const CallOptions& call);

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_VALUES_H_
