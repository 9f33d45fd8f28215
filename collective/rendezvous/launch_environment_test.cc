#include "lockstep/collective/rendezvous/launch_environment.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::vector<std::pair<std::string, std::string>>;

// Joins two sets. Variables of `b` replace those of `a`.
Environment Join(const Variables& a, const Variables& b) {
  Environment joined;
  for (const Variables* variables : {&a, &b}) {
    for (const auto& [name, value] : *variables) joined[name] = value;
  }
  return joined;
}

absl::StatusOr<LaunchEnvironment> Read(const Variables& a,
                                       const Variables& b = {}) {
  return ReadLaunchEnvironment(Join(a, b));
}

auto IsRefused(const testing::Matcher<std::string>& message) {
  return StatusIs(absl::StatusCode::kInvalidArgument, message);
}

// Whole sets of variables, as the launchers set them.

Variables Torchrun() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"MASTER_ADDR", "10.0.0.7"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "run-17"},
          {"TORCHELASTIC_RESTART_COUNT", "1"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

Variables ByHand() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", "trainer-0"},
          {"MASTER_PORT", "29500"}};
}

Variables Slurm() {
  return {{"SLURM_JOB_ID", "5000"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_NTASKS", "999"},  // the job's, not the step's
          {"SLURM_PROCID", "4"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
          {"SLURM_STEP_NODELIST", "node[003-004]"}};
}

Variables OpenMpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "prterun-host-4711@1"}};
}

Variables Pmi() {
  return {{"PMI_RANK", "1"},
          {"PMI_SIZE", "4"},
          {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "2"},
          {"MASTER_ADDR", "trainer-0"},
          {"MASTER_PORT", "29500"}};
}

Variables Mvapich() {
  return {
      {"MV2_COMM_WORLD_RANK", "1"},       {"MV2_COMM_WORLD_SIZE", "4"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "1"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
      {"MASTER_ADDR", "trainer-0"},       {"MASTER_PORT", "29500"}};
}

Variables Kubernetes() {
  return {{"JOB_COMPLETION_INDEX", "3"},
          {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", "train-0.train"},
          {"MASTER_PORT", "29500"}};
}

TEST(LaunchEnvironment, ReadsWholeSets) {
  struct Case {
    const char* what;
    Variables variables;
    Variables more;
    const char* told;
  };
  const std::vector<Case> cases = {
      {"nothing",
       {},
       {{"HOME", "/"}},
       "none 0 of 1, -1 of -1 here, at '', job ''"},
      {"torchrun on two hosts",
       Torchrun(),
       {},
       "torchrun 2 of 4, 0 of 2 here, at '10.0.0.7:29500', job "
       "'torchrun/run-17/0'"},
      {"torchrun on one host",
       Torchrun(),
       {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}},
       "torchrun 2 of 4, 2 of 4 here, at '10.0.0.7:29500', job "
       "'torchrun/run-17/1'"},
      {"torchrun whose agent has the port",
       Torchrun(),
       {{"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "torchrun 2 of 4, 0 of 2 here, at '10.0.0.7:29501', job "
       "'torchrun/run-17/0'"},
      {"a port of our own",
       Torchrun(),
       {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"LOCKSTEP_PORT", "7000"}},
       "torchrun 2 of 4, 0 of 2 here, at '10.0.0.7:7000', job "
       "'torchrun/run-17/0'"},
      {"by hand",
       ByHand(),
       {},
       "torchrun 2 of 4, -1 of -1 here, at 'trainer-0:29500', job ''"},
      {"by hand, alone",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
       {},
       "torchrun 0 of 1, -1 of -1 here, at '', job ''"},
      {"IPv6",
       ByHand(),
       {{"MASTER_ADDR", "fe80::7%eth0"}},
       "torchrun 2 of 4, -1 of -1 here, at '[fe80::7%eth0]:29500', job ''"},
      {"IPv6 in brackets",
       ByHand(),
       {{"MASTER_ADDR", "[::1]"}},
       "torchrun 2 of 4, -1 of -1 here, at '[::1]:29500', job ''"},
      {"Slurm",
       Slurm(),
       {},
       "Slurm 4 of 7, 0 of 3 here, at 'node003:62344', job 'Slurm/5000.3/0'"},
      {"Slurm, queued again",
       Slurm(),
       {{"SLURM_RESTART_COUNT", "2"}},
       "Slurm 4 of 7, 0 of 3 here, at 'node003:62344', job 'Slurm/5000.3/2'"},
      {"Slurm, with our port",
       Slurm(),
       {{"LOCKSTEP_PORT", "7000"}},
       "Slurm 4 of 7, 0 of 3 here, at 'node003:7000', job 'Slurm/5000.3/0'"},
      {"Slurm, with an address",
       Slurm(),
       {{"MASTER_ADDR", "ib-3"}, {"MASTER_PORT", "29500"}},
       "Slurm 4 of 7, 0 of 3 here, at 'ib-3:29500', job 'Slurm/5000.3/0'"},
      {"Slurm, the greatest job",
       Slurm(),
       {{"SLURM_JOB_ID", "4294967295"}},
       "Slurm 4 of 7, 0 of 3 here, at 'node003:65535', job "
       "'Slurm/4294967295.3/0'"},
      {"Slurm without the step's size",
       Slurm(),
       {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_NTASKS", "7"}},
       "Slurm 4 of 7, 0 of 3 here, at 'node003:62344', job 'Slurm/5000.3/0'"},
      {"Slurm without a local size",
       Slurm(),
       {{"SLURM_STEP_TASKS_PER_NODE", ""}},
       "Slurm 4 of 7, 0 of -1 here, at 'node003:62344', job 'Slurm/5000.3/0'"},
      {"Open MPI on two hosts",
       OpenMpi(),
       {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"MASTER_ADDR", "trainer-0"},
        {"MASTER_PORT", "29500"}},
       "Open MPI 1 of 4, 1 of 2 here, at 'trainer-0:29500', job 'Open "
       "MPI/prterun-host-4711@1/0'"},
      {"PMI",
       Pmi(),
       {},
       "PMI 1 of 4, 1 of 2 here, at 'trainer-0:29500', job ''"},
      {"PMI with a job",
       Pmi(),
       {{"PMI_JOBID", "17.0"}},
       "PMI 1 of 4, 1 of 2 here, at 'trainer-0:29500', job 'PMI/17.0/0'"},
      {"PMI on one host",
       Pmi(),
       {{"MPI_LOCALNRANKS", "4"}, {"MASTER_ADDR", ""}},
       "PMI 1 of 4, 1 of 4 here, at '127.0.0.1:29500', job ''"},
      {"MVAPICH2",
       Mvapich(),
       {},
       "MVAPICH2 1 of 4, 1 of 2 here, at 'trainer-0:29500', job ''"},
      {"Kubernetes",
       Kubernetes(),
       {},
       "Kubernetes indexed job 3 of 4, -1 of -1 here, at "
       "'train-0.train:29500', job ''"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    const auto launch = Read(test.variables, test.more);
    LOCKSTEP_EXPECT_OK(launch);
    if (!launch.ok()) continue;
    EXPECT_EQ(absl::StrCat(launch->launcher, " ", launch->rank, " of ",
                           launch->size, ", ", launch->local_rank, " of ",
                           launch->local_size, " here, at '", launch->address,
                           "', job '", launch->job, "'"),
              test.told);
    EXPECT_EQ(launch->token, "");
  }
}

TEST(LaunchEnvironment, DerivesOpenMpisPortFromTheJob) {
  const auto port_of = [](const Variables& more) {
    const auto launch = Read(OpenMpi(), more);
    LOCKSTEP_EXPECT_OK(launch);
    const std::string address = launch.ok() ? launch->address : "";
    EXPECT_EQ(address.substr(0, 10), "127.0.0.1:");
    return address.size() > 10 ? std::stoi(address.substr(10)) : 0;
  };
  const int port = port_of({});
  EXPECT_GE(port, 61440);
  EXPECT_LE(port, 65535);
  // The port is the same for all ranks, and differs for another job.
  EXPECT_EQ(port_of({{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}}),
            port);
  EXPECT_NE(port_of({{"PMIX_NAMESPACE", "prterun-host-4712@1"}}), port);
  // Open MPI before PMIx.
  EXPECT_NE(port_of({{"PMIX_NAMESPACE", ""},
                     {"OMPI_MCA_orte_hnp_uri", "17.0;tcp://10.0.0.7:41"}}),
            port);
}

TEST(LaunchEnvironment, KeepsJobsShort) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const LaunchEnvironment one,
      Read(Torchrun(), {{"TORCHELASTIC_RUN_ID", std::string(1000, 'a')}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const LaunchEnvironment other,
      Read(Torchrun(), {{"TORCHELASTIC_RUN_ID", std::string(999, 'a') + "b"}}));
  EXPECT_LE(one.job.size(), 256u);
  EXPECT_NE(one.job, other.job);
}

TEST(LaunchEnvironment, NeedsEachVariable) {
  struct Case {
    Variables variables;
    const char* missing;
    const char* told;
  };
  const std::vector<Case> cases = {
      {ByHand(), "RANK", "RANK is not set"},
      {ByHand(), "WORLD_SIZE", "WORLD_SIZE is not set"},
      {ByHand(), "MASTER_ADDR", "MASTER_ADDR is not set"},
      {ByHand(), "MASTER_PORT", "MASTER_PORT is not set, nor is LOCKSTEP_PORT"},
      {Torchrun(), "RANK", "RANK is not set"},
      {Torchrun(), "WORLD_SIZE", "WORLD_SIZE is not set"},
      {Slurm(), "SLURM_PROCID", "SLURM_PROCID is not set"},
      {Slurm(), "SLURM_STEP_NODELIST",
       "SLURM_STEP_NODELIST='' is not a list of hosts"},
      {Slurm(), "SLURM_JOB_ID", "nor SLURM_JOB_ID"},
      {OpenMpi(), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK is not set"},
      {OpenMpi(), "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE is not set"},
      {OpenMpi(), "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_ADDR is not set"},
      {OpenMpi(), "PMIX_NAMESPACE", "MASTER_PORT is not set"},
      {Pmi(), "PMI_RANK", "PMI_RANK is not set"},
      {Pmi(), "PMI_SIZE", "PMI_SIZE is not set"},
      {Pmi(), "MASTER_ADDR", "MPI_LOCALNRANKS='2'"},
      {Pmi(), "MASTER_PORT", "MASTER_PORT is not set"},
      {Mvapich(), "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK is not set"},
      {Mvapich(), "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE is not set"},
      {Mvapich(), "MASTER_ADDR", "MASTER_ADDR is not set"},
      {Kubernetes(), "JOB_COMPLETION_INDEX", "RANK is not set"},
      {Kubernetes(), "WORLD_SIZE", "WORLD_SIZE is not set"},
      {Kubernetes(), "MASTER_ADDR", "MASTER_ADDR is not set"},
      {Kubernetes(), "MASTER_PORT", "MASTER_PORT is not set"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.missing);
    const auto refused =
        IsRefused(AllOf(HasSubstr(test.told), HasSubstr("A line that works:")));
    Environment environment = Join(test.variables, {});
    ASSERT_EQ(environment.erase(test.missing), 1u);
    EXPECT_THAT(ReadLaunchEnvironment(environment), refused);
    environment[test.missing] = "";
    EXPECT_THAT(ReadLaunchEnvironment(environment), refused);
  }
}

TEST(LaunchEnvironment, RefusesWhatHasNoMeaning) {
  struct Case {
    Variables variables;
    const char* name;
    const char* value;
    const char* told;
  };
  const std::vector<Case> cases = {
      {ByHand(), "RANK", "two", "RANK='two' is not a number from 0 to 999999"},
      {ByHand(), "RANK", "-1", "RANK='-1' is not a number"},
      {ByHand(), "RANK", " 2", "RANK=' 2' is not a number"},
      {ByHand(), "RANK", "4", "RANK='4', WORLD_SIZE='4': ranks are 0 to 3"},
      {ByHand(), "WORLD_SIZE", "0",
       "WORLD_SIZE='0' is not a number from 1 to 1000000"},
      {ByHand(), "WORLD_SIZE", "4.0", "WORLD_SIZE='4.0' is not a number"},
      {ByHand(), "WORLD_SIZE", "99999999999999999999", "is not a number"},
      {ByHand(), "LOCAL_RANK", "0x1", "LOCAL_RANK='0x1' is not a number"},
      {ByHand(), "LOCAL_RANK", "4", "LOCAL_RANK='4': local ranks are 0 to 3"},
      {ByHand(), "LOCAL_WORLD_SIZE", "5",
       "more ranks on this host than in all"},
      {Torchrun(), "LOCAL_RANK", "2", "local ranks are 0 to 1"},
      {ByHand(), "MASTER_PORT", "0",
       "MASTER_PORT='0' is not a number from 1 to 65535"},
      {ByHand(), "MASTER_PORT", "65536", "MASTER_PORT='65536' is not"},
      {ByHand(), "LOCKSTEP_PORT", "http", "LOCKSTEP_PORT='http' is not"},
      {ByHand(), "MASTER_ADDR", "trainer 0",
       "MASTER_ADDR='trainer 0' is not the name or address of a host"},
      {ByHand(), "MASTER_ADDR", "trainer-0:29500", "the port is MASTER_PORT"},
      {ByHand(), "MASTER_ADDR", "[h",
       "MASTER_ADDR='[h' is not the name or address of a host"},
      {ByHand(), "MASTER_ADDR", "h]", "MASTER_ADDR='h]' is not the name"},
      {ByHand(), "MASTER_ADDR", "[h]", "MASTER_ADDR='[h]' is not the name"},
      {ByHand(), "MASTER_ADDR", "[::1", "MASTER_ADDR='[::1' is not the name"},
      {ByHand(), "MASTER_ADDR", "::1]", "MASTER_ADDR='::1]' is not the name"},
      {Slurm(), "SLURM_PROCID", "x", "SLURM_PROCID='x' is not a number"},
      {Slurm(), "SLURM_PROCID", "7", "ranks are 0 to 6"},
      {Slurm(), "SLURM_STEP_NUM_TASKS", "x", "SLURM_STEP_NUM_TASKS='x' is not"},
      {Slurm(), "SLURM_STEP_NUM_TASKS", "8",
       "SLURM_STEP_TASKS_PER_NODE='4,3' is 7 tasks, but "
       "SLURM_STEP_NUM_TASKS='8'"},
      {Slurm(), "SLURM_STEP_TASKS_PER_NODE", "4(x2",
       "SLURM_STEP_TASKS_PER_NODE='4(x2' has no meaning"},
      {Slurm(), "SLURM_NODEID", "2", "SLURM_NODEID='2' has no task"},
      {Slurm(), "SLURM_NODEID", "first", "SLURM_NODEID='first' is not"},
      {Slurm(), "SLURM_STEP_NODELIST", "node[003-",
       "SLURM_STEP_NODELIST='node[003-' is not a list of hosts"},
      {Slurm(), "SLURM_JOB_ID", "x", "SLURM_JOB_ID='x' is not a number"},
      {Slurm(), "SLURM_STEP_ID", "batch", "SLURM_STEP_ID='batch' is not"},
      {Slurm(), "SLURM_RESTART_COUNT", "x", "SLURM_RESTART_COUNT='x' is not"},
      {OpenMpi(), "OMPI_COMM_WORLD_RANK", "4", "ranks are 0 to 3"},
      {OpenMpi(), "OMPI_COMM_WORLD_SIZE", "x", "OMPI_COMM_WORLD_SIZE='x' is"},
      {OpenMpi(), "OMPI_COMM_WORLD_LOCAL_RANK", "9", "local ranks are 0 to 3"},
      {OpenMpi(), "OMPI_COMM_WORLD_LOCAL_SIZE", "9", "more ranks on this host"},
      {Pmi(), "PMI_RANK", "x", "PMI_RANK='x' is not a number"},
      {Pmi(), "MPI_LOCALRANKID", "2", "local ranks are 0 to 1"},
      {Mvapich(), "MV2_COMM_WORLD_SIZE", "x", "MV2_COMM_WORLD_SIZE='x' is"},
      {Kubernetes(), "JOB_COMPLETION_INDEX", "x",
       "JOB_COMPLETION_INDEX='x' is"},
      {Kubernetes(), "JOB_COMPLETION_INDEX", "4", "ranks are 0 to 3"},
      {Kubernetes(), "WORLD_SIZE", "x", "WORLD_SIZE='x' is not a number"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(absl::StrCat(test.name, "=", test.value));
    EXPECT_THAT(Read(test.variables, {{test.name, test.value}}),
                IsRefused(AllOf(HasSubstr(test.told),
                                HasSubstr("A line that works:"))));
  }
  EXPECT_THAT(Read(Torchrun(), {{"LOCAL_WORLD_SIZE", "4"},
                                {"TORCHELASTIC_RESTART_COUNT", "few"}}),
              IsRefused(HasSubstr("TORCHELASTIC_RESTART_COUNT='few' is not")));
  EXPECT_THAT(Read(Torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"MASTER_PORT", "65535"}}),
              IsRefused(HasSubstr("set LOCKSTEP_PORT")));
}

// In batch scripts and shells, Slurm has set many variables, but no srun has.
TEST(LaunchEnvironment, KnowsSlurmsShells) {
  const Variables batch = {{"SLURM_JOB_ID", "5000"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_LOCALID", "0"}};
  const Variables interactive = {{"SLURM_JOB_ID", "5000"},
                                 {"SLURM_STEP_ID", "4294967290"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_STEP_NUM_TASKS", "1"},
                                 {"SLURM_STEP_NODELIST", "node003"}};
  for (const Variables& shell : {batch, interactive}) {
    EXPECT_THAT(Read(shell),
                IsRefused(AllOf(HasSubstr("not a task of srun"),
                                HasSubstr("works: srun --ntasks=8 ./train"))));
    // There, torchrun, mpirun and an explicit world of one are accepted.
    const auto torchrun = Read(shell, Torchrun());
    LOCKSTEP_ASSERT_OK(torchrun);
    EXPECT_EQ(torchrun->launcher, "torchrun");
    const auto mpirun = Read(shell, OpenMpi());
    LOCKSTEP_ASSERT_OK(mpirun);
    EXPECT_EQ(mpirun->launcher, "Open MPI");
    const auto alone = Read(shell, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    LOCKSTEP_ASSERT_OK(alone);
    EXPECT_EQ(alone->size, 1);
    // Variables that are set for later tasks change nothing.
    EXPECT_THAT(Read(shell, {{"MASTER_ADDR", "node003"}, {"WORLD_SIZE", "8"}}),
                IsRefused(AllOf(HasSubstr("not a task of srun"),
                                Not(HasSubstr("is not set")))));
  }
}

TEST(LaunchEnvironment, ListsAllThatIsWrong) {
  EXPECT_EQ(
      Read({{"RANK", "two"}, {"MASTER_PORT", "0"}}).status().message(),
      "this process's environment is not that of a rank:\n"
      "  RANK='two' is not a number from 0 to 999999\n"
      "  MASTER_PORT='0' is not a number from 1 to 65535\n"
      "  WORLD_SIZE is not set\n"
      "  MASTER_ADDR is not set: the host of rank 0\n"
      "A line that works: torchrun --nproc_per_node=2 --no_python ./train; or, "
      "by hand: RANK=0 WORLD_SIZE=2 MASTER_ADDR=trainer-0 MASTER_PORT=29500 "
      "./train\n"
      "A line that works for a process that trains alone: unset RANK; ./train");
  EXPECT_EQ(
      Read({{"OMPI_COMM_WORLD_RANK", "1"},
            {"OMPI_COMM_WORLD_SIZE", "4"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
          .status()
          .message(),
      "this process's environment is not that of a rank:\n"
      "  MASTER_ADDR is not set: the host of rank 0, which is needed unless "
      "all "
      "ranks are on one host: OMPI_COMM_WORLD_LOCAL_SIZE='2'\n"
      "  MASTER_PORT is not set, nor is LOCKSTEP_PORT: the port of rank 0\n"
      "A line that works: mpirun -n 8 -x MASTER_ADDR=trainer-0 -x "
      "MASTER_PORT=29500 ./train");
  EXPECT_EQ(
      Read({{"JOB_COMPLETION_INDEX", "1"}}).status().message(),
      "this process's environment is not that of a rank:\n"
      "  WORLD_SIZE is not set\n"
      "  MASTER_ADDR is not set: the host of rank 0\n"
      "  MASTER_PORT is not set, nor is LOCKSTEP_PORT: the port of rank 0\n"
      "A line that works: in the container of a job 'train' with completions: "
      "4, whose pods have subdomain: train, the name of a service with "
      "clusterIP: None,\n"
      "  env:\n"
      "  - {name: WORLD_SIZE, value: \"4\"}\n"
      "  - {name: MASTER_ADDR, value: train-0.train}\n"
      "  - {name: MASTER_PORT, value: \"29500\"}\n"
      "A line that works for a process that trains alone: unset "
      "JOB_COMPLETION_INDEX; ./train");
  EXPECT_EQ(
      Read(Slurm(), {{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "node003"},
                     {"MASTER_PORT", "29500"}})
          .status()
          .message(),
      "this process's environment is not that of a rank:\n"
      "  Open MPI's OMPI_COMM_WORLD_RANK='1', OMPI_COMM_WORLD_SIZE='4' "
      "contradicts Slurm's SLURM_PROCID='4', SLURM_STEP_NUM_TASKS='7', "
      "SLURM_LOCALID='0', SLURM_STEP_TASKS_PER_NODE='4,3': start every process "
      "with one launcher, or unset the variables of the other\n"
      "A line that works: mpirun -n 8 -x MASTER_ADDR=trainer-0 -x "
      "MASTER_PORT=29500 ./train");
}

TEST(LaunchEnvironment, ShowsNoEndlessOrUnreadableValue) {
  EXPECT_THAT(Read(ByHand(), {{"RANK", std::string(5000, 'x')}}),
              IsRefused(AllOf(HasSubstr("xxx...' is not"),
                              Not(HasSubstr(std::string(100, 'x'))))));
  EXPECT_THAT(Read(ByHand(), {{"RANK", "\n\x1b"}}),
              IsRefused(HasSubstr("RANK='\\n\\x1b'")));
}

// The variables of a task of srun: `rank` of `size`, with so many tasks on each
// host.
Variables Step(int rank, int size, const std::string& per_node) {
  return {{"SLURM_JOB_ID", "5000"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", absl::StrCat(rank)},
          {"SLURM_STEP_NUM_TASKS", absl::StrCat(size)},
          {"SLURM_STEP_TASKS_PER_NODE", per_node},
          {"SLURM_STEP_NODELIST", "node[1-4]"}};
}

Variables Torchrun(int rank, int size, int local_size) {
  return {{"RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)},
          {"LOCAL_WORLD_SIZE", absl::StrCat(local_size)},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"}};
}

Variables OpenMpi(int rank, int size, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", absl::StrCat(rank)},
          {"OMPI_COMM_WORLD_SIZE", absl::StrCat(size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", absl::StrCat(local_size)},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"}};
}

Variables Pmi(int rank, int size) {
  return {{"PMI_RANK", absl::StrCat(rank)}, {"PMI_SIZE", absl::StrCat(size)}};
}

Variables ByHand(int rank, int size) {
  return {{"RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"}};
}

TEST(LaunchEnvironment, TakesLaunchersThatFit) {
  struct Case {
    const char* what;
    Variables one, other;
    const char* told;  // launcher, rank, note
  };
  const std::vector<Case> cases = {
      {"a torchrun a host by srun", Torchrun(9, 16, 8), Step(1, 2, "1(x2)"),
       "torchrun 9: inside process 1 of 2 of Slurm"},
      {"whose ranks are not in the order of hosts", Torchrun(1, 16, 8),
       Step(1, 2, "1(x2)"), "torchrun 1: inside process 1 of 2 of Slurm"},
      {"with one process each", Torchrun(0, 2, 1), Step(1, 2, "1(x2)"),
       "torchrun 0: inside process 1 of 2 of Slurm"},
      {"each in a step of its own", Torchrun(9, 16, 8), Step(0, 1, "1"),
       "torchrun 9: inside process 0 of 1 of Slurm"},
      {"a torchrun a host by mpirun", Torchrun(9, 16, 8), OpenMpi(1, 2, 1),
       "torchrun 9: inside process 1 of 2 of Open MPI"},
      {"a torchrun in a pod",
       Torchrun(9, 16, 8),
       {{"JOB_COMPLETION_INDEX", "1"}},
       "torchrun 9: "},
      {"a torchrun a host by a launcher that tells the rank alone",
       Torchrun(9, 16, 8),
       {{"PMI_RANK", "1"}},
       "torchrun 9: "},
      {"by hand in srun", ByHand(3, 4), Step(3, 4, "2(x2)"),
       "torchrun 3: Slurm says the same"},
      {"by hand in srun, more than one a task", ByHand(5, 8),
       Step(1, 4, "2(x2)"), "torchrun 5: inside process 1 of 4 of Slurm"},
      {"by hand in srun, with no address",
       {{"RANK", "3"}, {"WORLD_SIZE", "4"}},
       Step(3, 4, "2(x2)"),
       "Slurm 3: torchrun says the same"},
      {"srun with a size beside it",
       {{"WORLD_SIZE", "4"}},
       Step(3, 4, "2(x2)"),
       "Slurm 3: "},
      {"srun with a local rank beside it",
       {{"LOCAL_RANK", "0"}},
       Step(3, 4, "2(x2)"),
       "Slurm 3: "},
      {"srun --mpi=pmi2", Pmi(3, 4), Step(3, 4, "2(x2)"),
       "Slurm 3: PMI says the same"},
      {"mpirun with a daemon on each of the other hosts", OpenMpi(5, 8, 2),
       Step(1, 3, "1(x3)"), "Open MPI 5: inside process 1 of 3 of Slurm"},
      {"mpirun in srun --pty bash", OpenMpi(1, 4, 4), Step(0, 1, "1"),
       "Open MPI 1: inside process 0 of 1 of Slurm"},
      {"mpirun that says what srun says", OpenMpi(1, 4, 1), Step(1, 4, "1(x4)"),
       "Open MPI 1: Slurm says the same"},
      {"MVAPICH2 that also speaks PMI", Mvapich(), Pmi(1, 4),
       "MVAPICH2 1: PMI says the same"},
      {"a pod by hand",
       ByHand(1, 2),
       {{"JOB_COMPLETION_INDEX", "1"}},
       "torchrun 1: "},
      {"a pod that trains alone",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
       {{"JOB_COMPLETION_INDEX", "3"}},
       "torchrun 0: "},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    const auto launch = Read(test.one, test.other);
    LOCKSTEP_EXPECT_OK(launch);
    if (!launch.ok()) continue;
    EXPECT_EQ(
        absl::StrCat(launch->launcher, " ", launch->rank, ": ", launch->note),
        test.told);
  }
}

TEST(LaunchEnvironment, TakesManyLaunchersThatFit) {
  // srun --mpi=pmi2 has started the daemons of mpirun, and a script sets RANK.
  Environment environment = Join(OpenMpi(5, 8, 2), Step(1, 3, "1(x3)"));
  for (const Variables& more : {Pmi(1, 3), ByHand(5, 8)}) {
    environment.insert(more.begin(), more.end());
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LaunchEnvironment launch,
                                ReadLaunchEnvironment(environment));
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.note,
            "Open MPI says the same; inside process 1 of 3 of PMI; inside "
            "process 1 of 3 of Slurm");
}

TEST(LaunchEnvironment, RefusesContradictions) {
  struct Case {
    const char* what;
    Variables one, other;
    const char* says;
    const char* against;
  };
  const std::vector<Case> cases = {
      {"a world a task", Torchrun(0, 2, 2), Step(0, 2, "1(x2)"),
       "torchrun's RANK='0'", "Slurm's SLURM_PROCID='0'"},
      {"worlds that are as great as the step", Torchrun(1, 4, 4),
       Step(1, 4, "1(x4)"), "WORLD_SIZE='4'", "SLURM_STEP_NUM_TASKS='4'"},
      {"great worlds", Torchrun(1, 8, 8), Step(1, 4, "1(x4)"), "WORLD_SIZE='8'",
       "SLURM_STEP_NUM_TASKS='4'"},
      {"no multiple", Torchrun(1, 5, 1), Step(1, 2, "1(x2)"), "WORLD_SIZE='5'",
       "SLURM_STEP_NUM_TASKS='2'"},
      {"alone in a step of four",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
       Step(1, 4, "4"),
       "WORLD_SIZE='1'",
       "SLURM_STEP_NUM_TASKS='4'"},
      {"two that say which rank", ByHand(1, 4), Step(2, 4, "4"), "RANK='1'",
       "SLURM_PROCID='2'"},
      {"another size beside srun",
       {{"WORLD_SIZE", "2"}},
       Step(1, 4, "4"),
       "Slurm's SLURM_PROCID='1'",
       "torchrun's WORLD_SIZE='2'"},
      {"another rank beside srun",
       {{"RANK", "2"}},
       Step(1, 4, "4"),
       "Slurm's SLURM_PROCID='1'",
       "torchrun's RANK='2'"},
      {"a part of torchrun's",
       {{"RANK", "2"}, {"TORCHELASTIC_RUN_ID", "x"}},
       Step(1, 4, "4"),
       "Slurm's SLURM_PROCID='1'",
       "torchrun's RANK='2'"},
      {"fewer than srun's tasks", OpenMpi(1, 4, 4), Step(1, 8, "1(x8)"),
       "OMPI_COMM_WORLD_SIZE='4'", "SLURM_STEP_NUM_TASKS='8'"},
      {"an mpirun a task", OpenMpi(1, 8, 8), Step(1, 4, "1(x4)"),
       "OMPI_COMM_WORLD_SIZE='8'", "SLURM_STEP_NUM_TASKS='4'"},
      {"tasks that are no daemons", OpenMpi(1, 8, 4), Step(1, 4, "2(x2)"),
       "OMPI_COMM_WORLD_SIZE='8'", "SLURM_STEP_NUM_TASKS='4'"},
      {"the other rank of the same size", OpenMpi(1, 4, 1), Step(2, 4, "1(x4)"),
       "OMPI_COMM_WORLD_RANK='1'", "SLURM_PROCID='2'"},
      {"two kinds of MPI", OpenMpi(1, 4, 4), Pmi(1, 2),
       "Open MPI's OMPI_COMM_WORLD_RANK='1'", "PMI's PMI_RANK='1'"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    EXPECT_THAT(
        Read(test.one, test.other),
        IsRefused(AllOf(HasSubstr(test.says), HasSubstr(" contradicts "),
                        HasSubstr(test.against))));
  }
}

TEST(LaunchEnvironment, NamesWhatIsThereInPart) {
  EXPECT_THAT(Read({{"RANK", "1"}, {"PMI_SIZE", "4"}}),
              IsRefused(AllOf(HasSubstr("WORLD_SIZE is not set"),
                              HasSubstr("PMI_RANK is not set"))));
  for (const char* const name : {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(Read({{name, "1"}}),
                IsRefused(AllOf(HasSubstr("  RANK is not set"),
                                HasSubstr("WORLD_SIZE is not set"))));
  }
}

TEST(LaunchEnvironment, Describes) {
  const auto text_of = [](const absl::StatusOr<LaunchEnvironment>& launch) {
    return launch.ok() ? launch->Describe() : launch.status().ToString();
  };
  EXPECT_EQ(text_of(Read({})),
            "rank 0 of 1: a world of one, as no launcher has set a variable");
  EXPECT_EQ(text_of(Read(Torchrun())),
            "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at "
            "10.0.0.7:29500");
  EXPECT_EQ(
      text_of(Read(Torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})),
      "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at "
      "10.0.0.7:29501; the port is MASTER_PORT + 1, since torchrun "
      "listens at MASTER_PORT");
  EXPECT_EQ(text_of(Read(Pmi(3, 4), Step(3, 4, "2(x2)"))),
            "rank 3 of 4 (Slurm); rank 0 at node1:62344; PMI says the same");
  EXPECT_EQ(text_of(Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
            "rank 0 of 1 (torchrun)");
}

class Token : public testing::Test {
 protected:
  static std::string Write(const std::string& content, mode_t mode = 0600) {
    std::string path = testing::TempDir() + "/launch_environment_token";
    std::remove(path.c_str());
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  static Variables File(const std::string& path) {
    return {{"LOCKSTEP_TOKEN_FILE", path}};
  }
};

TEST_F(Token, IsReadAndNotShown) {
  const std::string longest(256, 's');
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"LOCKSTEP_TOKEN", "s3cret of all"}}, "s3cret of all"},
      {{{"LOCKSTEP_TOKEN", longest}}, longest},
      {File(Write("s3cret")), "s3cret"},
  };
  for (const auto& [variables, token] : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LaunchEnvironment launch,
                                  Read(Torchrun(), variables));
    EXPECT_EQ(launch.token, token);
    EXPECT_THAT(launch.Describe(), Not(HasSubstr(token)));
    // It is not shown if another variable is wrong, either.
    Variables wrong = variables;
    wrong.emplace_back("RANK", "two");
    EXPECT_THAT(Read(Torchrun(), wrong), IsRefused(Not(HasSubstr(token))));
  }
}

TEST_F(Token, IsTheFirstLine) {
  const std::string longest(256, 's');
  for (const std::string end : {"", "\n", "\r\n", "\nmore\n", "\n\xff"}) {
    for (const std::string& token : {std::string("s3cret"), longest}) {
      const auto launch = Read(File(Write(token + end)));
      LOCKSTEP_ASSERT_OK(launch);
      EXPECT_EQ(launch->token, token);
    }
  }
}

TEST_F(Token, IsRefused) {
  struct Case {
    Variables variables;
    const char* told;
  };
  const std::vector<Case> cases = {
      {{{"LOCKSTEP_TOKEN", "s3cret"}, {"LOCKSTEP_TOKEN_FILE", "/x"}},
       "LOCKSTEP_TOKEN and LOCKSTEP_TOKEN_FILE are both set"},
      {{{"LOCKSTEP_TOKEN", std::string(251, ' ') + "s3cret"}},
       "LOCKSTEP_TOKEN is longer than the 256 bytes of a token"},
      {{{"LOCKSTEP_TOKEN", "s3cret\n"}},
       "LOCKSTEP_TOKEN has a byte that is not printable ASCII"},
      {{{"LOCKSTEP_TOKEN", "s3cret\xff"}}, "not printable"},
      {File("/nowhere/token"),
       "LOCKSTEP_TOKEN_FILE='/nowhere/token' can't be read: No such file"},
      {File(testing::TempDir()), "can't be read: Is a directory"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.told);
    EXPECT_THAT(Read(test.variables),
                IsRefused(AllOf(HasSubstr(test.told), Not(HasSubstr("s3cret")),
                                HasSubstr("works: LOCKSTEP_TOKEN_FILE="))));
  }
  struct FileCase {
    std::string content;
    mode_t mode;
    const char* told;
  };
  const std::vector<FileCase> files = {
      {"s3cret\n", 0640, "is open to others (mode 0640): chmod 600"},
      {"s3cret\n", 0604, "is open to others (mode 0604): chmod 600"},
      {"", 0600, "has no first line"},
      {"\ns3cret\n", 0600, "has no first line"},
      {"s3cret\x7f\n", 0400, "not printable"},
      {std::string(251, ' ') + "s3cret\n", 0600, "longer than the 256 bytes"},
      {std::string(9000, ' ') + "s3cret\n", 0600, "longer than the 256 bytes"},
  };
  for (const FileCase& test : files) {
    SCOPED_TRACE(test.told);
    EXPECT_THAT(
        Read(File(Write(test.content, test.mode))),
        IsRefused(AllOf(HasSubstr(test.told), Not(HasSubstr("s3cret")))));
  }
}

TEST(EnvironmentOfProcess, HasWhatIsSet) {
  ASSERT_EQ(setenv("LAUNCH_ENVIRONMENT_TEST", "a=b=c", 1), 0);
  ASSERT_EQ(setenv("LAUNCH_ENVIRONMENT_EMPTY", "", 1), 0);
  const Environment environment = EnvironmentOfProcess();
  EXPECT_EQ(environment.at("LAUNCH_ENVIRONMENT_TEST"), "a=b=c");
  EXPECT_EQ(environment.at("LAUNCH_ENVIRONMENT_EMPTY"), "");
  ASSERT_EQ(unsetenv("LAUNCH_ENVIRONMENT_TEST"), 0);
  EXPECT_EQ(EnvironmentOfProcess().count("LAUNCH_ENVIRONMENT_TEST"), 0u);
}

TEST(LaunchEnvironment, NoAddressIsNeededWhereRanksMeetByOtherMeans) {
  const Environment environment = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  EXPECT_FALSE(ReadLaunchEnvironment(environment).ok());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const LaunchEnvironment launch,
      ReadLaunchEnvironment(environment, /*needs_address=*/false));
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.address, "");
}

}  // namespace
}  // namespace lockstep
