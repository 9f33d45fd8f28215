#include "lockstep/collective/rendezvous/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lockstep::internal_collective {

uint16_t SocketAddress::port() const {
  // The port is at the same place in addresses of both families.
  static_assert(offsetof(sockaddr_in, sin_port) ==
                offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(get())->sin_port);
}

absl::StatusOr<SocketAddress> SocketAddressOf(const std::string& host,
                                              uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CHexEscape(host),
                     "' should be an IP address: ", ::gai_strerror(error)));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

std::string HostOf(const sockaddr* address) {
  if (address == nullptr ||
      (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
    return "";
  }
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                       : sizeof(sockaddr_in6);
  char host[NI_MAXHOST];
  return ::getnameinfo(address, size, host, sizeof(host), nullptr, 0,
                       NI_NUMERICHOST) == 0
             ? host
             : "";
}

}  // namespace lockstep::internal_collective
