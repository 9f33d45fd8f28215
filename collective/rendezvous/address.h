// Parses the addresses that users write, and resolves names.
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

// A host and a port.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// Parses "trainer-0:29500", "10.0.0.7:29500" or "[fd00::7]:29500".
// INVALID_ARGUMENT says what is wrong.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Does the opposite of ParseHostPort.
std::string FormatHostPort(absl::string_view host, uint16_t port);

// Returns the IP addresses of `host`, the best first. Returns UNAVAILABLE if it
// has none or does not resolve, and DEADLINE_EXCEEDED if the name service does
// not answer in time.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                 SteadyTime deadline);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_ADDRESS_H_
