// RegisterLockstep calls these functions. Each is in its own source file.
// Internal.
#ifndef LOCKSTEP_PLUGIN_PARTS_H_
#define LOCKSTEP_PLUGIN_PARTS_H_

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/registry.h"

namespace lockstep::internal_plugin {

// Register the orders, and a sampler of the same name for each. The outer ones
// are made of others.
absl::Status RegisterOrders(PluginRegistry& registry);
absl::Status RegisterOuterOrders(PluginRegistry& registry);

// Registers the samplers that have other names than orders.
absl::Status RegisterSamplers(PluginRegistry& registry);
absl::Status RegisterDatasets(PluginRegistry& registry);
absl::Status RegisterCollates(PluginRegistry& registry);
absl::Status RegisterLoaders(PluginRegistry& registry);
absl::Status RegisterCommunicators(PluginRegistry& registry);
absl::Status RegisterMetricsSinks(PluginRegistry& registry);

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_PARTS_H_
