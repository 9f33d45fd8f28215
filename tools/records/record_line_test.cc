#include "lockstep/tools/records/record_line.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/metrics/histogram.h"
#include "lockstep/metrics/records.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr absl::string_view kEvents =
    R"({"events":120,"time":5.5,"rank":3,"why":"slow","loader":"train",)"
    R"("epoch":2,"number":17,"before":1000000,"asked":100,"ended":9000,)"
    R"("ready_batches":4,"ahead":-500,"ahead_error":60,)"
    R"("waits":[[100,200]],"averages":[[250,500]],"operations":)"
    R"([["world","all_reduce","bucket 3",4096,300,400,false],)"
    R"(["g","barrier","",0,300,null,true]],)"
    R"("reads":[[3,-1000,50,41,2]],"completes":[[1,-500,-100]],)"
    R"("dropped":1,"dropped_steps":2})";

constexpr absl::string_view kTimes =
    R"({"times":130,"time":5.5,"rank":3,"group":"world",)"
    R"("operation":"all_reduce","dtype":"f32","count":1000,"bucket":3,)"
    R"("issued":[[0,1]],"ended":[],"took":[[5,2],[9,1]]})";

constexpr absl::string_view kSlowest =
    R"({"slowest":130,"time":5.5,"rank":3,"loader":"train",)"
    R"("samples":[[41,0.25,1],[7,0.125,16]]})";

constexpr absl::string_view kHeader =
    R"({"format":"lockstep metrics","version":2,"time":5.5,"rank":3,)"
    R"("size":5,"pid":77,"file":2,"first_step":1,"after":0})";

constexpr absl::string_view kRun =
    R"({"run":1764005000123456,"time":5.5,"rank":3,"host":"a","clock":"b/7",)"
    R"("job":"seed = 7"})";

template <typename Line>
Line ParsedAs(absl::string_view text) {
  const absl::StatusOr<RecordLine> line = ParseRecordLine(text);
  EXPECT_THAT(line, IsOk());
  if (!line.ok()) return Line();
  EXPECT_EQ(line->time, 5.5);
  EXPECT_EQ(line->rank, 3);
  EXPECT_TRUE(std::holds_alternative<Line>(line->content));
  return std::get<Line>(line->content);
}

TEST(RecordLine, ReadsEvents) {
  const auto line = ParsedAs<EventsLine>(kEvents);
  EXPECT_EQ(line.why, StepEvents::Why::kSlow);
  EXPECT_EQ(line.step, 120);
  EXPECT_EQ(line.epoch, 2);
  EXPECT_EQ(line.number, 17);
  EXPECT_EQ(line.loader, "train");
  EXPECT_EQ(line.before, 1'000'000);
  EXPECT_EQ(line.asked, 1'000'100);
  EXPECT_EQ(line.ended, 1'009'000);
  EXPECT_EQ(line.ready_batches, 4);
  EXPECT_EQ(line.ahead, -500);
  EXPECT_EQ(line.ahead_error, 60);
  EXPECT_EQ(line.dropped, 1);
  EXPECT_EQ(line.dropped_steps, 2);
  ASSERT_THAT(line.events, SizeIs(6));
  EXPECT_EQ(line.events[0].kind, StepEvent::Kind::kWait);
  EXPECT_EQ(line.events[0].begin, 1'000'100);
  EXPECT_EQ(line.events[0].end, 1'000'200);
  EXPECT_EQ(line.events[1].kind, StepEvent::Kind::kAverage);
  EXPECT_EQ(line.events[2].group, "world");
  EXPECT_EQ(line.events[2].operation, "all_reduce");
  EXPECT_EQ(line.events[2].name, "bucket 3");
  EXPECT_EQ(line.events[2].bytes, 4096);
  EXPECT_FALSE(line.events[2].failed);
  EXPECT_EQ(line.events[3].end, std::nullopt);
  EXPECT_TRUE(line.events[3].failed);
  EXPECT_EQ(line.events[4].kind, StepEvent::Kind::kRead);
  EXPECT_EQ(line.events[4].worker, 3);
  EXPECT_EQ(line.events[4].begin, 999'000);
  EXPECT_EQ(line.events[4].index, 41);
  EXPECT_EQ(line.events[4].rows, 2);
  EXPECT_EQ(line.events[5].kind, StepEvent::Kind::kComplete);
  EXPECT_EQ(line.events[5].worker, 1);
}

TEST(RecordLine, ReadsTheOtherKinds) {
  const auto times = ParsedAs<TimesLine>(kTimes);
  EXPECT_EQ(times.step, 130);
  EXPECT_EQ(times.times.group, "world");
  EXPECT_EQ(times.times.bucket, 3);
  EXPECT_EQ(times.times.took.count(), 3);
  EXPECT_EQ(times.times.took.Quantile(0.5), 5);
  EXPECT_EQ(times.times.issued.count(), 1);
  const auto slowest = ParsedAs<SlowestLine>(kSlowest);
  ASSERT_THAT(slowest.samples, SizeIs(2));
  EXPECT_EQ(slowest.samples[1].index, 7);
  EXPECT_EQ(slowest.samples[1].seconds, 0.125);
  EXPECT_EQ(slowest.samples[1].timed_together, 16);
  const auto header = ParsedAs<HeaderLine>(kHeader);
  EXPECT_EQ(header.version, 2);
  EXPECT_EQ(header.size, 5);
  EXPECT_EQ(header.pid, 77);
  EXPECT_EQ(header.file, 2);
  EXPECT_EQ(header.first_step, 1);
  EXPECT_EQ(header.after, 0);
  const auto run = ParsedAs<RunLine>(kRun);
  EXPECT_EQ(run.run, 1764005000123456);
  EXPECT_EQ(run.host, "a");
  EXPECT_EQ(run.clock, "b/7");
  EXPECT_EQ(run.job, "seed = 7");
  EXPECT_EQ(ParsedAs<AfterLine>(R"({"after":9,"time":5.5,"rank":3})").steps, 9);
  const auto step = ParsedAs<StepLine>(
      R"({"step":7,"time":5.5,"rank":3,"train/loss":0.5,"events":null})");
  EXPECT_EQ(step.step, 7);
  ASSERT_THAT(step.metrics, SizeIs(2));
  EXPECT_THAT(step.metrics[0], Pair("train/loss", 0.5));
  EXPECT_TRUE(std::isnan(step.metrics[1].second));
  ParsedAs<UnknownLine>(R"({"later":7,"time":5.5,"rank":3,"more":[1]})");
}

// Each member is needed, and has one type.
TEST(RecordLine, RefusesWhatIsMissingOrOfAnotherType) {
  const std::vector<std::pair<absl::string_view, std::vector<std::string>>>
      lines = {
          {kEvents,
           {"events", "time", "rank", "why", "loader", "epoch", "number",
            "before", "asked", "ended", "ready_batches", "waits", "averages",
            "operations", "reads", "completes", "dropped", "dropped_steps"}},
          {kTimes,
           {"times", "group", "operation", "dtype", "count", "issued", "ended",
            "took"}},
          {kSlowest, {"slowest", "loader", "samples"}},
          {kHeader, {"format", "version", "size", "pid", "file"}},
          {kRun, {"run", "host", "clock"}}};
  for (const auto& [line, members] : lines) {
    for (const std::string& member : members) {
      const std::string key = absl::StrCat("\"", member, "\":");
      // The first member tells what the line is.
      if (line.find(key) > 1) {
        EXPECT_THAT(
            ParseRecordLine(absl::StrReplaceAll(line, {{key, "\"other\":"}})),
            StatusIs(absl::StatusCode::kInvalidArgument,
                     HasSubstr(absl::StrCat("'", member, "' is missing"))));
      }
      const std::string wrong =
          absl::StrReplaceAll(line, {{key, absl::StrCat(key, "{},\"x\":")}});
      EXPECT_THAT(ParseRecordLine(wrong),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr(absl::StrCat("'", member, "' should"))))
          << wrong;
    }
  }
}

TEST(RecordLine, RefusesWhatCanNotBe) {
  const auto refuses = [](absl::string_view line, absl::string_view from,
                          absl::string_view to, absl::string_view says) {
    const std::string changed = absl::StrReplaceAll(line, {{from, to}});
    ASSERT_NE(changed, line);
    EXPECT_THAT(ParseRecordLine(changed),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string(says))))
        << changed;
  };
  refuses(kEvents, "\"slow\"", "\"lazy\"", "'why' should be 'first'");
  refuses(kEvents, "\"ended\":9000", "\"ended\":99", "'ended' should not be");
  refuses(kEvents, "120", "-1", "'events' should be a whole number from 0");
  refuses(kEvents, "120", "1.5", "'events' should be a whole number");
  refuses(kEvents, "120", "NaN", "byte");
  refuses(kEvents, "1000000", "9223372036854775807", "'before' should be");
  refuses(kEvents, "[[100,200]]", "[[200,100]]", "'waits' has a row");
  refuses(kEvents, "[[100,200]]", "[[100,200,1]]", "an array of 2 values");
  // What one thread did follows each other.
  refuses(kEvents, "[[250,500]]", "[[150,500]]", "'waits' should have");
  refuses(kEvents, "[[250,500]]", "[[250,9500]]", "'waits' should have");
  refuses(kEvents, "[[100,200]]", "[[90,200]]", "'waits' should have");
  refuses(kEvents, "[[1,-500,-100]]", "[[3,-500,-100]]", "'reads' should have");
  refuses(kEvents, "[[1,-500,-100]]", "[[1,-500,null]]", "'completes' has a");
  refuses(kEvents, "4096", "-4096", "'operations' has a row");
  refuses(kEvents, "400,false", "400,0", "'operations' has a row");
  refuses(kEvents, "\"ahead_error\":60", "\"ahead_error\":-60",
          "'ahead_error' should");
  refuses(kEvents, "\"dropped\":1", "\"dropped\":1,\"dropped\":1", "byte");
  refuses(kTimes, "[[5,2],[9,1]]", "[[9,1],[5,2]]", "'took' has a row");
  refuses(kTimes, "[[5,2],[9,1]]", "[[488,1]]", "'took' has a row");
  refuses(kTimes, "[[5,2],[9,1]]", "[[5,0]]", "'took' has a row");
  refuses(kSlowest, "0.25", "-0.25", "'samples' has a row");
  refuses(kHeader, "lockstep metrics", "others",
          "should be 'lockstep metrics'");
  refuses(kHeader, "\"size\":5", "\"size\":1000001", "from 1 to 1000000");
  refuses(kRun, "1764005000123456", "0", "'run' should be");
  for (const char* const text : {"", "{}", "[]", "7", "null", "{\"step\":1"}) {
    EXPECT_THAT(ParseRecordLine(text),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

// The reader of a later version knows what is in it.
TEST(RecordLine, AHeaderOfALaterVersionIsNotReadFurther) {
  const auto header = ParsedAs<HeaderLine>(
      R"({"format":"lockstep metrics","version":3,"time":5.5,"rank":3})");
  EXPECT_EQ(header.version, 3);
}

TEST(RecordLine, RefusesEveryPartOfALine) {
  for (const absl::string_view line :
       {kEvents, kTimes, kSlowest, kHeader, kRun}) {
    for (size_t size = 0; size < line.size(); ++size) {
      EXPECT_THAT(ParseRecordLine(line.substr(0, size)), Not(IsOk()));
    }
  }
}

}  // namespace
}  // namespace lockstep
