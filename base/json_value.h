// ParseJson reads any JSON, strictly by RFC 8259, into a JsonValue. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const JsonValue line, ParseJson(text));
//   const JsonValue* const step = line.Find("step");
//   if (step != nullptr && step->integer().has_value()) Use(*step->integer());
//   for (const JsonValue::Member& member : line.members()) {
//     if (member.value.number().has_value()) Add(member.name, member.value);
//   }
//
// json.h writes texts as JSON, and reads back what Lockstep itself has written.
#ifndef LOCKSTEP_BASE_JSON_VALUE_H_
#define LOCKSTEP_BASE_JSON_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Objects and arrays may stand in each other on so many levels.
inline constexpr int kMostJsonLevels = 32;

// A value of JSON, which owns all values in it. A default value is null.
// Thread-safety: thread-compatible.
class JsonValue {
 public:
  enum class Type : uint8_t { kNull, kBool, kNumber, kText, kArray, kObject };

  // A member of an object: its name, and its value.
  struct Member;

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_number() const { return type() == Type::kNumber; }
  bool is_text() const { return type() == Type::kText; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // Each of these functions returns nullopt, nullptr or an empty span if the
  // value has another type.

  std::optional<bool> boolean() const;
  // Returns the finite double that is nearest to the number.
  std::optional<double> number() const;
  // Returns the number if it was written without fraction and exponent, and if
  // an int64_t can have it.
  std::optional<int64_t> integer() const;
  // Returns the characters of a text, in UTF-8 and without escapes. A text may
  // contain zeros.
  const std::string* text() const;
  absl::Span<const JsonValue> elements() const;
  // Returns the members of an object in the order in which they were written.
  // No two of them have the same name.
  absl::Span<const Member> members() const;
  // Returns the value of the member with that name, or nullptr if the value is
  // no object or has no such member. It looks at one member after the other.
  const JsonValue* Find(absl::string_view name) const;

 private:
  friend class JsonParser;

  struct Number {
    double real = 0;
    std::optional<int64_t> integer;
  };

  // The order of the alternatives is that of Type.
  std::variant<std::monostate, bool, Number, std::string,
               std::vector<JsonValue>, std::vector<Member>>
      value_;
};

struct JsonValue::Member {
  std::string name;
  JsonValue value;
};

// Reads exactly one value, which may have JSON's blanks before and behind it.
// INVALID_ARGUMENT says what is wrong and at which byte, counted from 0: "byte
// 17: ...". Two members of an object with one name are an error, and so are
// more levels than kMostJsonLevels and numbers beyond those of a double.
// Numbers nearer to 0 than all others of a double become 0. The value may take
// forty times as much memory as the text.
absl::StatusOr<JsonValue> ParseJson(absl::string_view text);

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_JSON_VALUE_H_
