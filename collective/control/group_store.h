// The store through which a group's ranks tell each other where they are to be
// reached, over their connections to rank 0.
//
//   rank 1   Set("tcp/1", address)  -> kSet   -> rank 0 keeps it
//   rank 2   Get("tcp/1", until)    -> kGet   -> rank 0, which answers when
//                                     <- kValue   the value is there
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_GROUP_STORE_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_GROUP_STORE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {

class ControlPlane;

// One group's values at rank 0.
//
// Requires: `plane` outlives this.
// Guarantees: Get ends when its group fails or is detached at this rank.
// Thread-safety: thread-safe. Get must not be called on the star's thread.
class GroupStore : public Store {
 public:
  // `group` is its key.
  GroupStore(ControlPlane& plane, std::string group)
      : plane_(plane), group_(std::move(group)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Time until) override;

 private:
  ControlPlane& plane_;
  const std::string group_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_GROUP_STORE_H_
