// Whatever comes from records may be hostile, so it goes through Escaped before
// it is in a report's page. Internal.
//
//   absl::StrAppend(&html, "<td>", Escaped(host, kMostOfName), "</td>");
#ifndef LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_
#define LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::internal_report {

// The bytes of a text from records that a page shows at most.
inline constexpr size_t kMostOfName = 200;
inline constexpr size_t kMostOfMessage = 4000;
inline constexpr size_t kMostOfJob = 100'000;

// Returns a text for HTML, also for an attribute in quotes. Each byte that is
// not part of a valid character, and each character that controls something,
// becomes the replacement character. A text of more than `most` bytes is cut.
std::string Escaped(absl::string_view text, size_t most = kMostOfMessage);

// Returns the value, or 0 if it is not finite or below 0.
double Amount(double value);

// Returns the part of a whole, or NaN if there is no whole.
double ShareOf(double part, double whole);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_
