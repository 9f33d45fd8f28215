#include "lockstep/tools/cli/trace_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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
using ::testing::SizeIs;

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    std::string folder = testing::TempDir() + "/traceXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    command_.path = folder_ + "/steps";
  }

  static std::string Header(int64_t rank, int64_t size, absl::string_view clock,
                            int64_t run = 1000000) {
    return absl::StrCat(
        R"({"format":"lockstep metrics","version":2,"time":1,"rank":)", rank,
        ",\"size\":", size, ",\"pid\":", 70 + rank,
        ",\"file\":1}\n{\"run\":", run, ",\"time\":1,\"rank\":", rank,
        ",\"host\":\"trainer-", rank, "\",\"clock\":\"", clock,
        "\",\"job\":\"seed = 7\"}\n");
  }

  // A step that begins at `before`, in which two operations overlap.
  static std::string Step(int64_t rank, int64_t step, int64_t before,
                          absl::string_view ahead = "") {
    return absl::StrCat(
        "{\"step\":", step, ",\"time\":1,\"rank\":", rank,
        ",\"rows\":12}\n{\"events\":", step, ",\"time\":1,\"rank\":", rank,
        R"(,"why":"first","loader":"train","epoch":0,"number":)", step - 1,
        ",\"before\":", before,
        R"(,"asked":100,"ended":9000,"ready_batches":4)", ahead,
        R"(,"waits":[[100,200]],"averages":[[250,8000]],"operations":)"
        R"([["world","barrier","",0,5000,9500,false],)"
        R"(["world","all_reduce","bucket 3 of s",4096,300,5100,false],)"
        R"(["g","send","",8,4000,null,true]],)"
        R"("reads":[[1,-1500,-600,41,2]],"completes":[[1,-500,-100]],)"
        R"("dropped":1,"dropped_steps":0})",
        "\n");
  }

  std::string PathOf(int64_t rank) const {
    return absl::StrCat(folder_, "/steps.rank000", rank, ".jsonl");
  }
  void Write(int64_t rank, absl::string_view text) const {
    std::ofstream(PathOf(rank), std::ios::binary) << text;
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Writes two steps of two ranks, whose clocks differ by 20 us.
  void WriteTwoRanks(absl::string_view error = "60") const {
    const std::string ahead =
        absl::StrCat(",\"ahead\":20000,\"ahead_error\":", error);
    Write(0, Header(0, 2, "a") + Step(0, 1, 1000000) + Step(0, 2, 1010000));
    Write(1, Header(1, 2, "b") + Step(1, 1, 1020500, ahead) +
                 Step(1, 2, 1030500, ahead));
  }

  static std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string Run(int code = 0) {
    std::ostringstream out;
    const absl::StatusOr<int> result = RunTrace(host_, command_, out);
    EXPECT_THAT(result, IsOk());
    EXPECT_EQ(result.value_or(-1), code);
    return out.str();
  }
  absl::Status Error() {
    std::ostringstream out;
    absl::Status status = RunTrace(host_, command_, out).status();
    EXPECT_EQ(out.str(), "");
    return status;
  }

  std::string folder_;
  TestHost host_;
  TraceCommand command_;
};

TEST_F(TraceTest, IsChromesJson) {
  WriteTwoRanks();
  command_.steps = "2";
  EXPECT_EQ(
      Run(),
      R"json({"displayTimeUnit":"ms","otherData":{"producer":"lockstep","run":1000000,"job":"seed = 7"},
"traceEvents":[
{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0 (trainer-0)"}},
{"name":"process_sort_index","ph":"M","pid":0,"tid":0,"args":{"sort_index":0}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"steps"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1,"args":{"sort_index":1}},
{"name":"step 2","ph":"X","pid":0,"tid":1,"ts":1010.000,"dur":9.000,"args":{"step":2,"epoch":0,"number":1,"loader":"train","kept as":"first","dropped":1}},
{"name":"ready batches","ph":"C","pid":0,"tid":0,"ts":1019.000,"args":{"batches":4}},
{"name":"between steps","ph":"X","pid":0,"tid":1,"ts":1010.000,"dur":0.100,"args":{"step":2,"epoch":0,"number":1,"loader":"train","kept as":"first","dropped":1}},
{"name":"wait for data","ph":"X","pid":0,"tid":1,"ts":1010.100,"dur":0.100,"args":{"step":2}},
{"name":"average","ph":"X","pid":0,"tid":1,"ts":1010.250,"dur":7.750,"args":{"step":2}},
{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"group world"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":2,"args":{"sort_index":2}},
{"name":"all_reduce bucket 3","ph":"X","pid":0,"tid":2,"ts":1010.300,"dur":4.800,"args":{"step":2,"bytes":4096,"name":"bucket 3 of s"}},
{"name":"thread_name","ph":"M","pid":0,"tid":3,"args":{"name":"group g"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":3,"args":{"sort_index":3}},
{"name":"send","ph":"X","pid":0,"tid":3,"ts":1014.000,"dur":5.000,"args":{"step":2,"bytes":8,"name":"","failed":true,"pending":true}},
{"name":"thread_name","ph":"M","pid":0,"tid":4,"args":{"name":"group world, lane 2"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":4,"args":{"sort_index":4}},
{"name":"barrier","ph":"X","pid":0,"tid":4,"ts":1015.000,"dur":4.500,"args":{"step":2,"bytes":0,"name":""}},
{"name":"thread_name","ph":"M","pid":0,"tid":5,"args":{"name":"loader train, worker 1"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":5,"args":{"sort_index":5}},
{"name":"read","ph":"X","pid":0,"tid":5,"ts":1008.500,"dur":0.900,"args":{"step":2,"first index":41,"rows":2}},
{"name":"complete","ph":"X","pid":0,"tid":5,"ts":1009.500,"dur":0.400,"args":{"step":2}},
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1 (trainer-1)"}},
{"name":"process_sort_index","ph":"M","pid":1,"tid":0,"args":{"sort_index":1}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"steps"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":1}},
{"name":"step 2","ph":"X","pid":1,"tid":1,"ts":1010.500,"dur":9.000,"args":{"step":2,"epoch":0,"number":1,"loader":"train","kept as":"first","dropped":1}},
{"name":"ready batches","ph":"C","pid":1,"tid":0,"ts":1019.500,"args":{"batches":4}},
{"name":"between steps","ph":"X","pid":1,"tid":1,"ts":1010.500,"dur":0.100,"args":{"step":2,"epoch":0,"number":1,"loader":"train","kept as":"first","dropped":1}},
{"name":"wait for data","ph":"X","pid":1,"tid":1,"ts":1010.600,"dur":0.100,"args":{"step":2}},
{"name":"average","ph":"X","pid":1,"tid":1,"ts":1010.750,"dur":7.750,"args":{"step":2}},
{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"group world"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":2,"args":{"sort_index":2}},
{"name":"all_reduce bucket 3","ph":"X","pid":1,"tid":2,"ts":1010.800,"dur":4.800,"args":{"step":2,"bytes":4096,"name":"bucket 3 of s"}},
{"name":"thread_name","ph":"M","pid":1,"tid":3,"args":{"name":"group g"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":3,"args":{"sort_index":3}},
{"name":"send","ph":"X","pid":1,"tid":3,"ts":1014.500,"dur":5.000,"args":{"step":2,"bytes":8,"name":"","failed":true,"pending":true}},
{"name":"thread_name","ph":"M","pid":1,"tid":4,"args":{"name":"group world, lane 2"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":4,"args":{"sort_index":4}},
{"name":"barrier","ph":"X","pid":1,"tid":4,"ts":1015.500,"dur":4.500,"args":{"step":2,"bytes":0,"name":""}},
{"name":"thread_name","ph":"M","pid":1,"tid":5,"args":{"name":"loader train, worker 1"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":5,"args":{"sort_index":5}},
{"name":"read","ph":"X","pid":1,"tid":5,"ts":1009.000,"dur":0.900,"args":{"step":2,"first index":41,"rows":2}},
{"name":"complete","ph":"X","pid":1,"tid":5,"ts":1010.000,"dur":0.400,"args":{"step":2}}
]}
)json");
  EXPECT_THAT(host_.told, IsEmpty());
}

TEST_F(TraceTest, IsRows) {
  WriteTwoRanks();
  command_.steps = "1-1";
  command_.ranks = {"1"};
  command_.format = "csv";
  EXPECT_EQ(Run(),
            R"(rank,step,why,track,name,begin_us,end_us,bytes,index,rows,failed
1,1,first,steps,step 1,1000.500,1009.500,,,,
1,1,first,steps,between steps,1000.500,1000.600,,,,
1,1,first,steps,wait for data,1000.600,1000.700,,,,
1,1,first,steps,average,1000.750,1008.500,,,,
1,1,first,group world,all_reduce bucket 3,1000.800,1005.600,4096,,,no
1,1,first,group g,send,1004.500,1009.500,8,,,yes
1,1,first,"group world, lane 2",barrier,1005.500,1010.000,0,,,no
1,1,first,"loader train, worker 1",read,999.000,999.900,,41,2,
1,1,first,"loader train, worker 1",complete,1000.000,1000.400,,,,
)");
}

TEST_F(TraceTest, TextSaysWhatThereIs) {
  WriteTwoRanks();
  command_.format = "text";
  EXPECT_EQ(Run(), R"(run 1 of 1, which began at 1970-01-01 00:00:01 UTC

rank  host       all steps  events  dropped  slow steps left out  clock error
   0  trainer-0  1 to 2         14        2                    0  0
   1  trainer-1  1 to 2         14        2                    0  60ns

Steps with events: 1 to 2

The slowest of these steps, and where the time of the rank went that waited
least for others:

step  took  ranks  waited least  for data  in operations  between steps
   1  9us       2  rank 0        100ns     9.2us          100ns
   2  9us       2  rank 0        100ns     9.2us          100ns
)");
}

// The rank for which the others wait has shorter operations.
TEST_F(TraceTest, TextNamesTheRankThatWaitedLeast) {
  Write(0, Header(0, 2, "a") + Step(0, 1, 1000000));
  Write(1,
        Header(1, 2, "a") + absl::StrReplaceAll(Step(1, 1, 1000000),
                                                {{"300,5100", "4900,5100"}}));
  command_.format = "text";
  EXPECT_THAT(Run(), HasSubstr("   1  9us       2  rank 1        100ns     "
                               "5.5us"));
}

// Slices of a track are in each other, or follow each other.
void ExpectNests(const std::string& json) {
  const absl::StatusOr<JsonValue> trace = ParseJson(json);
  ASSERT_THAT(trace, IsOk());
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>>
      tracks;
  for (const JsonValue& event : trace->Find("traceEvents")->elements()) {
    if (*event.Find("ph")->text() != "X") continue;
    const double begin = *event.Find("ts")->number();
    const double end = begin + *event.Find("dur")->number();
    ASSERT_LE(begin, end);
    tracks[{*event.Find("pid")->integer(), *event.Find("tid")->integer()}]
        .emplace_back(begin, -end);
  }
  EXPECT_THAT(tracks, testing::Not(IsEmpty()));
  for (auto& [track, slices] : tracks) {
    std::sort(slices.begin(), slices.end());
    std::vector<double> open;  // the ends of slices
    for (const auto& [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin + 1e-6) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(-end, open.back() + 1e-6);
      }
      open.push_back(-end);
    }
  }
}

TEST_F(TraceTest, SlicesNest) {
  WriteTwoRanks();
  ExpectNests(Run());
  // Each step has another measurement of the clocks.
  std::string text = Header(1, 2, "b");
  for (int64_t step = 1; step <= 100; ++step) {
    text += Step(1, step, 1020500 + 9000 * step,
                 absl::StrCat(",\"ahead\":", 20000 + step * 7919 % 5000,
                              ",\"ahead_error\":3000"));
  }
  Write(1, text);
  ExpectNests(Run());
}

TEST_F(TraceTest, AFileIsWrittenAsAWhole) {
  WriteTwoRanks();
  const std::string expected = Run();
  command_.output = folder_ + "/trace.json";
  std::ofstream(command_.output) << "older";
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(TextOf(command_.output), expected);
  // A link stays one.
  std::filesystem::create_symlink(command_.output, folder_ + "/link");
  std::ofstream(command_.output) << "older";
  command_.output = folder_ + "/link";
  EXPECT_EQ(Run(), "");
  EXPECT_TRUE(std::filesystem::is_symlink(command_.output));
  EXPECT_EQ(TextOf(command_.output), expected);
  EXPECT_THAT(NamesIn(folder_),
              ElementsAre("link", "steps.rank0000.jsonl",
                          "steps.rank0001.jsonl", "trace.json"));
  command_.output = "/proc/none/trace.json";
  EXPECT_THAT(Error(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("can't write /proc/none/trace.json")));
  std::filesystem::create_symlink(PathOf(0), folder_ + "/records");
  std::filesystem::create_symlink(folder_ + "/none", folder_ + "/nothing");
  for (const std::string& lost : {std::string("/dev/null"), folder_, PathOf(0),
                                  folder_ + "/records", folder_ + "/nothing"}) {
    command_.output = lost;
    EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("--output should be")));
  }
}

TEST_F(TraceTest, ClocksThatDifferTooMuchAreRefused) {
  WriteTwoRanks("2500000");
  EXPECT_THAT(
      Error(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("the times of rank 1 in step 1 may be wrong by "
                               "2.5ms, and no more than 1ms is accepted"),
                     HasSubstr("--max_error"))));
  command_.max_error = absl::Milliseconds(3);
  EXPECT_THAT(Run(), HasSubstr("\"pid\":1"));
  command_.max_error = absl::Milliseconds(1);
  command_.ranks = {"0"};
  EXPECT_THAT(Run(), HasSubstr("\"pid\":0"));
  command_.ranks = {};
  command_.format = "text";
  EXPECT_THAT(Run(), HasSubstr("2.5ms"));
}

TEST_F(TraceTest, ClocksThatAreNotKnownAreRefused) {
  Write(0, Header(0, 2, "a") + Step(0, 1, 1000000));
  Write(1, Header(1, 2, "b") + Step(1, 1, 1020500));
  EXPECT_THAT(Error(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("it is not known how far the clock of rank 1 "
                                 "was ahead")));
  command_.max_error = absl::InfiniteDuration();
  EXPECT_THAT(Run(), HasSubstr("\"ts\":1020.500"));
  command_.format = "text";
  EXPECT_THAT(Run(), HasSubstr("not known"));
}

TEST_F(TraceTest, RanksThatAreDamagedOrMissingAreLeftOut) {
  WriteTwoRanks();
  Write(0, Header(0, 4, "a") + Step(0, 1, 1000000));
  Write(1, Header(1, 4, "a") + "{\"step\":NaN}\n");
  Write(3, Header(3, 4, "a") + Step(3, 1, 1000000));
  EXPECT_THAT(Run(/*code=*/1),
              AllOf(HasSubstr("\"pid\":0"), HasSubstr("\"pid\":3")));
  EXPECT_THAT(
      host_.told,
      ElementsAre(AllOf(HasSubstr("rank 1 is left out: "),
                        HasSubstr(PathOf(1) + ", line 3: ")),
                  "of 4 ranks of this run, these are not shown: 1 to 2"));
  host_.told.clear();
  // What is told comes before an error, too.
  command_.ranks = {"1"};
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                "there are no records of rank 1 in this run; "
                                "there are those of 0, 3"));
  EXPECT_THAT(host_.told, SizeIs(2));
}

TEST_F(TraceTest, RanksWithoutFilesAreTold) {
  Write(0, Header(0, 3, "a") + Step(0, 1, 1000000));
  EXPECT_THAT(Run(/*code=*/1), HasSubstr("\"pid\":0"));
  EXPECT_THAT(host_.told, ElementsAre("of 3 ranks of this run, these are not "
                                      "shown: 1 to 2"));
}

TEST_F(TraceTest, RanksThatDisagreeAreLeftOut) {
  Write(0, Header(0, 2, "a") + Step(0, 1, 1000000));
  Write(1, Header(1, 5, "a") + Step(1, 1, 1000000));
  EXPECT_THAT(Run(/*code=*/1), testing::Not(HasSubstr("\"pid\":1")));
  EXPECT_THAT(host_.told,
              ElementsAre("rank 1 is left out: it says that the run has 5 "
                          "ranks, and others say 2",
                          "of 2 ranks of this run, these are not shown: 1"));
}

TEST_F(TraceTest, RanksWithoutTheseStepsAreTold) {
  Write(0, Header(0, 2, "a") + Step(0, 1, 1000000));
  Write(1, Header(1, 2, "a"));
  Run();
  EXPECT_THAT(host_.told, ElementsAre("these ranks have no events of the steps "
                                      "that are shown: 1"));
}

TEST_F(TraceTest, ShowsOneRun) {
  Write(0, Header(0, 1, "a", 1000000) + Step(0, 1, 1000000) +
               // The clock was set back, so the number is smaller.
               Header(0, 1, "a", 900000) + Step(0, 5, 2000000));
  EXPECT_THAT(Run(), HasSubstr("\"step 5\""));
  command_.format = "text";
  EXPECT_THAT(Run(), AllOf(HasSubstr("run 1 of 2, which began at 1970-01-01 "
                                     "00:00:01 UTC (--run=1 shows it)\n"),
                           HasSubstr("run 2 of 2")));
  command_.format = "json";
  command_.run = 1;
  EXPECT_THAT(Run(), AllOf(HasSubstr("\"step 1\""),
                           testing::Not(HasSubstr("\"step 5\""))));
  command_.run = 3;
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                "there is no run 3: the records have 2 runs"));
}

TEST_F(TraceTest, RefusesWhatHasNothingToShow) {
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kNotFound));
  Write(0, "");
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("no rank has records of a run: the "
                                          "files are of an older release")));
  Write(0, "{}\n{}\n");
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("that can be used")));
  EXPECT_THAT(host_.told, ElementsAre(HasSubstr("rank 0 is left out")));
  Write(0, Header(0, 1, "a"));
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("no step has ended")));
  WriteTwoRanks();
  command_.steps = "7-9";
  EXPECT_THAT(Error(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "none of these steps has events; these have: 1 to 2"));
  command_.steps = "";
  command_.ranks = {"5"};
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                "there are no records of rank 5 in this run; "
                                "there are those of 0 to 1"));
}

TEST_F(TraceTest, RefusesFlagsThatMakeNoSense) {
  WriteTwoRanks();
  for (const char* const steps :
       {"x", "0", "9-7", "-5", "5-", "1-2-3", "5-x"}) {
    command_.steps = steps;
    EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("--steps should be")))
        << steps;
  }
  command_.steps = "";
  for (const char* const rank : {"x", "-1", ""}) {
    command_.ranks = {rank};
    EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("--ranks should be")))
        << rank;
  }
  command_.ranks = {};
  command_.max_error = -absl::Seconds(1);
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("--max_error should be")));
  command_.format = "xml";
  EXPECT_THAT(Error(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(TraceTest, ManyRanksAreShown) {
  constexpr int64_t kRanks = 40;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::string text = Header(rank, kRanks, "a");
    for (int64_t step = 1; step <= 50; ++step) {
      text += Step(rank, step, 1000000 + 10000 * step);
    }
    std::ofstream(absl::StrCat(folder_, "/steps.rank00", rank < 10 ? "0" : "",
                               rank, ".jsonl"))
        << text;
  }
  ExpectNests(Run());
}

TEST_F(TraceTest, NotEverythingIsToldOfManyRanks) {
  for (int64_t rank = 0; rank < 9; ++rank) {
    Write(rank, Header(rank, 9, "a") + "{\"step\":x}\n{\"st\n" +
                    Header(rank, 9, "a", 2000000) + "{\"st\n" +
                    Step(rank, 1, 1000000));
  }
  EXPECT_THAT(Run(), HasSubstr("\"pid\":8"));
  ASSERT_THAT(host_.told, SizeIs(11));
  EXPECT_EQ(host_.told[10], "8 more notes like these are left out");
}

}  // namespace
}  // namespace lockstep
