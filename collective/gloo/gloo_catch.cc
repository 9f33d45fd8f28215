#include "lockstep/collective/gloo/gloo_catch.h"

#include <cerrno>
#include <system_error>  // NOLINT: the texts of errors

#include "absl/strings/match.h"

namespace lockstep::internal_collective {

int ShortageIn(absl::string_view text) {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    if (absl::StrContains(text, std::generic_category().message(error))) {
      return error;
    }
  }
  return 0;
}

}  // namespace lockstep::internal_collective
