// The facts about this machine's network.
//
//   const NetworkFacts facts = ReadNetworkFacts("trainer-0:29500", "");
#ifndef LOCKSTEP_TOOLS_DOCTOR_NETWORK_H_
#define LOCKSTEP_TOOLS_DOCTOR_NETWORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// An interface that is up and has an address.
struct Interface {
  std::string name;
  std::vector<std::string> addresses;
  bool is_loopback = false;
  int64_t mbits = -1;  // the speed of its device, if the system names one
};

struct NetworkFacts {
  std::vector<Interface> interfaces;

  // The host and the port of rank 0. They are empty if the job has no address,
  // and `addresses` is the error if it makes no sense.
  std::string host;
  int port = 0;
  absl::StatusOr<std::vector<std::string>> addresses =
      std::vector<std::string>();

  // The address of this machine from which it reaches rank 0's, or the error.
  absl::StatusOr<std::string> source = std::string();

  // The process that listens at the port: "python3 (pid 4711)", or "another
  // process" if the system does not show it to this user. "" if none does.
  std::string listener;
  // The process that has a connection from this port, in the same form.
  std::string connected;
};

// Reads the facts, with rank 0's address, which may be empty. It sends nothing
// but queries to the name service. The files of the system are below `root`.
NetworkFacts ReadNetworkFacts(const std::string& address,
                              const std::string& root);

// Returns the interface that has an address, or null.
const Interface* FindInterface(const std::vector<Interface>& interfaces,
                               absl::string_view address);

// Returns true for addresses such as "127.0.0.1" and "::1".
bool IsLoopback(absl::string_view address);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_NETWORK_H_
