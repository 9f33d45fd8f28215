// A SocketAddress is an IP address and a port in the form that the calls of the
// system take.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(SocketAddress address,
//                             SocketAddressOf("10.0.0.7", 0));
//   if (::bind(socket, address.get(), address.size) != 0 ||
//       ::getsockname(socket, address.get(), &address.size) != 0) {
//     return SystemError(errno, "no address");
//   }
//   Use(address.port());
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_SOCKET_ADDRESS_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_collective {

// It is a plain value.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  uint16_t port() const;
};

// Returns the address of a host that is named by its number. INVALID_ARGUMENT
// if it is a name.
absl::StatusOr<SocketAddress> SocketAddressOf(const std::string& host,
                                              uint16_t port);

// Returns the number of the host, such as "10.0.0.7", or "" if `address` is
// null or not one of IP.
std::string HostOf(const sockaddr* address);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_SOCKET_ADDRESS_H_
