#include "lockstep/base/option_values.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"

namespace lockstep::internal_base {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Float>
const char* OrInfinity(const Float* present) {
  return present != nullptr && std::isinf(*present) ? ", inf or -inf" : "";
}

}  // namespace

// ---- Reading values.

bool ReadOption(const Config& config, bool* value) {
  const auto* const boolean = config.As<bool>();
  if (boolean != nullptr) *value = *boolean;
  return boolean != nullptr;
}

bool ReadOption(const Config& config, int64_t* value) {
  const auto* const integer = config.As<int64_t>();
  if (integer != nullptr) *value = *integer;
  return integer != nullptr;
}

bool ReadOption(const Config& config, uint64_t* value) {
  if (const auto* const text = config.As<std::string>()) {
    return absl::SimpleAtoi(*text, value);
  }
  const auto* const integer = config.As<int64_t>();
  if (integer == nullptr || *integer < 0) return false;
  *value = static_cast<uint64_t>(*integer);
  return true;
}

// An infinite number is accepted where the present value is one, so that a
// setting whose default is inf can be written.
bool ReadOption(const Config& config, double* value) {
  if (const auto* const integer = config.As<int64_t>()) {
    *value = static_cast<double>(*integer);
    return true;
  }
  double number = 0;
  if (const auto* const text = config.As<std::string>()) {
    // A command line gives inf as a string, which may be a duration.
    if (*text != "inf" && *text != "-inf") return false;
    number = *text == "inf" ? kInfinity : -kInfinity;
  } else if (const auto* const other = config.As<double>()) {
    number = *other;
  } else {
    return false;
  }
  if (!std::isfinite(number) && !(std::isinf(number) && std::isinf(*value))) {
    return false;
  }
  *value = number;
  return true;
}

bool ReadOption(const Config& config, float* value) {
  double number = *value;
  if (!ReadOption(config, &number)) return false;
  const auto narrow = static_cast<float>(number);
  if (std::isinf(narrow) && std::isfinite(number)) return false;
  *value = narrow;
  return true;
}

bool ReadOption(const Config& config, std::string* value) {
  const auto* const text = config.As<std::string>();
  if (text != nullptr) *value = *text;
  return text != nullptr;
}

bool ReadOption(const Config& config, absl::Duration* value) {
  const auto* const text = config.As<std::string>();
  return text != nullptr && absl::ParseDuration(*text, value);
}

bool ReadOption(const Config& config, DType* value) {
  const auto* const text = config.As<std::string>();
  if (text == nullptr) return false;
  const absl::StatusOr<DType> dtype = ParseDType(*text);
  if (dtype.ok()) *value = *dtype;
  return dtype.ok();
}

bool ReadOption(const Config& config, Config* value) {
  *value = config;
  return true;
}

// ---- Writing values.

// Writes the shortest number that reads back as the same float: 0.1, and not
// 0.100000001490116.
std::optional<Config> WriteOption(float value) {
  for (const int digits : {6, 7, 8}) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double number = 0;
    if (absl::SimpleAtod(text, &number) &&
        static_cast<float>(number) == value) {
      return number;
    }
  }
  return static_cast<double>(value);
}

std::optional<Config> WriteOption(DType value) {
  return Config(std::string(Name(value)));
}

std::optional<Config> WriteOption(absl::Duration value) {
  return absl::FormatDuration(value);
}

std::optional<Config> WriteOption(const Config& value) { return value; }

// ---- Descriptions of accepted values.

std::string OptionAccepts(const bool*) { return "true or false"; }
std::string OptionAccepts(const int64_t*) { return "an integer"; }

std::string OptionAccepts(const uint64_t*) {
  return "an integer from 0 on; from 9223372036854775808 to "
         "18446744073709551615 as a string";
}

std::string OptionAccepts(const float* present) {
  return absl::StrCat("a finite number that a 32-bit float can hold",
                      OrInfinity(present));
}

std::string OptionAccepts(const double* present) {
  return absl::StrCat("a finite number", OrInfinity(present));
}

std::string OptionAccepts(const std::string*) { return "a string"; }

std::string OptionAccepts(const DType*) {
  return absl::StrCat(
      "one of ",
      absl::StrJoin(kAllDTypes, ", ", [](std::string* out, DType dtype) {
        absl::StrAppend(out, "\"", Name(dtype), "\"");
      }));
}

std::string OptionAccepts(const absl::Duration*) {
  return "a string with a time and its unit, such as \"500ms\", \"1m30s\" or "
         "\"inf\"";
}

std::string OptionAccepts(const Config*) { return "anything"; }

}  // namespace lockstep::internal_base
