// These functions say numbers as people read them.
//
//   out << SaySeconds(0.0123) << SayShare(0.034) << Counted(1, "row", "rows");
//   // "12.3 ms", "3.4 %", "1 row"
#ifndef LOCKSTEP_TOOLS_WORDS_WORDS_H_
#define LOCKSTEP_TOOLS_WORDS_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// Returns a number with commas between thousands: "1,234,567".
std::string WithCommas(int64_t number);

// Returns "1 row", "2 rows"; the number has commas.
std::string Counted(int64_t number, absl::string_view one,
                    absl::string_view many);

// The next functions return "not known" if the value is not finite.

// Returns about three digits: "1,234", "0.0123".
std::string SayNumber(double value);

// Returns "12 ms", "3.4 s".
std::string SaySeconds(double seconds);

// Returns "12 %", "3.4 %", "<0.1 %".
std::string SayShare(double share);

// Returns a text of at most `most` bytes for people: each character that
// controls a terminal or the direction of text, and each byte that is not part
// of a valid character, becomes the replacement character. Ends of lines stay.
std::string Printable(absl::string_view text, size_t most);

// The unit in which SaySeconds says a time of this size.
struct TimeUnit {
  double seconds = 1;
  absl::string_view name = "s";
};
TimeUnit UnitOf(double seconds);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_WORDS_WORDS_H_
