#include "lockstep/tools/report/launch_report.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json_value.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/blame.h"
#include "lockstep/tools/records/text_line.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::JsonValue;
using ::lockstep::internal_base::ParseJson;

int64_t IntegerOf(const JsonValue& object, absl::string_view name) {
  const JsonValue* const value = object.Find(name);
  return value == nullptr ? -1 : value->integer().value_or(-1);
}

// Returns the blame as it stands in the line, which is what ParseBlame reads.
// Quotes within texts are escaped, so they can't be taken for those of members.
absl::string_view BlameIn(absl::string_view line) {
  constexpr absl::string_view kBegin = ",\"blame\":";
  constexpr absl::string_view kEnd = ",\"message\":";
  const size_t begin = line.find(kBegin);
  if (begin == line.npos) return "";
  const absl::string_view rest = line.substr(begin + kBegin.size());
  return rest.substr(0, rest.find(kEnd));
}

// Returns true if the attempt has started a rank of the run, and no other
// process as one of its ranks.
bool IsOfRun(const JsonValue& attempt, const std::map<int64_t, int64_t>& pids) {
  const JsonValue* const ranks = attempt.Find("ranks");
  if (ranks == nullptr) return false;
  bool has_any = false;
  for (const JsonValue& rank : ranks->elements()) {
    const auto known = pids.find(IntegerOf(rank, "rank"));
    if (known == pids.end()) continue;
    if (known->second != IntegerOf(rank, "pid")) return false;
    has_any = true;
  }
  return has_any;
}

std::string TextOf(const JsonValue& object, absl::string_view name) {
  const JsonValue* const value = object.Find(name);
  return value == nullptr || value->text() == nullptr ? "" : *value->text();
}

// Returns how ranks have ended that did not end well by themselves.
std::vector<std::string> EndsIn(const JsonValue& attempt) {
  constexpr size_t kMost = 8;
  std::vector<std::string> ends;
  for (const JsonValue& rank : attempt.Find("ranks")->elements()) {
    const JsonValue* const sent = rank.Find("sent_by_launcher");
    const bool is_sent = sent != nullptr && sent->boolean().value_or(false);
    if (IntegerOf(rank, "exit_code") == 0 || is_sent) continue;
    if (ends.size() == kMost) break;
    ends.push_back(absl::StrCat("rank ", IntegerOf(rank, "rank"), " ",
                                TextOf(rank, "end")));
  }
  return ends;
}

absl::StatusOr<std::optional<RunEnd>> EndIn(
    const std::string& line, const std::map<int64_t, int64_t>& pids) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonValue attempt, ParseJson(line));
  if (IntegerOf(attempt, "version") != 1 || IntegerOf(attempt, "attempt") < 0 ||
      IntegerOf(attempt, "exit_code") < 0) {
    return absl::InvalidArgumentError(
        "it is no line of lockstep launch --report, of version 1");
  }
  if (!IsOfRun(attempt, pids)) return std::optional<RunEnd>();
  RunEnd end;
  end.attempt = IntegerOf(attempt, "attempt");
  end.exit_code = IntegerOf(attempt, "exit_code");
  const std::optional<Blame> blame = ParseBlame(BlameIn(line));
  if (blame.has_value()) end.blame = Describe(*blame);
  end.message = TextOf(attempt, "message");
  end.ends = EndsIn(attempt);
  // Ranks that a signal has stopped between two steps have not failed.
  end.has_failed = blame.has_value() || !end.message.empty() ||
                   (end.exit_code != 0 && !end.ends.empty());
  return std::optional<RunEnd>(std::move(end));
}

// Returns the last attempt in a file whose processes are those of the run.
absl::StatusOr<std::optional<RunEnd>> FindIn(
    const std::string& path, const std::map<int64_t, int64_t>& pids) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("--launch=", path,
                     " is no file; give the file of lockstep launch --report"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return SystemError(errno,
                       absl::StrCat("--launch=", path, " can't be read"));
  }
  std::optional<RunEnd> found;
  TextLine line;
  for (int64_t number = 1; ReadTextLine(file, line); ++number) {
    absl::StatusOr<std::optional<RunEnd>> end = EndIn(line.text, pids);
    // A launcher that is killed, or a full disk, leaves the beginning of a
    // line.
    if (!end.ok() && !absl::EndsWith(line.text, "}") && !line.is_too_long) {
      continue;
    }
    if (!end.ok() || line.is_too_long) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--launch=", path, ", line ", number, ": ",
          line.is_too_long ? "it is too long" : end.status().message()));
    }
    if (end->has_value()) found = *std::move(end);
  }
  return found;
}

}  // namespace

absl::StatusOr<std::optional<RunEnd>> FindRunEnd(
    const std::vector<std::string>& paths,
    const std::map<int64_t, int64_t>& pids) {
  std::optional<RunEnd> found;
  for (const std::string& path : paths) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<RunEnd> end, FindIn(path, pids));
    if (!end.has_value()) continue;
    // A host that saw the failure tells more than one that was stopped.
    if (!found.has_value() || (!found->has_failed && end->has_failed) ||
        (found->blame.empty() && !end->blame.empty())) {
      found = std::move(end);
    }
  }
  return found;
}

}  // namespace lockstep
