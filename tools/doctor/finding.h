// A Finding is what one check of the doctor has found: the facts, a verdict on
// them, and what to do.
//
//   Finding finding = {"port", Verdict::kFailure,
//                      "port 29500 is taken by python3 (pid 4711)",
//                      "end that process, or set LOCKSTEP_PORT"};
#ifndef LOCKSTEP_TOOLS_DOCTOR_FINDING_H_
#define LOCKSTEP_TOOLS_DOCTOR_FINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

enum class Verdict {
  kPass,
  // There is nothing by which the facts can be judged, or the check was left
  // out.
  kNotJudged,
  // A job runs, but may be slow, or may fail later.
  kWarning,
  // A job will not run.
  kFailure,
};

// Returns "PASS", "-", "WARN" or "FAIL".
absl::string_view Name(Verdict verdict);

struct Finding {
  std::string check;
  Verdict verdict = Verdict::kPass;
  std::string text;
  std::string remedy;  // "" if nothing is to be done
};

// A fact for programs: a name such as "memory_bytes", and its value.
struct Fact {
  std::string name;
  std::variant<int64_t, double, std::string> value;
};

// A MachineReport holds what was found on one machine.
struct MachineReport {
  std::string host;
  std::string about;  // for people: Lockstep's version, the kernel, processor
  std::vector<Fact> facts;
  std::vector<Finding> findings;
};

// Returns how many of the findings have a verdict.
int CountOf(const std::vector<Finding>& findings, Verdict verdict);

// Encode writes a report as text for other ranks, and DecodeMachineReport reads
// that text. Bytes that are not UTF-8 do not survive it.
std::string Encode(const MachineReport& report);
std::optional<MachineReport> DecodeMachineReport(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_FINDING_H_
