#include "lockstep/base/reworded.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace lockstep {

absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  absl::Status reworded(status.code(), message);
  status.ForEachPayload(
      [&reworded](absl::string_view url, const absl::Cord& value) {
        // To copy a cord directly would need more of Abseil's libraries.
        reworded.SetPayload(url, absl::Cord(std::string(value)));
      });
  return reworded;
}

}  // namespace lockstep
