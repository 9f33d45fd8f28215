#include "lockstep/plugin/plugin.h"

#include "absl/status/status.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

absl::Status RegisterLockstep(PluginRegistry& registry) {
  absl::Status status;
  status.Update(internal_plugin::RegisterOrders(registry));
  status.Update(internal_plugin::RegisterOuterOrders(registry));
  status.Update(internal_plugin::RegisterSamplers(registry));
  status.Update(internal_plugin::RegisterDatasets(registry));
  status.Update(internal_plugin::RegisterCollates(registry));
  status.Update(internal_plugin::RegisterLoaders(registry));
  status.Update(internal_plugin::RegisterCommunicators(registry));
  status.Update(internal_plugin::RegisterMetricsSinks(registry));
  return status;
}

}  // namespace lockstep
