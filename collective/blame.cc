#include "lockstep/collective/blame.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/json.h"
#include "lockstep/base/utf8.h"

namespace lockstep {
namespace {

using internal_base::AppendJson;
using internal_base::JsonReader;

constexpr absl::string_view kPayload = "lockstep/blame";
// A blame keeps at most this many bytes of a text.
constexpr size_t kMostText = 256;
// A blame that comes from elsewhere is no longer than this.
constexpr size_t kMostPayload = size_t{1} << 16;
constexpr absl::Duration kMostAge = absl::Hours(24 * 365);

struct CauseWords {
  Blame::Cause cause;
  absl::string_view name;
  absl::string_view advice;
};
constexpr CauseWords kCauses[] = {
    {Blame::Cause::kUnknown, "unknown",
     "look at the message and at the output of all ranks"},
    {Blame::Cause::kFailed, "failed",
     "its own error and its output say what to correct"},
    {Blame::Cause::kAbsent, "absent",
     "not all ranks have joined: see that each one was started, and that it "
     "can reach rank 0's address"},
    {Blame::Cause::kLeft, "left",
     "it left while other ranks still needed it: find out why its program "
     "returned, or closed the group, before theirs"},
    {Blame::Cause::kLost, "lost",
     "the process has ended, its host is down, or its connection was cut: look "
     "at its exit code or signal, its last output, and the kernel's log if it "
     "was killed by signal 9"},
    {Blame::Cause::kSilent, "silent",
     "the process may be stopped, or its host or the network may be down: look "
     "at the host"},
    {Blame::Cause::kLate, "late",
     "it answers, but did not come to the operation in time: find out where it "
     "is, from its output or with a debugger, or raise the deadline"},
    {Blame::Cause::kDiffer, "differ",
     "the ranks do different things or have different options: correct the "
     "program or the options"},
    {Blame::Cause::kData, "data",
     "no rank is known to be the cause, and data does not get through: look at "
     "the network between the hosts, and at the devices"},
};

const CauseWords& WordsOf(Blame::Cause cause) {
  const auto* const found =
      std::find_if(std::begin(kCauses), std::end(kCauses),
                   [cause](const auto& each) { return each.cause == cause; });
  return found == std::end(kCauses) ? kCauses[0] : *found;
}

std::optional<absl::StatusCode> CodeOf(absl::string_view name) {
  for (int number = 0; number <= 16; ++number) {
    const auto code = static_cast<absl::StatusCode>(number);
    if (absl::StatusCodeToString(code) == name) return code;
  }
  return std::nullopt;
}

std::string NameOf(const Blame::Rank& rank) {
  std::string name = rank.rank < 0 ? "a rank" : absl::StrCat(rank.rank);
  if (rank.host.empty()) return name;
  return absl::StrCat(name, " (", rank.host, ", pid ", rank.pid, ")");
}

// Returns "ranks 1 (trainer-1, pid 4711), 2 (trainer-2, pid 12) and 3 more", or
// "" if no rank is known.
std::string DescribeRanks(const Blame& blame) {
  if (blame.ranks.empty()) return "";
  const bool is_one = blame.ranks.size() == 1 && blame.more == 0;
  return absl::StrCat(
      is_one ? (blame.ranks[0].rank < 0 ? "" : "rank ") : "ranks ",
      absl::StrJoin(blame.ranks, ", ",
                    [](std::string* out, const Blame::Rank& rank) {
                      absl::StrAppend(out, NameOf(rank));
                    }),
      blame.more > 0 ? absl::StrCat(" and ", blame.more, " more") : "");
}

// Cuts off a long text, and no character of it in two.
absl::string_view Cut(absl::string_view text) {
  if (text.size() <= kMostText) return text;
  size_t size = kMostText;
  while (size > 0 && (text[size] & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

// Appends a text as JSON, and cuts it off if it is long. It is cut after bytes
// that are no UTF-8 have been replaced, since that makes it longer.
void AppendCut(absl::string_view text, std::string& json) {
  const std::string whole = internal_base::Utf8Of(text);
  AppendJson(Cut(whole), json);
}

// Returns the text in one line.
std::string InOneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); },
      ' ');
  return text;
}

bool ReadRank(JsonReader& in, Blame::Rank& rank) {
  int64_t number = 0;
  double age = 0;
  if (!in.Skip("{\"rank\":") || !in.Read(number) || !in.Skip(",\"host\":") ||
      !in.Read(rank.host) || !in.Skip(",\"pid\":") || !in.Read(rank.pid) ||
      !in.Skip(",\"last\":") || !in.Read(rank.last) || !in.Skip(",\"age\":") ||
      !in.Read(age) || !in.SkipRest()) {
    return false;
  }
  rank.rank = static_cast<int>(number);
  rank.age = absl::Seconds(age);
  return number == rank.rank;
}

}  // namespace

absl::string_view Name(Blame::Cause cause) { return WordsOf(cause).name; }

std::string Describe(const Blame& blame) {
  return InOneLine(
      absl::StrCat(Name(blame.cause), blame.ranks.empty() ? "" : ": ",
                   DescribeRanks(blame), blame.operation.empty() ? "" : ", in ",
                   blame.operation, "; ", WordsOf(blame.cause).advice));
}

std::string ToJson(const Blame& blame) {
  std::string json = "{\"cause\":";
  AppendJson(Name(blame.cause), json);
  json += ",\"code\":";
  AppendJson(absl::StatusCodeToString(blame.code), json);
  json += ",\"ranks\":[";
  const size_t shown = std::min(blame.ranks.size(), Blame::kMostRanks);
  const char* between = "";
  for (size_t i = 0; i < shown; ++i) {
    const Blame::Rank& rank = blame.ranks[i];
    absl::StrAppend(&json, std::exchange(between, ","), "{\"rank\":", rank.rank,
                    ",\"host\":");
    AppendCut(rank.host, json);
    absl::StrAppend(&json, ",\"pid\":", rank.pid, ",\"last\":");
    AppendCut(rank.last, json);
    absl::StrAppend(&json, ",\"age\":",
                    absl::ToDoubleSeconds(absl::Trunc(
                        std::clamp(rank.age, absl::ZeroDuration(), kMostAge),
                        absl::Milliseconds(1))),
                    "}");
  }
  absl::StrAppend(&json, "],\"more\":",
                  blame.more + static_cast<int64_t>(blame.ranks.size() - shown),
                  ",\"operation\":");
  AppendCut(blame.operation, json);
  absl::StrAppend(&json, ",\"number\":", static_cast<int64_t>(blame.number),
                  ",\"has_begun\":", blame.has_begun ? "true" : "false", "}");
  return json;
}

std::optional<Blame> ParseBlame(absl::string_view json) {
  if (json.size() > kMostPayload) return std::nullopt;
  JsonReader in(json);
  Blame blame;
  std::string cause, code;
  if (!in.Skip("{\"cause\":") || !in.Read(cause) || !in.Skip(",\"code\":") ||
      !in.Read(code) || !in.Skip(",\"ranks\":[")) {
    return std::nullopt;
  }
  while (!in.Skip("]")) {
    if (!blame.ranks.empty() && !in.Skip(",")) return std::nullopt;
    if (!ReadRank(in, blame.ranks.emplace_back()) ||
        blame.ranks.size() > Blame::kMostRanks) {
      return std::nullopt;
    }
  }
  int64_t number = 0;
  if (!in.Skip(",\"more\":") || !in.Read(blame.more) ||
      !in.Skip(",\"operation\":") || !in.Read(blame.operation) ||
      !in.Skip(",\"number\":") || !in.Read(number) ||
      !in.Skip(",\"has_begun\":") || !in.Read(blame.has_begun) ||
      !in.SkipRest() || !in.at_end()) {
    return std::nullopt;
  }
  for (const CauseWords& each : kCauses) {
    if (each.name == cause) blame.cause = each.cause;
  }
  blame.code = CodeOf(code).value_or(absl::StatusCode::kUnknown);
  blame.number = static_cast<uint64_t>(number);
  return blame;
}

std::optional<Blame> BlameOf(const absl::Status& status) {
  const std::string text = internal_collective::BlameText(status);
  if (text.empty()) return std::nullopt;
  return ParseBlame(text);
}

absl::Status WithBlame(absl::Status status, const Blame& blame) {
  return internal_collective::WithBlameText(std::move(status), ToJson(blame));
}

std::string ToLines(const absl::Status& status) {
  std::string lines = absl::StrCat(absl::StatusCodeToString(status.code()),
                                   ": ", status.message());
  const std::optional<Blame> blame = BlameOf(status);
  if (blame.has_value()) absl::StrAppend(&lines, "\n  ", Describe(*blame));
  return lines;
}

Blame BlameFor(const absl::Status& why, const Blame::Rank& self) {
  Blame blame;
  blame.cause = Blame::Cause::kFailed;
  blame.code = why.code();
  blame = BlameOf(why).value_or(blame);
  if (blame.cause == Blame::Cause::kFailed && blame.ranks.empty()) {
    blame.ranks = {self};
  }
  return blame;
}

Blame::Rank ThisProcess(int rank) {
  Blame::Rank self;
  self.rank = rank;
  char name[kMostText] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0) self.host = name;
  self.pid = ::getpid();
  return self;
}

namespace internal_collective {

absl::Status Blaming(Blame::Cause cause, const absl::Status& why) {
  if (BlameOf(why).has_value()) return why;
  Blame blame;
  blame.cause = cause;
  blame.code = why.code();
  return WithBlame(why, blame);
}

std::string BlameText(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() ? std::string(*payload) : "";
}

absl::Status WithBlameText(absl::Status status, absl::string_view text) {
  if (!text.empty()) status.SetPayload(kPayload, absl::Cord(text));
  return status;
}

}  // namespace internal_collective
}  // namespace lockstep
