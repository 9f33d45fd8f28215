#include "lockstep/checkpoint/share.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_checkpoint {
namespace {

// The maximum number of bytes of a section's name in the name of an operation.
constexpr size_t kMostInOperation = 100;

}  // namespace

std::string InOperation(absl::string_view what, absl::string_view section) {
  return absl::StrCat(what, " ", section.substr(0, kMostInOperation));
}

CallOptions CallFor(absl::string_view name) {
  CallOptions options;
  options.name = std::string(name);
  options.deadline = absl::InfiniteDuration();
  return options;
}

absl::Status ShareBytes(Communicator& group, absl::string_view what,
                        absl::Span<char> bytes) {
  const Buffer buffer = BufferOf(reinterpret_cast<uint8_t*>(bytes.data()),
                                 static_cast<int64_t>(bytes.size()));
  return Wait(group.Broadcast(buffer, buffer, /*root=*/0, CallFor(what)));
}

absl::Status SharePiece(Communicator& group, absl::string_view what,
                        absl::Span<char> piece, const absl::Status& own) {
  piece.back() = own.ok() ? 0 : 1;
  LOCKSTEP_RETURN_IF_ERROR(ShareBytes(group, what, piece));
  return piece.back() == 0 ? absl::OkStatus() : ShareStatus(group, what, own);
}

absl::StatusOr<std::string> ShareText(Communicator& group,
                                      absl::string_view what,
                                      const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  LOCKSTEP_RETURN_IF_ERROR(
      ShareBytes(group, what,
                 absl::MakeSpan(reinterpret_cast<char*>(&size), sizeof(size))));
  std::string shared = text;
  shared.resize(size);
  for (int64_t at = 0; at < size; at += kPiece) {
    LOCKSTEP_RETURN_IF_ERROR(ShareBytes(
        group, what, absl::MakeSpan(&shared[at], std::min(kPiece, size - at))));
  }
  return shared;
}

absl::Status ShareStatus(Communicator& group, absl::string_view what,
                         const absl::Status& status) {
  std::string text;
  absl::Status mine = status;
  if (!status.ok() && group.rank() == 0 && group.size() > 1) {
    // The error is that of rank 0, whose number in the job is not known here.
    const Blame blame = BlameFor(status, ThisProcess(-1));
    mine = WithBlame(status, blame);
    text = absl::StrCat(static_cast<int>(mine.code()), "\n", ToJson(blame),
                        "\n", mine.message());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(text, ShareText(group, what, text));
  if (text.empty() || group.rank() == 0) return mine;
  std::vector<absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 2));
  parts.resize(3);
  int code = 0;
  if (!absl::SimpleAtoi(parts[0], &code)) code = 0;
  const absl::Status shared(static_cast<absl::StatusCode>(code), parts[2]);
  const std::optional<Blame> blame = ParseBlame(parts[1]);
  return blame.has_value() ? WithBlame(shared, *blame) : shared;
}

}  // namespace lockstep::internal_checkpoint
