// A Config is a tree of settings: tables of named values, from a configuration
// file or from code:
//
//   Config sampler;
//   sampler.Set("name", "distributed");
//   sampler.Set("seed", 7);
//   Config loader;
//   loader.Set("num_workers", 2);
//   loader.Set("sampler", std::move(sampler));
//
// An OptionTable (option_table.h) writes the values of a table into an options
// struct. Each value has its location in the text from which it was read, so
// that an error can name it.
#ifndef LOCKSTEP_BASE_CONFIG_H_
#define LOCKSTEP_BASE_CONFIG_H_

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A table, an array, or a single value.
// Thread-safety: thread-compatible.
class Config {
 public:
  struct Entry;
  using Table = std::list<Entry>;  // in the order of the text
  using Array = std::vector<Config>;

  // Makes an empty table. The other constructors convert a value.
  Config();
  Config(double value);             // NOLINT(google-explicit-constructor)
  Config(const char* value);        // NOLINT(google-explicit-constructor)
  Config(absl::string_view value);  // NOLINT(google-explicit-constructor)
  Config(std::string value);        // NOLINT(google-explicit-constructor)
  Config(Array values);             // NOLINT(google-explicit-constructor)
  Config(Table entries);            // NOLINT(google-explicit-constructor)
  // Takes bool and integers of any type. An integer beyond int64_t becomes a
  // string.
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Config(T value) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<T, bool>) {
      value_ = value;
    } else if (std::is_unsigned_v<T> &&
               static_cast<uint64_t>(value) >
                   static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      value_ = std::to_string(value);
    } else {
      value_ = static_cast<int64_t>(value);
    }
  }
  ~Config();
  Config(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(const Config& other);
  Config& operator=(Config&& other) noexcept;

  // Returns the value as a Table, Array, bool, int64_t, double or std::string,
  // or null if it has another type.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value_);
  }

  // Returns true for a table without values, such as Config().
  bool IsEmptyTable() const;

  // Returns the value of `key` in this table, or null if there is none or if
  // this is no table.
  const Config* Find(absl::string_view key) const;
  Config* Find(absl::string_view key);

  // Sets or replaces the value of `key`. A Config that is no table becomes one.
  // Returns the value, whose address stays the same.
  Config& Set(absl::string_view key, Config value);

  // Returns the location of the value in a text, such as "job.toml:12:5", or ""
  // if the value comes from code.
  const std::string& location() const { return location_; }
  void set_location(std::string location) { location_ = std::move(location); }

  // Prints the value on one line, as TOML: {name = "ring", size = 2003}.
  std::string ToString() const;

  // Does the same for messages: cuts off a long text.
  std::string Shown() const;

  // Returns all values in this table and in nested tables, as ToString prints
  // them. The map's keys are paths such as "loader.train.num_workers". An empty
  // nested table counts as a value, and so does an array as a whole.
  std::map<std::string, std::string> Values() const;

  // Prints a table as a TOML document: first its values, then the nested tables
  // under their own headers.
  std::string ToText() const;

 private:
  std::variant<Table, Array, bool, int64_t, double, std::string> value_;
  std::string location_;
};

struct Config::Entry {
  std::string key;
  Config value;
};

// One thing that is wrong in a configuration.
struct ConfigError {
  std::string location;  // of the value; "" if it comes from code
  std::string message;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;

  // Returns the location and the message in one text.
  absl::Status ToStatus() const;
};

// Sorts errors by their lines and columns. Those of values that are not from a
// text come last.
void SortByLocation(std::vector<ConfigError>& errors);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CONFIG_H_
