#include "lockstep/collective/control/group_store.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_plane.h"

namespace lockstep::internal_collective {

absl::Status GroupStore::Set(absl::string_view key, absl::string_view value) {
  LOCKSTEP_RETURN_IF_ERROR(CheckStoreKey(key));
  LOCKSTEP_RETURN_IF_ERROR(CheckStoreValue(key, value));
  plane_.SetValue(group_, std::string(key), std::string(value));
  return absl::OkStatus();
}

absl::StatusOr<std::string> GroupStore::Get(absl::string_view key,
                                            absl::Time until) {
  LOCKSTEP_RETURN_IF_ERROR(CheckStoreKey(key));
  return plane_.AwaitValue(group_, std::string(key),
                           After(until - absl::Now()));
}

}  // namespace lockstep::internal_collective
