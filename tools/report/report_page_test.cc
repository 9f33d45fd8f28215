#include "lockstep/tools/report/report_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/run_report.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string PageOf(const RunReport& report) {
  std::ostringstream out;
  PrintPage(report, out);
  return out.str();
}

std::string ComparisonOf(const RunReport& first, const RunReport& second) {
  std::ostringstream out;
  PrintComparison(first, second, out);
  return out.str();
}

RankTime TimeOf(int64_t rank) {
  RankTime time;
  time.rank = rank;
  time.host = absl::StrCat("host-", rank);
  time.whole = 100;
  time.for_data = 10;
  time.for_others = 20;
  time.in_transfer = 5;
  time.between = 5;
  time.own = 60;
  time.late = 0.012;
  time.times_last = 7;
  time.median_step = 0.0034;
  return time;
}

Curve CurveOf(absl::string_view name, bool is_of_steps) {
  Curve curve;
  curve.name = std::string(name);
  curve.is_of_steps = is_of_steps;
  curve.points = {{1, 2.5}, {50, 1.5}, {100, 0.5}};
  curve.last = {100, 0.5};
  curve.least = {100, 0.5};
  curve.most = {1, 2.5};
  return curve;
}

void AddOperation(absl::string_view name, int64_t bucket, RunReport& report) {
  OperationRow& row = report.operations.emplace_back();
  row.times.group = "world";
  row.times.operation = std::string(name);
  row.times.dtype = "f32";
  row.times.count = 1024;
  row.times.bucket = bucket;
  row.times.took.Add(1000);
  row.p50 = 0.001;
  row.p99 = 0.002;
  row.slowest_rank = 1;
  row.slowest_p99 = 0.003;
}

// Returns a report that has something of everything.
RunReport Report(int64_t ranks, int64_t steps) {
  RunReport report;
  report.path = "/data/steps";
  report.number = 2;
  report.runs = 3;
  report.began = absl::FromUnixSeconds(1'700'000'000);
  report.size = ranks;
  report.job = "[trainer]\nepochs = 12\n";
  report.first_step = 1;
  report.last_step = steps;
  report.rows_per_second = 1234.4;
  report.median_step = 0.012;
  report.p99_step = 3.4;
  report.lost.steps = steps - 1;
  report.lost.left_out = 1;
  report.lost.verdict.kind = RunVerdict::Kind::kOneRank;
  report.lost.verdict.lost_share = 0.35;
  report.lost.verdict.sentence = "The others wait for rank 1.";
  report.lost.verdict.advice = "Look at host-1.";
  const int64_t count = std::min<int64_t>(steps, 200);
  for (int64_t i = 0; i < count; ++i) {
    StepBin& bin = report.bins.emplace_back();
    bin.first_step = 1 + i * steps / count;
    bin.last_step = (i + 1) * steps / count;
    bin.for_data = bin.blocked = bin.between = 0.001;
    bin.own = 0.009;
    bin.slowest = 0.02;
    bin.least_ready = 1;
    bin.mean_ready = 2;
    bin.most_ready = 3;
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    report.lost.ranks.push_back(TimeOf(rank));
    MapRow& row = report.map.emplace_back();
    row.rank = rank;
    for (int64_t i = 0; i < count; ++i) {
      row.rows.push_back(static_cast<float>((i * 7 + rank * 3) % 5 + 1));
      row.lost_share.push_back(static_cast<float>((i + rank) % 10) / 10);
    }
  }
  AddOperation("all_reduce", 3, report);
  report.slowest.push_back({1, "train", {4321, 0.5, 1}});
  report.curves = {CurveOf("train/loss", true), CurveOf("test/loss", false)};
  report.curves_from = "/data/metrics";
  return report;
}

// ---- The form of a page.

// Returns what is wrong with the tags of a page, or "".
std::string WrongTags(absl::string_view html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == html.npos) return "a tag does not end";
    absl::string_view tag = html.substr(at + 1, end - at - 1);
    at = end;
    if (absl::StartsWith(tag, "!DOCTYPE")) continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) {
      return absl::StrCat("quotes: ", tag);
    }
    const bool closes = absl::StartsWith(tag, "/");
    const bool is_empty = absl::EndsWith(tag, "/");
    if (closes) tag.remove_prefix(1);
    size_t size = 0;
    while (size < tag.size() && std::isalnum(tag[size]) != 0) ++size;
    const std::string name(tag.substr(0, size));
    if (name.empty()) return absl::StrCat("no name: ", tag);
    if (is_empty || name == "meta" || name == "br") continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return absl::StrCat("</", name, "> within <",
                          open.empty() ? "nothing" : open.back(), ">");
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : absl::StrCat("<", open.back(), "> does not end");
}

// Returns how often a text is in another one.
int CountOf(absl::string_view part, absl::string_view text) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// Returns whether a text has a word that stands for no number.
bool HasNoNumber(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  const auto is_letter = [&lower](size_t at) {
    return at < lower.size() && std::isalnum(lower[at]) != 0;
  };
  for (const absl::string_view word : {"nan", "inf", "infinity"}) {
    for (size_t at = lower.find(std::string(word)); at != lower.npos;
         at = lower.find(std::string(word), at + 1)) {
      const bool begins = at == 0 || !is_letter(at - 1);
      if (begins && !is_letter(at + word.size())) return true;
    }
  }
  return false;
}

// Expects what is true of each page.
void ExpectSound(const std::string& page) {
  EXPECT_EQ(WrongTags(page), "");
  EXPECT_FALSE(HasNoNumber(page));
  EXPECT_THAT(page, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(page, HasSubstr("<meta charset=\"utf-8\">"));
  EXPECT_THAT(page, HasSubstr("name=\"viewport\""));
  EXPECT_THAT(page, HasSubstr("content=\"light dark\""));
  EXPECT_EQ(CountOf("<h1>", page), 1);
  // It loads nothing, and runs nothing.
  for (const char* wrong : {"<script", "<link", "<img", "src=", "href=", "url(",
                            "@import", "onload"}) {
    EXPECT_THAT(page, Not(HasSubstr(wrong)));
  }
  // Each picture has an alternative text. The parts of pictures are hidden.
  const int hidden = CountOf("<svg aria-hidden=\"true\"", page);
  const int shown = CountOf(" role=\"img\" ", page);
  EXPECT_EQ(CountOf("<svg ", page), hidden + shown);
  EXPECT_EQ(CountOf("aria-label=\"\"", page), 0);
}

// Expects that a page has these texts in this order.
void ExpectInOrder(absl::string_view page,
                   const std::vector<std::string>& texts) {
  size_t at = 0;
  for (const std::string& text : texts) {
    const size_t found = page.find(text, at);
    EXPECT_NE(found, page.npos) << text;
    if (found != page.npos) at = found;
  }
}

// ---- Tests.

TEST(ReportPage, ShowsEverythingInItsOrder) {
  const std::string page = PageOf(Report(2, 50));
  ExpectSound(page);
  ExpectInOrder(page, {"/data/steps",
                       "Run 2 of 3, began 2023-11-14 22:13:20 UTC",
                       "2 ranks, steps 1 to 50",
                       "Severe: ",
                       "The others wait for rank 1.",
                       "Look at host-1.",
                       "35 %",
                       "1,234",
                       "12 ms",
                       "3.4 s",
                       "49",
                       "1 left out",
                       "Where the time went",
                       "waits for data <b>10 %</b>",
                       "waits for other ranks <b>20 %</b>",
                       "transfers <b>5.0 %</b>",
                       "between steps <b>5.0 %</b>",
                       "own computation <b>60 %</b>",
                       "host-0",
                       "7",
                       "12 ms",
                       "3.4 ms",
                       "Samples over ranks and steps",
                       "no record",
                       "Over the steps",
                       "Slowest samples",
                       "4,321",
                       "500 ms",
                       "Latencies by operation",
                       "all_reduce",
                       "1,024",
                       "1 ms",
                       "2 ms",
                       "3 ms",
                       "Loss and other metrics",
                       "/data/metrics",
                       "train/loss",
                       "last 0.5 (step 100)",
                       "most 2.5 (step 1)",
                       "How to read this",
                       "80 %",
                       "The job",
                       "epochs = 12"});
}

TEST(ReportPage, SaysTheLevelInAWord) {
  RunReport report = Report(2, 50);
  report.lost.verdict.lost_share = kSevereShare + 0.01;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Severe"));
  report.lost.verdict.lost_share = kHealthyShare + 0.01;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Warning"));
  report.lost.verdict.lost_share = kHealthyShare;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Healthy"));
  report.lost.verdict.lost_share = kNan;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Not known"));
}

TEST(ReportPage, BeginsWithTheFailure) {
  RunReport report = Report(2, 50);
  report.end = RunEnd{true, 3, 9, "rank 1 died first", "<gone>"};
  const std::string page = PageOf(report);
  ExpectSound(page);
  ExpectInOrder(page, {"</span> Failed", "Rank 1 died first", "&lt;gone&gt;",
                       "Attempt 3 has ended with exit code 9", "Severe",
                       "The others wait for rank 1."});
  // A run that ended well has no failure.
  report.end->has_failed = false;
  EXPECT_THAT(PageOf(report), Not(HasSubstr("Failed")));
}

TEST(ReportPage, SaysWhatEachCauseWouldTakeAway) {
  RunReport report = Report(2, 50);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("without each cause")));
  report.lost.verdict.kind = RunVerdict::Kind::kUnexplained;
  report.lost.verdict.of_data = 0.7;
  report.lost.verdict.of_one_rank = 0.56;
  ExpectInOrder(PageOf(report), {"without each cause", "70 %", "56 %"});
}

TEST(ReportPage, ShowsNotesBeforeTheNumbers) {
  RunReport report = Report(2, 50);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("class=\"notes\"")));
  report.notes = {"rank 7 is damaged"};
  ExpectInOrder(PageOf(report), {"Notes about the records", "rank 7 is damaged",
                                 "Where the time went"});
  report.is_whole = false;
  EXPECT_THAT(PageOf(report), HasSubstr("The records are not whole"));
  report.notes.assign(50, "a note");
  EXPECT_THAT(PageOf(report), HasSubstr("and 30 more notes"));
}

TEST(ReportPage, IsSoundWithoutAnything) {
  const std::string page = PageOf(RunReport());
  ExpectSound(page);
  EXPECT_THAT(page, HasSubstr("not known"));
  EXPECT_THAT(page, HasSubstr("--metrics=PATH"));
  EXPECT_EQ(CountOf("<svg", page), 0);
  ExpectSound(ComparisonOf(RunReport(), RunReport()));
}

TEST(ReportPage, IsSoundForOneRankAndOneStep) {
  RunReport report = Report(1, 1);
  report.curves[0].points.resize(1);
  ExpectSound(PageOf(report));
  ExpectSound(ComparisonOf(report, Report(2, 50)));
}

TEST(ReportPage, IsSmall) {
  // Cells that differ from their neighbours take most room.
  const std::string page = PageOf(Report(64, 10'000));
  ExpectSound(page);
  EXPECT_LE(page.size(), 1'000'000);
}

TEST(ReportPage, LeavesRanksOut) {
  const RunReport report = Report(1000, 50);
  const std::string page = PageOf(report);
  ExpectSound(page);
  EXPECT_THAT(page, HasSubstr("936 more ranks are left out here"));
  EXPECT_THAT(page, HasSubstr("The maps show 125 of 1,000 ranks"));
  EXPECT_THAT(page, HasSubstr("host-63<"));
  EXPECT_THAT(page, Not(HasSubstr("host-64<")));
}

// Texts of records may try to be HTML.
TEST(ReportPage, EscapesAllTexts) {
  const std::string evil = "</pre>\"'><script>alert(1)</script>\xff\x01&";
  RunReport report = Report(2, 50);
  report.path = report.job = report.curves_from = evil;
  report.notes = {evil};
  report.lost.verdict.sentence = report.lost.verdict.advice = evil;
  report.end = RunEnd{true, 1, 1, evil, evil};
  report.lost.ranks[0].host = evil;
  report.operations[0].times.group = evil;
  report.operations[0].times.operation = evil;
  report.operations[0].times.dtype = evil;
  report.slowest[0].loader = evil;
  report.curves[0].name = report.curves[1].name = evil;
  const std::string page = PageOf(report);
  ExpectSound(page);
  EXPECT_GE(CountOf("&lt;script&gt;", page), 14);
  EXPECT_EQ(CountOf("\xff", page), 0);
  EXPECT_EQ(CountOf("\x01", page), 0);
  RunReport other = report;
  other.job += "\n<script>";
  ExpectSound(ComparisonOf(report, other));
}

TEST(ReportPage, CutsLongTexts) {
  const std::string text(2'000'000, 'x');
  RunReport report = Report(2, 50);
  report.path = report.job = report.curves_from = text;
  report.notes = {text};
  report.end = RunEnd{true, 1, 1, text, text};
  report.lost.ranks[0].host = text;
  report.operations[0].times.group = text;
  report.curves[0].name = text;
  EXPECT_LE(PageOf(report).size(), 400'000);
}

// Numbers may be anything, too.
TEST(ReportPage, IsSoundForAnyNumbers) {
  for (const double value :
       {0.0, -0.0, -1.0, 1e300, -1e300, std::numeric_limits<double>::max(),
        5e-324, kNan, kInfinity, -kInfinity}) {
    SCOPED_TRACE(value);
    RunReport report = Report(3, 20);
    report.rows_per_second = report.median_step = report.p99_step = value;
    RunVerdict& verdict = report.lost.verdict;
    verdict.kind = RunVerdict::Kind::kUnexplained;
    verdict.lost_share = verdict.of_data = value;
    for (RankTime& rank : report.lost.ranks) {
      rank.whole = rank.for_data = rank.for_others = rank.in_transfer = value;
      rank.between = rank.own = rank.late = rank.median_step = value;
    }
    for (StepBin& bin : report.bins) {
      bin.for_data = bin.blocked = bin.between = bin.own = value;
      bin.slowest = bin.least_ready = bin.mean_ready = bin.most_ready = value;
    }
    for (MapRow& row : report.map) {
      const auto cell = static_cast<float>(
          std::isfinite(value) ? std::clamp(value, -3e38, 3e38) : value);
      std::fill(row.rows.begin(), row.rows.end(), cell);
      std::fill(row.lost_share.begin(), row.lost_share.end(), cell);
    }
    report.operations[0].p50 = report.operations[0].p99 = value;
    report.slowest[0].sample.seconds = value;
    for (Curve& curve : report.curves) {
      for (Curve::Point& point : curve.points) point.value = value;
      curve.last.value = curve.least.value = curve.most.value = value;
    }
    const std::string page = PageOf(report);
    ExpectSound(page);
    ExpectSound(ComparisonOf(report, Report(2, 50)));
    ExpectSound(ComparisonOf(Report(2, 50), report));
  }
}

TEST(ReportPage, IsSoundForAnySteps) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  RunReport report = Report(2, 4);
  report.first_step = kLeast;
  report.last_step = kMost;
  report.began = absl::InfinitePast();
  report.number = report.runs = report.size = kMost;
  report.bins[0].first_step = kLeast;
  report.bins[3].last_step = kMost;
  report.curves[0].points[0].step = kLeast;
  report.curves[0].points[2].step = kMost;
  ExpectSound(PageOf(report));
  // Rows of the map may be shorter than there are bins.
  report.map[0].rows.clear();
  report.map[1].lost_share.resize(1);
  ExpectSound(PageOf(report));
  report.bins.clear();
  ExpectSound(PageOf(report));
}

TEST(ReportPage, HasGapsWhereARankHasNoStep) {
  RunReport report = Report(2, 4);
  report.map[1].rows = {1, 1, static_cast<float>(kNan), 1};
  EXPECT_THAT(PageOf(report), HasSubstr("1 cell has no record"));
}

TEST(ReportComparison, SaysWhatIsBetterAndWorse) {
  const RunReport first = Report(2, 50);
  RunReport second = Report(4, 50);
  second.rows_per_second = 2468.8;
  second.p99_step = 6.8;
  second.lost.verdict.lost_share = 0.05;
  second.job = "[trainer]\nepochs = 13\n";
  const std::string page = ComparisonOf(first, second);
  ExpectSound(page);
  ExpectInOrder(
      page, {"The second run is faster: it has 2 times the rows per second",
             "Better in the second run:</strong> rows per second, lost time",
             "Worse:</strong> 99th percentile of steps",
             "The runs have 2 and 4 ranks",
             "First run",
             "Severe",
             "Second run",
             "Healthy",
             "Key numbers",
             "1,234",
             "2,469",
             "2 times",
             "better",
             "median step",
             "about the same",
             "35 %",
             "5.0 %",
             "\u221230 points",
             "all_reduce of bucket 3",
             "train/loss",
             "first run: last 0.5",
             "\u2212 epochs = 12",
             "+ epochs = 13"});
  EXPECT_THAT(ComparisonOf(second, first),
              HasSubstr("The second run is slower: it has 0.5 times"));
  EXPECT_THAT(ComparisonOf(first, first),
              HasSubstr("Both runs are about equally fast"));
  EXPECT_THAT(ComparisonOf(first, first), HasSubstr("Both have the same text"));
}

TEST(ReportComparison, SaysWhichRunHasFailed) {
  RunReport failed = Report(2, 50);
  failed.end = RunEnd{true, 1, 1, "rank 1 died", ""};
  EXPECT_THAT(ComparisonOf(Report(2, 50), failed),
              HasSubstr("The second run has failed."));
  EXPECT_THAT(ComparisonOf(failed, Report(2, 50)),
              HasSubstr("The first run has failed."));
}

TEST(ReportComparison, ShowsOnlyWhatBothHave) {
  RunReport first = Report(2, 50);
  RunReport second = Report(2, 50);
  AddOperation("barrier", -1, first);
  AddOperation("broadcast", -1, second);
  second.operations[0].times.bucket = 4;
  first.curves[0].name = "train/other";
  const std::string page = ComparisonOf(first, second);
  EXPECT_THAT(page, HasSubstr("The runs share none."));
  EXPECT_THAT(page, Not(HasSubstr("train/")));
  EXPECT_THAT(page, HasSubstr("test/loss"));
}

}  // namespace
}  // namespace lockstep
