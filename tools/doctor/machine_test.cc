#include "lockstep/tools/doctor/machine.h"

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/network.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A machine with which nothing is wrong, and rank 0 of 4, two of which run on
// it.
MachineFacts Healthy() {
  MachineFacts facts;
  facts.host = "trainer-0";
  facts.kernel = "Linux 6.1.0";
  facts.processor = "A Processor";
  facts.processors = facts.all_processors = 8;
  facts.memory = int64_t{64} << 30;
  facts.available = int64_t{60} << 30;
  facts.open_files = facts.most_open_files = 65536;
  facts.dev_shm = facts.dev_shm_free = int64_t{32} << 30;
  facts.huge_pages = "madvise";
  facts.shared_huge_pages = "never";
  facts.gpus.cuda = absl::UnavailableError("no driver");
  LaunchEnvironment launch;
  launch.launcher = "torchrun";
  launch.size = 4;
  launch.local_rank = 0;
  launch.local_size = 2;
  launch.address = "trainer-0:29500";
  launch.token = "0123456789abcdef0123456789abcdef";
  facts.launch = launch;
  facts.init = "env://";
  facts.network.interfaces = {{"lo", {"127.0.0.1"}, true, -1},
                              {"eth0", {"10.0.0.7"}, false, 25000}};
  facts.network.host = "trainer-0";
  facts.network.port = 29500;
  facts.network.addresses = std::vector<std::string>{"10.0.0.7"};
  facts.network.source = "10.0.0.7";
  facts.synchronized = true;
  facts.clock_source = "tsc";
  return facts;
}

// Returns what a check finds after a change.
Finding FindingOf(const std::string& check,
                  const std::function<void(MachineFacts&)>& change,
                  const JudgeOptions& options = {}) {
  MachineFacts facts = Healthy();
  change(facts);
  for (const Finding& finding : JudgeMachine(facts, options).findings) {
    if (finding.check == check) return finding;
  }
  return {check, Verdict::kNotJudged, "missing", ""};
}

TEST(Machine, PassesIfNothingIsWrong) {
  JudgeOptions options;
  options.version = "1.2.3";
  const MachineReport report = JudgeMachine(Healthy(), options);
  EXPECT_EQ(WhatKeepsRanksApart(report), "");
  EXPECT_EQ(report.host, "trainer-0");
  EXPECT_EQ(report.about, "Lockstep 1.2.3, Linux 6.1.0, A Processor");
  EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 0);
  EXPECT_EQ(CountOf(report.findings, Verdict::kWarning), 0);
  std::string all;
  for (const Finding& finding : report.findings) {
    all += finding.check + ": " + finding.text + "\n";
    EXPECT_THAT(finding.remedy, IsEmpty());
  }
  EXPECT_EQ(
      all,
      "processors: 8 usable, no quota\n"
      "memory: the machine has 64.0 GiB, of which 60.0 GiB are available\n"
      "locked memory: no limit\n"
      "open files: a limit of 65536\n"
      "threads: no limit is set\n"
      "shared memory: the backend shm has its own; /dev/shm has 32.0 GiB of "
      "32.0 GiB left\n"
      "huge pages: for private memory: madvise, for shared memory: never, "
      "reserved: 0\n"
      "GPUs: none\n"
      "NCCL: not looked for, since there is no GPU\n"
      "network: lo 127.0.0.1, eth0 10.0.0.7 (25 Gbit/s)\n"
      "launcher: rank 0 of 4, local rank 0 of 2 (torchrun); rank 0 at "
      "trainer-0:29500\n"
      "token: one of 32 characters\n"
      "rank 0: trainer-0:29500 (10.0.0.7), this machine\n"
      "port: 29500, at which nobody listens\n"
      "clock: tsc, kept right by a time service\n");
}

// A change of the healthy machine, and what a check then finds.
struct Case {
  const char* check;
  Verdict verdict;
  const char* text;
  const char* remedy;
  std::function<void(MachineFacts&)> change;
};

const absl::Status kMissing = absl::UnavailableError("it is not there");

class Machine : public testing::TestWithParam<Case> {};

TEST_P(Machine, IsJudged) {
  const Case& that = GetParam();
  const Finding finding = FindingOf(that.check, that.change);
  EXPECT_EQ(finding.verdict, that.verdict) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(that.text));
  EXPECT_THAT(finding.remedy, HasSubstr(that.remedy));
  // Whatever is wrong has a remedy, and nothing else has.
  EXPECT_EQ(finding.remedy.empty(), finding.verdict < Verdict::kWarning);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Machine,
    testing::Values(
        Case{"processors", Verdict::kWarning, "1 usable, no quota, for 2 ranks",
             "than it has processors",
             [](MachineFacts& f) { f.processors = f.all_processors = 1; }},
        // The launcher may bind each rank to its own.
        Case{"processors", Verdict::kNotJudged,
             "1 usable by this process, of 8, no quota, for 2 ranks", "",
             [](MachineFacts& f) { f.processors = 1; }},
        Case{"processors", Verdict::kWarning, "a quota of 1.5, for 2 ranks",
             "--cpus", [](MachineFacts& f) { f.quota = 1.5; }},
        Case{"processors", Verdict::kPass, "8 usable, a quota of 2.5", "",
             [](MachineFacts& f) { f.quota = 2.5; }},
        Case{"processors", Verdict::kWarning, "used up in 3 of 59 periods",
             "raise the quota",
             [](MachineFacts& f) {
               f.quota = 2.5;
               f.throttled = 3;
               f.periods = 59;
             }},
        Case{"processors", Verdict::kPass, "8 usable", "",
             [](MachineFacts& f) {
               f.quota = 2.5;
               f.throttled = 3;
               f.periods = 60;
             }},
        Case{"memory", Verdict::kPass,
             "may use 4.0 GiB, of which 128 MiB are left; the machine has", "",
             [](MachineFacts& f) {
               f.memory_limit = int64_t{4} << 30;
               f.memory_used = f.memory_limit - (128 << 20);
             }},
        Case{"memory", Verdict::kWarning, "that is little for 2 ranks",
             "raise the limit",
             [](MachineFacts& f) {
               f.memory_limit = int64_t{4} << 30;
               f.memory_used = f.memory_limit - (128 << 20) + 1;
             }},
        Case{"memory", Verdict::kWarning, "has killed 1 process of the",
             "raise the limit",
             [](MachineFacts& f) {
               f.memory_limit = int64_t{4} << 30;
               f.memory_kills = 1;
             }},
        // Without a limit, they belong to another time, or another container.
        Case{"memory", Verdict::kPass, "64.0 GiB", "",
             [](MachineFacts& f) { f.memory_kills = 1; }},
        Case{"memory", Verdict::kNotJudged, "does not say how much", "",
             [](MachineFacts& f) { f.memory = f.available = -1; }},
        Case{"locked memory", Verdict::kPass, "a limit of 64 KiB", "",
             [](MachineFacts& f) { f.locked_memory = 65536; }},
        Case{"locked memory", Verdict::kWarning, "gives to mlx5_0, mlx5_1",
             "ulimit -l",
             [](MachineFacts& f) {
               f.locked_memory = 65536;
               f.rdma = {"mlx5_0", "mlx5_1"};
             }},
        Case{"locked memory", Verdict::kPass, "no limit", "",
             [](MachineFacts& f) { f.rdma = {"mlx5_0"}; }},
        Case{"open files", Verdict::kFailure,
             "a limit of 75, but a rank of 4 may need 276", "ulimit -n 276",
             [](MachineFacts& f) { f.open_files = 75; }},
        Case{"open files", Verdict::kWarning, "a limit of 76", "ulimit -n 276",
             [](MachineFacts& f) { f.open_files = 76; }},
        Case{"open files", Verdict::kWarning, "a limit of 68", "ulimit -n",
             [](MachineFacts& f) {
               f.open_files = 68;
               f.launch->local_size = 4;
             }},
        Case{"open files", Verdict::kPass, "a limit of 276", "",
             [](MachineFacts& f) { f.open_files = 276; }},
        Case{"open files", Verdict::kFailure, "a limit of 64",
             "raise the hard limit, which is 128, to 276",
             [](MachineFacts& f) {
               f.open_files = 64;
               f.most_open_files = 128;
             }},
        Case{"threads", Verdict::kPass, "of which 48 are left", "",
             [](MachineFacts& f) {
               f.thread_limit = 100;
               f.threads_left = 48;
             }},
        Case{"threads", Verdict::kWarning, "2 ranks may need 48",
             "--pids-limit",
             [](MachineFacts& f) {
               f.thread_limit = 100;
               f.threads_left = 47;
             }},
        Case{"threads", Verdict::kWarning, "a limit of 16 for all processes",
             "ulimit -u", [](MachineFacts& f) { f.user_thread_limit = 16; }},
        Case{"threads", Verdict::kFailure, "a limit of 15", "ulimit -u",
             [](MachineFacts& f) { f.user_thread_limit = 15; }},
        Case{"shared memory", Verdict::kFailure, "it is not there",
             "memfd_create",
             [](MachineFacts& f) {
               f.shared_memory = kMissing;
               f.launch->local_size = 4;
             }},
        // Ranks of several machines don't use it.
        Case{"shared memory", Verdict::kWarning, "it is not there",
             "memfd_create",
             [](MachineFacts& f) { f.shared_memory = kMissing; }},
        Case{"shared memory", Verdict::kPass, "/dev/shm has 63 MiB", "",
             [](MachineFacts& f) { f.dev_shm_free = int64_t{63} << 20; }},
        Case{"shared memory", Verdict::kWarning, "which NCCL may fill",
             "--shm-size",
             [](MachineFacts& f) {
               f.gpus.names = {"H100"};
               f.dev_shm_free = int64_t{63} << 20;
             }},
        // Docker's default is too small even when it is empty.
        Case{"shared memory", Verdict::kWarning, "64 MiB of 64 MiB",
             "--shm-size",
             [](MachineFacts& f) {
               f.gpus.names = {"H100"};
               f.dev_shm = f.dev_shm_free = int64_t{64} << 20;
             }},
        Case{"shared memory", Verdict::kWarning, "which NCCL uses",
             "--shm-size",
             [](MachineFacts& f) {
               f.gpus.names = {"H100"};
               f.dev_shm = f.dev_shm_free = -1;
             }},
        Case{"GPUs", Verdict::kWarning, "can't be used: no driver",
             "--gpus all", [](MachineFacts& f) { f.gpus.has_devices = true; }},
        Case{"GPUs", Verdict::kPass, "2 x H100; driver 580.65; CUDA 13.1", "",
             [](MachineFacts& f) {
               f.gpus.cuda = 13010;
               f.gpus.driver = "580.65";
               f.gpus.names = {"H100", "H100"};
             }},
        Case{"GPUs", Verdict::kPass, "H100, L4; CUDA 12.0", "",
             [](MachineFacts& f) {
               f.gpus.cuda = 12000;
               f.gpus.names = {"H100", "L4"};
             }},
        Case{"NCCL", Verdict::kPass, "2.28.9", "",
             [](MachineFacts& f) { f.gpus.nccl.emplace(22809); }},
        Case{"NCCL", Verdict::kWarning, "it is not there", "LD_LIBRARY_PATH",
             [](MachineFacts& f) { f.gpus.nccl.emplace(kMissing); }},
        Case{"network", Verdict::kFailure, "can't be reached by it",
             "--network=host",
             [](MachineFacts& f) { f.network.interfaces.pop_back(); }},
        Case{"launcher", Verdict::kFailure, "it is not there", "launchers.md",
             [](MachineFacts& f) { f.launch = kMissing; }},
        Case{"launcher", Verdict::kPass, "none: this process alone", "",
             [](MachineFacts& f) { f.launch = LaunchEnvironment(); }},
        Case{"token", Verdict::kFailure, "only on loopback", "openssl rand",
             [](MachineFacts& f) { f.launch->token = ""; }},
        // It is needed whatever the address is, which may not be known yet.
        Case{"token", Verdict::kFailure, "only on loopback", "openssl rand",
             [](MachineFacts& f) {
               f.launch->token = "";
               f.launch->local_size = f.launch->local_rank = -1;
               f.network.addresses = kMissing;
             }},
        Case{"token", Verdict::kFailure, "only on loopback", "openssl rand",
             [](MachineFacts& f) {
               f.launch->token = "";
               f.network.addresses = std::vector<std::string>{"127.0.0.1"};
             }},
        Case{"token", Verdict::kWarning, "one of 15 characters", "openssl rand",
             [](MachineFacts& f) { f.launch->token.resize(15); }},
        Case{"token", Verdict::kPass, "every user of this machine", "",
             [](MachineFacts& f) {
               f.launch->token = "";
               f.launch->size = f.launch->local_size = 2;
               f.network.addresses = std::vector<std::string>{"127.0.0.1"};
             }},
        Case{"rank 0", Verdict::kFailure, "it is not there", "MASTER_ADDR",
             [](MachineFacts& f) { f.network.addresses = kMissing; }},
        // The name may be published later.
        Case{"rank 0", Verdict::kWarning, "it is not there", "MASTER_ADDR",
             [](MachineFacts& f) {
               f.launch->rank = 2;
               f.network.addresses = kMissing;
             }},
        Case{"port", Verdict::kNotJudged, "29500", "",
             [](MachineFacts& f) { f.network.addresses = kMissing; }},
        Case{"rank 0", Verdict::kFailure, "can't be reached: it is not there",
             "ip route", [](MachineFacts& f) { f.network.source = kMissing; }},
        Case{"rank 0", Verdict::kFailure, "is not this machine",
             "on which rank 0 runs",
             [](MachineFacts& f) {
               f.network.addresses = std::vector<std::string>{"10.0.0.8"};
             }},
        Case{"rank 0", Verdict::kPass, "by way of eth0", "",
             [](MachineFacts& f) {
               f.launch->rank = 2;
               f.network.addresses = std::vector<std::string>{"10.0.0.8"};
             }},
        Case{"rank 0", Verdict::kFailure,
             "each machine's own address, but 2 of the 4 ranks", "MASTER_ADDR",
             [](MachineFacts& f) {
               f.network.addresses = std::vector<std::string>{"127.0.0.1"};
             }},
        Case{"rank 0", Verdict::kNotJudged, "found by file:///x", "",
             [](MachineFacts& f) {
               f.launch->address = "";
               f.init = "file:///x";
             }},
        Case{
            "port", Verdict::kFailure, "python3 (pid 4711) listens there",
            "LOCKSTEP_PORT",
            [](MachineFacts& f) { f.network.listener = "python3 (pid 4711)"; }},
        Case{"port", Verdict::kWarning, "a connection of curl (pid 4)",
             "ip_local_port_range",
             [](MachineFacts& f) { f.network.connected = "curl (pid 4)"; }},
        Case{"port", Verdict::kFailure, "this user may not listen",
             "from 30000 on", [](MachineFacts& f) { f.first_port = 30000; }},
        // Another machine has the port of rank 0.
        Case{"port", Verdict::kNotJudged, "of rank 0's machine", "",
             [](MachineFacts& f) {
               f.launch->rank = 2;
               f.network.listener = "python3 (pid 4711)";
             }},
        Case{"clock", Verdict::kWarning, "hpet", "tsc",
             [](MachineFacts& f) { f.clock_source = "hpet"; }},
        Case{"clock", Verdict::kNotJudged, "no time service", "",
             [](MachineFacts& f) { f.synchronized = false; }},
        Case{"clock", Verdict::kNotJudged, "not known", "",
             [](MachineFacts& f) {
               f.synchronized.reset();
               f.clock_source = "";
             }}));

TEST(Machine, NeedsGpusForAGroupOfNccl) {
  JudgeOptions options;
  options.backend = "nccl";
  const auto none = [](MachineFacts&) {};
  EXPECT_EQ(FindingOf("GPUs", none, options).verdict, Verdict::kFailure);
  const auto one = [](MachineFacts& facts) {
    facts.gpus.cuda = 13000;
    facts.gpus.names = {"H100", "H100"};
    facts.gpus.nccl.emplace(kMissing);
    facts.launch->local_size = 3;
  };
  const Finding few = FindingOf("GPUs", one, options);
  EXPECT_EQ(few.verdict, Verdict::kFailure);
  EXPECT_THAT(few.text, HasSubstr("for 3 ranks"));
  EXPECT_EQ(FindingOf("NCCL", one, options).verdict, Verdict::kFailure);
  const auto two = [](MachineFacts& facts) {
    facts.gpus.cuda = 13000;
    facts.gpus.names = {"H100", "H100"};
  };
  EXPECT_EQ(FindingOf("GPUs", two, options).verdict, Verdict::kPass);
  // The launcher may show each rank its own.
  const auto own = [](MachineFacts& facts) {
    facts.gpus.cuda = 13000;
    facts.gpus.names = {"H100"};
  };
  EXPECT_EQ(FindingOf("GPUs", own, options).verdict, Verdict::kPass);
  const auto hidden = [](MachineFacts& facts) {
    facts.gpus.has_devices = true;
  };
  EXPECT_EQ(FindingOf("GPUs", hidden, options).verdict, Verdict::kFailure);
}

TEST(Machine, HasTheInterfaceOfTheJob) {
  JudgeOptions options;
  const auto none = [](MachineFacts&) {};
  options.world.interface = "eth0";
  EXPECT_EQ(FindingOf("network", none, options).verdict, Verdict::kPass);
  options.world.interface = "trainer-0";
  const auto own = [](MachineFacts& facts) {
    facts.interface_addresses = {"10.0.0.7"};
  };
  EXPECT_EQ(FindingOf("network", own, options).verdict, Verdict::kPass);
  const auto other = [](MachineFacts& facts) {
    facts.interface_addresses = {"10.0.0.8"};
  };
  EXPECT_EQ(FindingOf("network", other, options).verdict, Verdict::kFailure);
  options.world.interface = "eth1";
  const Finding finding = FindingOf("network", none, options);
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("there is no \"eth1\""));
  EXPECT_THAT(finding.remedy, Not(IsEmpty()));
}

TEST(Machine, NamesTheSettingThatIsWrong) {
  JudgeOptions options;
  options.world.init = "tcp://10.0.0.8:29500";
  const auto far = [](MachineFacts& facts) {
    facts.network.addresses = std::vector<std::string>{"10.0.0.8"};
    facts.network.listener = "python3";
  };
  EXPECT_THAT(FindingOf("rank 0", far, options).remedy,
              HasSubstr("set world.init to"));
  EXPECT_THAT(FindingOf("port", far, options).remedy,
              HasSubstr("in world.init"));
  options.world.init = "foo";
  const Finding init = FindingOf("rank 0", far, options);
  EXPECT_EQ(init.verdict, Verdict::kFailure);
  EXPECT_THAT(init.text, HasSubstr("world.init is \"foo\""));
  options.world.size = 5;
  const Finding size = FindingOf("launcher", far, options);
  EXPECT_EQ(size.verdict, Verdict::kFailure);
  EXPECT_THAT(size.text, HasSubstr("rank 0 of 4"));
  EXPECT_THAT(size.text, HasSubstr("the job's world.size is 5"));
}

TEST(Machine, SaysWhatKeepsRanksApart) {
  MachineFacts facts = Healthy();
  facts.open_files = 10;
  EXPECT_EQ(WhatKeepsRanksApart(JudgeMachine(facts, {})), "");
  facts.network.listener = "python3";
  EXPECT_EQ(WhatKeepsRanksApart(JudgeMachine(facts, {})), "port");
  facts.launch->token = "short";
  EXPECT_EQ(WhatKeepsRanksApart(JudgeMachine(facts, {})), "port");
  facts.launch->token = "";
  EXPECT_EQ(WhatKeepsRanksApart(JudgeMachine(facts, {})), "token");
  facts.launch = kMissing;
  EXPECT_EQ(WhatKeepsRanksApart(JudgeMachine(facts, {})), "launcher");
}

TEST(Machine, HasFactsForPrograms) {
  MachineFacts facts = Healthy();
  facts.quota = 2.5;
  std::string all;
  for (const Fact& fact : JudgeMachine(facts, {}).facts) {
    all += fact.name + "=";
    if (const auto* const text = std::get_if<std::string>(&fact.value)) {
      all += *text;
    } else if (const auto* const whole = std::get_if<int64_t>(&fact.value)) {
      all += absl::StrCat(*whole);
    } else {
      all += absl::StrCat(std::get<double>(fact.value));
    }
    all += "\n";
  }
  EXPECT_EQ(all,
            "kernel=Linux 6.1.0\nprocessor=A Processor\nprocessors=8\n"
            "processor_quota=2.5\nmemory_bytes=68719476736\n"
            "available_bytes=64424509440\nopen_files=65536\n"
            "dev_shm_bytes=34359738368\ngpus=0\nlauncher=torchrun\nrank=0\n"
            "ranks=4\nlocal_rank=0\nlocal_ranks=2\nrank_0_host=trainer-0\n"
            "rank_0_port=29500\nsource=10.0.0.7\nclock_source=tsc\n");
}

// Without a launcher that says where ranks are, nothing is claimed of them.
TEST(Machine, DoesNotGuessWhereRanksAre) {
  const auto alone = [](MachineFacts& facts) {
    facts.launch->local_size = facts.launch->local_rank = -1;
    facts.network.interfaces.pop_back();
    facts.network.addresses = std::vector<std::string>{"127.0.0.1"};
  };
  EXPECT_EQ(FindingOf("network", alone).verdict, Verdict::kPass);
  EXPECT_EQ(FindingOf("rank 0", alone).verdict, Verdict::kPass);
}

}  // namespace
}  // namespace lockstep
