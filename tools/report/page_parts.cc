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
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/metrics/records.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/page_style.h"
#include "lockstep/tools/report/page_text.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/svg.h"
#include "lockstep/tools/words/words.h"

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
  return first == last ? absl::StrCat("step ", WithCommas(first))
                       : absl::StrCat("steps ", WithCommas(first), " to ",
                                      WithCommas(last));
}

std::string AboutRun(const RunReport& report) {
  std::string text =
      report.number < 1
          ? "A run"
          : absl::StrCat("Run ", WithCommas(report.number), " of ",
                         WithCommas(std::max<int64_t>(report.runs, 1)));
  const bool has_steps = report.first_step != 0 || report.last_step != 0;
  absl::StrAppend(
      &text, ", began ",
      report.began <= absl::UnixEpoch() ||
              report.began == absl::InfiniteFuture()
          ? "at a time that is not known"
          : absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", report.began,
                             absl::UTCTimeZone()),
      ", ", Counted(report.size, "rank", "ranks"), ", ",
      has_steps ? SaySteps(report.first_step, report.last_step) : "no step");
  if (has_steps && report.in_steps > 0) {
    absl::StrAppend(&text, ", which took ", SaySeconds(report.in_steps),
                    report.has_time_outside()
                        ? absl::StrCat(" of ", SaySeconds(report.by_clock))
                        : "");
  }
  std::string html =
      absl::StrCat("<p class=\"about\">", Escaped(text), "</p>\n");
  const LostTime& lost = report.lost;
  if (lost.left_out > 0) {
    absl::StrAppend(&html, "<p class=\"about\">", WithCommas(lost.steps),
                    " of ", WithCommas(lost.steps + lost.left_out),
                    " steps count, since some rank lacks ",
                    lost.left_out == 1 ? "the other one or has no times of it"
                                       : "the others or has no times of them",
                    ".</p>\n");
  }
  return html;
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
  if (verdict.kind == RunVerdict::Kind::kHealthy) {
    return {"good", "\u25cf", "Healthy"};
  }
  if (verdict.kind == RunVerdict::Kind::kTooShort) {
    return {"plain", "\u25cb", "Not known"};
  }
  if (verdict.lost_share > kSevereShare) return {"bad", "\u25a0", "Severe"};
  return {"warn", "\u25b2", "Warning"};
}

std::string BeginVerdict(const Level& level, bool is_second) {
  return absl::StrCat("<div class=\"verdict ", level.style,
                      is_second ? " second" : "", "\">\n<p class=\"level\">",
                      "<span aria-hidden=\"true\">", level.sign, "</span> ",
                      level.word, "</p>\n");
}

// Returns a text with a large first letter and a full stop.
std::string AsSentence(absl::string_view text) {
  std::string sentence(text);
  if (!sentence.empty()) sentence[0] = absl::ascii_toupper(sentence[0]);
  return absl::EndsWith(sentence, ".") ? sentence : sentence + ".";
}

std::string FailureBlock(const RunEnd& end) {
  constexpr size_t kMostEnds = 16;
  std::string html = BeginVerdict({"bad", "\u2715", "Failed"},
                                  /*is_second=*/false);
  absl::StrAppend(&html, "<p class=\"sentence\">The run has failed. ",
                  end.blame.empty() ? "The launcher does not say who failed."
                                    : Escaped(AsSentence(end.blame)),
                  "</p>\n");
  if (!end.ends.empty()) {
    html += "<ul class=\"ends\">\n";
    for (size_t i = 0; i < std::min(end.ends.size(), kMostEnds); ++i) {
      absl::StrAppend(&html, "<li>", Escaped(AsSentence(end.ends[i]), 1000),
                      "</li>\n");
    }
    if (end.ends.size() > kMostEnds) {
      absl::StrAppend(
          &html, "<li>There are ",
          WithCommas(static_cast<int64_t>(end.ends.size() - kMostEnds)),
          " more, which <code>--format=json</code> has.</li>\n");
    }
    html += "</ul>\n";
  }
  if (!end.message.empty()) {
    absl::StrAppend(&html, "<pre class=\"message\">", Escaped(end.message),
                    "</pre>\n");
  }
  absl::StrAppend(&html, "<p class=\"advice\">Attempt ",
                  WithCommas(end.attempt), " has ended with exit code ",
                  WithCommas(end.exit_code), ".</p>\n</div>\n");
  return html;
}

// Returns what the launcher says of a run that has not failed.
std::string SayEnd(const RunEnd& end) {
  if (end.exit_code == 0) {
    return "The launcher says that the run has finished.";
  }
  return absl::StrCat("The launcher says that the run was stopped (exit code ",
                      WithCommas(end.exit_code), ").");
}

// Returns a table of what each cause would take away, for a verdict that names
// none. Causes that would take away next to nothing are left out.
std::string CausesTable(const RunVerdict& verdict) {
  constexpr double kLeastPart = 0.01;
  std::vector<std::pair<double, absl::string_view>> causes = {
      {verdict.of_data, "waits for data"},
      {verdict.of_communication, "transfers"},
      {verdict.of_slow_ranks, "slow ranks"},
      {verdict.of_last_ranks, "the last rank of each step"},
      {verdict.of_few_steps, "a few steps"}};
  causes.erase(
      std::remove_if(causes.begin(), causes.end(),
                     [](const std::pair<double, absl::string_view>& cause) {
                       return !(cause.first >= kLeastPart);
                     }),
      causes.end());
  if (causes.empty()) return "";
  std::stable_sort(
      causes.begin(), causes.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  HtmlTable table(
      "The part of the lost time that would go without each cause",
      {{"without"}, {"of the lost time", HtmlTable::Kind::kNumber}});
  for (const auto& [part, name] : causes) {
    table.AddRow({std::string(name), Escaped(SayShare(part))});
  }
  return table.Html();
}

}  // namespace

std::string VerdictBlock(const RunReport& report, Advice advice) {
  const RunVerdict& verdict = report.lost.verdict;
  const bool has_failed = report.end.has_value() && report.end->has_failed;
  std::string html = has_failed ? FailureBlock(*report.end) : "";
  html += BeginVerdict(LevelOf(verdict), has_failed);
  absl::StrAppend(&html, "<p class=\"sentence\">",
                  verdict.sentence.empty()
                      ? "The records say nothing about lost time."
                      : Escaped(verdict.sentence),
                  "</p>\n");
  if (advice == Advice::kShown && !verdict.advice.empty()) {
    absl::StrAppend(&html, "<p class=\"advice\">", Escaped(verdict.advice),
                    "</p>\n");
  }
  if (verdict.kind == RunVerdict::Kind::kUnexplained) {
    html += CausesTable(verdict);
  }
  if (report.end.has_value() && !has_failed) {
    absl::StrAppend(&html, "<p class=\"note\">", SayEnd(*report.end), "</p>\n");
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
  const bool has_verdict = lost.verdict.kind != RunVerdict::Kind::kTooShort;
  const auto known = [](bool is_known, const std::string& text) {
    return is_known ? text : std::string("not known");
  };
  add("lost time", known(has_verdict, SayShare(lost.verdict.lost_share)),
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
  add("steps that count", WithCommas(lost.steps),
      lost.left_out > 0 ? absl::StrCat(WithCommas(lost.left_out), " left out")
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
      const auto more = static_cast<int64_t>(report.notes.size() - kMostNotes);
      absl::StrAppend(&html, "<li>and ",
                      Counted(more, "more note", "more notes"),
                      ", which <code>--format=json</code> has</li>\n");
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
  for (const Curve::Point& point : curve.points) {
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
                      WithCommas(point.step), ")");
}

// Returns the last, the least and the most value of a curve.
std::string SayCurve(const Curve& curve) {
  if (curve.points.empty()) return "no value is finite";
  return absl::StrCat(
      SayPoint(curve.not_finite > 0 ? "last finite" : "last", curve.last), ", ",
      SayPoint("least", curve.least), ", ", SayPoint("most", curve.most));
}

// Returns how many values of a curve are not finite, or "".
std::string SayNotFinite(const Curve& curve) {
  if (curve.not_finite <= 0) return "";
  return absl::StrCat(Counted(curve.not_finite, "value is", "values are"),
                      " not finite (NaN or infinite)");
}

// Returns the axis of values. If all are above 0, and some are far larger than
// others, then it is logarithmic, since the small ones would be flat.
Axis AxisOf(const Curve& first, const Curve* second, const Range& values) {
  constexpr double kFar = 1000;
  constexpr int kTicks = 3;
  // Points may be means, so the least value may be less than all of them.
  const bool are_positive = first.least.value > 0 &&
                            (second == nullptr || second->least.value > 0) &&
                            values.least > 0;
  return are_positive && values.most / kFar > values.least
             ? LogarithmicAxis(values.least, values.most, kTicks)
             : NumberAxis(values.least, values.most, kTicks);
}

}  // namespace

bool HasValues(const Curve& curve) {
  return !curve.points.empty() || curve.not_finite > 0;
}

std::string CurveFigure(const Curve& first, const Curve* second) {
  Range steps;
  Range values;
  std::string words;
  std::string alarm;
  for (const Curve* const curve : {&first, second}) {
    if (curve == nullptr) continue;
    for (const Curve::Point& point : curve->points) {
      steps.Add(static_cast<double>(point.step));
      values.Add(point.value);
    }
    const absl::string_view run = second == nullptr ? ""
                                  : curve == &first ? "first run: "
                                                    : "second run: ";
    const absl::string_view between = curve == &first ? "" : "; ";
    absl::StrAppend(&words, between, run, SayCurve(*curve));
    const std::string not_finite = SayNotFinite(*curve);
    if (not_finite.empty()) continue;
    absl::StrAppend(&alarm, alarm.empty() ? "" : "; ", run, not_finite);
  }
  std::string html =
      absl::StrCat("<figure><figcaption><h3>", Escaped(first.name, kMostOfName),
                   "</h3></figcaption>\n");
  if (values.is_empty()) {
    html += "<p class=\"note\">None of its values is finite.</p>\n";
  } else {
    const Axis axis = AxisOf(first, second, values);
    if (axis.is_logarithmic) words += "; the axis is logarithmic";
    LineChart chart(NumberTicks(steps.least, steps.most, 4), axis, 120);
    Draw(first, steps, "first", chart);
    if (second != nullptr) Draw(*second, steps, "two", chart);
    html += chart.Svg(absl::StrCat(first.name.substr(0, kMostOfName),
                                   " over the steps: ", words,
                                   alarm.empty() ? "" : "; ", alarm));
  }
  if (!alarm.empty()) {
    absl::StrAppend(&html,
                    "<p class=\"alarm\"><span aria-hidden=\"true\">"
                    "\u25b2</span> ",
                    Escaped(AsSentence(alarm)), "</p>\n");
  }
  absl::StrAppend(&html, "<p class=\"note\">", Escaped(words),
                  "</p></figure>\n");
  return html;
}

std::string NameOfOperation(const OperationTimes& times) {
  return times.bucket < 0 ? times.operation
                          : absl::StrCat(times.operation, " of bucket ",
                                         WithCommas(times.bucket));
}

}  // namespace lockstep::internal_report
