// Addresses as users write them, and what they stand for.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_ADDRESS_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_ADDRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_collective {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "trainer-0:29500", "10.0.0.7:29500", "[fd00::7]:29500". INVALID_ARGUMENT says
// what is wrong.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// The opposite.
std::string FormatHostPort(absl::string_view host, uint16_t port);

// The IP addresses of `host`, in the order of preference. UNAVAILABLE: it has
// none, or the name service does not answer; DEADLINE_EXCEEDED.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                 SteadyTime deadline);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_ADDRESS_H_
