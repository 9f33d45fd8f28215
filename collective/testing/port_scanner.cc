#include "lockstep/collective/testing/port_scanner.h"

#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep {
namespace {

constexpr char kRequest[] =
    "GET / HTTP/1.1\r\nHost: trainer-0.example\r\nUser-Agent: a scanner of "
    "ports\r\nAccept: */*\r\nConnection: close\r\n\r\n";

}  // namespace

std::vector<sockaddr_storage> ListeningAddresses() {
  std::vector<sockaddr_storage> addresses;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fd"),
                                                closedir);
  while (const dirent* const entry = all ? readdir(all.get()) : nullptr) {
    int fd = -1, listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_storage address = {};
    socklen_t address_size = sizeof(address);
    if (absl::SimpleAtoi(entry->d_name, &fd) &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
        listens != 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_size) ==
            0) {
      addresses.push_back(address);
    }
  }
  return addresses;
}

int ConnectTo(const sockaddr_storage& address) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

PortScanner::PortScanner() : thread_([this] { Run(); }) {}

PortScanner::~PortScanner() {
  stopped_ = true;
  thread_.join();
}

void PortScanner::Run() {
  while (!stopped_) {
    // The pause leaves places in a listener's queue for others.
    absl::SleepFor(absl::Milliseconds(1));
    for (const sockaddr_storage& address : ListeningAddresses()) {
      const int fd = ConnectTo(address);
      if (fd < 0) continue;
      switch (++count_ % 3) {
        case 0: {
          const linger reset = {1, 0};
          setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
          break;
        }
        case 1:
          send(fd, kRequest, sizeof(kRequest) - 1, MSG_NOSIGNAL);
          break;
        default:  // closes the connection at once
          break;
      }
      close(fd);
    }
  }
}

}  // namespace lockstep
