#include "lockstep/loader/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>  // NOLINT: hardware_concurrency

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

int Affinity() {
  // The kernel returns an error if the mask is too small for the machine.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Returns the smallest quota of this process's cgroup and the groups above it.
// In version 2 a quota is in the file cpu.max; version 1 has two files for it.
double Quota() {
  double tightest = 0;
  std::istringstream groups(ReadFile("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_cpu =
        ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !is_cpu) continue;
    std::string path = line.substr(second + 1);
    while (true) {
      const std::string folder =
          absl::StrCat("/sys/fs/cgroup/", controllers, path);
      const double quota = internal_loader::QuotaOf(
          controllers.empty()
              ? ReadFile(folder + "/cpu.max")
              : absl::StrCat(ReadFile(folder + "/cpu.cfs_quota_us"), " ",
                             ReadFile(folder + "/cpu.cfs_period_us")));
      if (quota > 0)
        tightest = tightest > 0 ? std::min(tightest, quota) : quota;
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path == "/" || path.empty()) break;
      path.resize(slash);
    }
  }
  return tightest;
}

}  // namespace

namespace internal_loader {

double QuotaOf(absl::string_view cpu_max) {
  std::istringstream text{std::string(cpu_max)};
  double quota = 0, period = 0;
  // "max" and -1 are no quota.
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return quota / period;
}

}  // namespace internal_loader

int UsableCpus() {
  const int cpus = std::max(1, Affinity());
  const double quota = Quota();
  if (quota <= 0 || quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

int DefaultWorkers() { return std::max(1, UsableCpus() / 2); }

}  // namespace lockstep
