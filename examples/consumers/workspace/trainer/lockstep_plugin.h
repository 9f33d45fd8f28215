// Registers Lockstep as a plugin of Acme's trainers.
#ifndef TRAINER_LOCKSTEP_PLUGIN_H_
#define TRAINER_LOCKSTEP_PLUGIN_H_

#include "absl/status/status.h"
#include "trainer/plugins.h"

namespace acme {

// Registers a loader for each of Lockstep's samplers: "lockstep.distributed",
// "lockstep.native_shuffle" and so on.
absl::Status RegisterLockstep(Plugins& plugins);

}  // namespace acme

#endif  // TRAINER_LOCKSTEP_PLUGIN_H_
