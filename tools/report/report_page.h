// PrintPage prints a report as one HTML file, which needs nothing else: its
// pictures are in it, it has no script, it follows the reader's choice of light
// or dark, and it fits a phone.
//
//   std::ofstream file("report.html");
//   PrintPage(report, file);
#ifndef LOCKSTEP_TOOLS_REPORT_REPORT_PAGE_H_
#define LOCKSTEP_TOOLS_REPORT_REPORT_PAGE_H_

#include <ostream>

#include "lockstep/tools/report/run_report.h"

namespace lockstep {

void PrintPage(const RunReport& report, std::ostream& out);

// Prints two runs side by side.
void PrintComparison(const RunReport& first, const RunReport& second,
                     std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_REPORT_PAGE_H_
