#include "lockstep/tools/doctor/facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "lockstep/base/cgroup.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/loader/cpus.h"
#include "lockstep/tools/doctor/network.h"

namespace lockstep {
namespace {

using internal_base::CgroupFolder;
using internal_base::CgroupFolders;
using internal_collective::SharedMemory;
using internal_gpu::CudaApi;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  absl::StripAsciiWhitespace(&text);
  return text;
}

// Returns the number in a file, or -1 if it has another text, such as "max".
int64_t ReadNumber(const std::string& path) {
  int64_t number = -1;
  return absl::SimpleAtoi(ReadText(path), &number) ? number : -1;
}

// Returns the number behind a name in a file that has a name and a number in
// each line, or -1.
int64_t ReadNumber(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(rest, ' ', absl::SkipEmpty());
    int64_t number = -1;
    if (!words.empty() && absl::SimpleAtoi(words[0], &number)) return number;
  }
  return -1;
}

int64_t SoftLimit(int resource, int64_t* hard = nullptr) {
  const auto number = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit);
  };
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    return -1;
  }
  if (hard != nullptr) *hard = number(limit.rlim_max);
  return number(limit.rlim_cur);
}

// Returns the word that the system has chosen: "madvise" of
// "always [madvise] never".
std::string ChosenWord(absl::string_view text) {
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == absl::string_view::npos || end == absl::string_view::npos ||
      end < begin) {
    return "";
  }
  return std::string(text.substr(begin + 1, end - begin - 1));
}

void ReadMachine(const std::string& root, MachineFacts& facts) {
  facts.host = ThisProcess(0).host;
  utsname system = {};
  if (uname(&system) == 0) {
    facts.kernel = absl::StrCat(system.sysname, " ", system.release);
  }
  std::ifstream processors(root + "/proc/cpuinfo");
  for (std::string line; std::getline(processors, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && absl::StartsWith(line, "model name")) {
      facts.processor = std::string(absl::StripAsciiWhitespace(parts[1]));
      break;
    }
  }
}

void ReadProcessors(const std::string& root, MachineFacts& facts) {
  facts.processors = internal_loader::AffineCpus();
  facts.quota = internal_loader::CpuQuota(root);
  facts.all_processors = std::max<int>(
      facts.processors, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  for (const CgroupFolder& folder : CgroupFolders("cpu", root)) {
    const std::string file = folder.path + "/cpu.stat";
    const int64_t throttled = ReadNumber(file, "nr_throttled ");
    if (throttled <= facts.throttled) continue;
    facts.throttled = throttled;
    facts.periods = ReadNumber(file, "nr_periods ");
  }
}

void ReadMemory(const std::string& root, MachineFacts& facts) {
  constexpr int64_t kKib = 1024;
  const std::string table = root + "/proc/meminfo";
  const int64_t total = ReadNumber(table, "MemTotal:");
  const int64_t available = ReadNumber(table, "MemAvailable:");
  if (total >= 0) facts.memory = total * kKib;
  if (available >= 0) facts.available = available * kKib;
  for (const CgroupFolder& folder : CgroupFolders("memory", root)) {
    const std::string begin = folder.path + "/memory.";
    const int64_t limit =
        ReadNumber(begin + (folder.is_v2 ? "max" : "limit_in_bytes"));
    // Version 1 writes the largest number of whole pages for no limit.
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max() >> 20 << 20;
    if (limit < 0 || limit >= kNone) continue;
    const int64_t files =
        ReadNumber(begin + "stat",
                   folder.is_v2 ? "inactive_file " : "total_inactive_file ");
    const int64_t used = std::max<int64_t>(
        0, ReadNumber(begin + (folder.is_v2 ? "current" : "usage_in_bytes")) -
               std::max<int64_t>(0, files));
    if (facts.memory_limit >= 0 &&
        limit - used >= facts.memory_limit - facts.memory_used) {
      continue;
    }
    facts.memory_limit = limit;
    facts.memory_used = used;
    facts.memory_kills = std::max<int64_t>(
        0, ReadNumber(begin + (folder.is_v2 ? "events" : "oom_control"),
                      "oom_kill "));
  }
  facts.reserved_huge_pages =
      std::max<int64_t>(0, ReadNumber(table, "HugePages_Total:"));
  const std::string huge = root + "/sys/kernel/mm/transparent_hugepage/";
  facts.huge_pages = ChosenWord(ReadText(huge + "enabled"));
  facts.shared_huge_pages = ChosenWord(ReadText(huge + "shmem_enabled"));
}

void ReadLimits(const std::string& root, MachineFacts& facts) {
  facts.locked_memory = SoftLimit(RLIMIT_MEMLOCK);
  facts.open_files = SoftLimit(RLIMIT_NOFILE, &facts.most_open_files);
  // The limit does not hold for root.
  if (geteuid() != 0) facts.user_thread_limit = SoftLimit(RLIMIT_NPROC);
  for (const CgroupFolder& folder : CgroupFolders("pids", root)) {
    const int64_t limit = ReadNumber(folder.path + "/pids.max");
    const int64_t threads = ReadNumber(folder.path + "/pids.current");
    if (limit < 0 || threads < 0) continue;
    const int64_t left = std::max<int64_t>(0, limit - threads);
    if (facts.thread_limit >= 0 && left >= facts.threads_left) continue;
    facts.thread_limit = limit;
    facts.threads_left = left;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator
           at(root + "/sys/class/infiniband", error),
       end;
       !error && at != end; at.increment(error)) {
    facts.rdma.push_back(at->path().filename().string());
  }
  std::sort(facts.rdma.begin(), facts.rdma.end());
}

// Makes shared memory as the backend shm does, and opens it.
absl::Status TrySharedMemory() {
  constexpr size_t kBytes = size_t{1} << 20;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto memory, SharedMemory::Create(kBytes));
  return SharedMemory::Open(memory->Address(), kBytes).status();
}

void ReadSharedMemory(const std::string& root, MachineFacts& facts) {
  facts.shared_memory = TrySharedMemory();
  struct statvfs space = {};
  if (statvfs((root + "/dev/shm").c_str(), &space) == 0) {
    const auto unit = static_cast<int64_t>(space.f_frsize);
    facts.dev_shm = static_cast<int64_t>(space.f_blocks) * unit;
    facts.dev_shm_free = static_cast<int64_t>(space.f_bavail) * unit;
  }
}

absl::StatusOr<int> ReadDevices(const std::string& library,
                                std::vector<std::string>& names) {
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            internal_gpu::LoadCuda(library));
  const auto check = [cuda](internal_gpu::CudaResult result,
                            absl::string_view what) {
    return internal_gpu::CudaStatus(*cuda, result, what);
  };
  int version = 0, count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      check(cuda->DriverGetVersion(&version), "cuDriverGetVersion"));
  LOCKSTEP_RETURN_IF_ERROR(
      check(cuda->DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    internal_gpu::CudaDevice device = 0;
    char name[256] = {};
    LOCKSTEP_RETURN_IF_ERROR(
        check(cuda->DeviceGet(&device, ordinal), "cuDeviceGet"));
    LOCKSTEP_RETURN_IF_ERROR(
        check(cuda->DeviceGetName(name, sizeof(name) - 1, device),
              "cuDeviceGetName"));
    names.emplace_back(name);
  }
  return version;
}

void ReadGpus(const FactsOptions& options, GpuFacts& facts) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(options.root + "/dev", error),
       end;
       !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    absl::string_view name = file;
    int number = 0;
    facts.has_devices |=
        absl::ConsumePrefix(&name, "nvidia") && absl::SimpleAtoi(name, &number);
  }
  // The line is "NVRM version: NVIDIA UNIX ... Kernel Module  580.65.06  ...".
  const std::vector<std::string> words =
      absl::StrSplit(ReadText(options.root + "/proc/driver/nvidia/version"),
                     absl::ByAnyChar(" \n"), absl::SkipEmpty());
  for (const std::string& word : words) {
    if (facts.driver.empty() && absl::StrContains(word, ".") &&
        absl::ascii_isdigit(static_cast<unsigned char>(word[0]))) {
      facts.driver = word;
    }
  }
  facts.cuda = ReadDevices(options.nccl.cuda_library, facts.names);
  if (facts.names.empty() && !facts.has_devices) return;
  const auto nccl = internal_collective::LoadNccl(options.nccl.nccl_library);
  if (nccl.ok()) {
    facts.nccl = (*nccl)->version;
  } else {
    facts.nccl = nccl.status();
  }
}

void ReadLaunch(const FactsOptions& options, MachineFacts& facts) {
  facts.init = options.world.init;
  facts.launch = ReadLaunchEnvironment(options.environment,
                                       options.world.init == "env://");
}

void ReadClock(const std::string& root, MachineFacts& facts) {
  timex clock = {};
  const int state = adjtimex(&clock);
  if (state >= 0) {
    facts.synchronized =
        state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  }
  facts.clock_source = ReadText(
      root +
      "/sys/devices/system/clocksource/clocksource0/current_clocksource");
}

}  // namespace

std::string AllowedProcessors(const std::string& root) {
  std::ifstream file(root + "/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "Cpus_allowed_list:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

MeetingPlace MeetingPlaceOf(const LaunchEnvironment& launch,
                            const WorldOptions& world) {
  const int size = world.size < 0 ? launch.size : world.size;
  absl::string_view init = world.init;
  if (size <= 1) return {};
  if (absl::ConsumePrefix(&init, "tcp://")) return {true, std::string(init)};
  if (init != "env://") return {};
  return {!launch.address.empty(), launch.address};
}

MachineFacts ReadMachineFacts(const FactsOptions& options) {
  MachineFacts facts;
  const std::string& root = options.root;
  options.on_step("the processors and the memory");
  ReadMachine(root, facts);
  ReadProcessors(root, facts);
  ReadMemory(root, facts);
  ReadLimits(root, facts);
  options.on_step("the shared memory");
  ReadSharedMemory(root, facts);
  options.on_step("the launcher's variables");
  ReadLaunch(options, facts);
  options.on_step("the network and the address of rank 0");
  facts.network = ReadNetworkFacts(
      facts.launch.ok() ? MeetingPlaceOf(*facts.launch, options.world).address
                        : "",
      root);
  const std::string& interface = options.world.interface;
  const bool is_interface = std::any_of(
      facts.network.interfaces.begin(), facts.network.interfaces.end(),
      [&interface](const Interface& each) { return each.name == interface; });
  if (!interface.empty() && !is_interface) {
    const auto addresses =
        internal_collective::Resolve(interface, After(absl::Seconds(10)));
    if (addresses.ok()) facts.interface_addresses = *addresses;
  }
  if (geteuid() != 0) {
    facts.first_port = static_cast<int>(std::max<int64_t>(
        0, ReadNumber(root + "/proc/sys/net/ipv4/ip_unprivileged_port_start")));
  }
  options.on_step("the clock");
  ReadClock(root, facts);
  options.on_step("the GPUs, their driver and NCCL");
  ReadGpus(options, facts.gpus);
  return facts;
}

}  // namespace lockstep
