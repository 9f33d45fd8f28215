#include "lockstep/tools/doctor/finding.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
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
  json += ",[";
  for (const Fact& fact : report.facts) {
    AppendJson(fact.name, json);
    absl::StrAppend(&json, ",", fact.value.index(), ",");
    if (const auto* const text = std::get_if<std::string>(&fact.value)) {
      AppendJson(*text, json);
    } else if (const auto* const whole = std::get_if<int64_t>(&fact.value)) {
      absl::StrAppend(&json, *whole);
    } else {
      absl::StrAppend(&json, std::get<double>(fact.value));
    }
    json += ',';
  }
  json += "],[";
  for (const Finding& finding : report.findings) {
    AppendJson(finding.check, json);
    absl::StrAppend(&json, ",", static_cast<int>(finding.verdict), ",");
    AppendJson(finding.text, json);
    json += ',';
    AppendJson(finding.remedy, json);
    json += ',';
  }
  return json += "]]";
}

namespace {

bool ReadFact(JsonReader& in, Fact& fact) {
  int64_t index = -1;
  if (!in.Read(fact.name) || !in.Skip(",") || !in.Read(index) ||
      !in.Skip(",")) {
    return false;
  }
  switch (index) {
    case 0:
      return in.Read(fact.value.emplace<int64_t>());
    case 1:
      return in.Read(fact.value.emplace<double>());
    case 2:
      return in.Read(fact.value.emplace<std::string>());
    default:
      return false;
  }
}

bool ReadFinding(JsonReader& in, Finding& finding) {
  int64_t verdict = -1;
  if (!in.Read(finding.check) || !in.Skip(",") || !in.Read(verdict) ||
      !in.Skip(",") || !in.Read(finding.text) || !in.Skip(",") ||
      !in.Read(finding.remedy) || verdict < 0 ||
      verdict > static_cast<int64_t>(Verdict::kFailure)) {
    return false;
  }
  finding.verdict = static_cast<Verdict>(verdict);
  return true;
}

}  // namespace

std::optional<MachineReport> DecodeMachineReport(absl::string_view text) {
  MachineReport report;
  JsonReader in(text);
  if (!in.Skip("[") || !in.Read(report.host) || !in.Skip(",") ||
      !in.Read(report.about) || !in.Skip(",[")) {
    return std::nullopt;
  }
  while (!in.Skip("],[")) {
    if (!ReadFact(in, report.facts.emplace_back()) || !in.Skip(",")) {
      return std::nullopt;
    }
  }
  while (!in.Skip("]]")) {
    if (!ReadFinding(in, report.findings.emplace_back()) || !in.Skip(",")) {
      return std::nullopt;
    }
  }
  if (!in.at_end()) return std::nullopt;
  return report;
}

}  // namespace lockstep
