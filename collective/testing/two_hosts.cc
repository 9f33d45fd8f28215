#include "lockstep/collective/testing/two_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

constexpr unsigned kMostSeconds = 240;  // as in rank_processes.cc

template <typename T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A request to the kernel's networking. It has attributes, which may have
// attributes. The values here consist of whole words.
// Thread-safety: thread-compatible.
class LinkRequest {
 public:
  LinkRequest(uint16_t type, uint16_t flags) {
    header_.nlmsg_type = type;
    header_.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    Add(BytesOf(header_));
    Add(BytesOf(ifinfomsg{}));
  }

  void Add(absl::string_view bytes) { absl::StrAppend(&bytes_, bytes); }
  void Add(uint16_t type, absl::string_view value) {
    Add(type, [&] { Add(value); });
  }
  // Adds an attribute. Its value is everything that `fill` adds.
  void Add(uint16_t type, const std::function<void()>& fill) {
    const size_t begin = bytes_.size();
    rtattr attribute = {0, type};
    Add(BytesOf(attribute));
    fill();
    attribute.rta_len = bytes_.size() - begin;
    std::memcpy(&bytes_[begin], &attribute, sizeof(attribute));
  }

  // Sends the request. Returns the error's number, or 0 on success.
  int Send() {
    header_.nlmsg_len = bytes_.size();
    std::memcpy(bytes_.data(), &header_, sizeof(header_));
    const int link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct {
      nlmsghdr header;
      nlmsgerr error;
    } answer = {};
    const bool answered =
        send(link, bytes_.data(), bytes_.size(), 0) >= 0 &&
        recv(link, &answer, sizeof(answer), 0) >= ssize_t{sizeof(answer)};
    const int error = answered ? -answer.error.error : errno;
    close(link);
    return error;
  }

 private:
  nlmsghdr header_ = {};
  std::string bytes_;
};

// Makes a wire from this process's host to that of another. Returns the error's
// number.
int MakeWire(pid_t other) {
  const absl::string_view name = Host::kInterface;
  LinkRequest request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  request.Add(IFLA_IFNAME, name);
  request.Add(IFLA_LINKINFO, [&] {
    request.Add(IFLA_INFO_KIND, absl::string_view("veth"));
    request.Add(IFLA_INFO_DATA, [&] {
      request.Add(VETH_INFO_PEER, [&] {
        request.Add(BytesOf(ifinfomsg{}));
        request.Add(IFLA_IFNAME, name);
        request.Add(IFLA_NET_NS_PID, BytesOf(static_cast<uint32_t>(other)));
      });
    });
  });
  return request.Send();
}

ifreq AboutInterface() {
  ifreq about = {};
  Host::kInterface.copy(about.ifr_name, IFNAMSIZ - 1);
  return about;
}

bool SetInterface(int what, ifreq& about) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool done = ioctl(any, what, &about) == 0;
  close(any);
  return done;
}

bool StartInterface(int rank) {
  ifreq about = AboutInterface();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000001 + rank);  // 10.0.0.1, 10.0.0.2
  std::memcpy(&about.ifr_addr, &address, sizeof(address));
  if (!SetInterface(SIOCSIFADDR, about)) return false;
  about = AboutInterface();
  about.ifr_flags = IFF_UP;
  return SetInterface(SIOCSIFFLAGS, about);
}

bool Write(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool written =
      write(file, text.data(), text.size()) == ssize_t(text.size());
  close(file);
  return written;
}

// Moves this process to a host of its own. A user without the privilege for
// this first enters a user namespace, with the same user id.
bool EnterHost() {
  if (unshare(CLONE_NEWNET) == 0) return true;
  const uid_t user = geteuid();
  const gid_t group = getegid();
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
         Write("/proc/self/uid_map", absl::StrCat(user, " ", user, " 1")) &&
         Write("/proc/self/setgroups", "deny") &&
         Write("/proc/self/gid_map", absl::StrCat(group, " ", group, " 1"));
}

int NoHosts(const char* what, int error) {
  std::printf("%s%s: %s\n", kNoHosts, what, std::strerror(error));
  return 0;
}

int Failed(const char* what) {
  std::printf("%s: %s\n", what, std::strerror(errno));
  return 1;
}

}  // namespace

bool Host::CutWire() const {
  ifreq about = AboutInterface();
  return SetInterface(SIOCSIFFLAGS, about);
}

void Host::Tell() const { send(other_, "", 1, MSG_NOSIGNAL); }

void Host::Await() const {
  char told;
  while (recv(other_, &told, 1, 0) < 0 && errno == EINTR) {
  }
}

int RunOnTwoHosts(const std::function<int(const Host&)>& run) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Failed("no socket");
  }
  if (!EnterHost()) return NoHosts("a network namespace", errno);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Failed("no process");
  const int rank = child == 0 ? 1 : 0;
  close(ends[1 - rank]);
  const Host host(rank, ends[rank]);
  if (rank == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;
    alarm(kMostSeconds);
    if (!EnterHost()) return NoHosts("a second network namespace", errno);
    host.Tell();
    host.Await();
    if (!StartInterface(rank)) return Failed("no interface of rank 1");
    return run(host);
  }
  host.Await();
  const int error = MakeWire(child);
  int result = 1;
  if (error != 0) {
    kill(child, SIGKILL);
    result = NoHosts("a wire", error);
  } else if (!StartInterface(rank)) {
    result = Failed("no interface of rank 0");
  } else {
    host.Tell();
    result = run(host);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return error != 0 || status == 0 ? result : 1;
}

}  // namespace lockstep
