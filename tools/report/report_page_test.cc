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
#include "absl/strings/str_replace.h"
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
  report.in_steps = 8.2;
  report.by_clock = 9.1;
  report.lost.steps = steps - 1;
  report.lost.left_out = 1;
  report.lost.worst = {{17, 0.25, 0.125, 1}, {18, 0.2, 0.1, -1}};
  report.lost.verdict.kind = RunVerdict::Kind::kSlowRanks;
  report.lost.verdict.lost_share = 0.35;
  report.lost.verdict.ranks = {1};
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
    if (report.map.size() == RunReport::kMostMapRows) continue;
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

// Returns whether a text has a word that stands for no number, but where it
// says that there was none.
bool HasNoNumber(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(
      absl::StrReplaceAll(text, {{"(NaN or infinite)", ""}}));
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
                       "2 ranks, steps 1 to 50, which took 8.2 s of 9.1 s",
                       "49 of 50 steps count, since some rank lacks the other",
                       "</span> Severe</p>",
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
                       "Slowest steps",
                       "17",
                       "250 ms",
                       "125 ms",
                       "18",
                       "none",
                       "Ranks over the steps",
                       "no record",
                       "Over the steps",
                       "Slowest samples",
                       "4,321",
                       "500 ms",
                       "Latencies by operation",
                       "Operations of all ranks and steps",
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
  RunVerdict& verdict = report.lost.verdict;
  verdict.lost_share = kSevereShare + 0.01;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Severe</p>"));
  verdict.lost_share = kSevereShare;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Warning</p>"));
  // The kind decides, and not the share.
  verdict.lost_share = kHealthyShare / 2;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Warning</p>"));
  verdict.kind = RunVerdict::Kind::kHealthy;
  verdict.lost_share = kHealthyShare;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Healthy</p>"));
  verdict.kind = RunVerdict::Kind::kTooShort;
  EXPECT_THAT(PageOf(report), HasSubstr("</span> Not known</p>"));
  ExpectInOrder(PageOf(report), {"<dt>lost time</dt><dd>not known"});
}

TEST(ReportPage, SaysWhichStepsCount) {
  RunReport report = Report(2, 50);
  report.lost.steps = 474;
  report.lost.left_out = 576;
  EXPECT_THAT(PageOf(report),
              HasSubstr("474 of 1,050 steps count, since some rank lacks the "
                        "others or has no times of them."));
  report.lost.left_out = 0;
  EXPECT_THAT(PageOf(report), Not(HasSubstr("steps count, since")));
  report.in_steps = 8;
  report.by_clock = 8.01;
  EXPECT_THAT(PageOf(report), HasSubstr("which took 8 s</p>"));
  report.by_clock = 9;
  EXPECT_THAT(PageOf(report), HasSubstr("which took 8 s of 9 s</p>"));
  report.first_step = report.last_step = 0;
  EXPECT_THAT(PageOf(report), HasSubstr("2 ranks, no step</p>"));
}

TEST(ReportPage, BeginsWithTheFailure) {
  RunReport report = Report(2, 50);
  report.end = RunEnd{true, 3, 9, "rank 1 died first", "<gone>", {}};
  report.end->ends = {"rank 1 was killed by signal 9 (SIGKILL)",
                      "rank 2 ended with exit code 1"};
  const std::string page = PageOf(report);
  ExpectSound(page);
  ExpectInOrder(
      page, {"</span> Failed</p>", "The run has failed. Rank 1 died first.</p>",
             "<li>Rank 1 was killed by signal 9 (SIGKILL).</li>",
             "<li>Rank 2 ended with exit code 1.</li>", "&lt;gone&gt;",
             "Attempt 3 has ended with exit code 9.", "</span> Severe</p>",
             "The others wait for rank 1."});
  EXPECT_THAT(page, Not(HasSubstr("The launcher says")));
  report.end->blame = "";
  report.end->ends.assign(20, "a rank ended");
  ExpectInOrder(PageOf(report),
                {"The run has failed. The launcher does not say who failed.",
                 "<li>There are 4 more, which"});
}

TEST(ReportPage, SaysThatTheRunHasFinishedOrWasStopped) {
  RunReport report = Report(2, 50);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("The launcher says")));
  report.end = RunEnd();
  EXPECT_THAT(PageOf(report),
              HasSubstr("The launcher says that the run has finished."));
  EXPECT_THAT(PageOf(report), Not(HasSubstr("</span> Failed")));
  report.end->exit_code = 143;
  EXPECT_THAT(PageOf(report), HasSubstr("The launcher says that the run was "
                                        "stopped (exit code 143)."));
}

TEST(ReportPage, SaysWhatEachCauseWouldTakeAway) {
  RunReport report = Report(2, 50);
  RunVerdict& verdict = report.lost.verdict;
  verdict.of_data = 0.56;
  EXPECT_THAT(PageOf(report), Not(HasSubstr("without each cause")));
  verdict.kind = RunVerdict::Kind::kUnexplained;
  verdict.of_slow_ranks = 0.7;
  verdict.of_last_ranks = 0.009;
  verdict.of_few_steps = 0.01;
  const std::string page = PageOf(report);
  ExpectInOrder(page,
                {"without each cause", "slow ranks</th>", "70 %",
                 "waits for data</th>", "56 %", "a few steps</th>", "1.0 %"});
  EXPECT_THAT(page, Not(HasSubstr("the last rank of each step</th>")));
  EXPECT_THAT(page, Not(HasSubstr("\"t\">transfers</th>")));
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
  EXPECT_THAT(PageOf(report),
              HasSubstr("and 30 more notes, which <code>--format=json</code> "
                        "has"));
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
  EXPECT_THAT(page, HasSubstr("The maps show the 64 ranks that are late most"));
  EXPECT_THAT(page, HasSubstr("host-63<"));
  EXPECT_THAT(page, Not(HasSubstr("host-64<")));
}

TEST(ReportPage, SaysThatRanksAreMissing) {
  RunReport report = Report(2, 50);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("The maps show")));
  report.size = 3;
  EXPECT_THAT(PageOf(report),
              HasSubstr("The maps show the 2 ranks that have records."));
}

TEST(ReportPage, HasAllSlowSamples) {
  RunReport report = Report(2, 50);
  report.slowest.assign(100, report.slowest[0]);
  EXPECT_EQ(CountOf(">4,321<", PageOf(report)), 100);
}

TEST(ReportPage, SaysWhichStepsOperationsAreOf) {
  RunReport report = Report(2, 50);
  report.operations_until = 40;
  EXPECT_THAT(PageOf(report),
              HasSubstr("Operations of all ranks, of the steps up to 40"));
  report.operations_until = 50;
  EXPECT_THAT(PageOf(report), HasSubstr("Operations of all ranks and steps"));
}

TEST(ReportPage, DoesNotCallTheFirstStepTheWorst) {
  RunReport report = Report(2, 4);
  report.map[1].lost_share = {0.9F, 0.1F, 0.5F, 0.1F};
  report.map[0].lost_share = {0.9F, 0.1F, 0.2F, 0.1F};
  report.bins[0].slowest = report.bins[0].own = 7;
  report.bins[0].least_ready = 0;
  std::string page = PageOf(report);
  EXPECT_THAT(page, HasSubstr("The share of lost time of 2 ranks in steps 2 to "
                              "4: from 10 % to 50 %; rank 1 has the most, in "
                              "step 3.</p>"));
  EXPECT_THAT(page, HasSubstr("In steps 2 to 4, the mean time of a step is 12 "
                              "ms; the slowest step takes 20 ms. What takes "
                              "longer than the picture shows ends at its top"));
  EXPECT_THAT(page, HasSubstr("Ready batches in steps 2 to 4: from 1 to 3"));
  // The run goes on from another one, so its first step is not there.
  report.first_step = 0;
  page = PageOf(report);
  EXPECT_THAT(page, HasSubstr("in steps 1 to 4: from 10 % to 90 %; rank 0 has "
                              "the most, in step 1.</p>"));
  EXPECT_THAT(page, HasSubstr("the slowest step takes 7 s"));
  // There is nothing else to say something of.
  report = Report(2, 1);
  EXPECT_THAT(PageOf(report), HasSubstr("of 2 ranks in step 1: "));
}

TEST(ReportPage, HasClassesThatTellSamplesApart) {
  RunReport report = Report(2, 4);
  report.map[0].rows = {10, 11, 12, 13};
  report.map[1].rows = {13, 14, 15, 20};
  std::string page = PageOf(report);
  ExpectInOrder(page, {"10 to 12</li>", "up to 14</li>", "over 18</li>",
                       "The mean samples of a step of 2 ranks in steps 1 to 4: "
                       "from 10 to 20; rank 1 has the most, in step 4"});
  report.map[1].rows[3] = 30;
  page = PageOf(report);
  ExpectInOrder(page, {"up to 6</li>", "up to 12</li>", "over 24</li>"});
  for (MapRow& row : report.map) row.rows.assign(4, 4);
  page = PageOf(report);
  ExpectSound(page);
  EXPECT_THAT(page, HasSubstr("Each step of each rank has 4 samples.</p>"));
  EXPECT_THAT(page, Not(HasSubstr("plot map rows")));
  report.map[0].rows[0] = 4.0001F;
  report.map[0].rows[1] = static_cast<float>(kNan);
  EXPECT_THAT(PageOf(report), HasSubstr("Each step of each rank has about 4 "
                                        "samples, where there is a record."));
}

TEST(ReportPage, SaysThatValuesAreNotFinite) {
  RunReport report = Report(2, 50);
  report.curves[0].not_finite = 3;
  report.curves[1].not_finite = 1;
  report.curves[1].points.clear();
  const std::string page = PageOf(report);
  ExpectSound(page);
  ExpectInOrder(page, {"train/loss", "<p class=\"alarm\">",
                       "3 values are not finite (NaN or infinite).</p>",
                       "last finite 0.5 (step 100)", "test/loss",
                       "None of its values is finite",
                       "1 value is not finite (NaN or infinite).</p>"});
  const std::string comparison = ComparisonOf(Report(2, 50), report);
  ExpectSound(comparison);
  EXPECT_THAT(comparison, HasSubstr("Second run: 3 values are not finite"));
  EXPECT_THAT(comparison, HasSubstr("Second run: 1 value is not finite"));
}

TEST(ReportPage, HasALogarithmicAxisForFarValues) {
  RunReport report = Report(2, 50);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("logarithmic")));
  Curve& curve = report.curves[0];
  curve.points = {{1, 2000}, {50, 3}, {100, 0.5}};
  curve.most.value = 2000;
  const std::string page = PageOf(report);
  ExpectSound(page);
  EXPECT_EQ(CountOf("the axis is logarithmic</p>", page), 1);
  EXPECT_THAT(page, HasSubstr(">1,000<"));
  // A point may be the mean of values that are not all above 0.
  curve.least.value = -1;
  EXPECT_THAT(PageOf(report), Not(HasSubstr("logarithmic")));
}

// Texts of records may try to be HTML.
TEST(ReportPage, EscapesAllTexts) {
  const std::string evil = "</pre>\"'><script>alert(1)</script>\xff\x01&";
  RunReport report = Report(2, 50);
  report.path = report.job = report.curves_from = evil;
  report.notes = {evil};
  report.lost.verdict.sentence = report.lost.verdict.advice = evil;
  report.end = RunEnd{true, 1, 1, evil, evil, {evil}};
  report.lost.ranks[0].host = evil;
  report.operations[0].times.group = evil;
  report.operations[0].times.operation = evil;
  report.operations[0].times.dtype = evil;
  report.slowest[0].loader = evil;
  report.curves[0].name = report.curves[1].name = evil;
  const std::string page = PageOf(report);
  ExpectSound(page);
  EXPECT_GE(CountOf("&lt;script&gt;", page), 15);
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
  report.end = RunEnd{true, 1, 1, text, text, {text}};
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
    report.in_steps = report.by_clock = value;
    report.lost.worst[0].lost = report.lost.worst[0].longest = value;
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
  second.rows_per_second = 2962.6;
  second.p99_step = 6.8;
  for (RankTime& rank : second.lost.ranks) {
    rank.for_data = 1;
    rank.between = 5.5;
  }
  second.lost.verdict.kind = RunVerdict::Kind::kHealthy;
  second.job = "[trainer]\nepochs = 13\n";
  const std::string page = ComparisonOf(first, second);
  ExpectSound(page);
  ExpectInOrder(
      page,
      {"The second run has 2.4 times as many rows per second.",
       "A step takes 173 ms less: waits for data are 184 ms shorter, and other",
       "Better in the second run:</strong> rows per second, mean step, waits",
       "Worse:</strong> 99th percentile of steps.",
       "The runs have 2 and 4 ranks", "First run", "Severe", "Second run",
       "Healthy", "Key numbers", "1,234", "2,963", "+1,728 (+140 %)", "better",
       "median step", "no change", "about the same", "+3.4 s (+100 %)", "worse",
       "mean step", "2.04 s", "1.87 s", "\u2212173 ms (\u22128.5 %)", "better",
       "waits for data", "204 ms", "20.4 ms", "\u2212184 ms (\u221290 %)",
       // This is less than a hundredth of a step.
       "between steps", "+10.2 ms (+10 %)", "about the same",
       "all_reduce of bucket 3", "train/loss", "first run: last 0.5",
       "\u2212 epochs = 12", "+ epochs = 13"});
  // The advice is of the page of one run.
  EXPECT_THAT(page, Not(HasSubstr("Look at host-1.")));
  EXPECT_THAT(ComparisonOf(second, first),
              HasSubstr("The second run has 0.417 times as many rows"));
}

TEST(ReportComparison, SaysWhichRunIsFaster) {
  const RunReport first = Report(2, 50);
  RunReport second = Report(2, 50);
  std::string page = ComparisonOf(first, second);
  EXPECT_THAT(page, HasSubstr("Both runs are about as fast."));
  EXPECT_THAT(page, HasSubstr("A step takes about as long in both runs."));
  EXPECT_THAT(page, HasSubstr("run:</strong> nothing.<br>"));
  EXPECT_THAT(page, HasSubstr("Both have the same text"));
  second.rows_per_second = first.rows_per_second * 1.029;
  EXPECT_THAT(ComparisonOf(first, second),
              HasSubstr("Both runs are about as fast."));
  second.rows_per_second = first.rows_per_second * 1.41;
  EXPECT_THAT(ComparisonOf(first, second),
              HasSubstr("The second run has 41 % more rows per second."));
  second.rows_per_second = first.rows_per_second * 0.96;
  for (RankTime& rank : second.lost.ranks) {
    rank.own += 4;
    rank.for_data += 2;
  }
  page = ComparisonOf(first, second);
  EXPECT_THAT(page,
              HasSubstr("The second run has 4.0 % fewer rows per second."));
  EXPECT_THAT(page, HasSubstr("A step takes 122 ms longer, of which own "
                              "computation is 81.6 ms."));
  EXPECT_THAT(page, HasSubstr("Worse:</strong> rows per second, mean step, "
                              "waits for data, own computation."));
  second.rows_per_second = 0;
  EXPECT_THAT(ComparisonOf(first, second),
              HasSubstr("It is not known which run is faster."));
}

// There is no ratio to a time of 0.
TEST(ReportComparison, SaysWhatIsNew) {
  RunReport first = Report(2, 50);
  for (RankTime& rank : first.lost.ranks) rank.between = 0;
  const std::string page = ComparisonOf(first, Report(2, 50));
  ExpectSound(page);
  EXPECT_THAT(page, HasSubstr(">+102 ms<"));
  EXPECT_THAT(page, HasSubstr("A step takes 102 ms longer, of which time "
                              "between steps is 102 ms."));
  EXPECT_THAT(page,
              HasSubstr("Worse:</strong> mean step, time between steps."));
}

TEST(ReportComparison, SaysWhichRunHasFailed) {
  RunReport failed = Report(2, 50);
  failed.end = RunEnd{true, 1, 1, "rank 1 died", "", {}};
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
  EXPECT_THAT(page, HasSubstr("The runs have no operation in common."));
  EXPECT_THAT(page, Not(HasSubstr("train/")));
  EXPECT_THAT(page, HasSubstr("test/loss"));
}

}  // namespace
}  // namespace lockstep
