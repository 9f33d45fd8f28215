#include "lockstep/tools/doctor/connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: it lets others in
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/socket_address.h"

namespace lockstep {
namespace {

using internal_collective::FormatHostPort;
using internal_collective::HostPort;
using internal_collective::ParseHostPort;
using internal_collective::SocketAddress;
using internal_collective::SocketAddressOf;

// Connections that are tried at the same time.
constexpr size_t kMostAtOnce = 64;
// Milliseconds between two looks at the clock.
constexpr int kTick = 50;

// Begins to connect. The socket does not block.
absl::StatusOr<Descriptor> BeginTo(const std::string& place) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(place));
  LOCKSTEP_ASSIGN_OR_RETURN(const SocketAddress address,
                            SocketAddressOf(parsed.host, parsed.port));
  Descriptor made(socket(address.storage.ss_family,
                         SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.ok() || (connect(made.fd(), address.get(), address.size) != 0 &&
                     errno != EINPROGRESS)) {
    return absl::UnavailableError(ErrorText(errno));
  }
  return made;
}

// Returns the error of a connection that has come to its end, or 0.
int ErrorOf(const Descriptor& connection) {
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(connection.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0
             ? error
             : errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Door>> Door::Open(const std::string& address,
                                                 SteadyTime until) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                            internal_collective::Resolve(address, until));
  LOCKSTEP_ASSIGN_OR_RETURN(SocketAddress place,
                            SocketAddressOf(addresses[0], 0));
  Descriptor made(socket(place.storage.ss_family,
                         SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Descriptor end(eventfd(0, EFD_CLOEXEC));
  if (!made.ok() || !end.ok() ||
      bind(made.fd(), place.get(), place.size) != 0 ||
      listen(made.fd(), SOMAXCONN) != 0 ||
      getsockname(made.fd(), place.get(), &place.size) != 0) {
    return SystemError(errno, absl::StrCat("can't listen at ", address));
  }
  return std::unique_ptr<Door>(
      new Door(std::move(made), std::move(end),
               FormatHostPort(addresses[0], place.port())));
}

Door::Door(Descriptor socket, Descriptor end, std::string place)
    : socket_(std::move(socket)),
      end_(std::move(end)),
      place_(std::move(place)),
      thread_([this] { LetIn(); }) {}

Door::~Door() {
  eventfd_write(end_.fd(), 1);
  thread_.join();
}

void Door::LetIn() const {
  pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {end_.fd(), POLLIN, 0}};
  while (polled[1].revents == 0) {
    polled[0].revents = polled[1].revents = 0;
    if (poll(polled, 2, -1) < 0 || polled[0].revents == 0) continue;
    const Descriptor guest(
        accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    // Without a descriptor the guest stays, and would be seen at once again.
    if (!guest.ok() && IsShortage(errno)) poll(nullptr, 0, 1);
  }
}

std::string Encode(const std::vector<Unreached>& unreached) {
  return absl::StrJoin(unreached, "\n",
                       [](std::string* out, const Unreached& each) {
                         absl::StrAppend(out, each.rank, " ", each.why);
                       });
}

absl::StatusOr<std::vector<Unreached>> DecodeUnreached(const std::string& text,
                                                       int size) {
  std::vector<Unreached> unreached;
  for (const auto& line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    Unreached& each = unreached.emplace_back();
    if (words.size() != 2 || !absl::SimpleAtoi(words[0], &each.rank) ||
        each.rank < 0 || each.rank >= size) {
      return absl::InternalError("a rank has sent what can't be read");
    }
    each.why = words[1];
  }
  return unreached;
}

std::vector<Unreached> TryConnections(absl::Span<const std::string> places,
                                      int rank, SteadyTime until) {
  struct Attempt {
    int rank;
    Descriptor connection;
  };
  std::vector<Unreached> unreached;
  std::vector<Attempt> attempts;
  // Each rank begins with the one behind it, so that they do not all come to
  // the same door.
  int begun = 1;
  const int size = static_cast<int>(places.size());
  while (begun < size || !attempts.empty()) {
    while (begun < size && attempts.size() < kMostAtOnce) {
      const int other = (rank + begun++) % size;
      if (places[static_cast<size_t>(other)].empty()) continue;
      absl::StatusOr<Descriptor> connection =
          BeginTo(places[static_cast<size_t>(other)]);
      if (connection.ok()) {
        attempts.push_back({other, *std::move(connection)});
      } else {
        unreached.push_back(
            {other, std::string(connection.status().message())});
      }
    }
    std::vector<pollfd> polled;
    for (const Attempt& attempt : attempts) {
      polled.push_back({attempt.connection.fd(), POLLOUT, 0});
    }
    poll(polled.data(), polled.size(), kTick);
    const bool is_over = SteadyNow() >= until;
    std::vector<Attempt> left;
    for (size_t i = 0; i < attempts.size(); ++i) {
      const bool has_ended = polled[i].revents != 0;
      if (!has_ended && !is_over) {
        left.push_back(std::move(attempts[i]));
        continue;
      }
      const int error = has_ended ? ErrorOf(attempts[i].connection) : ETIMEDOUT;
      if (error != 0) unreached.push_back({attempts[i].rank, ErrorText(error)});
    }
    attempts = std::move(left);
    for (; is_over && begun < size; ++begun) {
      unreached.push_back({(rank + begun) % size, "not tried in time"});
    }
  }
  return unreached;
}

}  // namespace lockstep
