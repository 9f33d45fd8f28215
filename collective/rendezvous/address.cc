#include "lockstep/collective/rendezvous/address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>  // NOLINT: getaddrinfo can't be interrupted
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/socket_address.h"

namespace lockstep::internal_collective {
namespace {

absl::StatusOr<std::vector<std::string>> Lookup(const std::string& host,
                                                int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    // When descriptors are short, a resolver says that it has failed, but not
    // why.
    if (const int shortage = ShortageOfDescriptors(); shortage != 0) {
      return SystemError(shortage,
                         absl::StrCat("the name '", absl::CHexEscape(host),
                                      "' can't be resolved"));
    }
    return absl::UnavailableError(
        absl::StrCat("the name '", absl::CHexEscape(host),
                     "' does not resolve: ", ::gai_strerror(error)));
  }
  std::vector<std::string> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::string number = HostOf(entry->ai_addr);
    if (!number.empty()) found.push_back(std::move(number));
  }
  ::freeaddrinfo(list);
  return found;
}

// The answer of a thread that may outlive the call that waits for it.
struct Answer {
  Mutex mutex;
  CondVar changed;
  bool there ABSL_GUARDED_BY(mutex) = false;
  absl::StatusOr<std::vector<std::string>> found ABSL_GUARDED_BY(mutex);
};

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const auto wrong = [text](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an address should be 'host:port', with an IPv6 address in brackets, "
        "but got '",
        absl::CHexEscape(text), "': ", what));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return wrong("it has no port");
  absl::string_view host = text.substr(0, colon);
  const bool brackets = absl::StartsWith(host, "[");
  if (brackets != absl::EndsWith(host, "]") ||
      brackets != absl::StrContains(host, ":")) {
    return wrong("it has brackets amiss");
  }
  if (brackets) host = host.substr(1, host.size() - 2);
  if (host.empty()) return wrong("it has no host");
  if (absl::StrContains(host, '\0')) return wrong("its host has a NUL in it");
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return wrong("its port should be between 1 and 65535");
  }
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

std::string FormatHostPort(absl::string_view host, uint16_t port) {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                 SteadyTime deadline) {
  absl::StatusOr<std::vector<std::string>> numeric =
      Lookup(host, AI_NUMERICHOST);
  if (numeric.ok()) return numeric;

  // A name service that can't be reached may take half a minute to say so.
  const auto answer = std::make_shared<Answer>();
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::thread thread,
      internal_base::StartQuietThread("lockstep-name", [host, answer] {
        absl::StatusOr<std::vector<std::string>> found = Lookup(host, 0);
        MutexLock lock(answer->mutex);
        answer->there = true;
        answer->found = std::move(found);
        answer->changed.NotifyAll();
      }));
  thread.detach();
  MutexLock lock(answer->mutex);
  while (!answer->there) {
    if (answer->changed.WaitUntil(answer->mutex, deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("the name '", absl::CHexEscape(host),
                       "' was not resolved in time: the name service does not "
                       "answer"));
    }
  }
  return std::move(answer->found);
}

}  // namespace lockstep::internal_collective
