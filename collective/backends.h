// Finds the backends between processes that this build has, by name.
#ifndef LOCKSTEP_COLLECTIVE_BACKENDS_H_
#define LOCKSTEP_COLLECTIVE_BACKENDS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// Returns NOT_FOUND, with the names that there are, if there is no backend of
// that name.
absl::Status CheckBackend(absl::string_view name);

// Makes a transport of the backend.
// Requires: CheckBackend accepts the name.
absl::StatusOr<AnyTransport> MakeTransport(absl::string_view name,
                                           const TransportContext& context,
                                           const NcclOptions& nccl = {});

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_BACKENDS_H_
