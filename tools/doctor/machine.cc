#include "lockstep/tools/doctor/machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/network.h"

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Returns "1.5 GiB" or "512 MiB".
std::string Bytes(int64_t bytes) {
  constexpr int64_t kGib = 1024 * kMib;
  if (bytes >= kGib) {
    return absl::StrFormat(
        "%.1f GiB", static_cast<double>(bytes) / static_cast<double>(kGib));
  }
  if (bytes >= kMib) return absl::StrCat(bytes / kMib, " MiB");
  return absl::StrCat(bytes / 1024, " KiB");
}

// Judges the facts one after another.
// Thread-safety: thread-compatible.
class Judge {
 public:
  Judge(const MachineFacts& facts, const JudgeOptions& options)
      : facts_(facts), options_(options) {
    if (!facts.launch.ok()) return;
    size_ = options.world.size < 0 ? facts.launch->size : options.world.size;
    rank_ = options.world.rank < 0 ? facts.launch->rank : options.world.rank;
    local_size_ = std::max(1, facts.launch->local_size);
    place_ = MeetingPlaceOf(*facts.launch, options.world);
  }

  std::vector<Finding> Run() {
    Processors();
    Memory();
    LockedMemory();
    OpenFiles();
    Threads();
    SharedMemory();
    HugePages();
    Gpus();
    Nccl();
    Network();
    Launcher();
    Token();
    RankZero();
    Port();
    Clock();
    return std::move(findings_);
  }

 private:
  void Add(const char* check, Verdict verdict, std::string text,
           std::string remedy = "") {
    findings_.push_back({check, verdict, std::move(text), std::move(remedy)});
  }
  void Pass(const char* check, std::string text) {
    Add(check, Verdict::kPass, std::move(text));
  }

  void Processors();
  void Memory();
  void LockedMemory();
  void OpenFiles();
  void Threads();
  void SharedMemory();
  void HugePages();
  void Gpus();
  void Nccl();
  void Network();
  void Launcher();
  void Token();
  void RankZero();
  void Port();
  void Clock();

  const MachineFacts& facts_;
  const JudgeOptions& options_;
  // The place of this process in the job, as far as the launcher says it.
  int rank_ = 0, size_ = 1, local_size_ = 1;
  MeetingPlace place_;
  std::vector<Finding> findings_;
};

void Judge::Processors() {
  constexpr char kCheck[] = "processors";
  const std::string quota =
      facts_.quota > 0 ? absl::StrFormat("a quota of %.4g", facts_.quota)
                       : "no quota";
  const std::string text = absl::StrCat(facts_.processors, " usable, ", quota);
  const double usable = facts_.quota > 0
                            ? std::min(facts_.quota, 1.0 * facts_.processors)
                            : facts_.processors;
  if (usable < local_size_) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, ", for ", local_size_, " ranks"),
        "start as many ranks on this machine as it has processors, or give "
        "the job more (srun --cpus-per-task, docker --cpus, "
        "resources.limits.cpu)");
  } else if (facts_.quota > 0 && facts_.throttled > 0) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, ", which was used up in ", facts_.throttled,
                     " periods: all threads then stop until the next one"),
        "raise the quota (docker --cpus, resources.limits.cpu), or pin the "
        "job to whole processors instead (docker --cpuset-cpus)");
  } else {
    Pass(kCheck, text);
  }
}

void Judge::Memory() {
  constexpr char kCheck[] = "memory";
  std::string text = facts_.memory < 0
                         ? "the system does not say how much there is"
                         : Bytes(facts_.memory);
  if (facts_.available >= 0) {
    absl::StrAppend(&text, ", of which ", Bytes(facts_.available),
                    " are available");
  }
  if (facts_.memory_limit >= 0 &&
      (facts_.memory < 0 || facts_.memory_limit < facts_.memory)) {
    absl::StrAppend(&text, "; this container may use ",
                    Bytes(facts_.memory_limit));
  }
  if (facts_.memory_kills > 0) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, "; the kernel has killed ", facts_.memory_kills,
                     facts_.memory_kills == 1 ? " process" : " processes",
                     " of it, since it was used up"),
        "raise the limit (docker --memory, resources.limits.memory), or use "
        "less: fewer workers, fewer batches that are read ahead");
  } else {
    Add(kCheck, facts_.memory < 0 ? Verdict::kNotJudged : Verdict::kPass, text);
  }
}

void Judge::LockedMemory() {
  constexpr char kCheck[] = "locked memory";
  const std::string text =
      facts_.locked_memory < 0
          ? "no limit"
          : absl::StrCat("a limit of ", Bytes(facts_.locked_memory));
  if (facts_.locked_memory < 0) {
    Pass(kCheck, text);
  } else if (facts_.rdma.empty()) {
    Pass(kCheck, text + ", and no device that needs more");
  } else {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, ", but NCCL locks the memory that it gives to ",
                     absl::StrJoin(facts_.rdma, ", ")),
        "remove the limit: ulimit -l unlimited, docker --ulimit memlock=-1, "
        "LimitMEMLOCK=infinity in the service of slurmd or containerd");
  }
}

void Judge::OpenFiles() {
  constexpr char kCheck[] = "open files";
  // A group over TCP has two connections to each other rank, and rank 0 has
  // one more to each. A session may make two groups. The rest is for files.
  const int64_t needed = 256 + 5 * int64_t{size_};
  if (facts_.open_files < 0 || facts_.open_files >= needed) {
    Pass(kCheck, facts_.open_files < 0
                     ? std::string("no limit")
                     : absl::StrCat("a limit of ", facts_.open_files));
    return;
  }
  const bool can_raise =
      facts_.most_open_files < 0 || facts_.most_open_files >= needed;
  Add(kCheck, Verdict::kFailure,
      absl::StrCat("a limit of ", facts_.open_files, ", but a rank of ", size_,
                   " may need ", needed),
      can_raise ? absl::StrCat("raise it before the job: ulimit -n ", needed)
                : absl::StrCat("raise the hard limit, which is ",
                               facts_.most_open_files,
                               ": docker --ulimit nofile, or nofile in "
                               "/etc/security/limits.conf"));
}

void Judge::Threads() {
  constexpr char kCheck[] = "threads";
  if (facts_.thread_limit < 0) {
    Pass(kCheck, "no limit in this container");
    return;
  }
  // Each rank has a few threads of Lockstep's, and half of the processors as
  // workers.
  constexpr int64_t kOwn = 16;
  const int64_t needed = local_size_ * (kOwn + facts_.processors);
  const int64_t left = facts_.thread_limit - facts_.threads;
  const std::string text =
      absl::StrCat("a limit of ", facts_.thread_limit, ", of which ",
                   std::max<int64_t>(left, 0), " are left");
  if (left >= needed) {
    Pass(kCheck, text);
  } else {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, "; ", local_size_,
                     local_size_ == 1 ? " rank" : " ranks", " may need ",
                     needed),
        "raise the limit: docker --pids-limit, podPidsLimit of the kubelet, "
        "TasksMax of systemd");
  }
}

void Judge::SharedMemory() {
  constexpr char kCheck[] = "shared memory";
  // Docker gives a container this much, unless --shm-size says otherwise.
  constexpr int64_t kDocker = 64 * kMib;
  if (!facts_.shared_memory.ok()) {
    Add(kCheck, Verdict::kFailure, std::string(facts_.shared_memory.message()),
        "let the job's processes use memfd_create and /proc, which the "
        "backend shm needs; until then, ranks of one machine can use tcp: "
        "group = {name = \"tcp\"}");
    return;
  }
  const std::string text =
      facts_.dev_shm < 0
          ? std::string("the backend shm has its own; there is no /dev/shm")
          : absl::StrCat("the backend shm has its own; /dev/shm has ",
                         Bytes(facts_.dev_shm_free), " of ",
                         Bytes(facts_.dev_shm), " left");
  if (!facts_.gpus.names.empty() && facts_.dev_shm_free < kDocker) {
    Add(kCheck, Verdict::kWarning, text + ", which NCCL may fill",
        "give the container more: docker --shm-size=8g or --ipc=host, an "
        "emptyDir with medium: Memory at /dev/shm");
  } else {
    Pass(kCheck, text);
  }
}

void Judge::HugePages() {
  constexpr char kCheck[] = "huge pages";
  const auto word = [](const std::string& text) {
    return text.empty() ? "not known" : text;
  };
  Add(kCheck, Verdict::kNotJudged,
      absl::StrCat("for private memory: ", word(facts_.huge_pages),
                   ", for shared memory: ", word(facts_.shared_huge_pages),
                   ", reserved: ", facts_.reserved_huge_pages));
}

void Judge::Gpus() {
  constexpr char kCheck[] = "GPUs";
  const GpuFacts& gpus = facts_.gpus;
  if (!gpus.cuda.ok() || gpus.names.empty()) {
    const std::string why = gpus.cuda.ok()
                                ? "CUDA shows no device"
                                : std::string(gpus.cuda.status().message());
    if (gpus.has_devices) {
      Add(kCheck, options_.needs_gpu ? Verdict::kFailure : Verdict::kWarning,
          absl::StrCat("there are devices, but they can't be used: ", why),
          "give the container the driver: docker --gpus all, with "
          "NVIDIA_DRIVER_CAPABILITIES=compute,utility; look whether "
          "CUDA_VISIBLE_DEVICES hides them, and whether nvidia-smi works");
    } else if (options_.needs_gpu) {
      Add(kCheck, Verdict::kFailure,
          absl::StrCat("none, but the job's group is one of nccl: ", why),
          "run the job where there are GPUs, or let its group be \"auto\"");
    } else {
      Pass(kCheck, "none");
    }
    return;
  }
  const auto count = static_cast<int64_t>(gpus.names.size());
  std::string text = absl::StrCat(count, " x ", gpus.names[0]);
  if (std::adjacent_find(gpus.names.begin(), gpus.names.end(),
                         std::not_equal_to<>()) != gpus.names.end()) {
    text = absl::StrJoin(gpus.names, ", ");
  }
  absl::StrAppend(
      &text, gpus.driver.empty() ? "" : absl::StrCat("; driver ", gpus.driver),
      "; CUDA ", *gpus.cuda / 1000, ".", *gpus.cuda % 1000 / 10);
  if (options_.needs_gpu && count < local_size_) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(text, ", for ", local_size_,
                     " ranks, of which each needs its own"),
        "start as many ranks on this machine as it has GPUs; look whether "
        "CUDA_VISIBLE_DEVICES hides some");
  } else {
    Pass(kCheck, text);
  }
}

void Judge::Nccl() {
  constexpr char kCheck[] = "NCCL";
  const auto& nccl = facts_.gpus.nccl;
  if (!nccl.has_value()) {
    Add(kCheck, Verdict::kNotJudged, "not looked for, since there is no GPU");
  } else if (nccl->ok()) {
    Pass(kCheck, internal_collective::NcclVersionText(**nccl));
  } else {
    Add(kCheck, options_.needs_gpu ? Verdict::kFailure : Verdict::kWarning,
        std::string(nccl->status().message()),
        "install NCCL where the dynamic loader finds it (LD_LIBRARY_PATH), "
        "or set group.nccl_library to the path of libnccl.so.2");
  }
}

void Judge::Network() {
  constexpr char kCheck[] = "network";
  std::vector<std::string> shown;
  bool has_other = false;
  for (const Interface& interface : facts_.network.interfaces) {
    has_other |= !interface.is_loopback;
    shown.push_back(absl::StrCat(
        interface.name, " ", absl::StrJoin(interface.addresses, " "),
        interface.mbits < 0
            ? ""
            : absl::StrFormat(" (%.4g Gbit/s)",
                              static_cast<double>(interface.mbits) / 1000)));
  }
  const std::string text =
      shown.empty() ? "no interface is up" : absl::StrJoin(shown, ", ");
  const std::string& wanted = options_.world.interface;
  const bool is_known =
      wanted.empty() ||
      std::any_of(facts_.network.interfaces.begin(),
                  facts_.network.interfaces.end(),
                  [&wanted](const Interface& interface) {
                    return interface.name == wanted ||
                           FindInterface({interface}, wanted) != nullptr;
                  });
  if (!is_known) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(text, "; there is no \"", wanted,
                     "\", which the job's world.interface names"),
        "set world.interface to one of these");
  } else if (!has_other && size_ > local_size_ && facts_.launch.ok() &&
             facts_.launch->local_size > 0) {
    Add(kCheck, Verdict::kFailure,
        text + ", and ranks of other machines can't be reached by it",
        "give the container a network (docker --network=host, a network of "
        "its pod)");
  } else {
    Pass(kCheck, text);
  }
}

void Judge::Launcher() {
  constexpr char kCheck[] = "launcher";
  if (!facts_.launch.ok()) {
    Add(kCheck, Verdict::kFailure,
        std::string(facts_.launch.status().message()),
        "docs/launchers.md has the variables of each launcher");
  } else if (facts_.launch->launcher == "none") {
    Pass(kCheck, "none: this process alone is a world of one rank");
  } else {
    Pass(kCheck, facts_.launch->Describe());
  }
}

void Judge::Token() {
  constexpr char kCheck[] = "token";
  if (!facts_.launch.ok()) return;
  const std::string& token = options_.world.token.empty()
                                 ? facts_.launch->token
                                 : options_.world.token;
  const auto& addresses = facts_.network.addresses;
  const bool is_far =
      addresses.ok() && !addresses->empty() &&
      !std::all_of(addresses->begin(), addresses->end(),
                   [](const std::string& a) { return IsLoopback(a); });
  // A shorter one can be guessed (docs/security.md).
  constexpr size_t kShort = 16;
  const char* const how =
      "make one: export LOCKSTEP_TOKEN=$(openssl rand -hex 32), and give the "
      "same to all ranks";
  if (!token.empty() && token.size() < kShort) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat("one of ", token.size(),
                     " characters, which can be guessed"),
        how);
  } else if (!token.empty()) {
    Pass(kCheck, absl::StrCat("one of ", token.size(), " characters"));
  } else if (is_far) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat("none, so rank 0 does not listen at ", facts_.network.host,
                     ", but only on loopback"),
        how);
  } else {
    Pass(kCheck, size_ == 1 ? "none, and none is needed for one rank"
                            : "none, so every user of this machine can join");
  }
}

void Judge::RankZero() {
  constexpr char kCheck[] = "rank 0";
  if (!facts_.launch.ok()) return;
  const NetworkFacts& network = facts_.network;
  if (!place_.is_address) {
    Add(kCheck, Verdict::kNotJudged,
        size_ == 1 ? "this process" : absl::StrCat("found by ", facts_.init));
    return;
  }
  if (!network.addresses.ok()) {
    Add(kCheck, Verdict::kFailure,
        std::string(network.addresses.status().message()),
        "set MASTER_ADDR to the name or the address of rank 0's machine, as "
        "all machines know it");
    return;
  }
  const std::string where = absl::StrCat(
      place_.address, " (", absl::StrJoin(*network.addresses, ", "), ")");
  if (!network.source.ok()) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(where,
                     " can't be reached: ", network.source.status().message()),
        "look at the routes of this machine (ip route), or name another "
        "address of rank 0's machine");
    return;
  }
  const bool is_loopback =
      !network.addresses->empty() && IsLoopback(network.addresses->front());
  const bool is_own = std::any_of(
      network.addresses->begin(), network.addresses->end(),
      [&network](const std::string& address) {
        return IsLoopback(address) ||
               FindInterface(network.interfaces, address) != nullptr;
      });
  if (is_loopback && facts_.launch->local_size > 0 && size_ > local_size_) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(where, " is each machine's own address, but ",
                     size_ - local_size_, " of the ", size_,
                     " ranks run on other machines"),
        "set MASTER_ADDR to the name or the address of rank 0's machine");
  } else if (rank_ == 0 && !is_own) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(where, " is not this machine, on which rank 0 runs"),
        "set MASTER_ADDR to the machine on which rank 0 runs");
  } else {
    const Interface* const interface =
        FindInterface(network.interfaces, *network.source);
    Pass(kCheck, absl::StrCat(where, rank_ == 0 ? ", this machine" : "",
                              interface == nullptr || rank_ == 0
                                  ? ""
                                  : ", reached by " + interface->name));
  }
}

void Judge::Port() {
  constexpr char kCheck[] = "port";
  if (!facts_.launch.ok() || !place_.is_address || facts_.network.port == 0) {
    return;
  }
  if (rank_ != 0) {
    Add(kCheck, Verdict::kNotJudged,
        absl::StrCat(facts_.network.port, ", of rank 0's machine"));
  } else if (!facts_.network.listener.empty()) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(facts_.network.port,
                     " is taken: ", facts_.network.listener, " listens there"),
        "end that process, or choose another port for all ranks: "
        "LOCKSTEP_PORT or MASTER_PORT");
  } else {
    Pass(kCheck, absl::StrCat(facts_.network.port, ", which is free"));
  }
}

void Judge::Clock() {
  constexpr char kCheck[] = "clock";
  const std::string& source = facts_.clock_source;
  const bool is_slow =
      source == "hpet" || source == "acpi_pm" || source == "jiffies";
  const std::string text = absl::StrCat(
      source.empty() ? "its source is not known" : source,
      !facts_.synchronized.has_value() ? ""
      : *facts_.synchronized           ? ", kept right by a time service"
                                       : ", which no time service keeps right");
  if (is_slow) {
    Add(kCheck, Verdict::kWarning,
        text + "; reading it takes a microsecond, and metrics read it often",
        "let the kernel use the processor's clock: find out why it does not "
        "(dmesg | grep -i tsc)");
  } else if (facts_.synchronized.value_or(true) || size_ == 1) {
    Add(kCheck,
        source.empty() && !facts_.synchronized.has_value() ? Verdict::kNotJudged
                                                           : Verdict::kPass,
        text);
  } else {
    // A container can't see the service of its host's, and a hypervisor may
    // keep the clock. So the ranks compare their clocks later.
    Add(kCheck, Verdict::kNotJudged, text);
  }
}

}  // namespace

MachineReport JudgeMachine(const MachineFacts& facts,
                           const JudgeOptions& options) {
  MachineReport report;
  report.host = facts.host;
  report.about = absl::StrCat(
      facts.kernel, facts.processor.empty() ? "" : ", " + facts.processor);
  report.findings = Judge(facts, options).Run();
  return report;
}

}  // namespace lockstep
