#include "lockstep/collective/tcp/tcp_connections.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/socket_address.h"
#include "lockstep/collective/rendezvous/token.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// A secret is the hexadecimal digits of random bytes.
constexpr size_t kRandomBytes = 16;
constexpr size_t kSecretBytes = 2 * kRandomBytes;
// The strangers' connections whose other end is not known yet. If there are
// more, besides two for each rank, the oldest ones are dropped.
constexpr size_t kMostStrangers = 256;
// Most addresses are numbers, which need no name service.
constexpr absl::Duration kResolvePatience = absl::Seconds(10);

absl::StatusOr<Descriptor> NewSocket(int family) {
  Descriptor socket(
      ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return SystemError(errno, "tcp can't make a socket");
  return socket;
}

// Sends small frames at once.
void SetNoDelay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Reads what is there, up to `size` bytes in all. Returns false if the
// connection has ended.
bool ReadInto(int socket, size_t size, std::string& bytes) {
  while (bytes.size() < size) {
    char more[64];
    const ssize_t got =
        ::recv(socket, more, std::min(sizeof(more), size - bytes.size()), 0);
    if (got > 0) {
      bytes.append(more, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
  return true;
}

// Sends a few bytes as the first ones of a connection, which has room for them.
bool SendFirst(int socket, absl::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string Connecting(int peer) {
  return absl::StrCat("tcp, connecting to rank ", peer);
}

}  // namespace

// ---- Connections, and what they begin with.

TcpConnections::Link::Link(Descriptor descriptor)
    : socket(std::move(descriptor)), closed_in_forks(socket.fd()) {}

// A close(2) drops what was sent and has not arrived yet if the socket still
// has data to read. So this first reads what is there, up to what the system
// keeps for a socket.
TcpConnections::Link::~Link() {
  ::shutdown(socket.fd(), SHUT_WR);
  char bytes[16 << 10];
  for (int i = 0; i < 1000; ++i) {
    if (::recv(socket.fd(), bytes, sizeof(bytes), 0) <= 0) return;
  }
}

// The secret of the rank that it goes to, which only ranks of the job know, and
// the rank and the use that it comes from.
struct TcpConnections::Hello {
  static constexpr size_t kBytes = kSecretBytes + 2 * sizeof(uint32_t);

  std::string secret;
  uint32_t rank = 0;
  uint32_t use = 0;

  std::string Encode() const {
    std::string bytes = secret;
    for (const uint32_t number : {rank, use}) {
      for (int shift = 0; shift < 32; shift += 8) {
        bytes.push_back(static_cast<char>(number >> shift & 0xff));
      }
    }
    return bytes;
  }

  // Requires: there are kBytes.
  static Hello Decode(absl::string_view bytes) {
    Hello hello;
    hello.secret = std::string(bytes.substr(0, kSecretBytes));
    const auto number = [&bytes](size_t first) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) {
        value |= uint32_t{static_cast<uint8_t>(bytes[first + i])} << 8 * i;
      }
      return value;
    };
    hello.rank = number(kSecretBytes);
    hello.use = number(kSecretBytes + 4);
    return hello;
  }
};

struct TcpConnections::Newcomer {
  std::unique_ptr<Link> link;
  std::string bytes = "";  // that have arrived
};

// ---- Life.

absl::StatusOr<std::unique_ptr<TcpConnections>> TcpConnections::Create(
    const TransportContext& context) {
  Descriptor cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel.ok()) return SystemError(errno, "tcp can't make an eventfd");
  return std::unique_ptr<TcpConnections>(
      new TcpConnections(context, std::move(cancel)));
}

TcpConnections::TcpConnections(const TransportContext& context,
                               Descriptor cancel)
    : context_(context),
      rank_(context.rank),
      size_(context.size),
      cancel_(std::move(cancel)),
      cancel_closed_in_forks_(cancel_.fd()),
      links_(size_t{2} * context.size) {}

TcpConnections::~TcpConnections() = default;

void TcpConnections::Cancel() {
  cancelled_.store(true);
  ::eventfd_write(cancel_.fd(), 1);
}

absl::Status TcpConnections::CheckCancelled() const {
  if (!cancelled_.load(std::memory_order_acquire)) return absl::OkStatus();
  return TransportCancelled();
}

int TcpConnections::SocketTo(int peer, Use use) const {
  return links_[2 * peer + static_cast<int>(use)]->socket.fd();
}

std::unique_ptr<TcpConnections::Link>& TcpConnections::LinkTo(int peer,
                                                              Use use) {
  return links_[2 * peer + static_cast<int>(use)];
}

absl::StatusOr<bool> TcpConnections::Poll(absl::Span<pollfd> events,
                                          int timeout) const {
  events[0] = {cancel_.fd(), POLLIN, 0};
  int happened;
  do {
    happened = ::poll(events.data(), events.size(), timeout);
  } while (happened < 0 && errno == EINTR);
  if (happened < 0) return SystemError(errno, "tcp can't wait for sockets");
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  return happened > 0;
}

absl::Status TcpConnections::AwaitEvents(absl::Span<pollfd> events) const {
  return Poll(events, /*timeout=*/-1).status();
}

absl::StatusOr<bool> TcpConnections::LookForEvents(
    absl::Span<pollfd> events) const {
  return Poll(events, /*timeout=*/0);
}

absl::Status TcpConnections::AwaitOne(int socket, int16_t events) const {
  pollfd both[] = {{}, {socket, events, 0}};
  return AwaitEvents(absl::MakeSpan(both));
}

// ---- Reaching the others.

// All ranks first connect to the ranks below them. The system accepts these
// connections even if the other rank is not so far yet. So no rank waits for
// one that waits for it.
absl::Status TcpConnections::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  if (size_ == 1) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string random,
                            RandomBytes(kRandomBytes));
  secret_ = absl::BytesToHexString(random);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Link> listener, Listen());
  constexpr Use kUses[] = {Use::kCollectives, Use::kMessages};
  for (int peer = 0; peer < rank_; ++peer) {
    for (const Use use : kUses) {
      LOCKSTEP_RETURN_IF_ERROR(ConnectTo(peer, use));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(AcceptAll(listener->socket.fd()));
  for (int peer = 0; peer < rank_; ++peer) {
    for (const Use use : kUses) {
      LOCKSTEP_RETURN_IF_ERROR(AwaitAnswer(peer, use));
    }
  }
  return CheckCancelled();
}

// Returns a socket that listens, and tells the others where.
absl::StatusOr<std::unique_ptr<TcpConnections::Link>> TcpConnections::Listen() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                            Resolve(context_.address, After(kResolvePatience)));
  const std::string& host = hosts.front();
  LOCKSTEP_ASSIGN_OR_RETURN(SocketAddress address, SocketAddressOf(host, 0));
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor made,
                            NewSocket(address.storage.ss_family));
  auto listener = std::make_unique<Link>(std::move(made));
  const int socket = listener->socket.fd();
  if (::bind(socket, address.get(), address.size) != 0 ||
      ::listen(socket, SOMAXCONN) != 0 ||
      ::getsockname(socket, address.get(), &address.size) != 0) {
    return SystemError(
        errno, absl::StrCat("tcp can't listen at '", context_.address, "'"),
        absl::StatusCode::kInvalidArgument);
  }
  LOCKSTEP_RETURN_IF_ERROR(context_.store->Set(
      absl::StrCat(context_.key, "/tcp/", rank_),
      absl::StrCat(secret_, " ", FormatHostPort(host, address.port()))));
  return listener;
}

// Waits until the other rank has told its place.
absl::StatusOr<TcpConnections::Place> TcpConnections::PlaceOf(int peer) const {
  const std::string key = absl::StrCat(context_.key, "/tcp/", peer);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string text,
      AwaitKey(*context_.store, key, [this] { return CheckCancelled(); }));
  const auto address =
      text.size() > kSecretBytes && text[kSecretBytes] == ' '
          ? ParseHostPort(absl::string_view(text).substr(kSecretBytes + 1))
          : absl::InvalidArgumentError("");
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Connecting(peer),
                     ": the store should have a secret and an address "
                     "under '",
                     key, "', but has '", absl::CHexEscape(text), "'"));
  }
  return Place{address->host, address->port, text.substr(0, kSecretBytes)};
}

absl::Status TcpConnections::ConnectTo(int peer, Use use) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Place place, PlaceOf(peer));
  LOCKSTEP_ASSIGN_OR_RETURN(const SocketAddress address,
                            SocketAddressOf(place.host, place.port));
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor made,
                            NewSocket(address.storage.ss_family));
  std::unique_ptr<Link>& link = LinkTo(peer, use);
  link = std::make_unique<Link>(std::move(made));
  const int socket = link->socket.fd();
  int error = 0;
  if (::connect(socket, address.get(), address.size) != 0) {
    error = errno;
    if (error == EINPROGRESS || error == EINTR) {
      LOCKSTEP_RETURN_IF_ERROR(AwaitOne(socket, POLLOUT));
      socklen_t size = sizeof(error);
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  const Hello hello = {place.secret, static_cast<uint32_t>(rank_),
                       static_cast<uint32_t>(use)};
  if (error == 0 && !SendFirst(socket, hello.Encode())) error = errno;
  SetNoDelay(socket);
  if (error == 0) return absl::OkStatus();
  return SystemError(error,
                     absl::StrCat(Connecting(peer), " at ",
                                  FormatHostPort(place.host, place.port)));
}

// Waits until all ranks above this one have connected. Strangers may connect,
// too. They are dropped when they have said something wrong, or when there are
// too many of them.
absl::Status TcpConnections::AcceptAll(int listener) {
  std::deque<Newcomer> newcomers;
  const auto all_are_there = [this] {
    return std::all_of(links_.begin() + 2 * (rank_ + 1), links_.end(),
                       [](const auto& link) { return link != nullptr; });
  };
  while (!all_are_there()) {
    std::vector<pollfd> events = {{}, {listener, POLLIN, 0}};
    for (const Newcomer& newcomer : newcomers) {
      events.push_back({newcomer.link->socket.fd(), POLLIN, 0});
    }
    LOCKSTEP_RETURN_IF_ERROR(AwaitEvents(absl::MakeSpan(events)));
    std::deque<Newcomer> silent;
    for (size_t i = 0; i < newcomers.size(); ++i) {
      Newcomer& newcomer = newcomers[i];
      if (events[i + 2].revents != 0) {
        LOCKSTEP_RETURN_IF_ERROR(Greet(newcomer));
      }
      if (newcomer.link != nullptr) silent.push_back(std::move(newcomer));
    }
    newcomers.swap(silent);
    if (events[1].revents == 0) continue;
    Descriptor accepted(
        ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.ok()) {
      newcomers.push_back({std::make_unique<Link>(std::move(accepted))});
      const size_t most = kMostStrangers + links_.size();
      if (newcomers.size() > most) newcomers.pop_front();
    } else if (IsShortage(errno) && errno != EAGAIN) {
      if (newcomers.empty()) {
        return SystemError(errno, "tcp can't accept a connection");
      }
      newcomers.pop_front();  // leaves its descriptor to the next one
    }
  }
  return absl::OkStatus();
}

// Reads what a newcomer has said, and answers it if that is enough. Takes its
// connection if it is a rank that is awaited, or drops it if it is a stranger.
absl::Status TcpConnections::Greet(Newcomer& newcomer) {
  const int socket = newcomer.link->socket.fd();
  const bool alive = ReadInto(socket, Hello::kBytes, newcomer.bytes);
  if (alive && newcomer.bytes.size() < Hello::kBytes) return absl::OkStatus();
  std::unique_ptr<Link> link = std::move(newcomer.link);
  if (!alive) return absl::OkStatus();
  const Hello hello = Hello::Decode(newcomer.bytes);
  if (!SameMac(hello.secret, secret_) ||
      hello.rank <= static_cast<uint32_t>(rank_) ||
      hello.rank >= static_cast<uint32_t>(size_) || hello.use > 1) {
    return absl::OkStatus();
  }
  const int peer = static_cast<int>(hello.rank);
  LOCKSTEP_ASSIGN_OR_RETURN(const Place place, PlaceOf(peer));
  SetNoDelay(socket);
  if (!SendFirst(socket, place.secret)) {
    return SystemError(errno, Connecting(peer));
  }
  LinkTo(peer, static_cast<Use>(hello.use)) = std::move(link);
  return absl::OkStatus();
}

// Waits until the rank at the other end has proved who it is.
absl::Status TcpConnections::AwaitAnswer(int peer, Use use) const {
  const int socket = SocketTo(peer, use);
  std::string answer;
  while (answer.size() < kSecretBytes) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitOne(socket, POLLIN));
    if (!ReadInto(socket, kSecretBytes, answer)) {
      return absl::UnavailableError(
          absl::StrCat(Connecting(peer), ": it has ended the connection"));
    }
  }
  if (SameMac(answer, secret_)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      Connecting(peer), ": something else answers at its address"));
}

}  // namespace lockstep::internal_collective
