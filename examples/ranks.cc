// The smallest program with several ranks, for trying out a launcher. Each rank
// prints the facts from the launcher, and the number of ranks on its host. All
// ranks add up their numbers.
//
//   lockstep launch -n 4 -- ranks
//   srun --ntasks=8 ranks
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"

namespace {

absl::Status Run() {
  lockstep::WorldOptions options;
  options.on_slow = [](absl::string_view what) {  // such as a missing rank
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
  std::vector<int64_t> sum = {world->rank()};
  const lockstep::Buffer buffer = lockstep::BufferOf(sum);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::Work work,
      group->AllReduce(buffer, buffer, lockstep::ReduceOp::kSum));
  LOCKSTEP_RETURN_IF_ERROR(work.Wait());
  std::printf("%s\n  this host has %d ranks; the numbers of all add up to %d\n",
              world->description().c_str(), world->local_size(),
              static_cast<int>(sum[0]));
  return group->Close();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", lockstep::ToLines(status).c_str());
  return 1;
}
