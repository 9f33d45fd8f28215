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
#include "lockstep/base/cgroup.h"

namespace lockstep {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
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

double CpuQuota(const std::string& root) {
  double tightest = 0;
  for (const internal_base::CgroupFolder& folder :
       internal_base::CgroupFolders("cpu", root)) {
    // In version 2 a quota is in the file cpu.max; version 1 has two files.
    const double quota =
        folder.is_v2 ? QuotaOf(ReadFile(folder.path + "/cpu.max"))
                     : QuotaOf(absl::StrCat(
                           ReadFile(folder.path + "/cpu.cfs_quota_us"), " ",
                           ReadFile(folder.path + "/cpu.cfs_period_us")));
    if (quota > 0) tightest = tightest > 0 ? std::min(tightest, quota) : quota;
  }
  return tightest;
}

int AffineCpus() {
  // The kernel returns an error if the mask is too small for the machine.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(1, count);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace internal_loader

int UsableCpus() {
  const int cpus = internal_loader::AffineCpus();
  const double quota = internal_loader::CpuQuota();
  if (quota <= 0 || quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

int DefaultWorkers() { return std::max(1, UsableCpus() / 2); }

}  // namespace lockstep
