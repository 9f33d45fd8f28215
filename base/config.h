// A tree of settings: tables of named values, as a configuration file holds
// them or as code states them:
//
//   Config sampler;
//   sampler.Set("name", "distributed");
//   sampler.Set("seed", 7);
//   Config loader;
//   loader.Set("num_workers", 2);
//   loader.Set("sampler", std::move(sampler));
//
// An OptionTable (option_table.h) writes the values of a table into an options
// struct. Each value knows its place in the text that it comes from, so that an
// error can name it.
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

  // An empty table. What stands for a value converts to one.
  Config();
  Config(double value);             // NOLINT(google-explicit-constructor)
  Config(const char* value);        // NOLINT(google-explicit-constructor)
  Config(absl::string_view value);  // NOLINT(google-explicit-constructor)
  Config(std::string value);        // NOLINT(google-explicit-constructor)
  Config(Array values);             // NOLINT(google-explicit-constructor)
  Config(Table entries);            // NOLINT(google-explicit-constructor)
  // Bool and integers of any type; one beyond int64_t becomes a string.
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

  // The value as a Table, Array, bool, int64_t, double or std::string; null if
  // it is something else.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value_);
  }

  // The value that `key` has in this table; null if there is none, or if this
  // is no table.
  const Config* Find(absl::string_view key) const;
  Config* Find(absl::string_view key);

  // Gives `key` a value, in place of the one that it has. Makes this a table if
  // it is something else. Returns the value, which stays where it is.
  Config& Set(absl::string_view key, Config value);

  // The place of the value in a text, such as "job.toml:12:5"; "" for one from
  // code.
  const std::string& place() const { return place_; }
  void set_place(std::string place) { place_ = std::move(place); }

  // Prints it on one line, as TOML does: {name = "ring", size = 2003}.
  std::string ToString() const;

  // The same for messages: cut off where it is long.
  std::string Shown() const;

  // All values in this table and those in it, by the keys on their way, such as
  // "loader.train.num_workers", as ToString prints them. A table that is empty
  // is a value; arrays are not looked into.
  std::map<std::string, std::string> Values() const;

  // Prints a table as a document of TOML: its values first, then the tables in
  // it under headers of their own.
  std::string ToText() const;

 private:
  std::variant<Table, Array, bool, int64_t, double, std::string> value_;
  std::string place_;
};

struct Config::Entry {
  std::string key;
  Config value;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CONFIG_H_
