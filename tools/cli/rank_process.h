// Starts the process of a rank.
//
//   const ProcessImage image(command.program, environment);
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       RankProcess process,
//       StartRankProcess(command.program[0], image, surroundings));
#ifndef LOCKSTEP_TOOLS_CLI_RANK_PROCESS_H_
#define LOCKSTEP_TOOLS_CLI_RANK_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/tools/cli/keeper.h"
#include "lockstep/tools/cli/process_image.h"

namespace lockstep {

// The resources that all ranks of a launcher share.
struct RankSurroundings {
  Descriptor null;  // /dev/null, which is the stdin of ranks.
  Keeper keeper;
  rlimit files = {};  // The limit of open files that ranks have.
};

// A process that runs the program of a rank. Its number is also that of its
// process group. The caller must reap it.
struct RankProcess {
  pid_t pid = -1;
  Descriptor out, err;  // The ends of pipes from which its streams are read.
};

// Returns a process that has begun to execute `image`, whose program is called
// `name`. It dies when the thread that called this dies. Returns NOT_FOUND if
// the program can't be executed, and the errors of SystemError if the system
// gives no process.
absl::StatusOr<RankProcess> StartRankProcess(
    const std::string& name, const ProcessImage& image,
    const RankSurroundings& surroundings);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_RANK_PROCESS_H_
