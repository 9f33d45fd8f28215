#include "lockstep/tools/doctor/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/socket_address.h"

namespace lockstep {
namespace {

using internal_collective::HostOf;
using internal_collective::HostPort;
using internal_collective::ParseHostPort;
using internal_collective::Resolve;
using internal_collective::SocketAddress;
using internal_collective::SocketAddressOf;

constexpr absl::Duration kNamesPatience = absl::Seconds(10);

// Returns true if an interface is one of a device, or stands above one: others,
// such as those of containers, name a speed that they do not have.
bool HasDevice(const std::filesystem::path& interface) {
  std::error_code error;
  if (std::filesystem::exists(interface / "device", error)) return true;
  for (std::filesystem::directory_iterator at(interface, error), end;
       !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    absl::string_view name = file;
    if (absl::ConsumePrefix(&name, "lower_") &&
        HasDevice(interface.parent_path() / std::string(name))) {
      return true;
    }
  }
  return false;
}

// Returns the speed of an interface in Mbit/s, or -1 if it is not known.
int64_t SpeedOf(const std::filesystem::path& interface) {
  if (!HasDevice(interface)) return -1;
  std::ifstream file(interface / "speed");
  int64_t mbits = -1;
  return file >> mbits && mbits > 0 ? mbits : -1;
}

std::vector<Interface> ReadInterfaces(const std::string& root) {
  std::vector<Interface> interfaces;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return interfaces;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const std::string address = HostOf(each->ifa_addr);
    if (address.empty() || (each->ifa_flags & IFF_UP) == 0) continue;
    const auto same = [each](const Interface& interface) {
      return interface.name == each->ifa_name;
    };
    auto found = std::find_if(interfaces.begin(), interfaces.end(), same);
    if (found == interfaces.end()) {
      Interface interface;
      interface.name = each->ifa_name;
      interface.is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
      interface.mbits =
          SpeedOf(absl::StrCat(root, "/sys/class/net/", interface.name));
      found = interfaces.insert(interfaces.end(), interface);
    }
    found->addresses.push_back(address);
  }
  freeifaddrs(all);
  return interfaces;
}

// Returns this machine's address from which it reaches another, which a socket
// of datagrams finds out without sending any.
absl::StatusOr<std::string> SourceFor(const std::string& address) {
  constexpr uint16_t kAnyPort = 9;
  LOCKSTEP_ASSIGN_OR_RETURN(const SocketAddress other,
                            SocketAddressOf(address, kAnyPort));
  const Descriptor probe(
      socket(other.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress own;
  if (!probe.ok() || connect(probe.fd(), other.get(), other.size) != 0 ||
      getsockname(probe.fd(), own.get(), &own.size) != 0) {
    return SystemError(errno, address);
  }
  return HostOf(own.get());
}

// Returns the address that a table of the kernel has: 8 or 32 hexadecimal
// digits, of which each 8 are a word in the order of this machine. "" stands
// for all addresses.
absl::StatusOr<std::string> ParseTableAddress(absl::string_view text) {
  constexpr size_t kDigits = 8;
  if (text.size() != kDigits && text.size() != 4 * kDigits) {
    return absl::InvalidArgumentError("no address");
  }
  uint32_t words[4] = {};
  for (size_t i = 0; i < text.size() / kDigits; ++i) {
    if (!absl::SimpleHexAtoi(text.substr(i * kDigits, kDigits), &words[i])) {
      return absl::InvalidArgumentError("no address");
    }
  }
  char digits[INET6_ADDRSTRLEN] = {};
  const bool is_v4 = text.size() == kDigits;
  inet_ntop(is_v4 ? AF_INET : AF_INET6, words, digits, sizeof(digits));
  absl::string_view shown = digits;
  absl::ConsumePrefix(&shown, "::ffff:");
  return std::string(shown == "0.0.0.0" || shown == "::" ? "" : shown);
}

// The numbers of the sockets at a port.
struct Sockets {
  std::vector<std::string> listening;
  std::vector<std::string> connected;
};

// Returns the sockets at a port of one of the addresses. A line of
// /proc/net/tcp has these words: its number, the address, that of the other
// end, the state, two queues, a timer, retransmits, the user, a timeout, and
// the socket's number.
Sockets SocketsAt(const std::vector<std::string>& addresses, int port,
                  const std::string& root) {
  constexpr size_t kAddress = 1, kState = 3, kNumber = 9;
  constexpr absl::string_view kListens = "0A";
  // A connection that has ended, and keeps nobody from the port.
  constexpr absl::string_view kWaits = "06";
  Sockets sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(root + table);
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> words =
          absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() <= kNumber || words[kState] == kWaits) continue;
      const std::pair<std::string, std::string> place =
          absl::StrSplit(words[kAddress], absl::MaxSplits(':', 1));
      const absl::StatusOr<std::string> address =
          ParseTableAddress(place.first);
      int found = 0;
      if (!address.ok() || !absl::SimpleHexAtoi(place.second, &found) ||
          found != port) {
        continue;
      }
      if (address->empty() || std::find(addresses.begin(), addresses.end(),
                                        *address) != addresses.end()) {
        (words[kState] == kListens ? sockets.listening : sockets.connected)
            .push_back(words[kNumber]);
      }
    }
  }
  return sockets;
}

// Returns the process that has one of the sockets, as far as this user may see.
std::string OwnerOf(const std::vector<std::string>& sockets,
                    const std::string& root) {
  const auto has_one = [&sockets](const std::filesystem::path& folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder / "fd", error), end;
         !error && at != end; at.increment(error)) {
      std::error_code no_link;
      const std::string target =
          std::filesystem::read_symlink(at->path(), no_link).string();
      for (const std::string& number : sockets) {
        if (target == absl::StrCat("socket:[", number, "]")) return true;
      }
    }
    return false;
  };
  std::error_code error;
  for (std::filesystem::directory_iterator at(root + "/proc", error), end;
       !error && at != end; at.increment(error)) {
    int64_t pid = 0;
    if (!absl::SimpleAtoi(at->path().filename().string(), &pid) ||
        !has_one(at->path())) {
      continue;
    }
    std::ifstream file(at->path() / "comm");
    std::string name;
    std::getline(file, name);
    return absl::StrCat(name.empty() ? "a process" : name, " (pid ", pid, ")");
  }
  return "another process";
}

}  // namespace

const Interface* FindInterface(const std::vector<Interface>& interfaces,
                               absl::string_view address) {
  for (const Interface& interface : interfaces) {
    if (std::find(interface.addresses.begin(), interface.addresses.end(),
                  address) != interface.addresses.end()) {
      return &interface;
    }
  }
  return nullptr;
}

bool IsLoopback(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

NetworkFacts ReadNetworkFacts(const std::string& address,
                              const std::string& root) {
  NetworkFacts facts;
  facts.interfaces = ReadInterfaces(root);
  if (address.empty()) return facts;
  const absl::StatusOr<HostPort> place = ParseHostPort(address);
  if (!place.ok()) {
    facts.addresses = place.status();
    return facts;
  }
  facts.host = place->host;
  facts.port = place->port;
  facts.addresses = Resolve(place->host, After(kNamesPatience));
  if (!facts.addresses.ok() || facts.addresses->empty()) return facts;
  facts.source = SourceFor(facts.addresses->front());
  const Sockets sockets = SocketsAt(*facts.addresses, facts.port, root);
  if (!sockets.listening.empty()) {
    facts.listener = OwnerOf(sockets.listening, root);
  }
  if (!sockets.connected.empty()) {
    facts.connected = OwnerOf(sockets.connected, root);
  }
  return facts;
}

}  // namespace lockstep
