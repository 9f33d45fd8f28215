// Runs an example as a user would.
#ifndef LOCKSTEP_EXAMPLES_EXECUTE_H_
#define LOCKSTEP_EXAMPLES_EXECUTE_H_

#include <stdio.h>
#include <sys/wait.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace examples {

struct Ended {
  int code = -1;
  std::string printed;  // on both streams
};

// `command` is the shell's.
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

// `program` as so many ranks. However slow the machine is, those that are left
// when one dies may say what they have seen.
inline Ended Launch(int ranks, const std::string& program,
                    const std::string& flags = "") {
  return Execute(absl::StrCat("tools/cli/lockstep launch -n ", ranks,
                              " --grace=1h ", flags, " -- ", program));
}

}  // namespace examples

#endif  // LOCKSTEP_EXAMPLES_EXECUTE_H_
