#include "lockstep/collective/blame.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

// The payload is "rank 1 INVALID_ARGUMENT", and ends in " at the start" if the
// rank had not begun.
constexpr absl::string_view kPayload = "lockstep/blame";
constexpr absl::string_view kNotBegun = " at the start";

std::optional<absl::StatusCode> CodeOf(absl::string_view name) {
  for (int number = 0; number <= 16; ++number) {
    const auto code = static_cast<absl::StatusCode>(number);
    if (absl::StatusCodeToString(code) == name) return code;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Blame> BlameOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::MaxSplits(' ', 3));
  Blame blame;
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &blame.rank)) {
    return std::nullopt;
  }
  const std::optional<absl::StatusCode> code = CodeOf(words[2]);
  if (!code.has_value()) return std::nullopt;
  blame.code = *code;
  blame.has_begun = words.size() == 3;
  return blame;
}

absl::Status WithBlame(absl::Status status, const Blame& blame) {
  status.SetPayload(
      kPayload, absl::Cord(absl::StrCat("rank ", blame.rank, " ",
                                        absl::StatusCodeToString(blame.code),
                                        blame.has_begun ? "" : kNotBegun)));
  return status;
}

namespace internal_collective {

Blame BlameFor(const absl::Status& why, int rank) {
  Blame blame = BlameOf(why).value_or(Blame{kThisRank, why.code()});
  if (blame.rank == kThisRank) blame.rank = rank;
  return blame;
}

absl::Status BlamingNobody(const absl::Status& why) {
  return BlameOf(why).has_value() ? why : WithBlame(why, {-1, why.code()});
}

}  // namespace internal_collective
}  // namespace lockstep
