// These tests read what the real sink has written, and what was made of it.
#include "lockstep/tools/records/rank_records.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/records.h"
#include "lockstep/metrics/sinks.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RankRecordsTest : public testing::Test {
 protected:
  RankRecordsTest() {
    std::string folder = testing::TempDir() + "/recordsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // Writes the records of a run with the sink. Steps take 1,000 ns.
  void WriteRun(int64_t rank, int64_t run, int64_t first, int64_t last,
                int64_t max_bytes = 1 << 20) const {
    JsonLinesOptions options;
    options.path = folder_ + "/steps";
    options.max_bytes = max_bytes;
    const auto sink = MakeJsonLinesSink(options, rank, /*size=*/2);
    ASSERT_THAT(sink, IsOk());
    RunRecord record;
    record.run = run;
    record.host = "trainer";
    record.clock = "a";
    LOCKSTEP_EXPECT_OK((*sink)->records()->BeginRun(record));
    LOCKSTEP_EXPECT_OK((*sink)->Begin(first - 1));
    for (int64_t step = first; step <= last; ++step) {
      LOCKSTEP_EXPECT_OK((*sink)->Write(step, {{"rows", 12}}));
      std::vector<StepEvent> list(1);
      StepEvents events;
      events.step = step;
      events.before = (100 * run + step) * 1000;
      events.asked = events.before + 100;
      events.ended = events.before + 900;
      list[0].begin = events.asked;
      list[0].end = events.asked + 10;
      events.events = list;
      LOCKSTEP_EXPECT_OK((*sink)->records()->WriteEvents(events));
    }
  }

  std::string PathOf(int64_t rank) const {
    return absl::StrCat(folder_, "/steps.rank000", rank, ".jsonl");
  }

  std::string TextOf(int64_t rank) const {
    std::ifstream file(PathOf(rank), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void Write(int64_t rank, absl::string_view text) const {
    std::ofstream(PathOf(rank), std::ios::binary) << text;
  }

  static RecordsWanted All() {
    RecordsWanted wanted;
    wanted.events_of = [](int64_t) { return true; };
    wanted.times = true;
    return wanted;
  }

  RankRecords Read(int64_t rank) const {
    return ReadRankRecords({rank, {PathOf(rank)}}, All());
  }

  // Returns the damage of the first run that has any.
  static absl::Status DamageOf(const RankRecords& records) {
    absl::Status damage;
    for (const RankRun& run : records.runs) damage.Update(run.damage);
    return damage;
  }
  static void ExpectNoDamage(const RankRecords& records) {
    LOCKSTEP_EXPECT_OK(DamageOf(records));
  }

  // Changes the text of rank 0, and expects that it is refused.
  void ExpectDamage(absl::string_view from, absl::string_view to,
                    absl::string_view says) const {
    const std::string text = TextOf(0);
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(changed, text) << from;
    Write(0, changed);
    EXPECT_THAT(DamageOf(Read(0)), StatusIs(absl::StatusCode::kDataLoss,
                                            HasSubstr(std::string(says))));
    Write(0, text);
  }

  std::string folder_;
};

TEST_F(RankRecordsTest, HaveTheRunsOfARank) {
  WriteRun(0, /*run=*/7, 1, 5);
  WriteRun(0, /*run=*/8, 4, 6);
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  EXPECT_THAT(records.notes, IsEmpty());
  ASSERT_THAT(records.runs, SizeIs(2));
  EXPECT_EQ(records.runs[0].run, 7);
  EXPECT_EQ(records.runs[0].size, 2);
  EXPECT_EQ(records.runs[0].host, "trainer");
  EXPECT_EQ(records.runs[0].first_step, 1);
  EXPECT_EQ(records.runs[0].last_step, 5);
  EXPECT_THAT(records.runs[0].events, SizeIs(5));
  EXPECT_EQ(records.runs[1].run, 8);
  EXPECT_EQ(records.runs[1].first_step, 4);
  EXPECT_THAT(records.runs[1].events, SizeIs(3));
}

TEST_F(RankRecordsTest, AProcessMayHaveTwoFiles) {
  WriteRun(0, /*run=*/7, 1, 140, 65536);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto found,
                                FindRankFiles(folder_ + "/steps"));
  ASSERT_THAT(found, SizeIs(1));
  ASSERT_THAT(found[0].paths, ElementsAre(PathOf(0) + ".old", PathOf(0)));
  const RankRecords records = ReadRankRecords(found[0], All());
  ExpectNoDamage(records);
  EXPECT_THAT(records.notes, IsEmpty());
  ASSERT_THAT(records.runs, SizeIs(1));
  EXPECT_EQ(records.runs[0].first_step, 1);
  EXPECT_EQ(records.runs[0].last_step, 140);
  EXPECT_THAT(records.runs[0].events, SizeIs(140));
}

TEST_F(RankRecordsTest, StepsThatAreLostAreTold) {
  WriteRun(0, /*run=*/7, 1, 1000, 65536);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto found,
                                FindRankFiles(folder_ + "/steps"));
  const RankRecords records = ReadRankRecords(found[0], All());
  ExpectNoDamage(records);
  ASSERT_THAT(records.runs, SizeIs(1));
  ASSERT_TRUE(records.runs[0].first_step.has_value());
  EXPECT_GT(*records.runs[0].first_step, 500);
  EXPECT_EQ(records.runs[0].lost_steps, *records.runs[0].first_step - 1);
  EXPECT_THAT(records.notes,
              ElementsAre(HasSubstr(absl::StrCat(
                  "the first ", records.runs[0].lost_steps, " steps"))));
}

TEST_F(RankRecordsTest, MissingStepsAreTold) {
  WriteRun(0, /*run=*/7, 1, 5);
  Write(0, absl::StrReplaceAll(TextOf(0), {{"{\"step\":3", "{\"later\":3"}}));
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  EXPECT_EQ(records.runs[0].missing_steps, 1);
  EXPECT_THAT(records.notes,
              testing::Contains(HasSubstr("1 steps are missing")));
}

// A process that is killed, or a disk that is full, leaves an incomplete line.
TEST_F(RankRecordsTest, AnIncompleteLineIsTold) {
  WriteRun(0, /*run=*/7, 1, 5);
  const std::string text = TextOf(0);
  const size_t last = text.rfind('\n', text.size() - 2) + 1;
  for (size_t size = last + 1; size < text.size() - 1; ++size) {
    Write(0, text.substr(0, size));
    const RankRecords records = Read(0);
    ExpectNoDamage(records);
    EXPECT_THAT(records.notes,
                ElementsAre(HasSubstr("line 13: it is incomplete")));
    ASSERT_THAT(records.runs, SizeIs(1));
    EXPECT_EQ(records.runs[0].events.size(), 4);
  }
  // The next process begins a new line, and so does the same one.
  Write(0, absl::StrCat(text.substr(0, text.size() - 20), "\n"));
  WriteRun(0, /*run=*/8, 4, 6);
  const std::string two = TextOf(0);
  Write(0, absl::StrReplaceAll(two, {{"{\"step\":5", "{\"st\n{\"step\":5"}}));
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  EXPECT_THAT(records.notes,
              ElementsAre(AllOf(HasSubstr("line 12: it is incomplete"),
                                HasSubstr("so are 2 more lines"))));
  ASSERT_THAT(records.runs, SizeIs(2));
  EXPECT_THAT(records.runs[0].events, SizeIs(4));
  EXPECT_THAT(records.runs[1].events, SizeIs(3));
}

TEST_F(RankRecordsTest, DamageIsTold) {
  WriteRun(0, /*run=*/7, 1, 5);
  ExpectDamage("\"step\":3", "\"step\":NaN", "line 8: byte 8");
  ExpectDamage("\"why\":\"first\"", "\"why\":\"fist\"", "line 5: 'why' should");
  ExpectDamage("\"step\":3", "\"step\":0", "step 0 comes after step 2");
  ExpectDamage("\"events\":3", "\"events\":1", "the events of step 1 come");
  ExpectDamage("\"before\":703000", "\"before\":701000",
               "the steady clock goes back: step 3 begins 1900 ns before the "
               "end of step 2");
  ExpectDamage("\"version\":2", "\"version\":3",
               "version 3 of the format, and this release reads 1 and 2");
  ExpectDamage("\"rank\":0", "\"rank\":1", "it is of rank 1");
  ExpectDamage("{\"format\"",
               "{\"after\":0,\"time\":1,\"rank\":0}\n{\"format\"",
               "it comes before the line that says");
  ExpectNoDamage(Read(0));
  std::filesystem::rename(PathOf(0), PathOf(1));
  std::filesystem::create_directory(PathOf(0));
  EXPECT_THAT(DamageOf(Read(0)), StatusIs(absl::StatusCode::kDataLoss,
                                          HasSubstr("is no file that can")));
}

// The damage of a process does not harm the records of another one.
TEST_F(RankRecordsTest, DamageIsThatOfAProcess) {
  WriteRun(0, /*run=*/7, 1, 5);
  WriteRun(0, /*run=*/8, 4, 6);
  std::string text = TextOf(0);
  text.replace(text.find("\"step\":2"), 8, "\"step\":x");
  Write(0, text);
  const RankRecords records = Read(0);
  ASSERT_THAT(records.runs, SizeIs(2));
  EXPECT_THAT(records.runs[0].damage, StatusIs(absl::StatusCode::kDataLoss));
  LOCKSTEP_EXPECT_OK(records.runs[1].damage);
  EXPECT_THAT(records.runs[1].events, SizeIs(3));
}

TEST_F(RankRecordsTest, EventsOfSomeStepsAreKept) {
  WriteRun(0, /*run=*/7, 1, 5);
  RecordsWanted third;
  third.events_of = [](int64_t step) { return step == 3; };
  const RankRecords records = ReadRankRecords({0, {PathOf(0)}}, third);
  ASSERT_THAT(records.runs, SizeIs(1));
  ASSERT_THAT(records.runs[0].events, SizeIs(5));
  for (const EventsLine& events : records.runs[0].events) {
    EXPECT_EQ(events.events.empty(), events.step != 3);
  }
}

TEST_F(RankRecordsTest, TwoProcessesOfARunAreTold) {
  WriteRun(0, /*run=*/7, 1, 5);
  const std::string text = TextOf(0);
  Write(0, absl::StrCat(
               text, absl::StrReplaceAll(text, {{"\"pid\":", "\"pid\":1"}})));
  EXPECT_THAT(DamageOf(Read(0)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("two processes of this rank have written")));
}

TEST_F(RankRecordsTest, LinesOfALaterReleaseAreTold) {
  WriteRun(0, /*run=*/7, 1, 2);
  Write(0, TextOf(0) + "{\"later\":1,\"time\":1,\"rank\":0}\n");
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  EXPECT_THAT(records.notes,
              ElementsAre("rank 0: 1 lines are of kinds that this release does "
                          "not know"));
}

TEST_F(RankRecordsTest, FilesWithoutRecordsHaveNoRun) {
  Write(0,
        "{\"format\":\"lockstep metrics\",\"version\":1,\"time\":1,"
        "\"rank\":0,\"size\":2,\"pid\":3}\n"
        "{\"step\":1,\"time\":1,\"rank\":0,\"loss\":0.5}\n");
  RankRecords records = Read(0);
  ExpectNoDamage(records);
  ASSERT_THAT(records.runs, SizeIs(1));
  EXPECT_EQ(records.runs[0].run, 0);
  Write(0, "");
  records = Read(0);
  ExpectNoDamage(records);
  EXPECT_THAT(records.runs, IsEmpty());
}

// ---- Finding files.

TEST_F(RankRecordsTest, FilesAreFoundByEachOfTheirNames) {
  WriteRun(0, /*run=*/7, 1, 2);
  WriteRun(1, /*run=*/7, 1, 2);
  std::ofstream(folder_ + "/other.rank0000.jsonl.tmp") << "none";
  std::ofstream(folder_ + "/rank.jsonl") << "none";
  std::ofstream(folder_ + "/steps.rank00000.jsonl") << "none";
  for (const std::string& path :
       {folder_, folder_ + "/", folder_ + "/steps", PathOf(1)}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto found, FindRankFiles(path));
    ASSERT_THAT(found, SizeIs(2));
    EXPECT_EQ(found[1].rank, 1);
    EXPECT_THAT(found[1].paths, ElementsAre(PathOf(1)));
  }
}

TEST_F(RankRecordsTest, WhatIsNotFoundIsTold) {
  EXPECT_THAT(FindRankFiles(folder_ + "/steps"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("there is no file " + PathOf(0)),
                             HasSubstr("give the path that the sink has"))));
  EXPECT_THAT(FindRankFiles(folder_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is no file such as " + PathOf(0))));
  EXPECT_THAT(FindRankFiles("/proc/none/steps"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("/proc/none can't be read")));
  WriteRun(0, /*run=*/7, 1, 2);
  std::ofstream(folder_ + "/other.rank0000.jsonl") << "none";
  EXPECT_THAT(FindRankFiles(folder_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("several sinks have files"),
                             HasSubstr(folder_ + "/other"))));
}

TEST_F(RankRecordsTest, TimesAreKeptIfTheyAreWanted) {
  WriteRun(0, /*run=*/7, 1, 1);
  std::string text = TextOf(0);
  const auto step = [](int64_t number, absl::string_view metrics) {
    return absl::StrCat("{\"step\":", number, ",\"time\":1,\"rank\":0,",
                        metrics, "}\n");
  };
  absl::StrAppend(
      &text,
      step(2, R"("seconds":2,"between_seconds":0.5,"data_seconds":0.25,)"
              R"("average_seconds":0.75,"collective_seconds":1.5,"rows":12,)"
              R"("ready_batches":4)"),
      // A step without Average, in which collectives ran during the wait, too.
      step(3, R"("seconds":2,"data_seconds":1,"average_seconds":0,)"
              R"("collective_seconds":1.5)"),
      step(4, R"("seconds":2,"data_seconds":null,"average_seconds":null)"),
      // A second line of the step.
      step(4, R"("rows":5)"));
  Write(0, text);
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  const std::vector<StepTimes>& steps = records.runs[0].steps;
  ASSERT_THAT(steps, SizeIs(4));
  EXPECT_EQ(steps[1].step, 2);
  EXPECT_EQ(steps[1].whole, 2);
  EXPECT_EQ(steps[1].between, 0.5);
  EXPECT_EQ(steps[1].for_data, 0.25);
  EXPECT_EQ(steps[1].blocked, 0.75);
  EXPECT_EQ(steps[1].rows, 12);
  EXPECT_EQ(steps[1].ready_batches, 4);
  EXPECT_EQ(steps[2].blocked, 1);
  EXPECT_TRUE(std::isnan(steps[2].between));
  EXPECT_TRUE(std::isnan(steps[3].for_data));
  EXPECT_TRUE(std::isnan(steps[3].blocked));
  EXPECT_EQ(steps[3].whole, 2);
  EXPECT_EQ(steps[3].rows, 5);
  EXPECT_THAT(ReadRankRecords({0, {PathOf(0)}}, {}).runs[0].steps, IsEmpty());
}

TEST_F(RankRecordsTest, TheLastTimesOfAnOperationCount) {
  WriteRun(0, /*run=*/7, 1, 1);
  const auto times = [](int64_t step, int64_t bucket, int64_t count) {
    return absl::StrCat("{\"times\":", step, R"(,"time":1,"rank":0,)",
                        R"("group":"world","operation":"all_reduce",)",
                        R"("dtype":"f32","count":8,"bucket":)", bucket,
                        R"(,"issued":[],"ended":[],"took":[[9,)", count,
                        "]]}\n");
  };
  const auto slowest = [](int64_t step, int64_t index) {
    return absl::StrCat("{\"slowest\":", step, R"(,"time":1,"rank":0,)",
                        R"("loader":"train","samples":[[)", index,
                        ",0.5,1]]}\n");
  };
  Write(0, absl::StrCat(TextOf(0), times(1, 0, 1), times(1, 1, 1),
                        slowest(1, 5), times(10, 0, 10), slowest(10, 6)));
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  const RankRun& run = records.runs[0];
  ASSERT_THAT(run.operations, SizeIs(2));
  EXPECT_EQ(run.operations[0].took.count(), 10);
  EXPECT_EQ(run.operations[1].took.count(), 1);
  ASSERT_THAT(run.slowest.at("train"), SizeIs(1));
  EXPECT_EQ(run.slowest.at("train")[0].index, 6);
  EXPECT_THAT(ReadRankRecords({0, {PathOf(0)}}, {}).runs[0].operations,
              IsEmpty());
}

TEST_F(RankRecordsTest, ReadsAreAddedUp) {
  WriteRun(0, /*run=*/7, 1, 2);
  std::string text = TextOf(0);
  const size_t at = text.find("\"reads\":[]");
  ASSERT_NE(at, text.npos);
  text.replace(at, 10, R"("reads":[[0,-3000,-1000,5,1],[1,-2000,-1500,6,1]])");
  Write(0, text);
  const RankRecords records = Read(0);
  ExpectNoDamage(records);
  EXPECT_DOUBLE_EQ(records.runs[0].read_seconds, 2.5e-6);
  EXPECT_EQ(records.runs[0].read_steps, 1);
}

}  // namespace
}  // namespace lockstep
