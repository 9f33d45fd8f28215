// The values that an OptionTable can read, write and describe. Config,
// option_table.h and these three functions for each type are all that knows the
// form of a setting.
#ifndef LOCKSTEP_BASE_OPTION_VALUES_H_
#define LOCKSTEP_BASE_OPTION_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_base {

// Returns false if `config` has another type or is out of range.
bool ReadOption(const Config& config, bool* value);
bool ReadOption(const Config& config, int64_t* value);
bool ReadOption(const Config& config, uint64_t* value);
bool ReadOption(const Config& config, float* value);
bool ReadOption(const Config& config, double* value);
bool ReadOption(const Config& config, std::string* value);
bool ReadOption(const Config& config, absl::Duration* value);
bool ReadOption(const Config& config, DType* value);
bool ReadOption(const Config& config, Config* value);

// Returns nullopt if the value is unset.
std::optional<Config> WriteOption(float value);
std::optional<Config> WriteOption(absl::Duration value);
std::optional<Config> WriteOption(DType value);
std::optional<Config> WriteOption(const Config& value);

// Returns a text that says which values are accepted.
std::string OptionAccepts(const bool*);
std::string OptionAccepts(const int64_t*);
std::string OptionAccepts(const uint64_t*);
std::string OptionAccepts(const float*);
std::string OptionAccepts(const double*);
std::string OptionAccepts(const std::string*);
std::string OptionAccepts(const absl::Duration*);
std::string OptionAccepts(const DType*);
std::string OptionAccepts(const Config*);

// True for unsigned types of 8 bytes, such as unsigned long long.
template <typename T>
inline constexpr bool kIsLikeUint64 = std::is_unsigned_v<T> &&
                                      sizeof(T) == sizeof(uint64_t);

// Reads integers of other types, such as int and uint32_t.
template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
bool ReadOption(const Config& config, T* value) {
  std::conditional_t<kIsLikeUint64<T>, uint64_t, int64_t> wide = 0;
  if (!ReadOption(config, &wide) || wide < std::numeric_limits<T>::min() ||
      wide > std::numeric_limits<T>::max()) {
    return false;
  }
  *value = static_cast<T>(wide);
  return true;
}

template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
std::string OptionAccepts(const T*) {
  if constexpr (kIsLikeUint64<T>) {
    return OptionAccepts(static_cast<const uint64_t*>(nullptr));
  }
  return absl::StrCat("an integer from ", std::numeric_limits<T>::min(), " to ",
                      std::numeric_limits<T>::max());
}

// These templates may be nested in each other in any way, so all are declared
// before the first is defined.
template <typename T>
bool ReadOption(const Config& config, std::vector<T>* value);
template <typename T>
bool ReadOption(const Config& config, std::optional<T>* value);
template <typename T>
bool ReadOption(const Config& config, std::map<std::string, T>* value);
template <typename T>
std::optional<Config> WriteOption(const std::vector<T>& value);
template <typename T>
std::optional<Config> WriteOption(const std::optional<T>& value);
template <typename T>
std::optional<Config> WriteOption(const std::map<std::string, T>& value);
template <typename T>
std::string OptionAccepts(const std::vector<T>*);
template <typename T>
std::string OptionAccepts(const std::optional<T>*);
template <typename T>
std::string OptionAccepts(const std::map<std::string, T>*);

template <typename T>
bool ReadOption(const Config& config, std::vector<T>* value) {
  const auto* const array = config.As<Config::Array>();
  if (array == nullptr) return false;
  std::vector<T> read(array->size());
  for (size_t i = 0; i < read.size(); ++i) {
    if (!ReadOption((*array)[i], &read[i])) return false;
  }
  *value = std::move(read);
  return true;
}

// Writes every type that converts to a Config.
template <typename T,
          std::enable_if_t<std::is_convertible_v<const T&, Config>, int> = 0>
std::optional<Config> WriteOption(const T& value) {
  return Config(value);
}

template <typename T>
std::optional<Config> WriteOption(const std::vector<T>& value) {
  Config::Array array;
  for (const T& each : value) array.push_back(*WriteOption(each));
  return Config(std::move(array));
}

template <typename T>
std::string OptionAccepts(const std::vector<T>*) {
  return absl::StrCat("a list, each of which is ",
                      OptionAccepts(static_cast<const T*>(nullptr)));
}

template <typename T>
bool ReadOption(const Config& config, std::optional<T>* value) {
  T read = {};
  if (!ReadOption(config, &read)) return false;
  *value = std::move(read);
  return true;
}

template <typename T>
std::optional<Config> WriteOption(const std::optional<T>& value) {
  return value.has_value() ? WriteOption(*value) : std::nullopt;
}

template <typename T>
std::string OptionAccepts(const std::optional<T>*) {
  return OptionAccepts(static_cast<const T*>(nullptr));
}

template <typename T>
bool ReadOption(const Config& config, std::map<std::string, T>* value) {
  const auto* const table = config.As<Config::Table>();
  if (table == nullptr) return false;
  std::map<std::string, T> read;
  for (const auto& [key, each] : *table) {
    if (!ReadOption(each, &read[key])) return false;
  }
  *value = std::move(read);
  return true;
}

template <typename T>
std::optional<Config> WriteOption(const std::map<std::string, T>& value) {
  Config::Table table;
  for (const auto& [key, each] : value) {
    std::optional<Config> written = WriteOption(each);
    if (written.has_value()) table.push_back({key, *std::move(written)});
  }
  return Config(std::move(table));
}

template <typename T>
std::string OptionAccepts(const std::map<std::string, T>*) {
  return absl::StrCat("a table, each value of which is ",
                      OptionAccepts(static_cast<const T*>(nullptr)));
}

}  // namespace lockstep::internal_base

#endif  // LOCKSTEP_BASE_OPTION_VALUES_H_
