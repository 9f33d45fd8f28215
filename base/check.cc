#include "lockstep/base/check.h"

#include <cstdio>

#include "lockstep/base/end_process.h"

namespace lockstep::internal_base {

void CheckFailed(const char* file, int line, const char* condition) {
  char text[1024];
  std::snprintf(text, sizeof(text),
                "%s:%d: Lockstep check failed: %s. This is a bug in Lockstep; "
                "please report it.",
                file, line, condition);
  EndProcess(text);
}

}  // namespace lockstep::internal_base
