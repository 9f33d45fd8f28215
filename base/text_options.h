// Options as text: "key:value,key:value", for command lines and registries.
// An options struct binds its fields once, and both directions follow:
//
//   struct RingOptions {
//     int64_t bytes = 1 << 20;
//     bool pinned = false;
//     Mode mode = Mode::kOrdered;
//
//     static absl::StatusOr<RingOptions> FromString(absl::string_view text) {
//       RingOptions options;
//       LOCKSTEP_RETURN_IF_ERROR(Fields(options).Parse(text));
//       return options;
//     }
//     std::string ToString() const {
//       RingOptions copy = *this;
//       return Fields(copy).ToString();
//     }
//
//    private:
//     static TextOptions Fields(RingOptions& options) {
//       TextOptions fields("ring options");
//       fields.Add("bytes", &options.bytes);
//       fields.Add("pinned", &options.pinned);
//       fields.Add("mode", &options.mode, {{"ordered", Mode::kOrdered},
//                                          {"unordered", Mode::kUnordered}});
//       return fields;
//     }
//   };
//
//   RingOptions::FromString("bytes:64k,mode:unordered");
//
// Grammar. Entries are separated by commas; each is a key, a colon and a value;
// spaces around either don't count; no key may stand twice; "" has no entries.
//   integer   decimal or 0x hexadecimal, optionally times 1024 (k), 1024^2 (m),
//             1024^3 (g) or 1024^4 (t), in either case: 64k, 0x5eed, -1
//   number    as in C, finite: 0.5, 1e-3
//   boolean   true or false
//   choice    one of the names that were bound
//   string    as it stands, or in double quotes, in which \" and \\ stand for
//             the quote and the backslash: path:"/data/a,b"
// Any value may be quoted.
#ifndef LOCKSTEP_BASE_TEXT_OPTIONS_H_
#define LOCKSTEP_BASE_TEXT_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

class TextOptions {
 public:
  // `what` names the options in messages: "ring options".
  explicit TextOptions(absl::string_view what) : what_(what) {}

  // Binds `key` to a field, which must outlive this object. Keys are bound
  // once, and printed in this order.
  void Add(absl::string_view key, int* field);
  void Add(absl::string_view key, int64_t* field);
  void Add(absl::string_view key, uint64_t* field);
  void Add(absl::string_view key, double* field);
  void Add(absl::string_view key, bool* field);
  void Add(absl::string_view key, std::string* field);
  template <typename Enum>
  void Add(absl::string_view key, Enum* field,
           std::initializer_list<std::pair<absl::string_view, Enum>> choices);

  // Writes the fields that `text` names and leaves the others as they are.
  // INVALID_ARGUMENT names the column, counted from 1, the key, and what is
  // accepted; fields may then have been written: parse into a fresh struct.
  absl::Status Parse(absl::string_view text) const;

  // All fields, as text that Parse takes back to the same values.
  std::string ToString() const;

 private:
  struct Field {
    std::string key;
    std::string accepted;  // "true or false"
    std::function<bool(const std::string& value)> parse;
    std::function<std::string()> print;
  };

  template <typename Integer>
  void AddInteger(absl::string_view key, Integer* field);
  void AddField(Field field);

  std::string what_;
  std::vector<Field> fields_;
};

template <typename Enum>
void TextOptions::Add(
    absl::string_view key, Enum* field,
    std::initializer_list<std::pair<absl::string_view, Enum>> choices) {
  std::vector<std::pair<std::string, Enum>> names(choices.begin(),
                                                  choices.end());
  std::string accepted =
      absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
        out->append(choice.first.data(), choice.first.size());
      });
  AddField({std::string(key), "one of " + accepted,
            [field, names](const std::string& value) {
              for (const auto& [name, choice] : names) {
                if (name != value) continue;
                *field = choice;
                return true;
              }
              return false;
            },
            [field, names] {
              for (const auto& [name, choice] : names) {
                if (choice == *field) return name;
              }
              return std::string();
            }});
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TEXT_OPTIONS_H_
