// CgroupFolders finds the control groups of this process, whose files have its
// limits of processors, memory and threads. Internal.
//
//   for (const CgroupFolder& folder : CgroupFolders("memory")) {
//     std::ifstream file(folder.path + (folder.is_v2
//                                           ? "/memory.max"
//                                           : "/memory.limit_in_bytes"));
//   }
#ifndef LOCKSTEP_BASE_CGROUP_H_
#define LOCKSTEP_BASE_CGROUP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

struct CgroupFolder {
  std::string path;
  bool is_v2 = true;  // the version of the control groups
};

// Returns the folder of the group of this process that has a controller
// ("cpu"), and those of the groups above it, whose limits hold, too. The
// folders need not exist, since a container sees a part of them. The files of
// the system are below `root`, which a test may set.
std::vector<CgroupFolder> CgroupFolders(absl::string_view controller,
                                        const std::string& root = "");

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_CGROUP_H_
