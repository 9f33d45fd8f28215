// An OptionTable lists the settings of an options struct: for each one the key,
// the field and the meaning. Configurations are read, printed and documented
// from this one list:
//
//   struct RingOptions {
//     int64_t size = 1000;
//     absl::Duration pause;
//     Mode mode = Mode::kOrdered;
//   };
//
//   void BindOptions(RingOptions& options, OptionTable& table) {
//     table.Add("size", &options.size, "How many samples there are.");
//     table.Add("pause", &options.pause, "How long each read takes.");
//     table.Add("mode", &options.mode, "How the samples come.",
//               {{"ordered", Mode::kOrdered}, {"random", Mode::kRandom}});
//   }
//
//   LOCKSTEP_ASSIGN_OR_RETURN(RingOptions options,
//                             ReadOptions<RingOptions>("dataset 'ring'",
//                             config));
//   Config again = WriteOptions(options);
//
// In a configuration, each type of field has one form:
//
//   bool, and integers            as TOML has them
//   float, double                 likewise, finite; 1 is 1.0
//   uint64_t                      an integer; from 2^63 on a string
//   std::string, and lists        "text", ["a", "b"]
//   std::map from strings         a table: {a = 1, b = 2}
//   absl::Duration                a string with its unit: "500ms", "10m", "inf"
//   DType                         the name of one: "u16", "bf16"
//   a size (AddSize)              an integer, or a string: "64k", "2g"
//   an enum                       one of the strings that were bound
//   std::optional of these        the same; no setting leaves it unset
//   Config                        a table or value of any form, which other
//                                 code reads later
//   a struct (AddTable)           a table of the settings that are bound for it
//
// A type of your own needs three functions in its namespace, which
// option_values.h has for the types above:
//
//   // Returns false if `config` has another type or is out of range.
//   bool ReadOption(const Config& config, Color* value);
//   // Returns nullopt if the value is unset.
//   std::optional<Config> WriteOption(Color value);
//   // Returns a text that says which values are accepted.
//   std::string OptionAccepts(const Color*);
#ifndef LOCKSTEP_BASE_OPTION_TABLE_H_
#define LOCKSTEP_BASE_OPTION_TABLE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_values.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {

// One setting, as documents describe it.
struct OptionInfo {
  std::string key;
  std::string accepted;       // "an integer from 0 to 65535"
  std::string default_value;  // as TOML; "" where it is unset
  std::string meaning;
  // The kind of the part that the setting's table is about, or of each part in
  // its list; "" for other settings.
  std::string part_kind = "";
};

// A list of settings, each bound to a field of an options struct.
// Requires: the fields outlive the table.
// Thread-safety: thread-compatible.
class OptionTable {
 public:
  // Binds `key` to a field. A key has lower-case letters, digits and '_', and
  // is bound only once; otherwise Read fails. Keys are printed in the order of
  // binding. `meaning` is a sentence or two.
  template <typename T>
  void Add(absl::string_view key, T* field, absl::string_view meaning) {
    using internal_base::OptionAccepts;
    using internal_base::ReadOption;
    using internal_base::WriteOption;
    AddField(
        {std::string(key), OptionAccepts(field), std::string(meaning),
         [field](const Config& config) { return ReadOption(config, field); },
         [field] { return WriteOption(*field); }, nullptr});
  }

  // Binds `key` to a struct that has BindOptions too. In a text it is a table,
  // such as [trainer.optimizer]. Fields that the configuration does not set
  // stay as they are.
  template <typename Options>
  void AddTable(absl::string_view key, Options* field,
                absl::string_view meaning);

  // Binds `key` to a list of such structs. In a text it is a list of tables.
  template <typename Options>
  void AddTables(absl::string_view key, std::vector<Options>* field,
                 absl::string_view meaning);

  // Binds `key` to the table of a part that other code makes by name, or to a
  // list of such tables: `field` is a Config or a vector of Configs. `kind` is
  // the part's kind. AddPart of registry.h has the part's type instead.
  template <typename T>
  void AddPartOfKind(absl::string_view kind, absl::string_view key, T* field,
                     absl::string_view meaning) {
    Add(key, field, meaning);
    fields_.back().part_kind = std::string(kind);
  }

  // Binds `key` to a choice among strings.
  template <typename Enum>
  void Add(absl::string_view key, Enum* field, absl::string_view meaning,
           std::initializer_list<std::pair<absl::string_view, Enum>> choices);

  // Binds `key` to a number of bytes, or to another count that is usual in
  // powers of 1024.
  void AddSize(absl::string_view key, int64_t* field,
               absl::string_view meaning);

  // Has the error of an unknown `key` say `where` it is set instead: "set it in
  // the sampler's table".
  void AddHint(absl::string_view key, absl::string_view where) {
    hints_.emplace_back(key, where);
  }

  // Writes the fields that `config` sets, and leaves the others as they are.
  // Fails with INVALID_ARGUMENT for an unknown key, a wrong type or a number
  // out of range. The message has the location of the setting if it is known,
  // `what`, and what is accepted, or the nearest key. Some fields may already
  // be written then.
  absl::Status Read(absl::string_view what, const Config& config) const;

  // Does the same, but goes on after an error. Returns all errors, in the order
  // of the text.
  std::vector<ConfigError> ReadAll(absl::string_view what,
                                   const Config& config) const;

  // Returns an error if a key is bad or bound twice, which is a bug in
  // BindOptions.
  const absl::Status& status() const { return status_; }

  // Returns all settings that are not unset. Read accepts the result.
  Config Write() const;

  // Describes all settings. The settings of a nested table follow that table,
  // and have keys with dots: "optimizer.momentum".
  std::vector<OptionInfo> Describe() const;

 private:
  struct Field {
    std::string key;
    std::string accepted;
    std::string meaning;
    std::function<bool(const Config& config)> read;
    std::function<std::optional<Config>()> write;
    std::function<OptionTable()> table;  // for AddTable, in place of both
    // For AddTables, beside `write`: appends the errors of all tables.
    std::function<void(absl::string_view what, const Config& config,
                       std::vector<ConfigError>& errors)>
        read_list = nullptr;
    std::string part_kind = "";
  };

  void AddField(Field field);
  std::string NoSetting(const std::string& key,
                        const std::vector<std::string>& keys) const;

  std::vector<Field> fields_;
  std::vector<std::pair<std::string, std::string>> hints_;  // by key
  absl::Status status_;
};

namespace internal_base {
template <typename Options, typename = void>
struct HasBindOptions : std::false_type {};
template <typename Options>
struct HasBindOptions<
    Options, std::void_t<decltype(BindOptions(std::declval<Options&>(),
                                              std::declval<OptionTable&>()))>>
    : std::true_type {};
}  // namespace internal_base

// Returns the table of the settings of `options`, which must outlive it.
template <typename Options>
OptionTable TableOf(Options& options) {
  static_assert(internal_base::HasBindOptions<Options>::value,
                "declare `void BindOptions(Options&, lockstep::OptionTable&)` "
                "in the namespace of the options struct");
  OptionTable table;
  if constexpr (internal_base::HasBindOptions<Options>::value) {
    BindOptions(options, table);
  }
  return table;
}

// Returns options that have the settings of `config`, and the defaults for all
// others. There must be a BindOptions for `Options`. `what` is as for
// OptionTable::Read.
template <typename Options>
absl::StatusOr<Options> ReadOptions(absl::string_view what,
                                    const Config& config) {
  Options options;
  LOCKSTEP_RETURN_IF_ERROR(TableOf(options).Read(what, config));
  return options;
}

template <typename Options>
Config WriteOptions(Options options) {
  return TableOf(options).Write();
}

// Describes the settings of `Options` with their defaults.
template <typename Options>
std::vector<OptionInfo> DescribeOptions() {
  Options options;
  return TableOf(options).Describe();
}

// ---- Implementation details.

template <typename Options>
void OptionTable::AddTable(absl::string_view key, Options* field,
                           absl::string_view meaning) {
  AddField({std::string(key), "a table of settings", std::string(meaning),
            nullptr, nullptr, [field] { return TableOf(*field); }});
}

template <typename Options>
void OptionTable::AddTables(absl::string_view key, std::vector<Options>* field,
                            absl::string_view meaning) {
  Field list;
  list.key = std::string(key);
  list.accepted =
      internal_base::OptionAccepts(static_cast<std::vector<Config>*>(nullptr));
  list.meaning = std::string(meaning);
  list.read_list = [field](absl::string_view what, const Config& config,
                           std::vector<ConfigError>& errors) {
    field->clear();
    for (const Config& each : *config.As<Config::Array>()) {
      const OptionTable table = TableOf(field->emplace_back());
      for (ConfigError& error : table.ReadAll(
               absl::StrCat(what, "[", field->size() - 1, "]"), each)) {
        errors.push_back(std::move(error));
      }
    }
  };
  list.write = [field]() -> std::optional<Config> {
    Config::Array tables;
    for (Options& each : *field) tables.push_back(TableOf(each).Write());
    return Config(std::move(tables));
  };
  AddField(std::move(list));
}

template <typename Enum>
void OptionTable::Add(
    absl::string_view key, Enum* field, absl::string_view meaning,
    std::initializer_list<std::pair<absl::string_view, Enum>> choices) {
  std::vector<std::pair<std::string, Enum>> names(choices.begin(),
                                                  choices.end());
  std::string accepted = absl::StrCat(
      "one of ",
      absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
        absl::StrAppend(out, "\"", choice.first, "\"");
      }));
  AddField({std::string(key), std::move(accepted), std::string(meaning),
            [field, names](const Config& config) {
              const auto* const text = config.As<std::string>();
              for (const auto& [name, choice] : names) {
                if (text == nullptr || name != *text) continue;
                *field = choice;
                return true;
              }
              return false;
            },
            [field, names]() -> std::optional<Config> {
              for (const auto& [name, choice] : names) {
                if (choice == *field) return Config(name);
              }
              return std::nullopt;
            },
            nullptr});
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_OPTION_TABLE_H_
