// The facts about this machine that the doctor judges.
//
//   FactsOptions options;
//   options.environment = EnvironmentOfProcess();
//   const MachineFacts facts = ReadMachineFacts(options);
#ifndef LOCKSTEP_TOOLS_DOCTOR_FACTS_H_
#define LOCKSTEP_TOOLS_DOCTOR_FACTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/network.h"

namespace lockstep {

// The facts about GPUs.
struct GpuFacts {
  bool has_devices = false;  // whether the system has files of NVIDIA's devices
  std::string driver;        // "580.65.06", or "" if it does not say
  absl::StatusOr<int> cuda = absl::UnknownError("not looked for");  // 13000
  std::vector<std::string> names;  // of the devices that CUDA shows
  // The version of NCCL. It is looked for if there is a device.
  std::optional<absl::StatusOr<int>> nccl;
};

// A limit of -1 is no limit.
struct MachineFacts {
  std::string host, kernel, processor;

  int processors = 1;      // on which this process may run
  int all_processors = 1;  // of the machine
  double quota = 0;        // in processors; 0 if there is none
  int64_t periods = 0;     // of the quota, since the group began
  int64_t throttled = 0;   // of these, those in which it was used up
  int64_t memory = -1;     // in bytes; -1 if the system does not say
  int64_t available = -1;  // of it
  // The control group with the least memory left: its limit, what it uses
  // without files that can be read again, and how many of its processes were
  // killed since there was none left.
  int64_t memory_limit = -1, memory_used = 0, memory_kills = 0;
  int64_t locked_memory = -1;     // the limit of a process
  std::vector<std::string> rdma;  // devices that need locked memory
  int64_t open_files = -1, most_open_files = -1;  // the soft and the hard limit
  // The control group with the fewest threads left: its limit, and these.
  int64_t thread_limit = -1, threads_left = 0;
  int64_t user_thread_limit = -1;  // of all of this user's

  absl::Status shared_memory;  // of making some, as the backend shm does
  int64_t dev_shm = -1, dev_shm_free = -1;    // -1 if there is none
  std::string huge_pages, shared_huge_pages;  // "madvise"; "" if not known
  int64_t reserved_huge_pages = 0;

  GpuFacts gpus;

  absl::StatusOr<LaunchEnvironment> launch = LaunchEnvironment();
  std::string init;  // "env://", or where the job's text says
  NetworkFacts network;
  // The addresses of the job's world.interface, if it is a name of a host.
  std::vector<std::string> interface_addresses;
  // The first port that this user may listen at.
  int first_port = 0;

  // True if the kernel says that a time service keeps the clock right.
  std::optional<bool> synchronized;
  std::string clock_source;
};

struct FactsOptions {
  Environment environment;
  WorldOptions world;  // of the job
  NcclOptions nccl;    // of the job's group

  // The files of the system are below this folder, which a test may set.
  std::string root;

  // Called with the name of what is looked at next.
  std::function<void(absl::string_view)> on_step = [](absl::string_view) {};
};

// Returns the processors on which this process may run, such as "0-3,8".
std::string AllowedProcessors(const std::string& root = "");

// Reads all facts. It joins no ranks, and binds no port.
MachineFacts ReadMachineFacts(const FactsOptions& options);

// Returns the place where the ranks of a job meet.
struct MeetingPlace {
  // False if the ranks meet by a file, or if there is one rank.
  bool is_address = false;
  std::string address;  // "trainer-0:29500"
};
MeetingPlace MeetingPlaceOf(const LaunchEnvironment& launch,
                            const WorldOptions& world);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_FACTS_H_
