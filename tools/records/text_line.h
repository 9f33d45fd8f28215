// ReadTextLine reads a file line by line, without taking in a whole file that
// has no lines.
//
//   TextLine line;
//   while (ReadTextLine(file, line)) {
//     if (line.is_too_long) return Refuse();
//     Use(line.text);
//   }
#ifndef LOCKSTEP_TOOLS_RECORDS_TEXT_LINE_H_
#define LOCKSTEP_TOOLS_RECORDS_TEXT_LINE_H_

#include <cstddef>
#include <istream>
#include <streambuf>
#include <string>

namespace lockstep {

// A longer line is none of the sink's. Parsing it would take much memory.
inline constexpr size_t kLongestLine = size_t{16} << 20;

struct TextLine {
  std::string text;          // without the end of the line
  bool is_too_long = false;  // the text has only the beginning
};

// Reads the next line. Returns false at the end of the file.
inline bool ReadTextLine(std::istream& file, TextLine& line) {
  std::streambuf& buffer = *file.rdbuf();
  line.text.clear();
  line.is_too_long = false;
  bool is_any = false;
  for (;;) {
    const int c = buffer.sbumpc();
    if (c == std::char_traits<char>::eof()) return is_any;
    is_any = true;
    if (c == '\n') return true;
    if (line.text.size() == kLongestLine) {
      line.is_too_long = true;
      return true;
    }
    line.text.push_back(static_cast<char>(c));
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_TEXT_LINE_H_
