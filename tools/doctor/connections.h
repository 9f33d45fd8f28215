// Finds out which ranks can connect to which.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto door, Door::Open("10.0.0.7", until));
//   ...  // the ranks tell each other door->place()
//   const std::vector<Unreached> unreached =
//       TryConnections(places, rank, After(absl::Seconds(5)));
#ifndef LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_
#define LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_

#include <memory>
#include <string>
#include <thread>  // NOLINT: it lets others in
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {

// A socket that listens at a free port of one of this machine's addresses, as
// the transport over TCP does. A thread lets all in, and closes their
// connections.
// Thread-safety: thread-compatible.
class Door {
 public:
  // `address` may also be a name. Returns when it is known, or at `until`.
  static absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& address,
                                                    SteadyTime until);
  ~Door();

  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Returns "10.0.0.7:41234".
  const std::string& place() const { return place_; }

 private:
  Door(Descriptor socket, Descriptor end, std::string place);

  void LetIn() const;

  const Descriptor socket_;
  const Descriptor end_;  // becomes readable at the end
  const std::string place_;
  std::thread thread_;
};

// A rank that can't be reached, and why.
struct Unreached {
  int rank = 0;
  std::string why;  // "Connection refused"
};

// Encode writes such ranks as text for rank 0, and DecodeUnreached reads it.
std::string Encode(const std::vector<Unreached>& unreached);
absl::StatusOr<std::vector<Unreached>> DecodeUnreached(const std::string& text,
                                                       int size);

// Connects to the places of all other ranks, by rank, but for those without a
// place. Returns those that it does not reach until `until`.
std::vector<Unreached> TryConnections(absl::Span<const std::string> places,
                                      int rank, SteadyTime until);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_CONNECTIONS_H_
