// Trains on the ranks of a launcher or, without one, on a single rank:
//
//   lockstep launch -n 2 -- trainer lockstep.distributed
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "trainer/lockstep_plugin.h"
#include "trainer/plugins.h"
#include "trainer/trainer.h"

namespace {

absl::Status Run(const std::string& loader) {
  acme::Plugins plugins;
  acme::AddOwnLoader(plugins);
  LOCKSTEP_RETURN_IF_ERROR(acme::RegisterLockstep(plugins));

  lockstep::WorldOptions options;
  options.on_slow = [](absl::string_view what) {
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
  LOCKSTEP_ASSIGN_OR_RETURN(const acme::Line line,
                            acme::Train(plugins, loader, 30, *group));
  std::printf("y = %.2f x + %.2f\n", static_cast<double>(line.slope),
              static_cast<double>(line.offset));
  return group->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status =
      Run(argc > 1 ? argv[1] : "lockstep.native_shuffle");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
