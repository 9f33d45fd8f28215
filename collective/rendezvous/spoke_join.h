// Finds rank 0, and joins.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_SPOKE_JOIN_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_SPOKE_JOIN_H_

#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/connection.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// The result of a spoke's join.
struct JoinedSpoke {
  std::vector<Peer> peers;          // by rank
  std::shared_ptr<Connection> hub;  // paused
};

// A function like Resolve. Tests replace it to have names that the system does
// not know.
using Resolver = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& host, SteadyTime deadline)>;

// Joins the job. Runs `io` until all ranks have joined.
absl::StatusOr<JoinedSpoke> JoinAsSpoke(asio::io_context& io,
                                        const StarOptions& options,
                                        const Peer& self, SteadyTime deadline,
                                        const Resolver& resolve = Resolve);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_SPOKE_JOIN_H_
