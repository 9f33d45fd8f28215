// The cryptography of a rendezvous: two parties prove to each other that they
// have the same secret, without sending it.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_TOKEN_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_TOKEN_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

constexpr size_t kMacBytes = 32;

// Returns the HMAC-SHA256 (RFC 2104), of kMacBytes bytes.
std::string Mac(absl::string_view key, absl::string_view text);

// Returns true if they are the same. Takes a time that does not depend on where
// they differ.
bool SameMac(absl::string_view a, absl::string_view b);

// Returns `size` bytes that nobody can guess, or UNAVAILABLE if the system has
// none.
absl::StatusOr<std::string> RandomBytes(size_t size);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_TOKEN_H_
