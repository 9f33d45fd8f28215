#include "lockstep/base/annotate.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

absl::Status Annotate(const absl::Status& status, absl::string_view where,
                      absl::string_view behind) {
  return InPlaceOf(
      status,
      absl::Status(status.code(), absl::StrCat(where, where.empty() ? "" : ": ",
                                               status.message(), behind)));
}

absl::Status InPlaceOf(const absl::Status& status, absl::Status other) {
  status.ForEachPayload(
      [&other](absl::string_view url, const absl::Cord& value) {
        // To copy a cord directly would need more of Abseil's libraries.
        other.SetPayload(url, absl::Cord(std::string(value)));
      });
  return other;
}

}  // namespace lockstep
