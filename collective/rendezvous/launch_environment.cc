#include "lockstep/collective/rendezvous/launch_environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/launcher_syntax.h"

extern char** environ;  // NOLINT: POSIX's

namespace lockstep {
namespace {

using internal_collective::FirstHostOf;
using internal_collective::IsHostName;
using internal_collective::ParseNumber;
using internal_collective::ParseTasksPerNode;

constexpr int64_t kLastPort = 65535;
// The ports that are derived from a job's id. They are above those that systems
// assign to clients.
constexpr int64_t kFirstDerivedPort = 61440;
constexpr int64_t kDerivedPorts = 4096;
constexpr size_t kMostTokenBytes = 256;
constexpr size_t kMostIdBytes = 200;
constexpr size_t kMostShownBytes = 80;
// Slurm gives the numbers from here on to steps that have no tasks: the shells
// of salloc and sbatch, and processes beside a job.
constexpr int64_t kFirstReservedSlurmStep = 0xfffffff0;

// A launcher, and the names of its variables.
struct Launcher {
  absl::string_view name;
  // The names of the variables. Empty if there is none.
  absl::string_view rank, size, local_rank, local_size;
  absl::string_view example;
};

constexpr Launcher kTorchrun = {
    "torchrun",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "torchrun --nproc_per_node=2 --no_python ./train; or, by hand: RANK=0 "
    "WORLD_SIZE=2 MASTER_ADDR=trainer-0 MASTER_PORT=29500 ./train"};
constexpr Launcher kOpenMpi = {
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "mpirun -n 8 -x MASTER_ADDR=trainer-0 -x MASTER_PORT=29500 ./train"};
constexpr Launcher kMvapich = {
    "MVAPICH2",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "mpirun_rsh -np 8 -hostfile hosts MASTER_ADDR=trainer-0 MASTER_PORT=29500 "
    "./train"};
constexpr Launcher kPmi = {
    "PMI",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "mpiexec -n 8 -genv MASTER_ADDR trainer-0 -genv MASTER_PORT 29500 ./train"};
constexpr Launcher kSlurm = {"Slurm",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             "",  // it is in SLURM_STEP_TASKS_PER_NODE
                             "srun --ntasks=8 ./train"};
constexpr Launcher kKubernetes = {
    "Kubernetes indexed job",
    "JOB_COMPLETION_INDEX",
    "WORLD_SIZE",
    "",
    "",
    "in the container of a job 'train' with completions: 4, whose pods have "
    "subdomain: train, the name of a service with clusterIP: None,\n"
    "  env:\n"
    "  - {name: WORLD_SIZE, value: \"4\"}\n"
    "  - {name: MASTER_ADDR, value: train-0.train}\n"
    "  - {name: MASTER_PORT, value: \"29500\"}"};

// The values that one launcher gave.
struct Candidate {
  const Launcher* launcher = nullptr;
  bool present = false;
  int rank = -1;
  int size = -1;
  int local_rank = -1;
  int local_size = -1;
  // True if there is one process on each host. These may be daemons that have
  // started the ranks.
  bool one_a_host = false;
  // The variables and their values: "RANK='2', WORLD_SIZE='4'".
  std::vector<std::string> said;
  // The names of the variables in `said`.
  std::vector<std::string> set;
  // The reasons why the candidate is not whole, besides values without meaning.
  std::vector<std::string> missing;

  bool whole() const { return rank >= 0 && size >= 0; }
};

// Returns true if the candidates do not contradict each other.
bool Agree(const Candidate& a, const Candidate& b) {
  return (a.rank < 0 || b.rank < 0 || a.rank == b.rank) &&
         (a.size < 0 || b.size < 0 || a.size == b.size);
}

bool IsMpi(const Candidate& candidate) {
  return candidate.launcher == &kOpenMpi || candidate.launcher == &kMvapich ||
         candidate.launcher == &kPmi;
}

// Reads one environment.
// Thread-safety: thread-compatible.
class Reading {
 public:
  Reading(const Environment& environment, bool needs_address)
      : environment_(environment), needs_address_(needs_address) {}

  absl::StatusOr<LaunchEnvironment> Read();

 private:
  bool Has(absl::string_view name) const { return !Value(name).empty(); }
  absl::string_view Value(absl::string_view name) const;
  std::string Show(absl::string_view name) const;
  int64_t Number(absl::string_view name, int64_t least, int64_t most);

  void AddProblem(std::string problem);

  Candidate ReadCandidate(const Launcher& launcher);
  Candidate ReadSlurm();
  void ReadCandidates();
  const Candidate* ChooseCandidate() const;
  void CheckRanges(const Candidate& used);
  void CheckOthers(const Candidate& used);
  bool IsInside(const Candidate& inner, const Candidate& outer) const;

  std::string IdOf(const Candidate& used) const;
  std::string JobOf(const Candidate& used);
  std::string ReadAddress(const Candidate& used);
  std::string ReadHost(const Candidate& used);
  int64_t ReadPort(const Candidate& used);
  std::string ReadToken();
  std::string ReadTokenFile(const std::string& path);

  // Returns true if torchrun's agent has started this process, and not a user
  // who has set the variables by hand. Another launcher may have started the
  // agent.
  bool IsAgents(const Candidate& candidate) const {
    return candidate.launcher == &kTorchrun && Has("TORCHELASTIC_RUN_ID");
  }

  const Environment& environment_;
  const bool needs_address_;
  // The candidates, inner launchers before those that may have started them.
  std::vector<Candidate> candidates_;
  int64_t lockstep_port_ = -1;
  int64_t master_port_ = -1;
  std::vector<std::string> problems_;
  std::vector<std::string> notes_;
};

absl::string_view Reading::Value(absl::string_view name) const {
  const auto found = environment_.find(std::string(name));
  if (found == environment_.end()) return "";
  return found->second;
}

std::string Reading::Show(absl::string_view name) const {
  const absl::string_view value = Value(name);
  return absl::StrCat(name, "='",
                      absl::CHexEscape(value.substr(0, kMostShownBytes)),
                      value.size() > kMostShownBytes ? "..." : "", "'");
}

void Reading::AddProblem(std::string problem) {
  // Two launchers may read the same variable.
  if (std::find(problems_.begin(), problems_.end(), problem) ==
      problems_.end()) {
    problems_.push_back(std::move(problem));
  }
}

// Returns the number, or -1 if the variable is not set or has no meaning.
int64_t Reading::Number(absl::string_view name, int64_t least, int64_t most) {
  if (!Has(name)) return -1;
  const auto number = ParseNumber(Value(name), least, most);
  if (number.has_value()) return *number;
  AddProblem(
      absl::StrCat(Show(name), " is not a number from ", least, " to ", most));
  return -1;
}

Candidate Reading::ReadCandidate(const Launcher& launcher) {
  Candidate candidate;
  candidate.launcher = &launcher;
  candidate.rank = Number(launcher.rank, 0, kMostRanks - 1);
  candidate.size = Number(launcher.size, 1, kMostRanks);
  candidate.local_rank = Number(launcher.local_rank, 0, kMostRanks - 1);
  candidate.local_size = Number(launcher.local_size, 1, kMostRanks);
  for (const absl::string_view name : {launcher.rank, launcher.size}) {
    if (!Has(name))
      candidate.missing.push_back(absl::StrCat(name, " is not set"));
  }
  for (const absl::string_view name :
       {launcher.rank, launcher.size, launcher.local_rank,
        launcher.local_size}) {
    if (!Has(name)) continue;
    candidate.said.push_back(Show(name));
    candidate.set.emplace_back(name);
  }
  candidate.present = !candidate.said.empty();
  candidate.one_a_host = candidate.size == 1;
  return candidate;
}

// Reads the candidate of a task of srun. The shells of sbatch and salloc also
// have most of a task's variables, such as SLURM_PROCID and SLURM_NTASKS. But
// they do not have the step's, or those of a step with a reserved number.
Candidate Reading::ReadSlurm() {
  const int64_t step = Number("SLURM_STEP_ID", 0, UINT32_MAX);
  if (step >= kFirstReservedSlurmStep ||
      (!Has("SLURM_STEP_NODELIST") && !Has("SLURM_STEP_NUM_TASKS"))) {
    Candidate candidate;
    candidate.launcher = &kSlurm;
    candidate.present = Has("SLURM_JOB_ID") || Has("SLURM_PROCID");
    candidate.missing.push_back(absl::StrCat(
        Show("SLURM_JOB_ID"),
        ", but this process is not a task of srun, which sets "
        "SLURM_STEP_NODELIST: it was started in a shell of sbatch or salloc; "
        "start it with srun, or, where it trains alone, with RANK=0 "
        "WORLD_SIZE=1"));
    return candidate;
  }
  Launcher launcher = kSlurm;
  if (!Has(launcher.size) && Has("SLURM_NTASKS")) {
    launcher.size = "SLURM_NTASKS";
  }
  Candidate candidate = ReadCandidate(launcher);
  candidate.launcher = &kSlurm;
  candidate.present = true;
  const int64_t node = Number("SLURM_NODEID", 0, kMostRanks - 1);
  const absl::string_view tasks = Value("SLURM_STEP_TASKS_PER_NODE");
  if (tasks.empty()) return candidate;
  candidate.said.push_back(Show("SLURM_STEP_TASKS_PER_NODE"));
  const auto per_node = ParseTasksPerNode(tasks, node);
  if (!per_node.has_value()) {
    AddProblem(absl::StrCat(Show("SLURM_STEP_TASKS_PER_NODE"),
                            " has no meaning: it is as '4(x2),3'"));
  } else if (candidate.size >= 0 && per_node->all != candidate.size) {
    AddProblem(absl::StrCat(Show("SLURM_STEP_TASKS_PER_NODE"), " is ",
                            per_node->all, " tasks, but ",
                            Show(launcher.size)));
  } else if (node >= 0 && per_node->on_node <= 0) {
    AddProblem(absl::StrCat(Show("SLURM_NODEID"), " has no task, by ",
                            Show("SLURM_STEP_TASKS_PER_NODE")));
  } else {
    candidate.local_size = per_node->on_node;
    candidate.one_a_host = per_node->most == 1;
  }
  return candidate;
}

void Reading::ReadCandidates() {
  Candidate torchrun = ReadCandidate(kTorchrun);
  Candidate open_mpi = ReadCandidate(kOpenMpi);
  Candidate mvapich = ReadCandidate(kMvapich);
  Candidate pmi = ReadCandidate(kPmi);
  Candidate slurm = ReadSlurm();
  Candidate kubernetes = ReadCandidate(kKubernetes);
  kubernetes.present = Has(kKubernetes.rank);
  // Batch scripts and pods may set some of torchrun's variables for another
  // launcher. If there is no other, they count as a part of torchrun's own.
  const bool is_other = open_mpi.present || mvapich.present || pmi.present ||
                        slurm.present || kubernetes.present;
  torchrun.present = Has("RANK") || Has("LOCAL_RANK") ||
                     Has("LOCAL_WORLD_SIZE") || Has("TORCHELASTIC_RUN_ID") ||
                     (!is_other && (Has("WORLD_SIZE") || Has("MASTER_ADDR") ||
                                    Has("MASTER_PORT")));
  // srun --mpi=pmi2 gives its tasks PMI's variables, too.
  if (pmi.whole() && slurm.whole() && Agree(pmi, slurm)) {
    pmi.one_a_host = slurm.one_a_host;
  }
  candidates_ = {torchrun, open_mpi, mvapich, pmi, slurm, kubernetes};
}

// Returns the innermost candidate that is whole. If none is, returns the
// innermost one that is present, or nullptr if there is none.
const Candidate* Reading::ChooseCandidate() const {
  const auto whole = std::find_if(candidates_.begin(), candidates_.end(),
                                  [](const Candidate& c) { return c.whole(); });
  if (whole != candidates_.end()) {
    // If two launchers say the same, Slurm's candidate is chosen, since it also
    // tells where rank 0 is.
    const auto slurm =
        std::find_if(whole, candidates_.end(), [](const Candidate& candidate) {
          return candidate.launcher == &kSlurm && candidate.whole();
        });
    const bool use_slurm = slurm != candidates_.end() &&
                           Agree(*whole, *slurm) && !Has("MASTER_ADDR");
    return use_slurm ? &*slurm : &*whole;
  }
  const auto present =
      std::find_if(candidates_.begin(), candidates_.end(),
                   [](const Candidate& c) { return c.present; });
  return present == candidates_.end() ? nullptr : &*present;
}

void Reading::CheckRanges(const Candidate& used) {
  const std::string said = absl::StrJoin(used.said, ", ");
  if (used.rank >= used.size) {
    AddProblem(absl::StrCat(said, ": ranks are 0 to ", used.size - 1));
  }
  if (used.local_size > used.size) {
    AddProblem(absl::StrCat(said, ": more ranks on this host than in all"));
  }
  const int locals = used.local_size < 0 ? used.size : used.local_size;
  if (used.local_rank >= locals) {
    AddProblem(absl::StrCat(said, ": local ranks are 0 to ", locals - 1));
  }
}

// Returns true if all or some of the processes of `outer` may be daemons that
// have started the processes of `inner`.
bool Reading::IsInside(const Candidate& inner, const Candidate& outer) const {
  const int64_t local_size = std::max(inner.local_size, 1);
  if (inner.launcher == &kTorchrun) {
    // Each process is a torchrun, and each torchrun has started the same number
    // of processes.
    return (IsAgents(inner) || inner.size > outer.size) &&
           inner.size % (outer.size * local_size) == 0;
  }
  // mpirun has one daemon on each host, but perhaps none on its own.
  return outer.one_a_host && inner.size > outer.size &&
         inner.size >= local_size + outer.size - 1;
}

// Adds a problem for each candidate that contradicts another. A launcher may
// have been started by another one: torchrun by srun or mpirun, or mpirun's
// daemons by srun. Anything else is a contradiction, such as several worlds
// that each start separately although one was meant.
void Reading::CheckOthers(const Candidate& used) {
  const auto contradict = [this](const Candidate& a, const Candidate& b) {
    AddProblem(absl::StrCat(
        a.launcher->name, "'s ", absl::StrJoin(a.said, ", "), " contradicts ",
        b.launcher->name, "'s ", absl::StrJoin(b.said, ", "),
        ": start every process with one launcher, or unset the variables of "
        "the other"));
  };
  const Candidate* inner = nullptr;
  for (const Candidate& candidate : candidates_) {
    // A pod may contain any processes.
    if (candidate.launcher == &kKubernetes) continue;
    if (!candidate.whole()) {
      if (!IsAgents(used) && !Agree(used, candidate))
        contradict(used, candidate);
      continue;
    }
    if (inner != nullptr && !IsInside(*inner, candidate) &&
        (IsAgents(*inner) || !Agree(*inner, candidate))) {
      contradict(*inner, candidate);
    }
    inner = &candidate;
    if (&candidate == &used) continue;
    notes_.push_back(
        Agree(used, candidate)
            ? absl::StrCat(candidate.launcher->name, " says the same")
            : absl::StrCat("inside process ", candidate.rank, " of ",
                           candidate.size, " of ", candidate.launcher->name));
  }
}

// Returns a text that tells this run from others, or "" if the launcher gives
// none.
std::string Reading::IdOf(const Candidate& used) const {
  if (used.launcher == &kTorchrun) {
    return std::string(Value("TORCHELASTIC_RUN_ID"));
  }
  if (used.launcher == &kOpenMpi) {
    return std::string(Value(Has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE"
                                                   : "OMPI_MCA_orte_hnp_uri"));
  }
  if (IsMpi(used)) return std::string(Value("PMI_JOBID"));
  if (used.launcher == &kSlurm) {
    return absl::StrCat(Value("SLURM_JOB_ID"), ".", Value("SLURM_STEP_ID"));
  }
  return "";
}

std::string Reading::JobOf(const Candidate& used) {
  std::string id = IdOf(used);
  if (id.empty()) return "";
  if (id.size() > kMostIdBytes) id = DigestOf(id).ToString();
  int64_t restarts = 0;
  // Each torchrun counts only its own restarts, and not those that another
  // torchrun causes. So the counts are the same only if there is one torchrun.
  if (used.launcher == &kTorchrun && used.local_size == used.size) {
    restarts = Number("TORCHELASTIC_RESTART_COUNT", 0, UINT32_MAX);
  } else if (used.launcher == &kSlurm) {
    restarts = Number("SLURM_RESTART_COUNT", 0, UINT32_MAX);
  }
  return absl::StrCat(used.launcher->name, "/", id, "/",
                      std::max<int64_t>(restarts, 0));
}

std::string Reading::ReadHost(const Candidate& used) {
  absl::string_view host = Value("MASTER_ADDR");
  if (!host.empty()) {
    const bool bracketed =
        absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
    if (bracketed) host = host.substr(1, host.size() - 2);
    const auto colons = std::count(host.begin(), host.end(), ':');
    // An IPv6 address has at least two colons, and only such an address may be
    // in brackets.
    if (!IsHostName(host) || colons == 1 || (bracketed && colons == 0)) {
      AddProblem(absl::StrCat(Show("MASTER_ADDR"),
                              " is not the name or address of a host",
                              colons == 1 ? "; the port is MASTER_PORT" : ""));
    }
    return colons > 0 ? absl::StrCat("[", host, "]") : std::string(host);
  }
  if (used.launcher == &kSlurm) {
    const auto first = FirstHostOf(Value("SLURM_STEP_NODELIST"));
    if (first.has_value()) return *first;
    AddProblem(
        absl::StrCat(Show("SLURM_STEP_NODELIST"),
                     " is not a list of hosts as 'node[003-005,007],gpu1', and "
                     "MASTER_ADDR is not set"));
    return "";
  }
  const bool is_mpi = IsMpi(used);
  if (is_mpi && used.local_size == used.size) return "127.0.0.1";
  AddProblem(absl::StrCat(
      "MASTER_ADDR is not set: the host of rank 0",
      is_mpi ? ", which is needed unless all ranks are on one host: " : "",
      is_mpi ? Show(used.launcher->local_size) : ""));
  return "";
}

int64_t Reading::ReadPort(const Candidate& used) {
  if (Has("LOCKSTEP_PORT")) return lockstep_port_;
  if (Has("MASTER_PORT")) {
    if (used.launcher != &kTorchrun ||
        !absl::EqualsIgnoreCase(Value("TORCHELASTIC_USE_AGENT_STORE"),
                                "true")) {
      return master_port_;
    }
    if (master_port_ == kLastPort) {
      AddProblem(absl::StrCat(
          Show("MASTER_PORT"),
          " is taken by torchrun, and there is no port after it: set "
          "LOCKSTEP_PORT"));
    }
    notes_.push_back(
        "the port is MASTER_PORT + 1, since torchrun listens at MASTER_PORT");
    return master_port_ + 1;
  }
  const std::string id = IdOf(used);
  if (used.launcher == &kSlurm) {
    const int64_t job = Number("SLURM_JOB_ID", 0, UINT32_MAX);
    if (Has("SLURM_JOB_ID")) return kFirstDerivedPort + job % kDerivedPorts;
  } else if (IsMpi(used) && !id.empty()) {
    return kFirstDerivedPort +
           static_cast<int64_t>(DigestOf(id).low % kDerivedPorts);
  }
  AddProblem(absl::StrCat("MASTER_PORT is not set, nor is LOCKSTEP_PORT",
                          used.launcher == &kSlurm ? ", nor SLURM_JOB_ID" : "",
                          ": the port of rank 0"));
  return -1;
}

std::string Reading::ReadAddress(const Candidate& used) {
  if (used.size == 1 || !needs_address_) return "";
  std::string host = ReadHost(used);
  const int64_t port = ReadPort(used);
  return absl::StrCat(host, ":", port);
}

// These functions and their callers put no byte of a token into a message.
std::string Reading::ReadToken() {
  std::string token(Value("LOCKSTEP_TOKEN"));
  absl::string_view source = "LOCKSTEP_TOKEN";
  if (Has("LOCKSTEP_TOKEN_FILE")) {
    if (!token.empty()) {
      AddProblem(
          "LOCKSTEP_TOKEN and LOCKSTEP_TOKEN_FILE are both set: unset one");
      return "";
    }
    token = ReadTokenFile(std::string(Value("LOCKSTEP_TOKEN_FILE")));
    source = "the first line of the file that LOCKSTEP_TOKEN_FILE names";
  }
  if (token.size() > kMostTokenBytes) {
    AddProblem(absl::StrCat(source, " is longer than the ", kMostTokenBytes,
                            " bytes of a token"));
  } else if (!std::all_of(token.begin(), token.end(), absl::ascii_isprint)) {
    AddProblem(absl::StrCat(
        source, " has a byte that is not printable ASCII; a token has none"));
  }
  return token;
}

std::string Reading::ReadTokenFile(const std::string& path) {
  const std::string shown = Show("LOCKSTEP_TOKEN_FILE");
  const auto fail = [&](int error) {
    AddProblem(absl::StrCat(shown, " can't be read: ", ErrorText(error)));
    return "";
  };
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return fail(errno);
  struct stat info;
  char bytes[kMostTokenBytes + 3];  // one more than allowed, and "\r\n"
  const int stat_error = ::fstat(file, &info) == 0 ? 0 : errno;
  size_t size = 0;
  ssize_t got;
  do {
    got = ::read(file, bytes + size, sizeof(bytes) - size);
    if (got > 0) size += got;
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int read_error = got == 0 ? 0 : errno;
  ::close(file);
  if (stat_error != 0) return fail(stat_error);
  if (read_error != 0) return fail(read_error);
  if ((info.st_mode & 077) != 0) {
    AddProblem(absl::StrCat(shown, " is open to others (mode ",
                            absl::StrFormat("%04o", info.st_mode & 07777),
                            "): chmod 600 it"));
  }
  absl::string_view line(bytes, size);
  line = line.substr(0, line.find('\n'));
  absl::ConsumeSuffix(&line, "\r");
  if (line.empty()) AddProblem(absl::StrCat(shown, " has no first line"));
  return std::string(line);
}

absl::StatusOr<LaunchEnvironment> Reading::Read() {
  ReadCandidates();
  lockstep_port_ = Number("LOCKSTEP_PORT", 1, kLastPort);
  master_port_ = Number("MASTER_PORT", 1, kLastPort);

  LaunchEnvironment result;
  absl::string_view example = "LOCKSTEP_TOKEN_FILE=$HOME/job.token ./train";
  // Some of a launcher's variables may be left over in the user's shell.
  std::vector<std::string> left_over;
  const Candidate* const used = ChooseCandidate();
  if (used != nullptr) {
    example = used->launcher->example;
    if (used->whole()) {
      CheckRanges(*used);
      CheckOthers(*used);
    } else {
      for (const Candidate& candidate : candidates_) {
        if (!candidate.present) continue;
        for (const std::string& line : candidate.missing) AddProblem(line);
        left_over.insert(left_over.end(), candidate.set.begin(),
                         candidate.set.end());
      }
    }
    result.launcher = std::string(used->launcher->name);
    result.rank = used->rank;
    result.size = used->size;
    result.local_rank = used->local_rank;
    result.local_size = used->local_size;
    // In a shell of Slurm, no variable gives an address.
    if (used->whole() || used->launcher != &kSlurm) {
      result.address = ReadAddress(*used);
    }
    result.job = JobOf(*used);
  }
  result.token = ReadToken();
  result.note = absl::StrJoin(notes_, "; ");
  if (problems_.empty()) return result;
  return absl::InvalidArgumentError(absl::StrCat(
      "this process's environment is not that of a rank:\n  ",
      absl::StrJoin(problems_, "\n  "), "\nA line that works: ", example,
      left_over.empty()
          ? ""
          : absl::StrCat(
                "\nA line that works for a process that trains alone: unset ",
                absl::StrJoin(left_over, " "), "; ./train")));
}

}  // namespace

Environment EnvironmentOfProcess() {
  Environment environment;
  if (environ == nullptr) return environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.insert(std::pair<std::string, std::string>(
        absl::StrSplit(*entry, absl::MaxSplits('=', 1))));
  }
  return environment;
}

std::string LaunchEnvironment::Describe() const {
  if (launcher == "none") {
    return "rank 0 of 1: a world of one, as no launcher has set a variable";
  }
  std::string text = absl::StrCat("rank ", rank, " of ", size);
  if (local_rank >= 0) {
    absl::StrAppend(&text, ", local rank ", local_rank);
    if (local_size >= 0) absl::StrAppend(&text, " of ", local_size);
  }
  absl::StrAppend(&text, " (", launcher, ")");
  if (!address.empty()) absl::StrAppend(&text, "; rank 0 at ", address);
  if (!note.empty()) absl::StrAppend(&text, "; ", note);
  return text;
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const Environment& environment, bool needs_address) {
  return Reading(environment, needs_address).Read();
}

}  // namespace lockstep
