// A scanner of ports, for tests. It connects again and again to all sockets
// that listen in this process. It resets or ends each connection, or sends a
// request for a page before that.
//
//   const PortScanner scanner;
//   LOCKSTEP_EXPECT_OK(World::Join(options));
#ifndef LOCKSTEP_COLLECTIVE_TESTING_PORT_SCANNER_H_
#define LOCKSTEP_COLLECTIVE_TESTING_PORT_SCANNER_H_

#include <sys/socket.h>

#include <atomic>
#include <thread>  // NOLINT: the scanner's
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

// Returns the addresses at which this process listens.
std::vector<sockaddr_storage> ListeningAddresses();

// Returns a socket that is connected to that address, or -1.
int ConnectTo(const sockaddr_storage& address);

// Scans on its own thread while it exists.
// Thread-safety: thread-safe.
class PortScanner {
 public:
  PortScanner();
  ~PortScanner();

  PortScanner(const PortScanner&) = delete;
  PortScanner& operator=(const PortScanner&) = delete;

  // Returns the number of connections that it has made.
  int count() const { return count_; }

 private:
  void Run();

  std::atomic<bool> stopped_{false};
  std::atomic<int> count_{0};
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_PORT_SCANNER_H_
