// Lockstep as a plugin. A trainer calls RegisterLockstep once:
//
//   int main() {
//     PluginRegistry registry;
//     absl::Status status = RegisterLockstep(registry);
//     ...
//   }
//
// A trainer that has a registry of plugins of its own takes LockstepPlugin():
//
//   const PluginInfo& lockstep = LockstepPlugin();
//   trainer.AddPlugin(lockstep.name, lockstep.version, [&registry] {
//     return registry.Register(LockstepPlugin());
//   });
//
// A trainer that wants no call depends on //plugin:static_register, which puts
// all parts into PluginRegistry::Global() before main.
#ifndef LOCKSTEP_PLUGIN_PLUGIN_H_
#define LOCKSTEP_PLUGIN_PLUGIN_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Registers Lockstep's orders, samplers, datasets, loaders, communicators and
// metrics sinks, all but those that need code of the caller's. A second time it
// changes nothing.
absl::Status RegisterLockstep(PluginRegistry& registry);

// Lockstep's name, its version, and what registers its parts.
const PluginInfo& LockstepPlugin();

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_PLUGIN_H_
