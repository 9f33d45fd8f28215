#include "lockstep/base/cgroup.h"

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_base {

std::vector<CgroupFolder> CgroupFolders(absl::string_view controller,
                                        const std::string& root) {
  std::vector<CgroupFolder> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  // A line is "0::/path" in version 2, and "4:cpu,cpuacct:/path" in version 1.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool has_it =
        absl::StrCat(",", controllers, ",")
            .find(absl::StrCat(",", controller, ",")) != std::string::npos;
    if (!controllers.empty() && !has_it) continue;
    // The folder of several controllers has a second name for each of them.
    const std::string name(controllers.empty() ? "" : controller);
    std::string path = line.substr(second + 1);
    while (true) {
      folders.push_back({absl::StrCat(root, "/sys/fs/cgroup/", name, path),
                         controllers.empty()});
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path == "/" || path.empty()) break;
      path.resize(slash);
    }
  }
  return folders;
}

}  // namespace lockstep::internal_base
