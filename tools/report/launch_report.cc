#include "lockstep/tools/report/launch_report.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json_value.h"
#include "lockstep/base/status_macros.h"
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

// Returns true if all ranks that the attempt has started on this host are those
// of the run, as far as both are known.
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

absl::StatusOr<std::optional<RunEnd>> EndIn(
    const std::string& line, const std::map<int64_t, int64_t>& pids) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonValue attempt, ParseJson(line));
  if (IntegerOf(attempt, "version") < 1 || IntegerOf(attempt, "attempt") < 0) {
    return absl::InvalidArgumentError("it is no attempt of lockstep launch");
  }
  if (!IsOfRun(attempt, pids)) return std::optional<RunEnd>();
  RunEnd end;
  end.attempt = IntegerOf(attempt, "attempt");
  end.exit_code = IntegerOf(attempt, "exit_code");
  end.has_failed = end.exit_code != 0;
  if (const auto blame = ParseBlame(BlameIn(line)); blame.has_value()) {
    end.blame = Describe(*blame);
  }
  const JsonValue* const message = attempt.Find("message");
  if (message != nullptr && message->text() != nullptr) {
    end.message = *message->text();
  }
  return std::optional<RunEnd>(end);
}

}  // namespace

absl::StatusOr<std::optional<RunEnd>> FindRunEnd(
    const std::vector<std::string>& paths,
    const std::map<int64_t, int64_t>& pids) {
  std::optional<RunEnd> found;
  for (const std::string& path : paths) {
    std::error_code error;
    std::ifstream file(path, std::ios::binary);
    if (!std::filesystem::is_regular_file(path, error) || !file) {
      return absl::NotFoundError(absl::StrCat(
          "--launch=", path,
          " should be a file of lockstep launch --report, and can't be read"));
    }
    TextLine line;
    for (int64_t number = 1; ReadTextLine(file, line); ++number) {
      const absl::StatusOr<std::optional<RunEnd>> end = EndIn(line.text, pids);
      if (!end.ok() || line.is_too_long) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--launch=", path, ", line ", number, ": ",
            line.is_too_long ? "it is too long" : end.status().message()));
      }
      if (!end->has_value()) continue;
      // A host that saw the failure tells more than one that was stopped.
      if (!found.has_value() || (!found->has_failed && (*end)->has_failed) ||
          (found->blame.empty() && !(*end)->blame.empty())) {
        found = *end;
      }
    }
  }
  return found;
}

}  // namespace lockstep
