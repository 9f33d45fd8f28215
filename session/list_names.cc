// Prints the parts of the global registry, for the tests of linking. With
// REGISTER, it first registers Lockstep's parts itself.
#include <cstdio>

#include "lockstep/plugin/registry.h"
#ifdef REGISTER
#include "lockstep/plugin/plugin.h"
#endif

int main() {
  lockstep::PluginRegistry& registry = lockstep::PluginRegistry::Global();
#ifdef REGISTER
  if (!lockstep::RegisterLockstep(registry).ok()) return 1;
#endif
  for (const lockstep::PluginPart& part : registry.Parts()) {
    std::printf("%s %s\n", part.kind.c_str(), part.name.c_str());
  }
  return 0;
}
