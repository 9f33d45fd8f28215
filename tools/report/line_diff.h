// DifferentLines finds the lines in which two texts differ. Internal.
//
//   for (const LineChange& change : DifferentLines(first, second)) {
//     std::cout << (change.is_of_second ? "+ " : "- ") << change.line << '\n';
//   }
#ifndef LOCKSTEP_TOOLS_REPORT_LINE_DIFF_H_
#define LOCKSTEP_TOOLS_REPORT_LINE_DIFF_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::internal_report {

// A line that only one of the texts has.
struct LineChange {
  bool is_of_second = false;
  std::string line;
};

// Returns the fewest such lines, in the order of the texts. Where very many
// lines follow each other between two that differ, the order of lines counts no
// more: then it returns those that the other text has nowhere.
std::vector<LineChange> DifferentLines(absl::string_view first,
                                       absl::string_view second);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_LINE_DIFF_H_
