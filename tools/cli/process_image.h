// ProcessImage is a program with its arguments and environment, made ready
// before fork() so that the child can execute it.
//
//   const ProcessImage image({"./train", "--lr=0.1"}, environment);
//   if (fork() == 0) {
//     const int error = image.Execute();
//     ...
//   }
#ifndef LOCKSTEP_TOOLS_CLI_PROCESS_IMAGE_H_
#define LOCKSTEP_TOOLS_CLI_PROCESS_IMAGE_H_

#include <string>
#include <vector>

#include "lockstep/collective/rendezvous/launch_environment.h"

namespace lockstep {

// Thread-safety: const methods may be called by several threads at once.
class ProcessImage {
 public:
  // Requires: `program` is not empty. A name without a slash is looked for in
  // the PATH of `environment`.
  ProcessImage(const std::vector<std::string>& program,
               const Environment& environment);

  ProcessImage(const ProcessImage&) = delete;
  ProcessImage& operator=(const ProcessImage&) = delete;

  // Replaces this process by the program. Returns errno if that has failed, and
  // does not return otherwise. Async-signal-safe.
  int Execute() const;

 private:
  void FindPaths(const std::string& name, const Environment& environment);

  std::vector<std::string> words_, settings_;
  std::vector<std::string> paths_;  // Tried in this order.
  std::vector<char*> argv_, envp_;  // Point into words_ and settings_.
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_PROCESS_IMAGE_H_
