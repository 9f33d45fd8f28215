// CommandLine reads the flags of one command into the fields of a struct, and
// prints the command's help.
//
//   LaunchCommand launch;
//   CommandLine line("lockstep launch", "starts the ranks of this host",
//                    "lockstep launch -n 4 -- ./train --lr=0.1");
//   line.Add("n|nproc_per_node", &launch.n, "how many ranks this host runs");
//   line.Add("grace", &launch.grace, "how long the others have to report");
//   line.AddRest("program", &launch.program);
//   absl::Status status = line.Parse({"-n", "4", "--grace=9s", "--",
//   "./train"});
//
// A flag is written --name=value or --name value, with one dash or two, and
// with - or _ within the name. A flag of type bool takes no separate value: it
// is --name, --noname, or --name=false. The words after -- are not read as
// flags. A flag may be given once, and a flag of AddRepeated several times.
#ifndef LOCKSTEP_TOOLS_CLI_COMMAND_LINE_H_
#define LOCKSTEP_TOOLS_CLI_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lockstep {

// Thread-safety: for one thread at a time.
class CommandLine {
 public:
  // `name` is the whole command, "lockstep bench loader"; `summary` follows it
  // in lists of commands; `details` are the lines of its help before the
  // flags, usually examples.
  CommandLine(absl::string_view name, absl::string_view summary,
              absl::string_view details)
      : name_(name), summary_(summary), details_(details) {}

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }

  // Binds a flag to a field, which must outlive this object and holds the
  // flag's default. `names` are one or several, separated by |. A field of type
  // std::optional has no default. Types are int64_t, uint64_t, bool,
  // std::string, std::vector<std::string> and absl::Duration.
  template <typename T>
  void Add(absl::string_view names, T* field, absl::string_view help) {
    const std::string value = absl::UnparseFlag<T>(*field);
    AddFlag({Names(names), TypeOf(field),
             value.empty() ? "" : absl::StrCat(" (", value, ")"),
             std::string(help), [field](absl::string_view text) {
               std::string error;
               return absl::ParseFlag<T>(text, field, &error);
             }});
  }
  template <typename T>
  void Add(absl::string_view names, std::optional<T>* field,
           absl::string_view help) {
    AddFlag({Names(names), TypeOf(static_cast<T*>(nullptr)), "",
             std::string(help), [field](absl::string_view text) {
               std::string error;
               return absl::ParseFlag<T>(text, &field->emplace(), &error);
             }});
  }

  // Binds a flag that may be given several times to a list of its values.
  void AddRepeated(absl::string_view names, std::vector<std::string>* field,
                   absl::string_view help) {
    AddFlag({Names(names), TypeOf(static_cast<std::string*>(nullptr)), "",
             std::string(help), [field](absl::string_view text) {
               field->emplace_back(text);
               return true;
             }});
    flags_.back().repeated = true;
  }

  // Binds a word without a dash to a field. Such words must be given in the
  // order of these calls. `name` is for messages, such as "FILE". Optional
  // words come last.
  void AddWord(absl::string_view name, std::string* field,
               absl::string_view help) {
    words_.push_back({std::string(name), field, std::string(help), false});
  }
  void AddOptionalWord(absl::string_view name, std::string* field,
                       absl::string_view help) {
    words_.push_back({std::string(name), field, std::string(help), true});
  }

  // Stores all words without a dash in `field`, behind those of AddWord.
  void AddWords(absl::string_view name, std::vector<std::string>* field,
                absl::string_view help) {
    words_.push_back({std::string(name), nullptr, std::string(help), true});
    list_ = field;
  }

  // Stores the words after -- in `field`. Without this call, Parse refuses
  // them.
  void AddRest(absl::string_view name, std::vector<std::string>* field) {
    rest_name_ = std::string(name);
    rest_ = field;
  }

  // Sets the fields of the flags in `words`. Returns INVALID_ARGUMENT, which
  // says which word is wrong and what this command accepts.
  absl::Status Parse(absl::Span<const std::string> words);

  // Returns the whole help, of several lines.
  std::string Help() const;

 private:
  struct Type {
    const char* shown;     // The value in the help, such as "N".
    const char* accepted;  // For messages, such as "a whole number".
    bool is_bool = false;
  };
  struct Flag {
    std::vector<std::string> names;
    Type type;
    std::string shown_default;
    std::string help;
    std::function<bool(absl::string_view text)> parse;
    bool repeated = false;
    bool given = false;
  };
  struct Word {
    std::string name;
    std::string* field;
    std::string help;
    bool is_optional;
  };

  static Type TypeOf(const int64_t*) { return {"N", "a whole number"}; }
  static Type TypeOf(const uint64_t*) { return {"N", "0 or a whole number"}; }
  static Type TypeOf(const bool*) { return {"", "true or false", true}; }
  static Type TypeOf(const std::string*) { return {"TEXT", "text"}; }
  static Type TypeOf(const std::vector<std::string>*) {
    return {"A,B,...", "a list separated by commas"};
  }
  static Type TypeOf(const absl::Duration*) {
    return {"DURATION", "a duration such as 5s or 500ms"};
  }

  static std::vector<std::string> Names(absl::string_view names);
  void AddFlag(Flag flag) { flags_.push_back(std::move(flag)); }
  Flag* Find(absl::string_view name);
  absl::Status Set(Flag& flag, absl::string_view name, absl::string_view text);
  absl::Status NoFlag(absl::string_view word) const;
  absl::Status UnknownFlag(absl::string_view name) const;

  std::string name_, summary_, details_;
  std::vector<Flag> flags_;
  std::vector<Word> words_;
  std::vector<std::string>* list_ = nullptr;  // of AddWords
  std::string rest_name_;
  std::vector<std::string>* rest_ = nullptr;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_COMMAND_LINE_H_
