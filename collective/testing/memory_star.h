// Stars whose ranks are in one process and use no socket, for tests of the code
// above the star. Ranks can be lost and stopped like processes.
//
//   MemoryStars stars(3);
//   ControlPlane plane(stars.Take(1));
//   stars.Stop(0);  // as SIGSTOP would
//
// Each star has a thread, unless the test runs the stars by hand. It then
// decides which rank is heard first. There are no heartbeats, and nobody hears
// that a rank leaves:
//
//   MemoryStars stars(3, /*by_hand=*/true);
//   stars.Run(1);  // what the others have sent to rank 1, and a tick
#ifndef LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_
#define LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_

#include <memory>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// The stars of a job's ranks.
// Thread-safety: thread-safe, except for Take, Run and Tick.
class MemoryStars {
 public:
  explicit MemoryStars(int size, bool by_hand = false);
  ~MemoryStars();

  std::unique_ptr<Star> Take(int rank);

  // Ends the rank's connections: the others hear of its loss, and it of rank
  // 0's.
  void Lose(int rank);
  // Stops the rank's thread: it gets and sends nothing until Continue.
  void Stop(int rank);
  void Continue(int rank);
  // These are for stars that are run by hand. HasMail returns true if others
  // have sent something to the rank that it has not got.
  void Run(int rank);
  void Tick(int rank);
  bool HasMail(int rank) const;

  // Waits until all ranks that get heartbeats of `rank` have got one that it
  // began after this call.
  void AwaitBeat(int rank);

  class Node;

 private:
  const bool by_hand_;
  std::vector<std::shared_ptr<Node>> nodes_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_
