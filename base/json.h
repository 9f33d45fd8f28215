// AppendJson writes text as JSON, and JsonReader reads back JSON that was
// written piece by piece. Internal.
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

// Appends a text in quotes. Each byte that is not part of a valid character
// becomes the replacement character, U+FFFD.
void AppendJson(absl::string_view text, std::string& json);

// Reads what AppendJson and absl::StrAppend have written, in the same order and
// without blanks. It can't read other JSON. Each function returns false if the
// text goes on with something else. Its argument then has no defined value.
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
  // Reads the rest of an object, with its brace, and passes over members that a
  // later release has added.
  bool SkipRest();

  bool at_end() const { return left_.empty(); }

 private:
  absl::string_view ReadWord();
  bool SkipValue(int levels);

  absl::string_view left_;
};

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_JSON_H_
