// Prints the parts of a registry, for the tests of linking.
#include <cstdio>

#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

int main() {
  lockstep::PluginRegistry registry;
  if (!lockstep::RegisterLockstep(registry).ok()) return 1;
  for (const lockstep::PluginPart& part : registry.Parts()) {
    std::printf("%s %s\n", part.kind.c_str(), part.name.c_str());
  }
  return 0;
}
