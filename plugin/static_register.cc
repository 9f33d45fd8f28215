// Registers Lockstep before main, for programs that depend on
// //plugin:static_register. The first Create returns an error of the
// registration.
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

[[maybe_unused]] const bool kRegistered = [] {
  PluginRegistry& registry = PluginRegistry::Global();
  registry.NoteError(RegisterLockstep(registry));
  return true;
}();

}  // namespace
}  // namespace lockstep
