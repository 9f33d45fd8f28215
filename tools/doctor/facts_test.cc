#include "lockstep/tools/doctor/facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine whose files a test writes.
class Facts : public testing::Test {
 protected:
  Facts() {
    root_ = testing::TempDir() + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    options_.root = root_;
    options_.nccl.cuda_library = "/nowhere/libcuda.so.1";
    options_.nccl.nccl_library = "/nowhere/libnccl.so.2";
  }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  MachineFacts Read() { return ReadMachineFacts(options_); }

  std::string root_;
  FactsOptions options_;
};

TEST_F(Facts, AreReadFromTheFilesOfTheSystem) {
  Write("/proc/cpuinfo",
        "processor\t: 0\nmodel name\t: A Processor 9000\n"
        "processor\t: 1\nmodel name\t: Another\n");
  Write("/proc/meminfo",
        "MemTotal:       16384 kB\nMemFree:        1 kB\n"
        "MemAvailable:   8192 kB\nHugePages_Total:       12\n");
  Write("/proc/self/cgroup", "0::/pod/job\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  Write("/sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pod/cpu.stat",
        "usage_usec 5\nnr_periods 9\nnr_throttled 7\n");
  Write("/sys/fs/cgroup/pod/memory.max", "4096000\n");
  Write("/sys/fs/cgroup/pod/job/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/memory.current", "3048000\n");
  Write("/sys/fs/cgroup/pod/memory.stat",
        "anon 5\ninactive_file 1000000\nactive_file 7\n");
  Write("/sys/fs/cgroup/pod/memory.events", "low 0\noom 4\noom_kill 3\n");
  Write("/sys/fs/cgroup/pod/job/memory.events", "oom_kill 7\n");
  Write("/sys/fs/cgroup/pod/job/pids.max", "512\n");
  Write("/sys/fs/cgroup/pod/job/pids.current", "100\n");
  // The group above has more threads, and more left.
  Write("/sys/fs/cgroup/pod/pids.max", "1024\n");
  Write("/sys/fs/cgroup/pod/pids.current", "600\n");
  Write("/sys/class/infiniband/mlx5_1/x", "");
  Write("/sys/class/infiniband/mlx5_0/x", "");
  Write("/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n");
  Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n");
  Write("/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet\n");
  Write("/dev/shm/x", "");
  const MachineFacts facts = Read();
  EXPECT_EQ(facts.processor, "A Processor 9000");
  EXPECT_THAT(facts.kernel, HasSubstr("Linux "));
  EXPECT_EQ(facts.memory, 16384 * 1024);
  EXPECT_EQ(facts.available, 8192 * 1024);
  EXPECT_EQ(facts.memory_limit, 4096000);
  EXPECT_EQ(facts.memory_used, 2048000);
  EXPECT_EQ(facts.memory_kills, 3);
  EXPECT_EQ(facts.quota, 2.5);
  EXPECT_EQ(facts.throttled, 7);
  EXPECT_EQ(facts.periods, 9);
  EXPECT_EQ(facts.thread_limit, 512);
  EXPECT_EQ(facts.threads_left, 412);
  EXPECT_THAT(facts.rdma, ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.shared_huge_pages, "never");
  EXPECT_EQ(facts.reserved_huge_pages, 12);
  EXPECT_EQ(facts.clock_source, "hpet");
  EXPECT_GT(facts.dev_shm, 0);
  LOCKSTEP_EXPECT_OK(facts.shared_memory);
  EXPECT_GE(facts.processors, 1);
}

// A group may have a larger limit and less left.
TEST_F(Facts, OfTheGroupWithTheLeastMemoryLeft) {
  Write("/proc/self/cgroup", "0::/slice/job\n");
  Write("/sys/fs/cgroup/slice/memory.max", "8000\n");
  Write("/sys/fs/cgroup/slice/memory.current", "7500\n");
  Write("/sys/fs/cgroup/slice/job/memory.max", "4000\n");
  Write("/sys/fs/cgroup/slice/job/memory.current", "1000\n");
  const MachineFacts facts = Read();
  EXPECT_EQ(facts.memory_limit, 8000);
  EXPECT_EQ(facts.memory_used, 7500);

  Write("/sys/fs/cgroup/slice/job/memory.current", "3900\n");
  EXPECT_EQ(Read().memory_limit, 4000);
}

TEST_F(Facts, HaveTheProcessorsOfTheProcess) {
  EXPECT_EQ(AllowedProcessors(root_), "");
  Write("/proc/self/status",
        "Name:\tx\nCpus_allowed:\tf\n"
        "Cpus_allowed_list:\t0-2,8\n");
  EXPECT_EQ(AllowedProcessors(root_), "0-2,8");
  EXPECT_GE(Read().all_processors, Read().processors);
}

TEST_F(Facts, OfTheFirstVersionOfControlGroups) {
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/job\n5:memory:/job\n6:pids:/\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n");
  // This is how it writes that there is no limit.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  const MachineFacts facts = Read();
  EXPECT_EQ(facts.quota, 1.5);
  EXPECT_EQ(facts.memory_limit, 1048576);
  EXPECT_EQ(facts.memory_kills, 2);
  EXPECT_EQ(facts.thread_limit, -1);

  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
        "9223372036854771712\n");
  EXPECT_EQ(Read().memory_limit, -1);
}

TEST_F(Facts, AreLeftOutWhereTheSystemSaysNothing) {
  const MachineFacts facts = Read();
  EXPECT_EQ(facts.memory, -1);
  EXPECT_EQ(facts.available, -1);
  EXPECT_EQ(facts.memory_limit, -1);
  EXPECT_EQ(facts.quota, 0);
  EXPECT_EQ(facts.throttled, 0);
  EXPECT_EQ(facts.memory_kills, 0);
  EXPECT_EQ(facts.dev_shm, -1);
  EXPECT_EQ(facts.huge_pages, "");
  EXPECT_EQ(facts.processor, "");
  EXPECT_EQ(facts.gpus.driver, "");
  EXPECT_THAT(facts.rdma, IsEmpty());
  EXPECT_FALSE(facts.gpus.has_devices);
  EXPECT_FALSE(facts.gpus.nccl.has_value());
  EXPECT_THAT(facts.gpus.cuda, StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(facts.launch.ok());
  EXPECT_EQ(facts.launch->launcher, "none");
}

TEST_F(Facts, HaveTheLimitsOfTheProcess) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 99;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  const MachineFacts facts = Read();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(facts.open_files, 99);
  EXPECT_EQ(facts.most_open_files, before.rlim_max == RLIM_INFINITY
                                       ? -1
                                       : static_cast<int64_t>(before.rlim_max));
}

TEST_F(Facts, HaveTheGpus) {
  Write("/dev/nvidia0", "");
  Write("/dev/nvidiactl", "");
  Write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Fri\n"
        "GCC version:  gcc version 12.2.0\n");
  MachineFacts facts = Read();
  EXPECT_TRUE(facts.gpus.has_devices);
  EXPECT_EQ(facts.gpus.driver, "580.65.06");
  ASSERT_TRUE(facts.gpus.nccl.has_value());
  EXPECT_THAT(*facts.gpus.nccl, StatusIs(absl::StatusCode::kUnavailable));

  const std::string fake =
      std::filesystem::absolute("collective/nccl/libfake_gpu.so");
  options_.nccl.cuda_library = options_.nccl.nccl_library = fake;
  facts = Read();
  EXPECT_THAT(facts.gpus.cuda, IsOk());
  EXPECT_THAT(facts.gpus.names, Not(IsEmpty()));
  ASSERT_TRUE(facts.gpus.nccl.has_value());
  EXPECT_THAT(*facts.gpus.nccl, IsOk());
}

TEST_F(Facts, HaveWhatTheLauncherSays) {
  options_.environment = {{"RANK", "1"},
                          {"WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "29500"}};
  std::vector<std::string> steps;
  options_.on_step = [&steps](absl::string_view step) {
    steps.emplace_back(step);
  };
  const MachineFacts facts = Read();
  ASSERT_TRUE(facts.launch.ok());
  EXPECT_EQ(facts.launch->rank, 1);
  EXPECT_EQ(facts.network.port, 29500);
  EXPECT_THAT(steps, Contains("the network and the address of rank 0"));

  options_.environment["WORLD_SIZE"] = "two";
  EXPECT_THAT(Read().launch, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(Facts, HaveTheAddressesOfTheInterface) {
  EXPECT_THAT(Read().interface_addresses, IsEmpty());
  options_.world.interface = "127.0.0.1";
  EXPECT_THAT(Read().interface_addresses, ElementsAre("127.0.0.1"));
}

TEST(MeetingPlaceOf, IsWhereTheJobSays) {
  LaunchEnvironment launch;
  launch.size = 2;
  launch.address = "trainer-0:29500";
  WorldOptions world;
  EXPECT_EQ(MeetingPlaceOf(launch, world).address, "trainer-0:29500");
  world.init = "tcp://other:1";
  EXPECT_EQ(MeetingPlaceOf(launch, world).address, "other:1");
  EXPECT_TRUE(MeetingPlaceOf(launch, world).is_address);
  world.init = "file:///shared/job";
  EXPECT_FALSE(MeetingPlaceOf(launch, world).is_address);
  // One rank needs no address.
  world.size = 1;
  for (const char* init : {"env://", "tcp://other:1"}) {
    world.init = init;
    EXPECT_FALSE(MeetingPlaceOf(launch, world).is_address);
  }
}

}  // namespace
}  // namespace lockstep
