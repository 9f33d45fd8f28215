#include "lockstep/tools/doctor/finding.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json.h"

namespace lockstep {

using internal_base::AppendJson;
using internal_base::JsonReader;

absl::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "PASS";
    case Verdict::kNotJudged:
      return "-";
    case Verdict::kWarning:
      return "WARN";
    case Verdict::kFailure:
      return "FAIL";
  }
  return "?";
}

int CountOf(const std::vector<Finding>& findings, Verdict verdict) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [verdict](const Finding& finding) {
                                          return finding.verdict == verdict;
                                        }));
}

std::string Encode(const MachineReport& report) {
  std::string json = "[";
  AppendJson(report.host, json);
  json += ',';
  AppendJson(report.about, json);
  for (const Finding& finding : report.findings) {
    json += ',';
    AppendJson(finding.check, json);
    absl::StrAppend(&json, ",", static_cast<int>(finding.verdict), ",");
    AppendJson(finding.text, json);
    json += ',';
    AppendJson(finding.remedy, json);
  }
  return json += ']';
}

std::optional<MachineReport> DecodeMachineReport(absl::string_view text) {
  MachineReport report;
  JsonReader in(text);
  if (!in.Skip("[") || !in.Read(report.host) || !in.Skip(",") ||
      !in.Read(report.about)) {
    return std::nullopt;
  }
  while (in.Skip(",")) {
    Finding finding;
    int64_t verdict = 0;
    if (!in.Read(finding.check) || !in.Skip(",") || !in.Read(verdict) ||
        !in.Skip(",") || !in.Read(finding.text) || !in.Skip(",") ||
        !in.Read(finding.remedy) || verdict < 0 ||
        verdict > static_cast<int64_t>(Verdict::kFailure)) {
      return std::nullopt;
    }
    finding.verdict = static_cast<Verdict>(verdict);
    report.findings.push_back(std::move(finding));
  }
  if (!in.Skip("]") || !in.at_end()) return std::nullopt;
  return report;
}

}  // namespace lockstep
