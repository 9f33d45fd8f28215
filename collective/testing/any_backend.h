// Makes groups of any backend, for tests that use host memory:
//
//   GroupOptions options;
//   options.backend = "nccl";  // on a fake GPU a rank
//   LOCKSTEP_ASSIGN_OR_RETURN(auto group, MakeGroupForHost(*world, options));
#ifndef LOCKSTEP_COLLECTIVE_TESTING_ANY_BACKEND_H_
#define LOCKSTEP_COLLECTIVE_TESTING_ANY_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"

namespace lockstep {

// Makes the group. With nccl, it uses fake GPUs and copies to and from them.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGroupForHost(
    World& world, GroupOptions options);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_ANY_BACKEND_H_
