// These functions say values in the words of a report's page. Whatever comes
// from records may be hostile, so it goes through Escaped. Internal.
//
//   absl::StrAppend(&html, "<td>", Escaped(host, kMostOfName), "</td><td>",
//                   SaySeconds(0.0123), "</td>");  // "12.3 ms"
#ifndef LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_
#define LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_

#include <cstddef>
#include <cstdint>
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

// Returns "1,234".
std::string SayCount(int64_t number);

// Returns "1 row", "1,234 rows".
std::string SayCounted(int64_t number, absl::string_view one,
                       absl::string_view many);

// Returns about three digits: "1,234", "0.0123", or "not known" if the value is
// not finite.
std::string SayNumber(double value);

// Returns "12 ms", "3.4 s", or "not known".
std::string SaySeconds(double seconds);

// Returns "12 %", "3.4 %", "<0.1 %", or "not known".
std::string SayShare(double share);

// A unit for times of about this size.
struct TimeUnit {
  double seconds = 1;
  absl::string_view name = "s";
};
TimeUnit UnitOf(double seconds);

// Returns the value, or 0 if it is not finite or below 0.
double Amount(double value);

// Returns the part of a whole, or NaN if there is no whole.
double ShareOf(double part, double whole);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_PAGE_TEXT_H_
