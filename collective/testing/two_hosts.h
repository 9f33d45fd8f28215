// Two hosts with a wire between them, and a process on each: network
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

class Host {
 public:
  // 0 or 1.
  int rank() const { return rank_; }
  // By which this host reaches the other.
  static constexpr absl::string_view kInterface = "wire";
  // Nothing gets through any more, and nobody is told.
  bool CutWire() const;

  // Beside the wire: Await returns when the other has called Tell, or is gone.
  void Tell() const;
  void Await() const;

 private:
  friend int RunOnTwoHosts(const std::function<int(const Host&)>& run);

  Host(int rank, int other) : rank_(rank), other_(other) {}

  const int rank_;
  const int other_;  // a socket to the other
};

// What RunOnTwoHosts prints, and why, where the system allows no hosts.
inline constexpr char kNoHosts[] = "no hosts: ";

// Runs it on rank 0's host in this process, which never gets back to its own
// host, and on rank 1's in a child. Returns 0 if both do. Requires that the
// process has one thread.
int RunOnTwoHosts(const std::function<int(const Host&)>& run);

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_TWO_HOSTS_H_
