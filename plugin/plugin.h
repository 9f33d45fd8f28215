// This header registers Lockstep's parts. A trainer calls RegisterLockstep
// once:
//
//   int main() {
//     PluginRegistry registry;
//     absl::Status status = RegisterLockstep(registry);
//     ...
//   }
//
// A trainer that has its own registry of plugins calls it in a plugin of that:
//
//   trainer.AddPlugin("lockstep", kVersion,
//                     [&registry] { return RegisterLockstep(registry); });
#ifndef LOCKSTEP_PLUGIN_PLUGIN_H_
#define LOCKSTEP_PLUGIN_PLUGIN_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

// The release of Lockstep, as in MODULE.bazel.
inline constexpr char kVersion[] = "0.1.0";

// Registers Lockstep's orders, samplers, datasets, collates, loaders,
// communicators and metrics sinks, except those that need code of the caller. A
// second call changes nothing.
absl::Status RegisterLockstep(PluginRegistry& registry);

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_PLUGIN_H_
