// The forms in which commands print their data:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const OutputFormat format,
//       ParseFormat(command.format, {OutputFormat::kText,
//       OutputFormat::kCsv}));
//   RecordTable table({"rank", "steps"});
//   table.AddRow({0, 50});
//   table.Print(format, out);
#ifndef LOCKSTEP_TOOLS_CLI_OUTPUT_H_
#define LOCKSTEP_TOOLS_CLI_OUTPUT_H_

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

enum class OutputFormat { kText, kJson, kCsv, kMarkdown, kHtml };

// Returns the format of a flag --format, or INVALID_ARGUMENT that lists the
// accepted ones.
absl::StatusOr<OutputFormat> ParseFormat(
    absl::string_view text,
    std::initializer_list<OutputFormat> accepted = {
        OutputFormat::kText, OutputFormat::kJson, OutputFormat::kCsv});

// Returns the text in lines of at most 80 columns that begin with `indent`, if
// it has blanks at which it can be broken. The last line ends, too.
std::string Wrapped(absl::string_view text, absl::string_view indent = "  ");

// Returns a text in quotes, as JSON.
std::string JsonText(absl::string_view text);

// One value of a table. std::monostate is no value: nothing in a text or in
// CSV, and null in JSON.
class Cell {
 public:
  Cell() = default;
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Cell(T value) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<T, bool>) {
      value_ = value;
    } else {
      value_ = static_cast<int64_t>(value);
    }
  }
  Cell(double value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Cell(std::string value)                // NOLINT(google-explicit-constructor)
      : value_(std::move(value)) {}
  Cell(const char* value)  // NOLINT(google-explicit-constructor)
      : value_(std::string(value)) {}

  bool is_number() const {
    return std::holds_alternative<int64_t>(value_) ||
           std::holds_alternative<double>(value_);
  }
  std::string ToText() const;
  std::string ToCsv() const;
  std::string ToJson() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string> value_;
};

// Rows of values under named columns.
// Thread-safety: thread-compatible.
class RecordTable {
 public:
  explicit RecordTable(std::vector<std::string> columns)
      : columns_(std::move(columns)) {}

  // Requires: there is a cell for each column.
  void AddRow(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }

  // Adds the rows of a table with the same columns.
  void Append(const RecordTable& other) {
    rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
  }

  bool empty() const { return rows_.empty(); }

  // Prints aligned columns, whose names have blanks for '_'; comma-separated
  // values under a line of names, unless there was one before; or a JSON array
  // of objects, without the end of its last line, whose lines begin with
  // `indent`.
  void PrintText(std::ostream& out, absl::string_view indent = "") const;
  void PrintCsv(std::ostream& out, bool has_names = true) const;
  void PrintJson(std::ostream& out, absl::string_view indent = "") const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_OUTPUT_H_
