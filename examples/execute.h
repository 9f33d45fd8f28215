// Runs an example as a user would.
#ifndef LOCKSTEP_EXAMPLES_EXECUTE_H_
#define LOCKSTEP_EXAMPLES_EXECUTE_H_

#include <stdio.h>
#include <sys/wait.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace examples {

// The result of a command.
struct Ended {
  int code = -1;
  std::string printed;  // to both streams
};

// Runs a command of the shell.
inline Ended Execute(const std::string& command) {
  Ended ended;
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof(bytes), pipe)) {
    ended.printed.append(bytes, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

// Runs `program` as this many ranks. With the long --grace, the other ranks can
// report the loss of a rank even on a slow machine.
inline Ended Launch(int ranks, const std::string& program,
                    const std::string& flags = "") {
  return Execute(absl::StrCat("tools/cli/lockstep launch -n ", ranks,
                              " --grace=1h ", flags, " -- ", program));
}

}  // namespace examples

#endif  // LOCKSTEP_EXAMPLES_EXECUTE_H_
