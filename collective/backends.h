// The backends between processes that this build has, by name.
#ifndef LOCKSTEP_COLLECTIVE_BACKENDS_H_
#define LOCKSTEP_COLLECTIVE_BACKENDS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// NOT_FOUND lists the names; UNIMPLEMENTED names the flag that brings it in.
absl::Status CheckBackend(absl::string_view name);

// Requires what CheckBackend accepts.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    absl::string_view name, const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_BACKENDS_H_
