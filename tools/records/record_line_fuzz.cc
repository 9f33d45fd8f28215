// Reads the input as a line of records. It is one, or an error.
#include <cstddef>
#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
namespace {

void Try(absl::string_view text) {
  const absl::StatusOr<RecordLine> line = ParseRecordLine(text);
  if (!line.ok()) {
    LOCKSTEP_CHECK(absl::IsInvalidArgument(line.status()));
    return;
  }
  ++fuzz_accepts;
  LOCKSTEP_CHECK(line->rank >= 0);
  if (const auto* const events = std::get_if<EventsLine>(&line->content)) {
    LOCKSTEP_CHECK(events->before <= events->asked);
    LOCKSTEP_CHECK(events->asked <= events->ended);
    for (const RecordedEvent& event : events->events) {
      LOCKSTEP_CHECK(event.begin <= event.end.value_or(event.begin));
    }
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::Try({reinterpret_cast<const char*>(data), size});  // NOLINT: bytes
  return 0;
}
