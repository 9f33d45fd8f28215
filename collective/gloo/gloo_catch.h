// CatchGloo makes a Status of what Gloo throws.
//
//   LOCKSTEP_RETURN_IF_ERROR(CatchGloo([&] { buffer->send(peer, slot); }));
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_CATCH_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_CATCH_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/language.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_collective {

// Returns the error number of the shortage that the text names, or 0 for none.
// Gloo's exceptions have nothing but a text.
int ShortageIn(absl::string_view text);

// Calls `call`, and makes a Status of the exception that it throws. Gloo throws
// exceptions of several kinds, which name no rank. So `where` returns the place
// for the message; it is called only if there is something to report. Does not
// throw. RESOURCE_EXHAUSTED for a shortage, UNAVAILABLE for all else.
// Thread-safety: thread-safe.
template <typename Where, typename Call>
absl::Status CatchGloo(const Where& where, const Call& call) {
  absl::Status status = CatchAll("gloo", [&call] {
    call();
    return absl::OkStatus();
  });
  if (status.ok()) return status;
  return RunOrEnd("the message of an error", [&] {
    const int shortage = ShortageIn(status.message());
    return absl::Status(
        absl::IsResourceExhausted(status) || shortage != 0
            ? absl::StatusCode::kResourceExhausted
            : absl::StatusCode::kUnavailable,
        absl::StrCat(where(), ": ", status.message(), RemedyFor(shortage)));
  });
}

template <typename Call>
absl::Status CatchGloo(const Call& call) {
  return CatchGloo([] { return "gloo"; }, call);
}

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_CATCH_H_
