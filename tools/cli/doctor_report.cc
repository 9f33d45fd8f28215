#include "lockstep/tools/cli/doctor_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/pairs.h"
#include "lockstep/tools/doctor/ranks.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

absl::string_view NameInJson(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kNotJudged:
      return "not judged";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailure:
      return "failure";
  }
  return "";
}

// Prints lines that begin with the verdict and the check. The text may have
// several lines.
void PrintFinding(const Finding& finding, std::ostream& out) {
  const std::string head =
      absl::StrFormat("  %-4s  %-14s ", Name(finding.verdict), finding.check);
  const std::string indent(head.size(), ' ');
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(finding.text, '\n')) {
    lines += Wrapped(line, indent);
  }
  out << head << lines.substr(head.size());
  if (!finding.remedy.empty()) out << Wrapped("-> " + finding.remedy, indent);
}

// Returns "; 1 failure, 2 warnings", or "".
std::string CountsOf(int failures, int warnings) {
  std::string text;
  if (failures > 0) {
    absl::StrAppend(&text, "; ", Counted(failures, "failure", "failures"));
  }
  if (warnings > 0) {
    absl::StrAppend(&text, failures > 0 ? ", " : "; ",
                    Counted(warnings, "warning", "warnings"));
  }
  return text;
}

// The numbers of bad findings.
struct Total {
  explicit Total(const std::vector<Finding>& findings) { Add(findings); }
  explicit Total(const DoctorReport& report) {
    for (const MachineReport& machine : report.machines) Add(machine.findings);
    if (report.ranks.has_value()) Add(report.ranks->findings);
  }
  void Add(const std::vector<Finding>& findings) {
    failures += CountOf(findings, Verdict::kFailure);
    warnings += CountOf(findings, Verdict::kWarning);
  }

  bool Passes(bool is_strict) const {
    return failures == 0 && (!is_strict || warnings == 0);
  }

  // Returns "PASS: machine trainer-0; 1 warning" with its end of line.
  std::string Line(bool is_strict, absl::string_view of) const {
    return absl::StrCat(Passes(is_strict) ? "PASS: " : "FAIL: ", of,
                        CountsOf(failures, warnings), "\n");
  }

  int failures = 0, warnings = 0;
};

std::string LineOf(const MachineReport& machine, bool is_strict) {
  return Total(machine.findings).Line(is_strict, "machine " + machine.host);
}

// Prints the lines of a machine that need a look.
void PrintOtherMachine(const MachineReport& machine, bool is_strict,
                       std::ostream& out) {
  out << machine.host << " (" << machine.about << ")\n";
  for (const Finding& finding : machine.findings) {
    if (finding.verdict >= Verdict::kWarning) PrintFinding(finding, out);
  }
  out << LineOf(machine, is_strict);
}

RecordTable TableOf(const RanksReport& report, const BackendPairs& backend,
                    const std::vector<PairSpeed>& pairs) {
  const auto host = [&report](int rank) {
    return report.hosts[static_cast<size_t>(rank)];
  };
  RecordTable table({"backend", "rank", "host", "other_rank", "other_host",
                     "latency_us", "gb_per_s", "limit_gb_per_s"});
  for (const PairSpeed& pair : pairs) {
    const auto rounded = [](double value) {
      double number = 0;
      static_cast<void>(
          absl::SimpleAtod(absl::StrFormat("%.4g", value), &number));
      return number;
    };
    table.AddRow({backend.backend, pair.a, host(pair.a), pair.b, host(pair.b),
                  rounded(pair.latency * 1e6),
                  rounded(pair.bytes_per_second / 1e9),
                  pair.limit > 0 ? Cell(rounded(pair.limit / 1e9)) : Cell()});
  }
  return table;
}

// Prints all pairs if they are few, and otherwise those with the least
// bandwidth.
void PrintPairs(const RanksReport& report, const BackendPairs& backend,
                std::ostream& out) {
  constexpr size_t kMost = 28;  // those of eight ranks
  constexpr size_t kShown = 10;
  std::vector<PairSpeed> pairs = backend.pairs;
  if (pairs.empty()) return;
  out << "\nBetween two ranks over " << backend.backend
      << ": one way, 8 bytes (median) and large messages (best)\n";
  if (pairs.size() > kMost) {
    std::sort(pairs.begin(), pairs.end(),
              [](const PairSpeed& x, const PairSpeed& y) {
                return x.bytes_per_second < y.bytes_per_second;
              });
    pairs.resize(kShown);
    out << "The " << kShown << " slowest of "
        << WithCommas(static_cast<int64_t>(backend.pairs.size()))
        << " pairs (--format=json has all)\n";
  }
  TableOf(report, backend, pairs).PrintText(out);
}

void PrintJson(const std::vector<Finding>& findings, std::ostream& out,
               absl::string_view indent) {
  RecordTable table({"check", "verdict", "text", "remedy"});
  for (const Finding& finding : findings) {
    table.AddRow({finding.check, std::string(NameInJson(finding.verdict)),
                  finding.text,
                  finding.remedy.empty() ? Cell() : Cell(finding.remedy)});
  }
  table.PrintJson(out, indent);
}

void PrintJson(const std::vector<Fact>& facts, std::ostream& out) {
  struct ToJson {
    std::string operator()(int64_t value) const { return Cell(value).ToJson(); }
    std::string operator()(double value) const { return Cell(value).ToJson(); }
    std::string operator()(const std::string& value) const {
      return JsonText(value);
    }
  };
  out << "{";
  for (size_t i = 0; i < facts.size(); ++i) {
    out << (i == 0 ? "" : ", ") << JsonText(facts[i].name) << ": "
        << std::visit(ToJson(), facts[i].value);
  }
  out << "}";
}

void PrintJson(const MachineReport& machine, std::ostream& out) {
  out << "    {\n      \"host\": " << JsonText(machine.host)
      << ",\n      \"facts\": ";
  PrintJson(machine.facts, out);
  out << ",\n      \"findings\": ";
  PrintJson(machine.findings, out, "      ");
  out << "\n    }";
}

void PrintJson(const RanksReport& ranks, std::ostream& out) {
  out << "{\n    \"hosts\": [";
  for (size_t i = 0; i < ranks.hosts.size(); ++i) {
    out << (i == 0 ? "" : ", ") << JsonText(ranks.hosts[i]);
  }
  out << "],\n    \"copied_gb_per_s\": [";
  for (size_t i = 0; i < ranks.copies.size(); ++i) {
    out << (i == 0 ? "" : ", ") << Cell(ranks.copies[i] / 1e9).ToJson();
  }
  out << "],\n    \"findings\": ";
  PrintJson(ranks.findings, out, "    ");
  RecordTable unconnected({"from", "to", "place", "why"});
  for (const Unconnected& each : ranks.unconnected) {
    unconnected.AddRow({each.from, each.to, each.place, each.why});
  }
  out << ",\n    \"unconnected\": ";
  unconnected.PrintJson(out, "    ");
  RecordTable pairs = TableOf(ranks, {}, {});
  for (const BackendPairs& backend : ranks.pairs) {
    pairs.Append(TableOf(ranks, backend, backend.pairs));
  }
  out << ",\n    \"pairs\": ";
  pairs.PrintJson(out, "    ");
  out << "\n  }";
}

void PrintJson(const DoctorReport& report, std::ostream& out) {
  const Total total(report);
  out << "{\n  \"version\": 1,\n  \"verdict\": \""
      << (report.passes() ? "pass" : "failure")
      << "\",\n  \"strict\": " << (report.is_strict ? "true" : "false")
      << ",\n  \"failures\": " << total.failures
      << ",\n  \"warnings\": " << total.warnings << ",\n  \"machines\": [";
  for (size_t i = 0; i < report.machines.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n");
    PrintJson(report.machines[i], out);
  }
  out << "\n  ],\n  \"ranks\": ";
  if (report.ranks.has_value()) {
    PrintJson(*report.ranks, out);
  } else {
    out << "null";
  }
  out << "\n}\n";
}

void PrintCsv(const DoctorReport& report, std::ostream& out) {
  RecordTable table({"of", "check", "verdict", "text", "remedy"});
  const auto add = [&table](const std::string& of,
                            const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      table.AddRow({of, finding.check, std::string(NameInJson(finding.verdict)),
                    finding.text, finding.remedy});
    }
  };
  for (const MachineReport& machine : report.machines) {
    add("machine " + machine.host, machine.findings);
  }
  if (report.ranks.has_value()) add("ranks", report.ranks->findings);
  table.PrintCsv(out);
}

}  // namespace

bool DoctorReport::passes() const { return Total(*this).Passes(is_strict); }

void PrintMachine(const MachineReport& machine, bool is_strict,
                  std::ostream& out) {
  out << machine.host << " (" << machine.about << ")\n";
  for (const Finding& finding : machine.findings) PrintFinding(finding, out);
  out << LineOf(machine, is_strict) << std::flush;
}

void PrintReport(const DoctorReport& report, OutputFormat format, int printed,
                 std::ostream& out) {
  if (format == OutputFormat::kJson) return PrintJson(report, out);
  if (format == OutputFormat::kCsv) return PrintCsv(report, out);
  for (size_t i = static_cast<size_t>(printed); i < report.machines.size();
       ++i) {
    PrintOtherMachine(report.machines[i], report.is_strict, out);
  }
  if (!report.ranks.has_value()) return;
  const std::string ranks = Counted(report.size, "rank", "ranks");
  out << "\n" << ranks << "\n";
  for (const Finding& finding : report.ranks->findings) {
    PrintFinding(finding, out);
  }
  for (const BackendPairs& backend : report.ranks->pairs) {
    PrintPairs(*report.ranks, backend, out);
  }
  out << "\n"
      << Total(report).Line(
             report.is_strict,
             report.have_met
                 ? absl::StrCat(
                       ranks, " on ",
                       Counted(static_cast<int64_t>(report.machines.size()),
                               "machine", "machines"))
                 : absl::StrCat(ranks, " that have not met"));
}

}  // namespace lockstep
