// Text in JSON: it is written piece by piece, and what was written is read
// back. Internal.
//
//   std::string json = "{\"name\":";
//   AppendJson(name, json);
//   json += '}';
//
//   JsonReader in(json);
//   if (in.Skip("{\"name\":") && in.Read(name) && in.Skip("}")) Use(name);
#ifndef LOCKSTEP_BASE_JSON_H_
#define LOCKSTEP_BASE_JSON_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Appends a text in quotes. The replacement character stands for each byte that
// is not part of a valid character.
void AppendJson(absl::string_view text, std::string& json);

// Reads what AppendJson and StrAppend have written, in the same order and
// without blanks. It is no reader of JSON in general. Each function returns
// false if something else comes. What it should have read is then undefined.
// Thread-safety: thread-compatible.
class JsonReader {
 public:
  // `json` outlives the reader.
  explicit JsonReader(absl::string_view json) : left_(json) {}

  // Reads exactly these characters.
  bool Skip(absl::string_view expected);
  bool Read(std::string& text);
  bool Read(int64_t& number);
  bool Read(double& number);
  bool Read(bool& value);

  bool at_end() const { return left_.empty(); }

 private:
  absl::string_view ReadWord();

  absl::string_view left_;
};

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_JSON_H_
