// Finds out which ranks can connect to which.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Door door, Door::Open("10.0.0.7"));
//   ...  // the ranks tell each other door.place()
//   const std::vector<Unreached> unreached =
//       TryConnections(door, places, rank, After(absl::Seconds(5)));
#ifndef LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_
#define LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {

// A socket that listens at a free port of one of this machine's addresses, as
// the transport over TCP does.
// Thread-safety: thread-compatible.
class Door {
 public:
  static absl::StatusOr<Door> Open(const std::string& address);

  // Returns "10.0.0.7:41234".
  const std::string& place() const { return place_; }

  // Takes the connections that have come.
  void LetIn() const;

  int fd() const { return socket_.fd(); }

 private:
  Door(Descriptor socket, std::string place)
      : socket_(std::move(socket)), place_(std::move(place)) {}

  Descriptor socket_;
  std::string place_;
};

// A rank that can't be reached, and why.
struct Unreached {
  int rank = 0;
  std::string why;  // "Connection refused"
};

// Connects to the places of all other ranks, by rank, and lets them in through
// `door`. Returns those that it does not reach until `until`.
std::vector<Unreached> TryConnections(const Door& door,
                                      absl::Span<const std::string> places,
                                      int rank, SteadyTime until);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_
