// Prints what the doctor has found.
//
//   DoctorReport report;
//   report.machines = {machine};
//   PrintReport(report, OutputFormat::kText, /*printed=*/0, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_DOCTOR_REPORT_H_
#define LOCKSTEP_TOOLS_CLI_DOCTOR_REPORT_H_

#include <optional>
#include <ostream>
#include <vector>

#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/ranks.h"

namespace lockstep {

struct DoctorReport {
  bool is_strict = false;               // whether warnings are failures
  int size = 1;                         // how many ranks there are
  bool have_met = true;                 // whether they have joined the job
  std::vector<MachineReport> machines;  // the one on which it is printed first
  std::optional<RanksReport> ranks;     // unless they were left out

  // Returns true if a job can run.
  bool passes() const;
};

// Prints a machine with all that was found there, as text.
void PrintMachine(const MachineReport& machine, bool is_strict,
                  std::ostream& out);

// Prints a report. In a text, the first `printed` machines are left out, since
// they were printed before, and the others have only what is wrong.
void PrintReport(const DoctorReport& report, OutputFormat format, int printed,
                 std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_DOCTOR_REPORT_H_
