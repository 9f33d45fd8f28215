#include "lockstep/tools/cli/output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

std::string NameOf(OutputFormat format) {
  switch (format) {
    case OutputFormat::kText:
      return "text";
    case OutputFormat::kJson:
      return "json";
    case OutputFormat::kCsv:
      return "csv";
    case OutputFormat::kMarkdown:
      return "markdown";
    case OutputFormat::kHtml:
      return "html";
  }
  return "";
}

// Returns the shortest of three forms that reads back as the same number.
std::string NumberText(double value) {
  std::string text;
  for (const int digits : {15, 16, 17}) {
    text = absl::StrFormat("%.*g", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text;
}

}  // namespace

absl::StatusOr<OutputFormat> ParseFormat(
    absl::string_view text, std::initializer_list<OutputFormat> accepted) {
  std::vector<std::string> names;
  for (const OutputFormat format : accepted) {
    if (NameOf(format) == text) return format;
    names.push_back(NameOf(format));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no --format ", SayUnknown(text, names)));
}

std::string Wrapped(absl::string_view text, absl::string_view indent) {
  constexpr size_t kWidth = 80;
  std::string lines;
  size_t width = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (lines.empty()) {
      absl::StrAppend(&lines, indent, word);
      width = indent.size() + word.size();
    } else if (width + 1 + word.size() > kWidth) {
      absl::StrAppend(&lines, "\n", indent, word);
      width = indent.size() + word.size();
    } else {
      absl::StrAppend(&lines, " ", word);
      width += 1 + word.size();
    }
  }
  return lines + "\n";
}

std::string JsonText(absl::string_view text) {
  std::string json;
  internal_base::AppendJson(text, json);
  return json;
}

std::string Cell::ToText() const {
  if (const auto* const number = std::get_if<int64_t>(&value_)) {
    return WithCommas(*number);
  }
  if (const auto* const number = std::get_if<double>(&value_)) {
    return absl::StrFormat("%.6g", *number);
  }
  return ToCsv();
}

std::string Cell::ToCsv() const {
  struct Printer {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool value) const { return value ? "yes" : "no"; }
    std::string operator()(int64_t value) const { return absl::StrCat(value); }
    std::string operator()(double value) const { return NumberText(value); }
    std::string operator()(const std::string& value) const { return value; }
  };
  return std::visit(Printer(), value_);
}

std::string Cell::ToJson() const {
  struct Printer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool value) const {
      return value ? "true" : "false";
    }
    std::string operator()(int64_t value) const { return absl::StrCat(value); }
    std::string operator()(double value) const {
      return std::isfinite(value) ? NumberText(value) : "null";
    }
    std::string operator()(const std::string& value) const {
      return JsonText(value);
    }
  };
  return std::visit(Printer(), value_);
}

void RecordTable::PrintText(std::ostream& out, absl::string_view indent) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const std::string& column : columns_) {
    lines[0].push_back(absl::StrReplaceAll(column, {{"_", " "}}));
  }
  for (const std::vector<Cell>& row : rows_) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const Cell& cell : row) line.push_back(cell.ToText());
  }
  std::vector<size_t> widths(columns_.size());
  std::vector<bool> are_numbers(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    for (const auto& line : lines) {
      widths[i] = std::max(widths[i], line[i].size());
    }
    for (const auto& row : rows_) {
      if (row[i].is_number()) are_numbers[i] = true;
    }
  }
  for (const auto& line : lines) {
    std::string text(indent);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string blanks(widths[i] - line[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ");
      if (are_numbers[i]) {
        absl::StrAppend(&text, blanks, line[i]);
      } else {
        absl::StrAppend(&text, line[i], blanks);
      }
    }
    out << absl::StripTrailingAsciiWhitespace(text) << "\n";
  }
}

void RecordTable::PrintCsv(std::ostream& out, bool has_names) const {
  const auto print = [&out](const std::string& field, size_t i) {
    const bool is_plain = field.find_first_of(",\"\r\n") == field.npos;
    out << (i == 0 ? "" : ",");
    if (is_plain) {
      out << field;
    } else {
      out << '"' << absl::StrReplaceAll(field, {{"\"", "\"\""}}) << '"';
    }
  };
  if (has_names) {
    for (size_t i = 0; i < columns_.size(); ++i) print(columns_[i], i);
    out << "\n";
  }
  for (const std::vector<Cell>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) print(row[i].ToCsv(), i);
    out << "\n";
  }
}

void RecordTable::PrintJson(std::ostream& out, absl::string_view indent) const {
  out << "[";
  for (size_t i = 0; i < rows_.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << indent << "  {";
    for (size_t k = 0; k < columns_.size(); ++k) {
      out << (k == 0 ? "" : ", ") << JsonText(columns_[k]) << ": "
          << rows_[i][k].ToJson();
    }
    out << "}";
  }
  if (!rows_.empty()) out << "\n" << indent;
  out << "]";
}

}  // namespace lockstep
