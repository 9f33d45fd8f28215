// Prints what a registry has, for the tests of linking: with REGISTER that of
// a registry of its own, otherwise the global one.
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
