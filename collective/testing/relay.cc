#include "lockstep/collective/testing/relay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <thread>  // NOLINT: the relay's
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

int Socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

}  // namespace

Relay::Relay(int port, absl::Duration delay, int64_t burst, absl::Duration rest)
    : to_port_(port),
      delay_(delay),
      burst_(burst),
      rest_(rest),
      listener_(Socket()) {
  if (rest > absl::ZeroDuration()) {
    // Makes the system take little from a client: its buffer and packets are
    // small.
    const int bytes = 64 << 10, packet = 1400;
    setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    setsockopt(listener_, IPPROTO_TCP, TCP_MAXSEG, &packet, sizeof(packet));
  }
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  sockaddr* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener_, any, size), 0);
  EXPECT_EQ(listen(listener_, 8), 0);
  EXPECT_EQ(getsockname(listener_, any, &size), 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

// Runs until the listener is shut down.
void Relay::Run() {
  std::vector<std::thread> connections;
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) break;
    connections.emplace_back([this, client] { Connect(client); });
  }
  for (std::thread& connection : connections) connection.join();
}

void Relay::Connect(int client) {
  const int server = Socket();
  const sockaddr_in address = Loopback(to_port_);
  EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  std::array<Way, 2> ways = {Way{client, server}, Way{server, client}};
  ways[0].burst = burst_;
  while (ways[0].open || ways[1].open) {
    pollfd polled[2];
    for (int i = 0; i < 2; ++i) {
      const bool deaf = ways[i].heard_all || SteadyNow() < ways[i].hears_from;
      polled[i] = {deaf ? -1 : ways[i].from, POLLIN, 0};
    }
    poll(polled, 2, /*milliseconds=*/5);
    for (int i = 0; i < 2; ++i) {
      if (polled[i].revents != 0) Hear(ways[i]);
      Pass(ways[i]);
    }
  }
  for (const int each : {client, server}) close(each);
}

void Relay::Hear(Way& way) {
  char bytes[4096];
  const ssize_t got = recv(way.from, bytes, sizeof(bytes), 0);
  way.heard_all = got <= 0;
  if ((way.burst -= got) <= 0) {
    way.burst = burst_;
    way.hears_from = After(rest_);
  }
  if (cut_) {
    way.open = !way.heard_all;
  } else {
    way.line.emplace_back(After(delay_),
                          std::string(bytes, std::max<ssize_t>(0, got)));
  }
}

// Does not wait for the other end, since the bytes of the other way must not
// wait for it, either.
void Relay::Pass(Way& way) {
  while (!way.line.empty() && way.line.front().first <= SteadyNow()) {
    std::string& bytes = way.line.front().second;
    if (bytes.empty()) {
      way.open = false;
      shutdown(way.to, SHUT_WR);
    } else {
      const ssize_t sent =
          send(way.to, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) return;
      if (sent >= 0 && sent < static_cast<ssize_t>(bytes.size())) {
        bytes.erase(0, sent);
        return;
      }
    }
    way.line.pop_front();
  }
}

}  // namespace lockstep
