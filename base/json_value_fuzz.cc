// Reads the input as JSON. It is a value, or an error with its place. A value
// that is accepted is the same after it is written and read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/json.h"
#include "lockstep/base/json_value.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_base {
namespace {

void AppendNumber(const JsonValue& value, std::string& json) {
  const double number = *value.number();
  LOCKSTEP_CHECK(std::isfinite(number));
  if (!value.integer().has_value()) {
    // With so many digits, it is read as the same number.
    absl::StrAppendFormat(&json, "%.16e", number);
  } else if (*value.integer() == 0 && std::signbit(number)) {
    absl::StrAppend(&json, "-0");
  } else {
    LOCKSTEP_CHECK(number == static_cast<double>(*value.integer()));
    absl::StrAppend(&json, *value.integer());
  }
}

// Appends the value. The JSON of two values is the same only if they are.
void AppendValue(const JsonValue& value, int levels, std::string& json) {
  LOCKSTEP_CHECK(levels <= kMostJsonLevels);
  switch (value.type()) {
    case JsonValue::Type::kNull:
      json += "null";
      break;
    case JsonValue::Type::kBool:
      json += *value.boolean() ? "true" : "false";
      break;
    case JsonValue::Type::kNumber:
      AppendNumber(value, json);
      break;
    case JsonValue::Type::kText:
      LOCKSTEP_CHECK(Utf8Of(*value.text()) == *value.text());
      AppendJson(*value.text(), json);
      break;
    case JsonValue::Type::kArray:
      for (const JsonValue& element : value.elements()) {
        json += &element == value.elements().data() ? '[' : ',';
        AppendValue(element, levels + 1, json);
      }
      json += value.elements().empty() ? "[]" : "]";
      break;
    case JsonValue::Type::kObject:
      for (const JsonValue::Member& member : value.members()) {
        LOCKSTEP_CHECK(Utf8Of(member.name) == member.name);
        LOCKSTEP_CHECK(value.members().size() > 100 ||
                       value.Find(member.name) == &member.value);
        json += &member == value.members().data() ? '{' : ',';
        AppendJson(member.name, json);
        json += ':';
        AppendValue(member.value, levels + 1, json);
      }
      json += value.members().empty() ? "{}" : "}";
  }
}

std::string JsonOf(const JsonValue& value) {
  std::string json;
  AppendValue(value, /*levels=*/0, json);
  return json;
}

void Check(absl::string_view text) {
  const absl::StatusOr<JsonValue> value = ParseJson(text);
  if (!value.ok()) {
    LOCKSTEP_CHECK(absl::IsInvalidArgument(value.status()));
    LOCKSTEP_CHECK(absl::StartsWith(value.status().message(), "byte "));
    return;
  }
  ++fuzz_accepts;
  LOCKSTEP_CHECK(Utf8Of(text) == text);
  const std::string json = JsonOf(*value);
  const absl::StatusOr<JsonValue> again = ParseJson(json);
  LOCKSTEP_CHECK(again.ok());
  LOCKSTEP_CHECK(JsonOf(*again) == json);
  // Blanks around it change nothing, and nothing else may stand there.
  const absl::StatusOr<JsonValue> padded =
      ParseJson(absl::StrCat("\t\r ", text, "\n"));
  LOCKSTEP_CHECK(padded.ok() && JsonOf(*padded) == json);
  LOCKSTEP_CHECK(!ParseJson(absl::StrCat(text, "}")).ok());
  // Without its end it is no longer JSON, unless it is a number.
  if (value->is_number()) return;
  const absl::string_view cut =
      absl::string_view(json).substr(0, json.size() - 1);
  LOCKSTEP_CHECK(!ParseJson(cut).ok());
}

}  // namespace
}  // namespace lockstep::internal_base

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::internal_base::Check(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
