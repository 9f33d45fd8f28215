// These tests write metrics to files, and read them back.
#include "lockstep/metrics/sinks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/metrics_sink_conformance.h"
#include "lockstep/metrics/records.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class MetricsSinks : public testing::Test {
 protected:
  MetricsSinks() {
    std::string folder = testing::TempDir() + "/metricsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  using Sink = absl::StatusOr<std::unique_ptr<MetricsSink>>;

  static Sink Text(const std::string& path, int64_t rank = 0) {
    return MakeTextSink({path}, rank);
  }

  static Sink Tensorboard(const std::string& folder, int64_t rank = 0) {
    return MakeTensorboardSink({folder}, rank);
  }

  static Sink JsonLines(const std::string& path, int64_t max_bytes = 1 << 20) {
    JsonLinesOptions options;
    options.path = path;
    options.max_bytes = max_bytes;
    return MakeJsonLinesSink(options, /*rank=*/3, /*size=*/5);
  }

  static std::vector<std::string> LinesOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  static std::vector<std::string> NamesOf(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Returns the contents of all files in the folder, in the order of names.
  static std::vector<std::string> FilesOf(const std::string& folder) {
    std::vector<std::string> files;
    for (const std::string& name : NamesOf(folder)) {
      std::ifstream file(absl::StrCat(folder, "/", name), std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>());
    }
    return files;
  }

  // Returns the contents of an event file's records, without their checksums.
  static std::vector<std::string> RecordsOf(absl::string_view bytes) {
    std::vector<std::string> records;
    while (bytes.size() >= 12) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof(size));
      records.emplace_back(bytes.substr(12, size));
      bytes.remove_prefix(size + 16);
    }
    EXPECT_EQ(bytes, "");
    return records;
  }

  std::string folder_;
};

TEST_F(MetricsSinks, TextHasALineForEachStep) {
  const std::string path = folder_ + "/losses";
  for (int run = 0; run < 2; ++run) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Text(path));
    LOCKSTEP_EXPECT_OK(sink->Begin(run));
    LOCKSTEP_EXPECT_OK(sink->Write(run, {{"loss", 0.5}, {"rate", 1}}));
    LOCKSTEP_EXPECT_OK(sink->Flush());
  }
  EXPECT_THAT(FilesOf(folder_), ElementsAre("step 0: loss 0.5, rate 1\n"
                                            "goes on after step 1\n"
                                            "step 1: loss 0.5, rate 1\n"));
}

TEST_F(MetricsSinks, TextHasFewDigits) {
  const std::string path = folder_ + "/losses";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Text(path));
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{"rate", 0.2F},
                                     {"tiny", 1.0 / 3e20},
                                     {"rows", 1234567},
                                     {"nan", -NAN},
                                     {"inf", -INFINITY},
                                     {"a\nb", 0}}));
  EXPECT_THAT(FilesOf(folder_),
              ElementsAre("step 1: rate 0.2, tiny 3.3333333e-21, rows 1234567, "
                          "nan nan, inf -inf, a\\nb 0\n"));
}

// Under [rank_metrics], each rank writes to its own place.
TEST_F(MetricsSinks, RanksDoNotShareAPlace) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto text,
                                  Text(folder_ + "/new/text", rank));
    LOCKSTEP_EXPECT_OK(text->Write(1, {{"loss", 1}}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto tensorboard,
        Tensorboard(folder_ + "/new/tensorboard", rank));
    LOCKSTEP_EXPECT_OK(tensorboard->Write(1, {{"loss", 1}}));
  }
  EXPECT_THAT(NamesOf(folder_ + "/new"),
              ElementsAre("tensorboard", "text", "text.rank0001"));
  EXPECT_THAT(NamesOf(folder_ + "/new/tensorboard"),
              ElementsAre(StartsWith("events.out.tfevents."), "rank0001"));
  EXPECT_EQ(NamesOf(folder_ + "/new/tensorboard/rank0001").size(), 1);
}

// Records within a second of an earlier write are written by the next Flush, or
// at the end.
TEST_F(MetricsSinks, TensorboardIsWrittenOnceASecond) {
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Tensorboard(folder_));
    LOCKSTEP_EXPECT_OK(sink->Write(1, {{"loss", 0.5}}));
    EXPECT_EQ(RecordsOf(FilesOf(folder_)[0]).size(), 2);
    LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 0.5}}));
    LOCKSTEP_EXPECT_OK(sink->Write(3, {{"loss", 0.5}}));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    EXPECT_EQ(RecordsOf(FilesOf(folder_)[0]).size(), 4);
    LOCKSTEP_EXPECT_OK(sink->Write(4, {{"loss", 0.5}}));
  }
  EXPECT_EQ(RecordsOf(FilesOf(folder_)[0]).size(), 5);
}

// Each run has its own file, and voids the steps of earlier runs that it
// repeats. The names of the files are in the order of the runs.
TEST_F(MetricsSinks, TensorboardHasAFileForEachRun) {
  const std::string folder = folder_ + "/runs/7";
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Tensorboard(folder));
    LOCKSTEP_EXPECT_OK(sink->Begin(0));
    LOCKSTEP_EXPECT_OK(sink->Write(1, {{"loss", 0.5}}));
    LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 0.25}}));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    const std::vector<std::string> files = FilesOf(folder);
    ASSERT_EQ(files.size(), 1);
    EXPECT_THAT(RecordsOf(files[0]),
                ElementsAre(HasSubstr("brain.Event:2"), HasSubstr("loss"),
                            HasSubstr("loss")));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Tensorboard(folder));
  LOCKSTEP_EXPECT_OK(sink->Begin(1));
  LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 0.125}}));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  const std::vector<std::string> files = FilesOf(folder);
  ASSERT_EQ(files.size(), 2);
  EXPECT_THAT(
      RecordsOf(files[1]),
      ElementsAre(HasSubstr("brain.Event:2"),
                  HasSubstr(absl::string_view("\x10\x02\x3a\x02\x08\x01")),
                  HasSubstr("loss")));
}

TEST_F(MetricsSinks, SayWhereTheyCanNotWrite) {
  EXPECT_THAT(Tensorboard("").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("folder should name the folder of the run")));
  EXPECT_THAT(Tensorboard("/proc/none/7").status(), Not(IsOk()));
  EXPECT_THAT(Text("/proc/none/losses").status(),
              StatusIs(absl::StatusCode::kNotFound));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto full, Text("/dev/full"));
  EXPECT_THAT(full->Write(0, {{"loss", 1}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("can't write metrics to")));
  EXPECT_THAT(JsonLines("").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("path should name a folder")));
  EXPECT_THAT(JsonLines(folder_ + "/steps", 65535).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_bytes is 65535; accepted are 65536")));
  EXPECT_THAT(JsonLines("/proc/none/7").status(), Not(IsOk()));
}

// ---- Lines of JSON.

// Each rank has its own file. A line that describes the process is at its
// beginning and after each restart.
TEST_F(MetricsSinks, JsonLinesHaveAFileForEachRank) {
  for (int run = 0; run < 2; ++run) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  JsonLines(folder_ + "/new/steps"));
    LOCKSTEP_EXPECT_OK(sink->Begin(6));
    LOCKSTEP_EXPECT_OK(sink->Write(
        7, {{"loss", 0.1}, {"position", 123456789012}, {"tiny", 1e-20}}));
  }
  EXPECT_THAT(NamesOf(folder_ + "/new"), ElementsAre("steps.rank0003.jsonl"));
  const std::vector<std::string> lines =
      LinesOf(folder_ + "/new/steps.rank0003.jsonl");
  ASSERT_EQ(lines.size(), 6);
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(lines[3 * run],
                MatchesRegex(R"(\{"format":"lockstep metrics","version":2,)"
                             R"("time":[0-9]+\.[0-9]{6},"rank":3,"size":5,)"
                             R"("pid":[0-9]+,"file":1\})"));
    EXPECT_THAT(
        lines[3 * run + 1],
        MatchesRegex(R"(\{"after":6,"time":[0-9]+\.[0-9]{6},"rank":3\})"));
    EXPECT_THAT(
        lines[3 * run + 2],
        MatchesRegex(R"(\{"step":7,"time":[0-9]+\.[0-9]{6},"rank":3,)"
                     R"("loss":0\.1,"position":123456789012,"tiny":1e-20\})"));
  }
}

TEST_F(MetricsSinks, JsonHasNoStrangeNumbersAndNames) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, JsonLines(folder_ + "/steps"));
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{"nan", -NAN},
                                     {"inf", INFINITY},
                                     {"less", -INFINITY},
                                     {"a \"quote\" \\ \n", 1},
                                     {"perda m\xc3\xa9"
                                      "dia",
                                      2},
                                     {"\xff", 3}}));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  EXPECT_THAT(LinesOf(folder_ + "/steps.rank0003.jsonl").back(),
              EndsWith(R"("rank":3,"nan":null,"inf":null,"less":null,)"
                       R"("a \"quote\" \\ \n":1,)"
                       "\"perda m\xc3\xa9"
                       "dia\":2,\"\xef\xbf\xbd\":3}"));
}

// Both files together stay below the limit. No line is incomplete, and lines
// are lost only together with a whole file.
TEST_F(MetricsSinks, JsonLinesTakeNoMoreThanTheyMay) {
  constexpr int kSteps = 2000;
  const std::string path = folder_ + "/steps.rank0003.jsonl";
  for (int step = 0; step < kSteps;) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  JsonLines(folder_ + "/steps", 65536));
    for (int i = 0; i < 700 && step < kSteps; ++i) {
      LOCKSTEP_ASSERT_OK(sink->Write(step++, {{"loss", 0.25}}));
    }
    EXPECT_LE(std::filesystem::file_size(path), 32768);
  }
  EXPECT_THAT(NamesOf(folder_),
              ElementsAre("steps.rank0003.jsonl", "steps.rank0003.jsonl.old"));
  EXPECT_LE(std::filesystem::file_size(path + ".old"), 32768);
  std::vector<std::string> lines = LinesOf(path + ".old");
  EXPECT_THAT(lines[0], HasSubstr("\"format\""));
  for (const std::string& line : LinesOf(path)) lines.push_back(line);
  int next = kSteps;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    EXPECT_THAT(*line, AllOf(StartsWith("{"), EndsWith("}")));
    if (line->find("\"format\"") != std::string::npos) continue;
    EXPECT_THAT(*line, StartsWith(absl::StrCat("{\"step\":", --next, ",")));
  }
  EXPECT_LT(next, kSteps - 400);
}

TEST_F(MetricsSinks, ALineOfJsonFitsIntoAFile) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                JsonLines(folder_ + "/steps", 65536));
  LOCKSTEP_EXPECT_OK(sink->Write(0, {{"loss", 1}}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(sink->Write(1, {{std::string(40000, 'a'), 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("raise max_bytes")));
  }
  LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 1}}));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  // The lines before it are still there.
  EXPECT_THAT(LinesOf(folder_ + "/steps.rank0003.jsonl"),
              ElementsAre(HasSubstr("\"format\""), StartsWith("{\"step\":0,"),
                          StartsWith("{\"step\":2,")));
}

TEST_F(MetricsSinks, AMetricIsNotTakenForTheStep) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, JsonLines(folder_ + "/steps"));
  for (const char* const name :
       {"step", "time", "rank", "after", "format", ""}) {
    EXPECT_THAT(sink->Write(1, {{"loss", 1}, {name, 2}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("can't be called")));
  }
  EXPECT_EQ(LinesOf(folder_ + "/steps.rank0003.jsonl").size(), 1);
}

// The last value of a metric counts, however many there are.
TEST_F(MetricsSinks, AnObjectOfJsonHasANameOnce) {
  for (const int others : {1, 100}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  JsonLines(folder_ + "/steps"));
    std::vector<Metric> metrics = {{"a", 1}, {"b", 2}, {"a", 3}};
    for (int i = 0; i < others; ++i) metrics.push_back({"c", 1.0 * i});
    LOCKSTEP_EXPECT_OK(sink->Write(1, metrics));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    EXPECT_THAT(LinesOf(folder_ + "/steps.rank0003.jsonl").back(),
                EndsWith(absl::StrCat(R"("rank":3,"b":2,"a":3,"c":)",
                                      others - 1, "}")));
  }
}

// Returns lines without what changes from run to run.
std::vector<std::string> WithoutTimes(const std::vector<std::string>& lines) {
  const std::regex time(R"("time":[0-9.]+,|,"pid":[0-9]+)");
  std::vector<std::string> shown;
  for (const std::string& line : lines) {
    shown.push_back(std::regex_replace(line, time, ""));
  }
  return shown;
}

RunRecord RunOf(const std::string& job) {
  RunRecord run;
  run.run = 1764005000123456;
  run.job = job;
  run.host = "trainer-1";
  run.clock = "boot/7";
  return run;
}

StepEvents EventsWith(const std::vector<StepEvent>& list) {
  StepEvents events;
  events.why = StepEvents::Why::kSlow;
  events.step = 120;
  events.epoch = 2;
  events.number = 17;
  events.loader = "train";
  events.before = 1'000'000;
  events.asked = 1'000'100;
  events.ended = 1'009'000;
  events.ready_batches = 4;
  events.ahead = -500;
  events.ahead_error = 60;
  events.dropped = 1;
  events.dropped_steps = 2;
  events.events = list;
  return events;
}

TEST_F(MetricsSinks, JsonLinesHaveRecords) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, JsonLines(folder_ + "/steps"));
  RecordsSink* const records = sink->records();
  ASSERT_NE(records, nullptr);
  EXPECT_EQ(records->which(), StepsWithEvents::kSome);
  LOCKSTEP_EXPECT_OK(records->BeginRun(RunOf("seed = 7\n")));
  using Kind = StepEvent::Kind;
  std::vector<StepEvent> list(6);
  list[0] = {Kind::kRead, 999'000, 1'000'050, "", "", "", 0, false, 3, 41, 2};
  list[1] = {Kind::kWait, 1'000'100, 1'000'200};
  list[2] = {Kind::kOperation, 1'000'300,           1'000'400, "world",
             "all_reduce",     "bucket 3 of \"s\"", 4096};
  list[3] = {Kind::kOperation, 1'000'300, -1, "g", "barrier", "", 0, true};
  list[4] = {Kind::kAverage, 1'000'250, 1'000'500};
  list[5] = {Kind::kComplete, 999'500, 999'900, "", "", "", 0, false, 1};
  LOCKSTEP_EXPECT_OK(records->WriteEvents(EventsWith(list)));
  StepEvents none = EventsWith({});
  none.ahead_error = -1;
  LOCKSTEP_EXPECT_OK(records->WriteEvents(none));
  OperationTimes times;
  times.group = "world";
  times.operation = "all_reduce";
  times.dtype = "f32";
  times.count = 1000;
  times.bucket = 3;
  for (const int64_t time : {5, 5, 9}) times.took.Add(time);
  times.issued.Add(0);
  LOCKSTEP_EXPECT_OK(records->WriteTimes(130, times));
  LOCKSTEP_EXPECT_OK(
      records->WriteSlowest(130, "train", {{41, 0.25, 1}, {7, 0.125, 16}}));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  EXPECT_THAT(
      WithoutTimes(LinesOf(folder_ + "/steps.rank0003.jsonl")),
      ElementsAre(
          R"({"format":"lockstep metrics","version":2,"rank":3,"size":5,)"
          R"("file":1})",
          R"({"run":1764005000123456,"rank":3,"host":"trainer-1",)"
          R"("clock":"boot/7","job":"seed = 7\n"})",
          R"({"events":120,"rank":3,"why":"slow","loader":"train","epoch":2,)"
          R"("number":17,"before":1000000,"asked":100,"ended":9000,)"
          R"("ready_batches":4,"ahead":-500,"ahead_error":60,)"
          R"("waits":[[100,200]],"averages":[[250,500]],"operations":)"
          R"([["world","all_reduce","bucket 3 of \"s\"",4096,300,400,false],)"
          R"(["g","barrier","",0,300,null,true]],)"
          R"("reads":[[3,-1000,50,41,2]],"completes":[[1,-500,-100]],)"
          R"("dropped":1,"dropped_steps":2})",
          R"({"events":120,"rank":3,"why":"slow","loader":"train","epoch":2,)"
          R"("number":17,"before":1000000,"asked":100,"ended":9000,)"
          R"("ready_batches":4,"waits":[],"averages":[],"operations":[],)"
          R"("reads":[],"completes":[],"dropped":1,"dropped_steps":2})",
          R"({"times":130,"rank":3,"group":"world","operation":"all_reduce",)"
          R"("dtype":"f32","count":1000,"bucket":3,"issued":[[0,1]],)"
          R"("ended":[],"took":[[5,2],[9,1]]})",
          R"({"slowest":130,"rank":3,"loader":"train",)"
          R"("samples":[[41,0.25,1],[7,0.125,16]]})"));
}

// Each file says of which run it is, and where that one began.
TEST_F(MetricsSinks, JsonLinesBeginEachFileWithTheRun) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                JsonLines(folder_ + "/steps", 65536));
  LOCKSTEP_EXPECT_OK(sink->records()->BeginRun(RunOf("seed = 7")));
  LOCKSTEP_EXPECT_OK(sink->Begin(500));
  for (int64_t step = 501; step <= 507; ++step) {
    LOCKSTEP_EXPECT_OK(sink->Write(step, {{std::string(10000, 'a'), 1}}));
  }
  LOCKSTEP_EXPECT_OK(sink->Flush());
  const std::string path = folder_ + "/steps.rank0003.jsonl";
  for (const std::string& name : {path, path + ".old"}) {
    const std::vector<std::string> lines = WithoutTimes(LinesOf(name));
    ASSERT_GE(lines.size(), 3);
    EXPECT_THAT(lines[0], EndsWith(R"("first_step":501,"after":500})"));
    EXPECT_THAT(lines[1], EndsWith(R"("job":"seed = 7"})"));
  }
}

// Neither a long text nor many events keep the other lines from the files.
TEST_F(MetricsSinks, JsonLinesLeaveOutWhatIsTooLong) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                JsonLines(folder_ + "/steps", 65536));
  LOCKSTEP_EXPECT_OK(sink->records()->BeginRun(RunOf(std::string(9000, 'x'))));
  std::vector<StepEvent> list(5000);
  for (StepEvent& event : list) event.end = 1'234'567;
  LOCKSTEP_EXPECT_OK(sink->records()->WriteEvents(EventsWith(list)));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  const std::vector<std::string> lines =
      WithoutTimes(LinesOf(folder_ + "/steps.rank0003.jsonl"));
  ASSERT_EQ(lines.size(), 3);
  EXPECT_THAT(lines[1], EndsWith(R"("clock":"boot/7"})"));
  EXPECT_LT(lines[2].size(), 8600);
  const auto kept = std::count(lines[2].begin(), lines[2].end(), '[') - 5;
  EXPECT_GT(kept, 300);
  EXPECT_THAT(lines[2], HasSubstr(absl::StrCat("\"dropped\":", 5001 - kept)));
}

TEST_F(MetricsSinks, JsonLinesMayHaveAFolder) {
  for (int run = 0; run < 2; ++run) {
    LOCKSTEP_EXPECT_OK(JsonLines(folder_ + "/new/"));
  }
  EXPECT_THAT(NamesOf(folder_ + "/new"), ElementsAre("rank0003.jsonl"));
}

// Two sinks with one file would rename it under each other when it is full.
TEST_F(MetricsSinks, JsonLinesAreNotShared) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                JsonLines(folder_ + "/steps", 65536));
  EXPECT_THAT(
      JsonLines(folder_ + "/steps").status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("another job or another sink writes metrics")));
  // The next file is locked as well.
  for (int i = 0; i < 2; ++i) {
    LOCKSTEP_EXPECT_OK(sink->Write(i, {{std::string(20000, 'a'), 1}}));
  }
  EXPECT_THAT(JsonLines(folder_ + "/steps").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// If the files are removed, the training continues.
TEST_F(MetricsSinks, JsonLinesSurviveTheirFiles) {
  const std::string path = folder_ + "/new/steps.rank0003.jsonl";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                JsonLines(folder_ + "/new/steps", 65536));
  LOCKSTEP_EXPECT_OK(sink->Write(0, {{std::string(20000, 'a'), 1}}));
  std::filesystem::remove_all(folder_ + "/new");
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{std::string(20000, 'a'), 1}}));
  EXPECT_EQ(LinesOf(path).size(), 2);
}

// Sinks of users can be tested with the same suite.
TEST_F(MetricsSinks, Conform) {
  ExpectConforms([&] { return JsonLines(folder_ + "/json"); });
  ExpectConforms([&] { return Text(folder_ + "/text"); });
  ExpectConforms([&] { return Tensorboard(folder_ + "/tb"); });
  ExpectConforms([&] { return MakePrometheusSink({folder_ + "/prom"}); });
}

}  // namespace
}  // namespace lockstep
