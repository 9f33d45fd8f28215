#include "lockstep/base/cgroup.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::internal_base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> FoldersOf(const std::string& groups) {
  const std::string root = testing::TempDir() + "/root";
  std::filesystem::create_directories(root + "/proc/self");
  std::ofstream(root + "/proc/self/cgroup") << groups;
  std::vector<std::string> folders;
  for (const CgroupFolder& folder : CgroupFolders("cpu", root)) {
    folders.push_back((folder.is_v2 ? "2 " : "1 ") +
                      folder.path.substr(root.size()));
  }
  return folders;
}

TEST(CgroupFolders, AreThoseOfTheGroupAndAllAbove) {
  EXPECT_THAT(FoldersOf("0::/pods/one\n"),
              ElementsAre("2 /sys/fs/cgroup//pods/one",
                          "2 /sys/fs/cgroup//pods", "2 /sys/fs/cgroup/"));
  EXPECT_THAT(FoldersOf("0::/\n"), ElementsAre("2 /sys/fs/cgroup//"));
  EXPECT_THAT(FoldersOf("5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/job\n"),
              ElementsAre("1 /sys/fs/cgroup/cpu/job", "1 /sys/fs/cgroup/cpu"));
  EXPECT_THAT(FoldersOf("nonsense\n1:2\n\n"), IsEmpty());
  EXPECT_THAT(CgroupFolders("cpu", "/nowhere"), IsEmpty());
}

}  // namespace
}  // namespace lockstep::internal_base
