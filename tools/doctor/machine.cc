#include "lockstep/tools/doctor/machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
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

std::string Ranks(int count) {
  return absl::StrCat(count, count == 1 ? " rank" : " ranks");
}

// Judges the facts one after another.
// Thread-safety: thread-compatible.
class Judge {
 public:
  Judge(const MachineFacts& facts, const JudgeOptions& options)
      : facts_(facts),
        options_(options),
        needs_gpu_(options.backend == "nccl") {
    if (!facts.launch.ok()) return;
    size_ = options.world.size < 0 ? facts.launch->size : options.world.size;
    rank_ = options.world.rank < 0 ? facts.launch->rank : options.world.rank;
    local_size_ = std::max(1, facts.launch->local_size);
    place_ = MeetingPlaceOf(*facts.launch, options.world);
    if (absl::StartsWith(options.world.init, "tcp://")) source_ = "world.init";
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
  const bool needs_gpu_;
  // The place of this process in the job, as far as the launcher says it.
  int rank_ = 0, size_ = 1, local_size_ = 1;
  MeetingPlace place_;
  std::string source_ = "--master_addr or MASTER_ADDR";  // what names it
  std::vector<Finding> findings_;
};

void Judge::Processors() {
  constexpr char kCheck[] = "processors";
  constexpr int64_t kOften = 20;  // one period in so many
  const std::string quota =
      facts_.quota > 0 ? absl::StrFormat("a quota of %.4g", facts_.quota)
                       : "no quota";
  // Some launchers bind each rank to processors of its own.
  const bool is_bound = facts_.processors < facts_.all_processors;
  const std::string text = absl::StrCat(
      facts_.processors, " usable",
      is_bound ? absl::StrCat(" by this process, of ", facts_.all_processors)
               : "",
      ", ", quota);
  const char* const remedy =
      "start no more ranks on this machine than it has processors, or give "
      "the job more (srun --cpus-per-task, docker --cpus, "
      "resources.limits.cpu)";
  if (facts_.quota > 0 && facts_.quota < local_size_) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, ", for ", Ranks(local_size_)), remedy);
  } else if (facts_.processors < local_size_) {
    Add(kCheck, is_bound ? Verdict::kNotJudged : Verdict::kWarning,
        absl::StrCat(text, ", for ", Ranks(local_size_),
                     is_bound ? ", each of which may have its own" : ""),
        is_bound ? "" : remedy);
  } else if (facts_.quota > 0 && kOften * facts_.throttled > facts_.periods) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, ", which was used up in ", facts_.throttled, " of ",
                     facts_.periods,
                     " periods: all threads then stop until the next one"),
        "raise the quota (docker --cpus, resources.limits.cpu), or pin the "
        "job to whole processors instead (docker --cpuset-cpus)");
  } else {
    Pass(kCheck, text);
  }
}

void Judge::Memory() {
  constexpr char kCheck[] = "memory";
  // The trial of the ranks takes about so much of each.
  constexpr int64_t kOfARank = 64 * kMib;
  const bool is_limited =
      facts_.memory_limit >= 0 &&
      (facts_.memory < 0 || facts_.memory_limit < facts_.memory);
  const int64_t left =
      std::max<int64_t>(0, facts_.memory_limit - facts_.memory_used);
  std::string text;
  if (is_limited) {
    text = absl::StrCat("this container may use ", Bytes(facts_.memory_limit),
                        ", of which ", Bytes(left), " are left; ");
  }
  absl::StrAppend(&text,
                  facts_.memory < 0
                      ? "the system does not say how much the machine has"
                      : absl::StrCat("the machine has ", Bytes(facts_.memory)));
  if (facts_.available >= 0) {
    absl::StrAppend(&text, ", of which ", Bytes(facts_.available),
                    " are available");
  }
  const char* const remedy =
      "raise the limit (docker --memory, resources.limits.memory, srun --mem), "
      "or use less: fewer ranks, workers and batches that are read ahead";
  if (is_limited && facts_.memory_kills > 0) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, "; the kernel has killed ", facts_.memory_kills,
                     facts_.memory_kills == 1 ? " process" : " processes",
                     " of the container, since none was left"),
        remedy);
  } else if (is_limited && left < local_size_ * kOfARank) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(text, "; that is little for ", Ranks(local_size_)),
        remedy);
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
  // Rank 0 has a connection to each other rank, and a group over TCP has two.
  // A session may make two groups, and opens files.
  const bool is_one_machine =
      facts_.launch.ok() && facts_.launch->local_size == size_;
  const int64_t least = 64 + (is_one_machine ? 1 : 3) * int64_t{size_};
  const int64_t ample = 256 + 5 * int64_t{size_};
  if (facts_.open_files < 0 || facts_.open_files >= ample) {
    Pass(kCheck, facts_.open_files < 0
                     ? std::string("no limit")
                     : absl::StrCat("a limit of ", facts_.open_files));
    return;
  }
  const bool can_raise =
      facts_.most_open_files < 0 || facts_.most_open_files >= ample;
  Add(kCheck, facts_.open_files < least ? Verdict::kFailure : Verdict::kWarning,
      absl::StrCat("a limit of ", facts_.open_files, ", but a rank of ", size_,
                   " may need ", ample),
      can_raise ? absl::StrCat("raise it before the job: ulimit -n ", ample)
                : absl::StrCat("raise the hard limit, which is ",
                               facts_.most_open_files, ", to ", ample,
                               ": docker --ulimit nofile, or nofile in "
                               "/etc/security/limits.conf"));
}

void Judge::Threads() {
  constexpr char kCheck[] = "threads";
  // Each rank has some threads of Lockstep's, and one for each processor at
  // most as workers.
  constexpr int64_t kFewest = 8, kOwn = 16;
  const int64_t needed = local_size_ * (kOwn + facts_.processors);
  int64_t left = std::numeric_limits<int64_t>::max();
  std::vector<std::string> texts;
  if (facts_.thread_limit >= 0) {
    left = facts_.threads_left;
    texts.push_back(absl::StrCat("a limit of ", facts_.thread_limit,
                                 " in this container, of which ", left,
                                 " are left"));
  }
  if (facts_.user_thread_limit >= 0) {
    left = std::min(left, facts_.user_thread_limit);
    texts.push_back(absl::StrCat("a limit of ", facts_.user_thread_limit,
                                 " for all processes of this user"));
  }
  const std::string text =
      texts.empty() ? "no limit is set" : absl::StrJoin(texts, "; ");
  if (left >= needed) return Pass(kCheck, text);
  Add(kCheck,
      left < local_size_ * kFewest ? Verdict::kFailure : Verdict::kWarning,
      absl::StrCat(text, "; ", Ranks(local_size_), " may need ", needed),
      "raise the limit: ulimit -u, docker --pids-limit, podPidsLimit of the "
      "kubelet, TasksMax of systemd");
}

void Judge::SharedMemory() {
  constexpr char kCheck[] = "shared memory";
  // Docker gives a container this much, unless --shm-size says otherwise.
  constexpr int64_t kDocker = 64 * kMib;
  if (!facts_.shared_memory.ok()) {
    const bool is_used =
        facts_.launch.ok() && size_ > 1 && facts_.launch->local_size == size_ &&
        (options_.backend == "auto" || options_.backend == "shm");
    Add(kCheck, is_used ? Verdict::kFailure : Verdict::kWarning,
        std::string(facts_.shared_memory.message()),
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
  const bool is_small =
      facts_.dev_shm <= kDocker || facts_.dev_shm_free <= kDocker;
  if (!facts_.gpus.names.empty() && is_small) {
    Add(kCheck, Verdict::kWarning,
        text + (facts_.dev_shm < 0 ? ", which NCCL uses"
                                   : ", which NCCL may fill"),
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
      Add(kCheck, needs_gpu_ ? Verdict::kFailure : Verdict::kWarning,
          absl::StrCat("there are devices, but they can't be used: ", why),
          "give the container the driver: docker --gpus all, with "
          "NVIDIA_DRIVER_CAPABILITIES=compute,utility; look whether "
          "CUDA_VISIBLE_DEVICES hides them, and whether nvidia-smi works");
    } else if (needs_gpu_) {
      Add(kCheck, Verdict::kFailure,
          absl::StrCat("none, but the job's group uses nccl: ", why),
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
  // A rank that sees one GPU may be the only one that sees it.
  if (needs_gpu_ && count > 1 && count < local_size_) {
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
    Add(kCheck, needs_gpu_ ? Verdict::kFailure : Verdict::kWarning,
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
  const auto has_address = [this](const Interface& interface) {
    return std::any_of(facts_.interface_addresses.begin(),
                       facts_.interface_addresses.end(),
                       [&interface](const std::string& address) {
                         return FindInterface({interface}, address) != nullptr;
                       });
  };
  const bool is_known =
      wanted.empty() || std::any_of(facts_.network.interfaces.begin(),
                                    facts_.network.interfaces.end(),
                                    [&](const Interface& interface) {
                                      return interface.name == wanted ||
                                             has_address(interface);
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
        "start the ranks by a launcher, or set the variables that "
        "docs/launchers.md lists for it");
  } else if (facts_.launch->launcher == "none") {
    Pass(kCheck,
         size_ == 1
             ? std::string("none: this process alone is a world of one rank")
             : absl::StrCat("none; the job's text says that this is rank ",
                            rank_, " of ", size_));
  } else if (options_.world.size >= 0 &&
             options_.world.size != facts_.launch->size) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(facts_.launch->Describe(),
                     "; but the job's world.size is ", options_.world.size),
        "leave world.size out, or start so many ranks");
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
  const bool knows_far =
      facts_.launch->local_size > 0 && size_ > facts_.launch->local_size;
  const bool is_far =
      knows_far ||
      (place_.is_address &&
       (!addresses.ok() ||
        !std::all_of(addresses->begin(), addresses->end(),
                     [](const std::string& a) { return IsLoopback(a); })));
  // A shorter one can be guessed (docs/security.md).
  constexpr size_t kShort = 16;
  const char* const how =
      "make one, once, and give all ranks the same: (umask 077; openssl rand "
      "-hex 32 > ~/job.token) on one machine whose home all share, and export "
      "LOCKSTEP_TOKEN_FILE=~/job.token on all (docs/launchers.md)";
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
  const std::string& init = options_.world.init;
  if (init != "env://" && !absl::StartsWith(init, "tcp://") &&
      !absl::StartsWith(init, "file://")) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat("the job's world.init is \"", init, "\""),
        "let it be env://, tcp://host:port or file:///folder");
    return;
  }
  if (!place_.is_address) {
    Add(kCheck, Verdict::kNotJudged,
        size_ == 1 ? "this process" : absl::StrCat("found by ", facts_.init));
    return;
  }
  if (!network.addresses.ok()) {
    // The name of rank 0's pod may be published after this one has begun. Rank
    // 0 itself needs it now.
    const bool may_come =
        rank_ != 0 && !absl::IsInvalidArgument(network.addresses.status());
    Add(kCheck, may_come ? Verdict::kWarning : Verdict::kFailure,
        std::string(network.addresses.status().message()),
        absl::StrCat("set ", source_,
                     " to the name or the address of rank 0's machine, as all "
                     "machines know it"));
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
        absl::StrCat("set ", source_,
                     " to the name or the address of rank 0's machine"));
  } else if (rank_ == 0 && !is_own) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(where, " is not this machine, on which rank 0 runs"),
        absl::StrCat("set ", source_,
                     " to the machine on which rank 0 runs, or start this "
                     "process there; each machine needs a node rank of its "
                     "own"));
  } else {
    const Interface* const interface =
        FindInterface(network.interfaces, *network.source);
    Pass(kCheck, absl::StrCat(where, rank_ == 0 ? ", this machine" : "",
                              interface == nullptr || rank_ == 0
                                  ? ""
                                  : ", by way of " + interface->name));
  }
}

void Judge::Port() {
  constexpr char kCheck[] = "port";
  if (!facts_.launch.ok() || !place_.is_address || facts_.network.port == 0) {
    return;
  }
  if (rank_ != 0 || !facts_.network.addresses.ok()) {
    Add(kCheck, Verdict::kNotJudged,
        absl::StrCat(facts_.network.port, ", of rank 0's machine"));
  } else if (!facts_.network.listener.empty()) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(facts_.network.port,
                     " is taken: ", facts_.network.listener, " listens there"),
        source_ != "world.init"
            ? "end that process, or choose another port for all ranks: "
              "LOCKSTEP_PORT, or that of the launcher (--master_port, "
              "MASTER_PORT)"
            : "end that process, or choose another port for all ranks in "
              "world.init");
  } else if (facts_.network.port < facts_.first_port) {
    Add(kCheck, Verdict::kFailure,
        absl::StrCat(facts_.network.port,
                     ", at which this user may not listen"),
        absl::StrCat("choose one from ", facts_.first_port, " on"));
  } else if (!facts_.network.connected.empty()) {
    Add(kCheck, Verdict::kWarning,
        absl::StrCat(facts_.network.port, " is used by a connection of ",
                     facts_.network.connected),
        "choose another port, best one outside of "
        "net.ipv4.ip_local_port_range, from which connections take theirs");
  } else {
    Pass(kCheck,
         absl::StrCat(facts_.network.port, ", at which nobody listens"));
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
  } else {
    // A container can't see the service of its host's, and a hypervisor may
    // keep the clock. So the ranks compare their clocks later.
    Add(kCheck,
        facts_.synchronized.value_or(false) ? Verdict::kPass
                                            : Verdict::kNotJudged,
        text);
  }
}

// Returns the facts for programs, without those that are not known.
std::vector<Fact> FactsOf(const MachineFacts& facts,
                          const JudgeOptions& options) {
  std::vector<Fact> list;
  const auto number = [&list](const char* name, int64_t value) {
    if (value >= 0) list.push_back({name, value});
  };
  const auto text = [&list](const char* name, const std::string& value) {
    if (!value.empty()) list.push_back({name, value});
  };
  text("lockstep", options.version);
  text("kernel", facts.kernel);
  text("processor", facts.processor);
  number("processors", facts.processors);
  if (facts.quota > 0) list.push_back({"processor_quota", facts.quota});
  number("memory_bytes", facts.memory);
  number("available_bytes", facts.available);
  number("memory_limit_bytes", facts.memory_limit);
  number("locked_memory_bytes", facts.locked_memory);
  number("open_files", facts.open_files);
  number("dev_shm_bytes", facts.dev_shm);
  number("gpus", static_cast<int64_t>(facts.gpus.names.size()));
  text("gpu", facts.gpus.names.empty() ? "" : facts.gpus.names[0]);
  text("driver", facts.gpus.driver);
  if (facts.gpus.cuda.ok()) number("cuda", *facts.gpus.cuda);
  if (facts.gpus.nccl.has_value() && facts.gpus.nccl->ok()) {
    number("nccl", **facts.gpus.nccl);
  }
  if (facts.launch.ok()) {
    text("launcher", facts.launch->launcher);
    number("rank", facts.launch->rank);
    number("ranks", facts.launch->size);
    number("local_rank", facts.launch->local_rank);
    number("local_ranks", facts.launch->local_size);
  }
  text("rank_0_host", facts.network.host);
  if (facts.network.port > 0) number("rank_0_port", facts.network.port);
  if (facts.network.source.ok()) text("source", *facts.network.source);
  text("clock_source", facts.clock_source);
  return list;
}

}  // namespace

MachineReport JudgeMachine(const MachineFacts& facts,
                           const JudgeOptions& options) {
  MachineReport report;
  report.host = facts.host;
  report.about = absl::StrCat(
      options.version.empty() ? "" : "Lockstep " + options.version + ", ",
      facts.kernel, facts.processor.empty() ? "" : ", " + facts.processor);
  report.facts = FactsOf(facts, options);
  report.findings = Judge(facts, options).Run();
  return report;
}

std::string WhatKeepsRanksApart(const MachineReport& report) {
  for (const Finding& finding : report.findings) {
    if (finding.verdict != Verdict::kFailure) continue;
    for (const char* check : {"launcher", "token", "rank 0", "port"}) {
      if (finding.check == check) return finding.check;
    }
  }
  return "";
}

}  // namespace lockstep
