#include "lockstep/collective/gloo/listen_guard.h"

#ifndef LOCKSTEP_GLOO_HAS_LISTENER

#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include <cstring>
#include <exception>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/gloo/gloo_device.h"

namespace lockstep::internal_collective {
namespace {

using ::gloo::transport::tcp::Address;

constexpr absl::Duration kLookEvery = absl::Milliseconds(5);

// Returns the socket of this process that has that address as its own, or -1.
int SocketAt(const sockaddr_storage& address) {
  for (const int descriptor : AllDescriptors()) {
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) ==
            0 &&
        size > 0 && size <= sizeof(own) &&
        std::memcmp(&own, &address, size) == 0) {
      return descriptor;
    }
  }
  return -1;
}

template <typename Internet>
Internet As(const sockaddr_storage& address) {
  Internet internet;
  std::memcpy(&internet, &address, sizeof(internet));
  return internet;
}

// Returns true if Gloo lets a pair at `own` wait for one at `peer`. The pair
// with the lower address waits. If the addresses are the same, the pair with
// the lower port waits; Gloo compares ports without changing their byte order.
bool Waits(const sockaddr_storage& own, const sockaddr_storage& peer) {
  const auto compare = [](const auto& a_host, const auto& b_host, int a_port,
                          int b_port) {
    const int hosts = std::memcmp(&a_host, &b_host, sizeof(a_host));
    return hosts != 0 ? hosts < 0 : a_port < b_port;
  };
  if (own.ss_family != peer.ss_family) return false;
  if (own.ss_family == AF_INET) {
    const auto a = As<sockaddr_in>(own), b = As<sockaddr_in>(peer);
    return compare(a.sin_addr, b.sin_addr, a.sin_port, b.sin_port);
  }
  const auto a = As<sockaddr_in6>(own), b = As<sockaddr_in6>(peer);
  return compare(a.sin6_addr, b.sin6_addr, a.sin6_port, b.sin6_port);
}

}  // namespace

ListenGuard::ListenGuard(GlooDevice& device, ::gloo::transport::Pair& pair)
    : device_(device),
      pair_(pair),
      address_(static_cast<const Address&>(pair.address()).getSockaddr()),
      listener_(SocketAt(address_)) {
  if (listener_ >= 0) {
    device_.registerDescriptor(listener_, /*events=*/0, &Nobody());
  }
}

void ListenGuard::Await(const std::vector<char>& peer,
                        const std::function<bool()>& cancelled) {
  if (listener_ < 0 || !Waits(address_, Address(peer).getSockaddr())) return;
  MutexLock lock(mutex_);
  state_ = State::kOpen;
  device_.registerDescriptor(listener_, EPOLLIN, this);
  while (state_ == State::kOpen) {
    changed_.WaitUntil(mutex_, After(kLookEvery));
    if (state_ == State::kOpen && cancelled()) {
      state_ = State::kShut;
      device_.registerDescriptor(listener_, /*events=*/0, &Nobody());
    }
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void ListenGuard::OnEvents(int events) {
  MutexLock lock(mutex_);
  if (state_ != State::kOpen) return;
  try {
    // Each pair of a TCP device is a handler.
    dynamic_cast<Handler&>(pair_).handleEvents(events);
    state_ = State::kConnected;
  } catch (...) {
    state_ = State::kFailed;
    failure_ = std::current_exception();
    // The pair has closed its listener, and has a connection instead. The
    // device does not wait for that connection yet. The pair assumes that it
    // does when it is closed, so this registers it.
    const int connection = SocketAt(address_);
    if (connection >= 0) {
      device_.registerDescriptor(connection, /*events=*/0, &Nobody());
    }
  }
  changed_.NotifyAll();
}

}  // namespace lockstep::internal_collective

#endif
