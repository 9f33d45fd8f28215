// Measures how soon ranks know of each other's faults. It is half of
// tools/bench faults.
//
//   faults_benchmark RUNS [local|memory]
//
// With "local", it measures only ranks that are threads of one process, and
// with "memory" only ranks that read each other's memory. Otherwise it measures
// all. It prints a line for each sample, "FAULT BACKEND SECONDS", with "-" for
// faults that come before there is a backend. The time is from the fault until
// the last surviving rank has its Status. If one of the ranks has another
// Status than the rest, its time has its own line: "FAULT_one BACKEND SECONDS".
// "growth BACKEND FILES THREADS KIB" is the growth of a rank while its group is
// made again many times. A Status other than the expected one ends the program.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/memory_roles.h"
#include "lockstep/collective/testing/rank_processes.h"

namespace lockstep {
namespace {

using internal_collective::Socket;
using testing::ContainsRegex;
using testing::Matches;
using testing::Not;

// The time at which a fault begins.
enum class Since {
  kKill,     // when the silent rank is killed, once all have joined
  kDiffer,   // when rank 0 and one of the others have issued
  kRankOne,  // when rank 1 has issued
  kItself,   // when the rank itself has issued, after Go
};

// A fault, and the Status that it should cause.
struct Fault {
  std::string name;
  std::string role;
  Since since;
  // A regular expression for the Status of all ranks except one.
  std::string due;
  std::string due_of_one = {};  // for that one; "": there is none
  // The rank that is killed, stopped before Go, or a thread that does not come.
  // -1: none.
  int silent = -1;
  int size = 3;
  std::string argument = {};  // in place of the backend
  bool in_shm = true;         // false: not measured with shm
  int signal = SIGKILL;       // what is sent to the rank that is killed
};

std::vector<Fault> FaultsOfProcesses() {
  return {
      {"kill", "barriers", Since::kKill, "UNAVAILABLE.*rank 3 ", "", 3, 4},
      {"kill_0", "barriers", Since::kKill, "UNAVAILABLE.*rank 0 ", "", 0, 4},
      {"kill_parent", "has_child", Since::kKill, "UNAVAILABLE.*rank 3 ", "", 3,
       4},
      {"abort_unheard", "abort_unheard", Since::kItself,
       "DEADLINE_EXCEEDED.*rank 0 ", "ABORTED: rank 1 aborted", 0},
      {"no_files", "no_files", Since::kRankOne,
       "RESOURCE_EXHAUSTED.*rank 1.*ulimit -n"},
      {"no_memory", "no_memory", Since::kRankOne,
       "RESOURCE_EXHAUSTED.*rank 1.*memory", "", -1, 3, "", false},
      {"scanned", "scanned", Since::kRankOne, "^OK|^UNAVAILABLE.*rank", "", -1,
       3, "", false},
  };
}

// Faults of rank 2 where it is about to read the others' memory. A rank that is
// stopped goes on when the others have failed and overwritten theirs, and must
// not end well.
std::vector<Fault> FaultsOfMemory() {
  std::vector<Fault> faults;
  for (const std::string phase : {"reduce", "copy"}) {
    faults.push_back({"kill_in_" + phase, "stands_in_" + phase, Since::kKill,
                      "UNAVAILABLE.*rank 2 ", "", 2});
    faults.push_back({"stop_in_" + phase, "stands_in_" + phase, Since::kKill,
                      "DEADLINE_EXCEEDED.*rank 2 ", "", 2});
    faults.back().signal = SIGSTOP;
  }
  return faults;
}

// The system writes the core file of a rank whose memory has run out.
Fault WithCore() {
  Fault fault = {"core", "core", Since::kKill, "UNAVAILABLE.*rank 3 ", "",
                 3,      4};
  fault.signal = SIGUSR1;
  return fault;
}

std::vector<Fault> FaultsOfGroups() {
  std::vector<Fault> faults = {
      {"stop", "deadline_barrier", Since::kItself, "DEADLINE_EXCEEDED.*rank 2 ",
       "", 2},
      {"stop_0", "deadline_barrier", Since::kItself,
       "DEADLINE_EXCEEDED.*rank 0 ", "", 0},
      {"aborts", "aborts", Since::kRankOne, "ABORTED: rank 1 aborted"},
      {"leaves", "leaves", Since::kRankOne, "UNAVAILABLE.*rank 1 has left",
       "^OK"},
  };
  for (const char* what : {"kind", "dtype", "counts", "reduce_op", "root",
                           "name", "group_order"}) {
    faults.push_back(
        {what, what, Since::kDiffer, "FAILED_PRECONDITION.*rank 0[ ,]"});
  }
  return faults;
}

// Faults of joining. Another program listens at the address `taken`.
std::vector<Fault> FaultsOfMeetings(const std::string& taken) {
  std::vector<Fault> faults = {
      {"absent", "absent", Since::kItself, "DEADLINE_EXCEEDED.*rank 2", "", 2},
      {"absent_0", "absent", Since::kItself, "DEADLINE_EXCEEDED.*rank 0", "",
       0},
      {"idle_strangers", "idle_strangers", Since::kRankOne, "^OK"},
      {"wrong_token", "wrong_token", Since::kItself,
       "DEADLINE_EXCEEDED.*missing: rank 1", "UNAUTHENTICATED"},
      {"duplicate", "duplicate", Since::kItself,
       "DEADLINE_EXCEEDED.*missing: rank 2", "ALREADY_EXISTS.*rank 1 "},
      {"port_taken", "join_at", Since::kItself, "DEADLINE_EXCEEDED.*no answer",
       "ALREADY_EXISTS.*rank 0 can't listen", -1, 3, taken},
      {"no_host", "join_at", Since::kItself,
       "DEADLINE_EXCEEDED.*lockstep-test.invalid", "", -1, 3,
       "lockstep-test.invalid:4000"},
  };
  for (const char* what : {"other_size", "other_job", "other_version"}) {
    faults.push_back({what, what, Since::kItself,
                      "DEADLINE_EXCEEDED.*missing: rank 1",
                      "FAILED_PRECONDITION"});
  }
  return faults;
}

struct Outcome {
  double killed = 0;
  std::map<int, FaultReport> reports;  // of all ranks but the silent one
};

// Returns true if a core file is in the folder, or comes within 10 s.
bool HasCore(const std::string& folder) {
  for (int i = 0; i < 1000; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, "core")) return true;
    }
    usleep(10000);
  }
  return false;
}

Outcome Provoke(const Fault& fault, const std::string& backend) {
  Outcome outcome;
  if (backend == "local") {
    outcome.reports = FaultOfThreads(fault.role, fault.size, fault.silent);
    return outcome;
  }
  RankProcesses ranks(fault.role, fault.size,
                      fault.argument.empty() ? backend : fault.argument);
  if (fault.since == Since::kKill) {
    for (int rank = 0; rank < fault.size; ++rank) {
      ranks.AwaitLine(rank, "joined");
    }
    outcome.killed = ClockSeconds();
    ranks.Signal(fault.silent, fault.signal);
  } else if (fault.since == Since::kItself) {
    AwaitReady(ranks, fault.size);
    if (fault.silent >= 0) ranks.Signal(fault.silent, SIGSTOP);
    Go(ranks);
  }
  for (int rank = 0; rank < fault.size; ++rank) {
    if (rank == fault.silent) continue;
    outcome.reports[rank] = ParseFaultReport(ranks.AwaitLine(rank, " | "));
  }
  if (fault.role == "core") {
    EXPECT_TRUE(HasCore(ranks.folder()))
        << "no core file is written: /proc/sys/kernel/core_pattern should be "
           "'core'";
  }
  Go(ranks);  // ends the forked children, and lets a rank that stands go on
  if (fault.since == Since::kKill && fault.signal == SIGSTOP) {
    ranks.Signal(fault.silent, SIGCONT);
    const std::string status =
        ParseFaultReport(ranks.AwaitLine(fault.silent, " | ")).status;
    EXPECT_THAT(status, Not(ContainsRegex("^OK|DATA_LOSS")));
  }
  return outcome;
}

// Returns the time at which the fault began for this rank, which can't notice
// it before it issues.
double Begin(Since since, const Outcome& outcome, const FaultReport& report) {
  const auto issued = [&](int rank) { return outcome.reports.at(rank).issued; };
  switch (since) {
    case Since::kKill:
      return outcome.killed;
    case Since::kDiffer:
      return std::max(
          {report.issued, issued(0), std::min(issued(1), issued(2))});
    case Since::kRankOne:
      return issued(1);
    case Since::kItself:
      break;
  }
  return report.issued;
}

void Sample(const std::string& name, const std::string& backend,
            double seconds) {
  std::printf("%s %s %.6f\n", name.c_str(), backend.c_str(), seconds);
}

void Measure(const Fault& fault, const std::string& backend) {
  SCOPED_TRACE(fault.name + " " + backend);
  const Outcome outcome = Provoke(fault, backend);
  double longest = 0;
  int alone = 0;
  for (const auto& [rank, report] : outcome.reports) {
    const double seconds =
        report.answered - Begin(fault.since, outcome, report);
    if (!fault.due_of_one.empty() &&
        Matches(ContainsRegex(fault.due_of_one))(report.status)) {
      ++alone;
      Sample(fault.name + "_one", backend, seconds);
    } else {
      EXPECT_THAT(report.status, ContainsRegex(fault.due));
      longest = std::max(longest, seconds);
    }
  }
  EXPECT_EQ(alone, fault.due_of_one.empty() ? 0 : 1);
  Sample(fault.name, backend, longest);
}

void Growth(const std::string& backend) {
  RankProcesses ranks("growth", 2, backend);
  for (int rank = 0; rank < 2; ++rank) {
    std::printf("growth %s %s", backend.c_str(), ranks.Wait(rank).c_str());
  }
}

// The number of core files that are written.
constexpr int kCores = 3;

// The faults alternate, so that other work of the machine disturbs them
// equally.
int MeasureAll(int runs, const std::string& only) {
  const auto failed = [] { return testing::UnitTest::GetInstance()->Failed(); };
  for (int run = 0; run < runs && !failed(); ++run) {
    if (only != "local") {
      for (const Fault& fault : FaultsOfMemory()) Measure(fault, "shm");
    }
    if (only == "memory") continue;
    for (const Fault& fault : FaultsOfGroups()) Measure(fault, "local");
    if (only == "local") continue;
    for (const char* backend : {"shm", "tcp"}) {
      for (const Fault& fault : FaultsOfProcesses()) {
        const bool in_shm = std::string(backend) == "shm";
        if (fault.in_shm || !in_shm) Measure(fault, backend);
      }
      if (run == 0) Growth(backend);
    }
    if (run < kCores) Measure(WithCore(), "shm");
    for (const char* backend : {"shm", "tcp"}) {
      for (const Fault& fault : FaultsOfGroups()) Measure(fault, backend);
    }
    Socket other;
    const std::string taken = other.Bind();
    other.Listen();
    for (const Fault& fault : FaultsOfMeetings(taken)) Measure(fault, "-");
    std::fflush(stdout);
  }
  return failed() ? 1 : 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  std::map<std::string, lockstep::RankProcesses::Role> roles =
      lockstep::MemoryRoles(lockstep::FaultDeadlines().barrier);
  roles.merge(lockstep::FaultRoles());
  return lockstep::RankProcesses::Main(argc, argv, roles, [&] {
    int runs = 0;
    const std::string only = argc == 3 ? argv[2] : "";
    if (argc < 2 || argc > 3 || !absl::SimpleAtoi(argv[1], &runs) || runs < 1 ||
        (argc == 3 && only != "local" && only != "memory")) {
      std::fprintf(stderr, "usage: faults_benchmark RUNS [local|memory]\n");
      return 2;
    }
    return lockstep::MeasureAll(runs, only);
  });
}
