// The sections of a page with pictures of ranks over steps. Internal.
//
//   absl::StrAppend(&html, MapSection(report), StepsSection(report));
#ifndef LOCKSTEP_TOOLS_REPORT_STEP_PICTURES_H_
#define LOCKSTEP_TOOLS_REPORT_STEP_PICTURES_H_

#include <string>

#include "lockstep/tools/report/run_report.h"

namespace lockstep::internal_report {

// Returns maps of the samples and the lost time of ranks over steps.
std::string MapSection(const RunReport& report);

// Returns charts of the ready batches and the seconds of steps.
std::string StepsSection(const RunReport& report);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_STEP_PICTURES_H_
