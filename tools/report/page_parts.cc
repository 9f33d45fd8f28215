#include "lockstep/tools/report/page_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/page_style.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/svg.h"

namespace lockstep::internal_report {

// ---- Tables.

namespace {

absl::string_view ClassOf(HtmlTable::Kind kind) {
  switch (kind) {
    case HtmlTable::Kind::kNumber:
      return "n";
    case HtmlTable::Kind::kPicture:
      return "w";
    case HtmlTable::Kind::kText:
      break;
  }
  return "t";
}

}  // namespace

HtmlTable::HtmlTable(absl::string_view caption, std::vector<Column> columns)
    : columns_(std::move(columns)), caption_(Escaped(caption)) {}

void HtmlTable::AddRow(const std::vector<std::string>& cells) {
  rows_ += "<tr>";
  for (size_t i = 0; i < columns_.size(); ++i) {
    const char* const tag = i == 0 ? "th" : "td";
    absl::StrAppend(&rows_, "<", tag, i == 0 ? " scope=\"row\"" : "",
                    " class=\"", ClassOf(columns_[i].kind), "\">", cells[i],
                    "</", tag, ">");
  }
  rows_ += "</tr>\n";
}

std::string HtmlTable::Html() const {
  // A table of few columns is easier to read if they stand close.
  constexpr size_t kMostNarrow = 6;
  std::string html =
      absl::StrCat("<p class=\"caption\" aria-hidden=\"true\">", caption_,
                   "</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"",
                   caption_, "\"><table",
                   columns_.size() > kMostNarrow ? " class=\"wide\"" : "",
                   " aria-label=\"", caption_, "\"><thead><tr>");
  for (const Column& column : columns_) {
    absl::StrAppend(&html, "<th scope=\"col\" class=\"", ClassOf(column.kind),
                    "\">", column.name, "</th>");
  }
  absl::StrAppend(&html, "</tr></thead><tbody>\n", rows_,
                  "</tbody></table></div>\n");
  return html;
}

std::string NameCell(absl::string_view name) {
  constexpr size_t kShort = 32;
  return absl::StrCat("<span class=\"", name.size() > kShort ? "long" : "whole",
                      "\">", Escaped(name, kMostOfName), "</span>");
}

// ---- The frame of a page.

std::string BeginPage(absl::string_view title) {
  // The policy keeps a browser from loading anything, whatever a text says.
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>",
      Escaped(title, kMostOfName), "</title>\n<style>", kPageStyle,
      "</style>\n</head>\n<body>\n<main>\n");
}

std::string EndPage() {
  return "<footer>This page was made by <code>lockstep report</code>. It loads "
         "nothing, so it can be kept and sent as one file.</footer>\n</main>\n"
         "</body>\n</html>\n";
}

std::string BeginSection(absl::string_view title, absl::string_view lead) {
  return absl::StrCat("<section>\n<h2>", Escaped(title), "</h2>\n",
                      lead.empty() ? "" : "<p class=\"lead\">", lead,
                      lead.empty() ? "" : "</p>\n");
}

std::string SaySteps(int64_t first, int64_t last) {
  return first == last
             ? absl::StrCat("step ", SayCount(first))
             : absl::StrCat("steps ", SayCount(first), " to ", SayCount(last));
}

std::string SayRun(const RunReport& report) {
  std::string text = absl::StrCat("Run ", SayCount(report.number), " of ",
                                  SayCount(std::max<int64_t>(report.runs, 1)));
  if (report.number < 1) text = "A run";
  absl::StrAppend(&text, ", began ",
                  report.began <= absl::UnixEpoch() ||
                          report.began == absl::InfiniteFuture()
                      ? "at a time that is not known"
                      : absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", report.began,
                                         absl::UTCTimeZone()),
                  ", ", SayCounted(report.size, "rank", "ranks"));
  if (report.last_step > 0 || report.first_step > 0) {
    absl::StrAppend(&text, ", ", SaySteps(report.first_step, report.last_step));
  }
  return text;
}

// ---- The verdict.

namespace {

// The level of a verdict: a class of the style, a sign, and a word.
struct Level {
  absl::string_view style;
  absl::string_view sign;
  absl::string_view word;
};

Level LevelOf(const RunVerdict& verdict) {
  if (verdict.kind == RunVerdict::Kind::kTooShort ||
      !std::isfinite(verdict.lost_share)) {
    return {"plain", "\u25cb", "Not known"};
  }
  if (verdict.lost_share > kSevereShare) return {"bad", "\u25a0", "Severe"};
  if (verdict.lost_share > kHealthyShare) return {"warn", "\u25b2", "Warning"};
  return {"good", "\u25cf", "Healthy"};
}

std::string BeginVerdict(const Level& level, absl::string_view kind,
                         bool is_second) {
  return absl::StrCat("<div class=\"verdict ", level.style,
                      is_second ? " second" : "", "\">\n<p class=\"level\">",
                      "<span aria-hidden=\"true\">", level.sign, "</span> ",
                      level.word, kind.empty() ? "" : ": ", Escaped(kind),
                      "</p>\n");
}

std::string AsSentence(absl::string_view text) {
  std::string sentence(text);
  if (!sentence.empty()) sentence[0] = absl::ascii_toupper(sentence[0]);
  return sentence;
}

std::string FailureBlock(const RunEnd& end) {
  std::string html =
      BeginVerdict({"bad", "\u2715", "Failed"}, "the run has ended early",
                   /*is_second=*/false);
  absl::StrAppend(&html, "<p class=\"sentence\">",
                  end.blame.empty() ? "The launcher does not say who failed."
                                    : Escaped(AsSentence(end.blame)),
                  "</p>\n");
  if (!end.message.empty()) {
    absl::StrAppend(&html, "<pre class=\"message\">", Escaped(end.message),
                    "</pre>\n");
  }
  absl::StrAppend(&html, "<p class=\"advice\">Attempt ", SayCount(end.attempt),
                  " has ended with exit code ", SayCount(end.exit_code),
                  ".</p>\n</div>\n");
  return html;
}

// Returns a table of what each cause would take away, for a verdict that names
// none.
std::string CausesTable(const RunVerdict& verdict) {
  HtmlTable table(
      "The part of the lost time that would go without each cause",
      {{"without"}, {"of the lost time", HtmlTable::Kind::kNumber}});
  const auto add = [&table](absl::string_view name, double part) {
    table.AddRow({std::string(name), Escaped(SayShare(std::max(part, 0.0)))});
  };
  add("waits for data", verdict.of_data);
  add("transfers", verdict.of_communication);
  add("the rank that is late most", verdict.of_one_rank);
  add("ranks that are late in turn", verdict.of_last_ranks);
  add("the slowest steps", verdict.of_few_steps);
  return table.Html();
}

}  // namespace

std::string VerdictBlock(const RunReport& report) {
  const RunVerdict& verdict = report.lost.verdict;
  const bool has_failed = report.end.has_value() && report.end->has_failed;
  std::string html = has_failed ? FailureBlock(*report.end) : "";
  html += BeginVerdict(
      LevelOf(verdict),
      verdict.kind == RunVerdict::Kind::kHealthy ? "" : Name(verdict.kind),
      has_failed);
  absl::StrAppend(&html, "<p class=\"sentence\">",
                  verdict.sentence.empty()
                      ? "The records say nothing about lost time."
                      : Escaped(verdict.sentence),
                  "</p>\n");
  if (!verdict.advice.empty()) {
    absl::StrAppend(&html, "<p class=\"advice\">", Escaped(verdict.advice),
                    "</p>\n");
  }
  if (verdict.kind == RunVerdict::Kind::kUnexplained) {
    html += CausesTable(verdict);
  }
  return html + "</div>\n";
}

std::string KeyNumbers(const RunReport& report) {
  std::string html = "<dl class=\"numbers\">\n";
  const auto add = [&html](absl::string_view name, absl::string_view value,
                           absl::string_view more) {
    absl::StrAppend(&html, "<div><dt>", name, "</dt><dd>", Escaped(value),
                    "<small>", Escaped(more), "</small></dd></div>\n");
  };
  const LostTime& lost = report.lost;
  const bool has_steps = lost.steps > 0;
  const auto known = [](bool is_known, const std::string& text) {
    return is_known ? text : std::string("not known");
  };
  add("lost time", known(has_steps, SayShare(lost.verdict.lost_share)),
      "of the time of all ranks");
  add("rows per second",
      known(report.rows_per_second > 0, SayNumber(report.rows_per_second)),
      "all ranks together");
  add("median step",
      known(report.median_step > 0, SaySeconds(report.median_step)),
      "half of the steps are faster");
  add("99th percentile",
      known(report.p99_step > 0, SaySeconds(report.p99_step)),
      "one step of 100 is slower");
  add("steps that count", SayCount(lost.steps),
      lost.left_out > 0 ? absl::StrCat(SayCount(lost.left_out), " left out")
                        : "none left out");
  return html + "</dl>\n";
}

std::string Notes(const RunReport& report) {
  constexpr size_t kMostNotes = 20;
  if (report.notes.empty() && report.is_whole) return "";
  std::string html = absl::StrCat(
      "<div class=\"notes\">\n<h2>",
      report.is_whole ? "Notes about the records" : "The records are not whole",
      "</h2>\n");
  if (!report.is_whole) {
    html += "<p>The numbers on this page are of those that are there.</p>\n";
  }
  if (!report.notes.empty()) {
    html += "<ul>\n";
    for (size_t i = 0; i < std::min(report.notes.size(), kMostNotes); ++i) {
      absl::StrAppend(&html, "<li>", Escaped(report.notes[i], 1000), "</li>\n");
    }
    if (report.notes.size() > kMostNotes) {
      absl::StrAppend(&html, "<li>and ", report.notes.size() - kMostNotes,
                      " more notes, which <code>lockstep report</code> prints"
                      "</li>\n");
    }
    html += "</ul>\n";
  }
  return html + "</div>\n";
}

// ---- The parts of time.

TimeParts::TimeParts(const RankTime& rank)
    : for_data(Amount(rank.for_data)),
      for_others(Amount(rank.for_others)),
      in_transfer(Amount(rank.in_transfer)),
      between(Amount(rank.between)),
      own(Amount(rank.own)) {}

TimeParts::TimeParts(const std::vector<RankTime>& ranks) {
  for (const RankTime& rank : ranks) {
    const TimeParts parts(rank);
    for_data += parts.for_data;
    for_others += parts.for_others;
    in_transfer += parts.in_transfer;
    between += parts.between;
    own += parts.own;
  }
}

std::vector<BarPart> TimeParts::AsBar() const {
  return {{"waits for data", for_data, "data"},
          {"waits for other ranks", for_others, "others"},
          {"transfers", in_transfer, "transfer"},
          {"between steps", between, "between"},
          {"own computation", own, "own"}};
}

std::string TimeParts::InWords() const {
  std::string text;
  for (const BarPart& part : AsBar()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", part.name, " ",
                    SayShare(ShareOf(part.value, whole())));
  }
  return text;
}

std::string BarOfParts(const TimeParts& parts, absl::string_view of_what) {
  std::vector<KeyEntry> entries;
  for (const BarPart& part : parts.AsBar()) {
    entries.push_back({std::string(part.style), part.name,
                       Escaped(SayShare(ShareOf(part.value, parts.whole())))});
  }
  return absl::StrCat(
      "<div class=\"big\">",
      StackedBar(absl::StrCat(of_what, ": ", parts.InWords()), parts.AsBar()),
      "</div>\n", Key(entries));
}

std::string Key(const std::vector<KeyEntry>& entries, absl::string_view style) {
  std::string html = absl::StrCat("<ul class=\"key ", style, "\">");
  for (const KeyEntry& entry : entries) {
    absl::StrAppend(&html, "<li><i class=\"", entry.style, "\"></i>",
                    entry.text);
    if (!entry.value.empty()) {
      absl::StrAppend(&html, " <b>", entry.value, "</b>");
    }
    html += "</li>";
  }
  return html + "</ul>\n";
}

// ---- Curves.

namespace {

// Returns at most about a thousand points, which are far apart.
std::vector<Curve::Point> SomePoints(const Curve& curve) {
  constexpr size_t kMostPoints = 500;
  const size_t stride = curve.points.size() / kMostPoints + 1;
  std::vector<Curve::Point> points;
  for (size_t i = 0; i < curve.points.size(); i += stride) {
    points.push_back(curve.points[i]);
  }
  return points;
}

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool is_empty() const { return !(least <= most); }
};

void Draw(const Curve& curve, const Range& steps, absl::string_view style,
          LineChart& chart) {
  std::vector<double> places;
  std::vector<double> values;
  for (const Curve::Point& point : SomePoints(curve)) {
    const double step = static_cast<double>(point.step);
    places.push_back(steps.most > steps.least
                         ? (step - steps.least) / (steps.most - steps.least)
                         : 0.5);
    values.push_back(point.value);
  }
  chart.AddLine(style, places, values);
  // One point is no line that can be seen.
  if (!curve.is_of_steps || places.size() == 1) {
    chart.AddPoints(style, places, values);
  }
}

std::string SayPoint(absl::string_view what, const Curve::Point& point) {
  return absl::StrCat(what, " ", SayNumber(point.value), " (step ",
                      SayCount(point.step), ")");
}

std::string SayCurve(const Curve& curve) {
  return absl::StrCat(SayPoint("last", curve.last), ", ",
                      SayPoint("least", curve.least), ", ",
                      SayPoint("most", curve.most));
}

}  // namespace

std::string CurveFigure(const Curve& first, const Curve* second) {
  Range steps;
  Range values;
  for (const Curve* const curve : {&first, second}) {
    if (curve == nullptr) continue;
    for (const Curve::Point& point : SomePoints(*curve)) {
      steps.Add(static_cast<double>(point.step));
      values.Add(point.value);
    }
  }
  std::string html =
      absl::StrCat("<figure><figcaption><h3>", Escaped(first.name, kMostOfName),
                   "</h3></figcaption>\n");
  std::string words = SayCurve(first);
  if (second != nullptr) {
    words = absl::StrCat("first run: ", SayCurve(first),
                         "; second run: ", SayCurve(*second));
  }
  if (values.is_empty()) {
    html += "<p class=\"note\">None of its values is finite.</p>\n";
  } else {
    LineChart chart(NumberTicks(steps.least, steps.most, 4),
                    NumberAxis(values.least, values.most, 3), 120);
    Draw(first, steps, "first", chart);
    if (second != nullptr) Draw(*second, steps, "two", chart);
    html += chart.Svg(absl::StrCat(first.name.substr(0, kMostOfName),
                                   " over the steps: ", words));
  }
  absl::StrAppend(&html, "<p class=\"note\">", Escaped(words),
                  "</p></figure>\n");
  return html;
}

std::string NameOfOperation(const OperationTimes& times) {
  return times.bucket < 0 ? times.operation
                          : absl::StrCat(times.operation, " of bucket ",
                                         SayCount(times.bucket));
}

}  // namespace lockstep::internal_report
