#include "lockstep/tools/gpu_check/gpu_report.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::string Quoted(absl::string_view text) {
  std::string quoted;
  internal_base::AppendJson(text, quoted);
  return quoted;
}

// Returns the text for a cell of a table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string TargetOf(const GpuRow& row) {
  if (row.bound == GpuRow::Bound::kNone) return "";
  return absl::StrFormat("at %s %g %s",
                         row.bound == GpuRow::Bound::kAtMost ? "most" : "least",
                         row.target, row.unit);
}

}  // namespace

bool GpuRow::met() const {
  switch (bound) {
    case Bound::kAtMost:
      return value <= target;
    case Bound::kAtLeast:
      return value >= target;
    default:
      return true;
  }
}

void GpuReport::AddFact(absl::string_view name, absl::string_view value) {
  facts_.emplace_back(name, value);
}

void GpuReport::AddRow(GpuRow row) { rows_.push_back(std::move(row)); }

void GpuReport::EndSection(absl::string_view section,
                           const absl::Status& status) {
  std::string result = "ok";
  if (absl::IsUnimplemented(status)) {
    result = absl::StrCat("refused: ", status.message());
  } else if (!status.ok()) {
    result = absl::StrCat("failed: ", status.ToString());
    failed_ = true;
  } else if (std::any_of(rows_.begin(), rows_.end(), [&](const GpuRow& row) {
               return row.section == section && !row.met();
             })) {
    result = "missed";
  }
  sections_.push_back({std::string(section), result});
}

std::string GpuReport::Json() const {
  const auto fact = [](std::string* out, const auto& fact) {
    absl::StrAppend(out, Quoted(fact.first), ": ", Quoted(fact.second));
  };
  const auto section = [](std::string* out, const Section& section) {
    absl::StrAppend(out, "    {\"section\": ", Quoted(section.name),
                    ", \"result\": ", Quoted(section.result), "}");
  };
  const auto row = [](std::string* out, const GpuRow& row) {
    const bool bound = row.bound != GpuRow::Bound::kNone;
    absl::StrAppendFormat(
        out,
        "    {\"section\": %s, \"what\": %s, \"value\": %.6g, \"unit\": %s, "
        "\"target\": %s, \"met\": %s}",
        Quoted(row.section), Quoted(row.what), row.value, Quoted(row.unit),
        bound ? Quoted(TargetOf(row)) : "null",
        !bound      ? "null"
        : row.met() ? "true"
                    : "false");
  };
  return absl::StrCat("{\n  \"machine\": {", absl::StrJoin(facts_, ", ", fact),
                      "},\n  \"sections\": [\n",
                      absl::StrJoin(sections_, ",\n", section),
                      "\n  ],\n  \"rows\": [\n",
                      absl::StrJoin(rows_, ",\n", row), "\n  ]\n}\n");
}

std::string GpuReport::Tables() const {
  std::string text =
      absl::StrCat("On ", absl::StrJoin(facts_, ", ", absl::PairFormatter(" ")),
                   ".\n\n| section | result |\n|---|---|\n");
  for (const Section& section : sections_) {
    absl::StrAppend(&text, "| ", section.name, " | ", Cell(section.result),
                    " |\n");
  }
  absl::StrAppend(&text,
                  "\n| section | what | value | target | met? |\n"
                  "|---|---|---|---|---|\n");
  for (const GpuRow& row : rows_) {
    absl::string_view met;
    if (row.bound != GpuRow::Bound::kNone) {
      met = row.met() ? "yes" : "**missed**";
    }
    absl::StrAppendFormat(&text, "| %s | %s | %.4g %s | %s | %s |\n",
                          row.section, Cell(row.what), row.value, row.unit,
                          TargetOf(row), met);
  }
  return text;
}

}  // namespace lockstep
