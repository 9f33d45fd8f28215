#include "lockstep/collective/control/messages.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective {

void FieldWriter::Put(const absl::Status& status) {
  Put(static_cast<int>(status.code()));
  wire_.Text(absl::string_view(status.message()).substr(0, kLongestText));
  wire_.Text(BlameText(status));
}

void FieldReader::Get(absl::Status& status) {
  int code = 0;
  Get(code);
  const std::string message = wire_.Text(SIZE_MAX);
  const std::string blame = wire_.Text(SIZE_MAX);
  // Only failures are sent.
  status = code == 0
               ? absl::InternalError(
                     "a rank has reported a failure without an "
                     "error: run the same build of Lockstep on "
                     "all ranks")
               : absl::Status(static_cast<absl::StatusCode>(code), message);
  status = WithBlameText(std::move(status), blame);
}

void FieldReader::Get(absl::Duration& time) {
  int64_t nanoseconds = 0;
  Get(nanoseconds);
  time = absl::Nanoseconds(nanoseconds);
}

void FieldWriter::Put(const LaneCounts& counts) {
  Put(counts.size());
  for (const auto& [lane, count] : counts) {
    Put(lane);
    Put(count);
  }
}

void FieldReader::Get(LaneCounts& counts) {
  constexpr size_t kLeast = LeastOf<LaneId>() + LeastOf<uint64_t>();
  for (size_t left = wire_.Count(kLeast); left > 0; --left) {
    LaneId lane;
    Get(lane);
    Get(counts[lane]);
  }
}

}  // namespace lockstep::internal_collective
