// Two hosts with a wire between them, and a process on each. They are network
// namespaces of this machine, which any user can make if the system allows it.
// namespaces of this machine, which any user can make where the system lets
// him.
//
//   int Greet(Host& host) {
//     std::printf("rank %d: hello\n", host.rank());
//     return 0;
//   }
//
//   int main() { return RunOnTwoHosts(Greet); }
#ifndef LOCKSTEP_COLLECTIVE_TESTING_TWO_HOSTS_H_
#define LOCKSTEP_COLLECTIVE_TESTING_TWO_HOSTS_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// One of the two hosts.
// Thread-safety: thread-compatible.
class Host {
 public:
  // Returns 0 or 1.
  int rank() const { return rank_; }
  // The interface by which this host reaches the other.
  static constexpr absl::string_view kInterface = "wire";
  // Cuts the wire without notice to either host. Returns false if it can't.
  bool CutWire() const;

  // A connection outside the wire: Await returns when the other host has called
  // Tell, or has ended.
  void Tell() const;
  void Await() const;

 private:
  friend int RunOnTwoHosts(const std::function<int(const Host&)>& run);

  Host(int rank, int other) : rank_(rank), other_(other) {}

  const int rank_;
  const int other_;  // a socket to the other host
};

// RunOnTwoHosts prints this, with the reason, if the system allows no hosts.
inline constexpr char kNoHosts[] = "no hosts: ";

// Runs `run` on rank 0's host in this process, which never returns to its
// original host, and on rank 1's host in a child. Returns 0 if both return 0.
// Requires: the process has one thread.
int RunOnTwoHosts(const std::function<int(const Host&)>& run);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_TWO_HOSTS_H_
