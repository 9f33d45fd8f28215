// Stars whose ranks are in one process, without a socket, for tests of what
// sits on them; they can be lost and stopped like processes.
//
//   MemoryStars stars(3);
//   ControlPlane plane(stars.Take(1));
//   stars.Stop(0);  // as SIGSTOP would
#ifndef LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_
#define LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_

#include <memory>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

class MemoryStars {
 public:
  explicit MemoryStars(int size);
  ~MemoryStars();

  std::unique_ptr<Star> Take(int rank);

  // The others hear of its loss, and it of rank 0's.
  void Lose(int rank);
  // Hears and says nothing until it goes on.
  void Stop(int rank);
  void Continue(int rank);
  // Waits until all that hear of `rank` have heard a heartbeat that it began
  // after this was called.
  void AwaitBeat(int rank);

  class Node;

 private:
  std::vector<std::shared_ptr<Node>> nodes_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_MEMORY_STAR_H_
