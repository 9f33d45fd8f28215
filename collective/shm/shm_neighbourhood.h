// Tells which ranks can share memory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string here, ShmNeighbourhood());
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHM_NEIGHBOURHOOD_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHM_NEIGHBOURHOOD_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// Returns a text that names the host, the process namespace and the user of
// this process. Processes that have the same text can share memory. A process
// that can't tell its host has a text of its own. RESOURCE_EXHAUSTED if no
// descriptor is left to find out.
// Thread-safety: thread-safe.
absl::StatusOr<std::string> ShmNeighbourhood();

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHM_NEIGHBOURHOOD_H_
