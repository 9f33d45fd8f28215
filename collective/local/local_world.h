// A LocalWorld is a job whose ranks are threads of this process. With it, a
// test runs a trainer on several ranks without a launcher and without sockets:
//
//   TEST(Trainer, Trains) {
//     const std::vector<absl::Status> ended =
//         LocalWorld(4).Run([](World& world) -> absl::Status {
//           LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
//           return Train(*group);
//         });
//     for (const absl::Status& status : ended) EXPECT_EQ(status.message(), "");
//   }
//
// Each rank has a World of its own, which behaves as in a process of its own:
// ranks that are late, leave, abort or do something else are named. The backend
// "auto" is "local" there; the other ones can be used, too. No rank can die or
// be stopped without the others.
#ifndef LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_WORLD_H_
#define LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_WORLD_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/world.h"

namespace lockstep {

// A job whose ranks are threads of this process.
// Thread-safety: thread-safe. Each Run is a job of its own.
class LocalWorld {
 public:
  // A job of `size` ranks, 1 to 4096.
  explicit LocalWorld(int size) : size_(size) {}

  // Calls `rank` on a thread for each rank, with its World. Returns when all
  // have returned, with their results in the order of ranks. If a rank throws
  // an exception, its result is RESOURCE_EXHAUSTED if memory, threads or
  // descriptors have run out, and UNKNOWN otherwise. If the job can't be made,
  // each rank has the error. If the size is refused, there is one result.
  std::vector<absl::Status> Run(
      const std::function<absl::Status(World& world)>& rank) const;

 private:
  const int size_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_LOCAL_LOCAL_WORLD_H_
