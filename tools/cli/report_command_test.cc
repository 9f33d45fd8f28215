#include "lockstep/tools/cli/report_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/json_value.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::JsonValue;
using ::lockstep::internal_base::ParseJson;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    std::string folder = testing::TempDir() + "/reportXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    command_.path = folder_ + "/steps";
  }

  static std::string Header(int64_t rank, int64_t size, int64_t run = 1000000,
                            absl::string_view job = "seed = 7") {
    return absl::StrCat(
        R"({"format":"lockstep metrics","version":2,"time":1,"rank":)", rank,
        ",\"size\":", size, ",\"pid\":", run / 10000 + rank,
        ",\"file\":1}\n{\"run\":", run, ",\"time\":1,\"rank\":", rank,
        ",\"host\":\"trainer-", rank, "\",\"clock\":\"a\",\"job\":\"", job,
        "\"}\n");
  }

  // A step of 10 ms, of which the rank waits for data and for others.
  static std::string Step(int64_t rank, int64_t step, double data,
                          double average) {
    return absl::StrCat(
        "{\"step\":", step, ",\"time\":1,\"rank\":", rank,
        R"(,"epoch":0,"position":0,"rows":4,"seconds":0.01,"data_seconds":)",
        data, ",\"average_seconds\":", average,
        R"(,"collective_seconds":0.009,"between_seconds":0,)"
        R"("ready_batches":2})",
        "\n");
  }

  // The times of an operation that took about a millisecond.
  static std::string Times(int64_t rank) {
    return absl::StrCat(
        "{\"times\":12,\"time\":1,\"rank\":", rank,
        R"(,"group":"world","operation":"all_reduce","dtype":"f32",)"
        R"("count":1000,"bucket":2,"issued":[[100,12]],"ended":[[120,12]],)"
        R"("took":[[150,11],[)",
        160 + rank, ",1]]}\n{\"slowest\":12,\"time\":1,\"rank\":", rank,
        R"(,"loader":"train","samples":[[41,0.25,1],[7,0.125,3]]})", "\n");
  }

  std::string PathOf(int64_t rank, absl::string_view sink = "steps") const {
    return absl::StrCat(folder_, "/", sink, ".rank000", rank, ".jsonl");
  }
  void Write(const std::string& path, absl::string_view text) const {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Writes 12 steps of two ranks, of which rank 1 waits for its data.
  void WriteTwoRanks(absl::string_view sink = "steps",
                     absl::string_view job = "seed = 7") const {
    std::string first = Header(0, 2, 1000000, job);
    std::string second = Header(1, 2, 1000000, job);
    for (int64_t step = 1; step <= 12; ++step) {
      first += Step(0, step, 0, 0.005);
      second += Step(1, step, 0.005, 0.0001);
    }
    Write(PathOf(0, sink), first + Times(0));
    Write(PathOf(1, sink), second + Times(1));
  }

  std::string Run(int code = 0) {
    std::ostringstream out;
    const absl::StatusOr<int> result = RunReportCommand(host_, command_, out);
    EXPECT_THAT(result, IsOk());
    EXPECT_EQ(result.value_or(-1), code);
    return out.str();
  }
  absl::Status Error() {
    std::ostringstream out;
    absl::Status status = RunReportCommand(host_, command_, out).status();
    EXPECT_EQ(out.str(), "");
    return status;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  TestHost host_;
  ReportCommand command_;
};

TEST_F(ReportTest, IsText) {
  WriteTwoRanks();
  EXPECT_EQ(
      Run(),
      R"(Run 1 of 1, which began at 1970-01-01 00:00:01 UTC: 2 ranks, steps 1 to 12,
which took 110 ms.

One slow rank: 50 % of the time is lost, 98 % of that since the others wait for
rank 1 (trainer-1), which waits for its data.

Look at where that data lies (disk, network), and at the slowest samples, which
the report has. On such a machine, lockstep bench loader shows where the time of
a loader goes.

800 rows a second; a step took 10 ms (p99 10 ms). The time of each rank, the one
that was late most first; late is for how much longer the median of the others
waited:

rank  host       came last  late     data  others  transfers  between  own   median step
   1  trainer-1         11  53.9 ms  50 %  0 %     1.0 %      0 %      49 %  10 ms
   0  trainer-0          0  0 s      0 %   49 %    1.0 %      0 %      50 %  10 ms

The steps that lost most:

step  lost by all  longest  came last
   2  10.1 ms      10 ms    rank 1
   3  10.1 ms      10 ms    rank 1
   4  10.1 ms      10 ms    rank 1
   5  10.1 ms      10 ms    rank 1
   6  10.1 ms      10 ms    rank 1

Operations up to step 12, from issue to end:

operation                  elements   count  p50     p99      slowest rank  its p99
world all_reduce bucket 2  1,000 f32     24  1.9 ms  4.98 ms  rank 1        4.98 ms

The slowest samples:

sample  loader  rank  took    timed together
    41  train      0  250 ms               1
    41  train      1  250 ms               1
     7  train      0  125 ms               3
     7  train      1  125 ms               3
)");
  EXPECT_THAT(host_.told, IsEmpty());
}

TEST_F(ReportTest, IsJson) {
  WriteTwoRanks();
  command_.format = "json";
  EXPECT_EQ(absl::StrReplaceAll(Run(), {{folder_, "/runs"}}),
            R"json({
  "path": "/runs/steps", "run": 1, "runs": 1, "began": "1970-01-01T00:00:01+00:00", "is_whole": true, "size": 2,
  "first_step": 1, "last_step": 12, "steps": 11, "steps_left_out": 0,
  "in_steps_seconds": 0.11, "by_clock_seconds": null, "operations_until": 12,
  "rows_per_second": 800, "median_step_seconds": 0.01, "p99_step_seconds": 0.01,
  "verdict": {"kind": "one slow rank", "sentence": "One slow rank: 50 % of the time is lost, 98 % of that since the others wait for rank 1 (trainer-1), which waits for its data.", "advice": "Look at where that data lies (disk, network), and at the slowest samples, which the report has. On such a machine, lockstep bench loader shows where the time of a loader goes.", "lost_share": 0.505, "explained": 0.980198, "between_share": 0, "rank": 1, "ranks": [1], "place": "data", "steps": [],
    "of_data": 0.970297, "of_communication": 0.019802, "of_slow_ranks": 0.980198, "of_last_ranks": 0.980198, "of_few_steps": 0},
  "end": null,
  "notes": [],
  "ranks": [
    {"rank": 1, "host": "trainer-1", "times_last": 11, "late_seconds": 0.0539, "late_for_data_seconds": 0.0539, "late_between_seconds": 0, "late_own_seconds": 0, "whole_seconds": 0.11, "for_data_seconds": 0.055, "for_others_seconds": 0, "in_transfer_seconds": 0.0011, "between_seconds": 0, "own_seconds": 0.0539, "median_step_seconds": 0.01},
    {"rank": 0, "host": "trainer-0", "times_last": 0, "late_seconds": 0, "late_for_data_seconds": 0, "late_between_seconds": 0, "late_own_seconds": 0, "whole_seconds": 0.11, "for_data_seconds": 0, "for_others_seconds": 0.0539, "in_transfer_seconds": 0.0011, "between_seconds": 0, "own_seconds": 0.055, "median_step_seconds": 0.01}
  ],
  "worst_steps": [
    {"step": 2, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 3, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 4, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 5, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 6, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 7, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 8, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 9, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 10, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1},
    {"step": 11, "lost_seconds": 0.0101, "longest_seconds": 0.01, "last_rank": 1}
  ],
  "operations": [
    {"group": "world", "operation": "all_reduce", "dtype": "f32", "elements": 1000, "bucket": 2, "count": 24, "p50_seconds": 0.00190054, "p99_seconds": 0.00498074, "slowest_rank": 1, "slowest_p99_seconds": 0.00498074}
  ],
  "slowest": [
    {"rank": 0, "loader": "train", "index": 41, "seconds": 0.25, "timed_together": 1},
    {"rank": 1, "loader": "train", "index": 41, "seconds": 0.25, "timed_together": 1},
    {"rank": 0, "loader": "train", "index": 7, "seconds": 0.125, "timed_together": 3},
    {"rank": 1, "loader": "train", "index": 7, "seconds": 0.125, "timed_together": 3}
  ],
  "curves": []
}
)json");
}

TEST_F(ReportTest, IsCsv) {
  WriteTwoRanks();
  command_.format = "csv";
  EXPECT_EQ(
      Run(),
      R"(rank,host,times_last,late_seconds,late_for_data_seconds,late_between_seconds,late_own_seconds,whole_seconds,for_data_seconds,for_others_seconds,in_transfer_seconds,between_seconds,own_seconds,median_step_seconds
1,trainer-1,11,0.0539,0.0539,0,0,0.11,0.055,0,0.0011,0,0.0539,0.01
0,trainer-0,0,0,0,0,0,0.11,0,0.0539,0.0011,0,0.055,0.01
)");
}

TEST_F(ReportTest, AFileIsAPage) {
  WriteTwoRanks();
  command_.output = folder_ + "/report.html";
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(TextOf(command_.output),
              AllOf(StartsWith("<!DOCTYPE html>"),
                    HasSubstr("One slow rank: 50 % of the time"),
                    Not(HasSubstr("<script"))));
  // There is no other file.
  EXPECT_THAT(Names(), ElementsAre("report.html", "steps.rank0000.jsonl",
                                   "steps.rank0001.jsonl"));
  const std::string page = TextOf(command_.output);
  command_.output = "";
  command_.format = "html";
  EXPECT_EQ(Run(), page);
  command_.output = folder_ + "/report.txt";
  command_.format = "text";
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(TextOf(command_.output), StartsWith("Run 1 of 1, "));
}

TEST_F(ReportTest, AFileThatCanNotBeWrittenIsAnError) {
  WriteTwoRanks();
  command_.output = folder_ + "/none/report.html";
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("can't write ")));
  command_.output = PathOf(1);
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("another file than those of "
                                          "records")));
}

TEST_F(ReportTest, MetricsAreThoseOfTheJob) {
  const std::string job = absl::StrCat("[metrics]\\njson_lines = {path = \\\"",
                                       folder_, "/all\\\"}");
  WriteTwoRanks("steps", job);
  command_.format = "json";
  EXPECT_THAT(Run(), HasSubstr("\"curves\": []"));
  const auto metrics = [](int64_t pid, double loss) {
    return absl::StrCat(
        R"({"format":"lockstep metrics","version":2,"time":1,"rank":0,)"
        R"("size":2,"pid":)",
        pid, ",\"file\":1}\n", R"({"step":3,"time":1,"rank":0,"train/loss":)",
        loss, ",\"seconds\":1}\n");
  };
  // The process of rank 0 has the number 100.
  Write(PathOf(0, "all"), metrics(99, 0.5));
  EXPECT_THAT(Run(), HasSubstr("\"curves\": []"));
  Write(PathOf(0, "all"), metrics(100, 0.25));
  EXPECT_THAT(Run(), HasSubstr("{\"name\": \"train/loss\", \"is_of_steps\": "
                               "true, \"last_step\": 3, \"last\": 0.25, "));
  Write(PathOf(0, "other"), metrics(99, 0.125));
  command_.metrics = folder_ + "/other";
  EXPECT_THAT(
      Error(),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("--metrics="), HasSubstr("of other processes"),
                     HasSubstr("it should be the sink of [metrics]"))));
  command_.metrics = command_.path;
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("the records of ranks")));
  command_.metrics = folder_ + "/none";
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ReportTest, AFailureComesFirst) {
  WriteTwoRanks();
  const std::string launch = folder_ + "/launch.jsonl";
  Write(launch,
        R"({"version":1,"attempt":0,"node_rank":0,"exit_code":1,"blame":)"
        R"({"cause":"lost","code":"UNAVAILABLE","ranks":[{"rank":1,)"
        R"("host":"trainer-1","pid":101,"last":"","age":0}],"more":0,)"
        R"("operation":"","number":0,"has_begun":true},"message":"rank 1 is )"
        R"(lost","reported_by":0,"ranks":[{"rank":0,"pid":100,"exit_code":1,)"
        R"("end":"exited with code 1","sent_by_launcher":false}]})"
        "\n");
  command_.launch = {launch};
  EXPECT_THAT(Run(), HasSubstr("ms.\n\nThe run has failed. Lost: rank 1 "
                               "(trainer-1, pid 101)"));
  command_.format = "json";
  EXPECT_THAT(Run(),
              HasSubstr(R"("end": {"has_failed": true, "attempt": 0, )"));
  EXPECT_THAT(host_.told, IsEmpty());
  Write(launch, "");
  EXPECT_THAT(Run(), HasSubstr("\"end\": null"));
  EXPECT_THAT(host_.told,
              ElementsAre("--launch has no attempt with the processes of this "
                          "run"));
  command_.output = launch;
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("are the same file")));
}

TEST_F(ReportTest, TwoRunsAreCompared) {
  WriteTwoRanks();
  WriteTwoRanks("before", "seed = 8");
  command_.compare = folder_ + "/before";
  EXPECT_THAT(absl::StrReplaceAll(Run(), {{folder_, "/runs"}}),
              AllOf(StartsWith("First: /runs/before, run 1\n\nOne slow rank"),
                    HasSubstr("Second: /runs/steps, run 1\n"), HasSubstr(R"(
what               first    second
ranks              2        2
steps              11       11
rows per second    800      800
median step        10 ms    10 ms
p99 step           10 ms    10 ms
lost               50 %     50 %
a step: data       2.5 ms   2.5 ms
a step: others     2.45 ms  2.45 ms
a step: transfers  100 us   100 us
a step: between    0 s      0 s
a step: own        4.95 ms  4.95 ms
)"),
                    Not(HasSubstr("Look at"))));
  command_.format = "json";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const JsonValue both, ParseJson(Run()));
  ASSERT_NE(both.Find("first"), nullptr);
  ASSERT_NE(both.Find("second"), nullptr);
  EXPECT_EQ(*both.Find("first")->Find("path")->text(), command_.compare);
  command_.format = "html";
  EXPECT_THAT(Run(), AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("seed = 7"),
                           HasSubstr("seed = 8")));
  command_.format = "csv";
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("does not go with --compare")));
}

TEST_F(ReportTest, ARunIsChosen) {
  std::string text = Header(0, 1, 1000000);
  for (int64_t step = 1; step <= 20; ++step) text += Step(0, step, 0.009, 1e-6);
  text += Header(0, 1, 2000000);
  for (int64_t step = 21; step <= 50; ++step) text += Step(0, step, 0, 1e-6);
  Write(PathOf(0), text);
  EXPECT_THAT(Run(), AllOf(HasSubstr("Run 2 of 2"), HasSubstr("\nHealthy: ")));
  command_.run = 1;
  EXPECT_THAT(Run(),
              AllOf(HasSubstr("steps 1 to 20,"), HasSubstr("\nData-bound: ")));
  command_.compare = command_.path;
  command_.compare_run = 2;
  EXPECT_THAT(Run(), AllOf(HasSubstr("First: "), HasSubstr("run 2\n")));
  command_.run = 3;
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument));
  command_.run = 1;
  command_.compare_run = 4;
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("--compare="),
                                      HasSubstr("there is no run 4"))));
  command_.compare_run = 2;
  command_.compare = "";
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("--compare_run=2 chooses a run of "
                                          "--compare, which is not given")));
}

TEST_F(ReportTest, RanksThatAreMissingAreTold) {
  WriteTwoRanks();
  std::filesystem::remove(PathOf(1));
  EXPECT_THAT(Run(/*code=*/1), HasSubstr("2 ranks"));
  EXPECT_THAT(host_.told, ElementsAre("of 2 ranks of this run, these are not "
                                      "shown: 1"));
  command_.format = "html";
  EXPECT_THAT(Run(/*code=*/1), HasSubstr("these are not shown: 1"));
}

TEST_F(ReportTest, ARunWithoutStepsIsTooShort) {
  Write(PathOf(0), Header(0, 1));
  EXPECT_THAT(Run(), HasSubstr("Too short: 0 steps"));
  for (const char* const format : {"html", "json", "csv"}) {
    command_.format = format;
    EXPECT_THAT(Run(), Not(HasSubstr("nan"))) << format;
  }
  Write(PathOf(0), "");
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ReportTest, NumbersThatAreNotKnownAreNoNumbers) {
  std::string text = Header(0, 1);
  for (int64_t step = 1; step <= 20; ++step) {
    absl::StrAppend(&text, "{\"step\":", step,
                    ",\"time\":1,\"rank\":0,\"rows\":null,\"seconds\":null}\n");
  }
  Write(PathOf(0), text);
  for (const char* const format : {"text", "html", "json", "csv"}) {
    command_.format = format;
    EXPECT_THAT(Run(), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf\""))))
        << format;
  }
}

TEST_F(ReportTest, TheNameOfTheFileChoosesTheFormat) {
  WriteTwoRanks();
  const std::pair<const char*, const char*> names[] = {
      {"a.json", "{\n"}, {"a.csv", "rank,"}, {"a.txt", "Run 1"}, {"a", "<!"}};
  for (const auto& [name, begin] : names) {
    command_.output = absl::StrCat(folder_, "/", name);
    EXPECT_EQ(Run(), "");
    EXPECT_THAT(TextOf(command_.output), StartsWith(begin)) << name;
  }
}

TEST_F(ReportTest, NumbersMayBeHuge) {
  std::string text = Header(0, 1);
  for (int64_t i = 1; i <= 20; ++i) {
    absl::StrAppend(&text, "{\"step\":", i * (int64_t{1} << 55),
                    R"(,"time":1,"rank":0,"rows":1e30,"seconds":1e30,)",
                    R"("data_seconds":1e30,"blocked_seconds":0,)",
                    "\"between_seconds\":0}\n");
  }
  text +=
      R"({"slowest":20,"time":1,"rank":0,"loader":"a","samples":[[7,1e300,1]]})";
  Write(PathOf(0), text + "\n");
  for (const char* const format : {"text", "html", "json", "csv"}) {
    command_.format = format;
    EXPECT_THAT(Run(), Not(HasSubstr("nan"))) << format;
  }
}

TEST_F(ReportTest, TextsMayBeHostile) {
  std::string text = Header(0, 1);
  text = absl::StrReplaceAll(
      text,
      {{"trainer-0", absl::StrCat("\\u001b]0;x", std::string(500, 'y'))}});
  for (int64_t step = 1; step <= 20; ++step) text += Step(0, step, 0, 1e-6);
  Write(PathOf(0), text + absl::StrReplaceAll(Times(0), {{"world", "\\u001b"},
                                                         {"f32", "\\u009b"}}));
  const std::string shown = Run();
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, Not(HasSubstr("\xc2\x9b")));
  EXPECT_LT(shown.size(), 2500);
}

TEST_F(ReportTest, StepsThatDoNotCountAreTold) {
  WriteTwoRanks();
  std::string text = TextOf(PathOf(0));
  for (int64_t step = 13; step <= 60; ++step) text += Step(0, step, 0, 0.005);
  Write(PathOf(0), text);
  EXPECT_THAT(Run(),
              HasSubstr("Of these, 11 steps count, since some rank "
                        "lacks the other 48,\nor has no times of them."));
}

TEST_F(ReportTest, RefusesFormatsThatItDoesNotHave) {
  WriteTwoRanks();
  command_.format = "xml";
  EXPECT_THAT(Error(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("html")));
}

}  // namespace
}  // namespace lockstep
