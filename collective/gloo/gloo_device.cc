#include "lockstep/collective/gloo/gloo_device.h"

#include <dirent.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/gloo/gloo_catch.h"

namespace lockstep::internal_collective {
namespace {

// The most descriptors that a device has open while it is made.
constexpr int kDescriptorsOfDevice = 8;

// Returns the descriptors that an epoll instance waits for, or none for
// anything else.
std::vector<int> DescriptorsOf(int epoll) {
  std::ifstream about(absl::StrCat("/proc/self/fdinfo/", epoll));
  std::vector<int> descriptors;
  for (std::string line; std::getline(about, line);) {
    int descriptor = -1;
    if (std::sscanf(line.c_str(), "tfd: %d", &descriptor) == 1) {
      descriptors.push_back(descriptor);
    }
  }
  return descriptors;
}

// Returns "pipe:[4711]" for both ends of a pipe, and "" for anything else.
std::string PipeOf(int descriptor) {
  char text[64] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", descriptor);
  if (readlink(link.c_str(), text, sizeof(text) - 1) < 0) return "";
  return absl::StartsWith(text, "pipe:") ? text : "";
}

// Returns the descriptors of the device: its epoll instance, and those that the
// instance waits for. Gloo does not tell them, so this looks for the instance
// that waits for a descriptor of ours.
std::vector<int> DescriptorsOf(GlooDevice& device) {
  const Rounds rounds(device);
  for (const int descriptor : AllDescriptors()) {
    std::vector<int> gloos = DescriptorsOf(descriptor);
    const auto ours =
        std::find(gloos.begin(), gloos.end(), rounds.descriptor());
    if (ours == gloos.end()) continue;
    *ours = descriptor;
    return gloos;
  }
  return {};
}

bool IsListening(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ==
             0 &&
         listens != 0;
}

}  // namespace

std::vector<int> AllDescriptors() {
  std::vector<int> descriptors;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fd"),
                                                closedir);
  while (const dirent* const entry = all ? readdir(all.get()) : nullptr) {
    int descriptor = -1;
    if (absl::SimpleAtoi(entry->d_name, &descriptor)) {
      descriptors.push_back(descriptor);
    }
  }
  return descriptors;
}

void CloseAllOnExec(GlooDevice& device) {
  const std::vector<int> all = AllDescriptors();
  for (const int gloo : DescriptorsOf(device)) {
    CloseOnExec(gloo);
    const std::string pipe = PipeOf(gloo);
    for (const int descriptor : all) {
      if (!pipe.empty() && PipeOf(descriptor) == pipe) CloseOnExec(descriptor);
    }
  }
}

void StopListening(GlooDevice& device) {
  for (const int gloo : DescriptorsOf(device)) {
    if (IsListening(gloo)) {
      device.registerDescriptor(gloo, /*events=*/0, &GlooHandler::Nobody());
    }
  }
}

Standstill::Standstill(GlooDevice& device) : readiness_(device, *this) {
  MutexLock lock(mutex_);
  while (!stands_ && readiness_.descriptor() >= 0) changed_.Wait(mutex_);
}

Standstill::~Standstill() {
  MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
  while (stands_ && !left_) changed_.Wait(mutex_);
}

// This runs once, because the descriptor is not ready any more after it was
// read. So Gloo's thread does not touch this object after it has set `left_`.
// Gloo's unregisterDescriptor does not promise that, since its wait for the
// next round of Gloo's thread may end early.
void Standstill::OnEvents(int /*events*/) {
  eventfd_t count = 0;
  ::eventfd_read(readiness_.descriptor(), &count);
  MutexLock lock(mutex_);
  stands_ = true;
  changed_.NotifyAll();
  while (!over_) changed_.Wait(mutex_);
  left_ = true;
  changed_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<GlooDevice>> MakeGlooDevice(
    const std::string& address) {
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  std::shared_ptr<GlooDevice> device;
  const absl::Status status = CatchGloo([&] {
    const internal_base::HostSignalsBlocked
        blocked;  // in the thread of the device, too
    device = std::static_pointer_cast<GlooDevice>(
        ::gloo::transport::tcp::CreateDevice(attributes));
  });
  if (status.ok()) return device;
  if (absl::IsResourceExhausted(status)) return status;
  // If Gloo can open nothing, it also says that it finds no address.
  if (const int shortage = ShortageOfDescriptors(kDescriptorsOfDevice)) {
    return SystemError(shortage, status.message());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("address should be one of this host's, but got address='",
                   address, "': ", status.message()));
}

}  // namespace lockstep::internal_collective
