// This header registers Lockstep as a plugin. A trainer calls RegisterLockstep
// once:
//
//   int main() {
//     PluginRegistry registry;
//     absl::Status status = RegisterLockstep(registry);
//     ...
//   }
//
// A trainer that has its own registry of plugins can use LockstepPlugin():
//
//   const PluginInfo& lockstep = LockstepPlugin();
//   trainer.AddPlugin(lockstep.name, lockstep.version, [&registry] {
//     return registry.Register(LockstepPlugin());
//   });
//
// A trainer that prefers to make no call can depend on
// //plugin:static_register, which registers all parts in
// PluginRegistry::Global() before main.
#ifndef LOCKSTEP_PLUGIN_PLUGIN_H_
#define LOCKSTEP_PLUGIN_PLUGIN_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// Registers Lockstep's orders, samplers, datasets, loaders, communicators and
// metrics sinks, except those that need code of the caller. A second call
// changes nothing.
absl::Status RegisterLockstep(PluginRegistry& registry);

// Returns Lockstep's name, its version, and the function that registers its
// parts.
const PluginInfo& LockstepPlugin();

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_PLUGIN_H_
