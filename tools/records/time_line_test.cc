#include "lockstep/tools/records/time_line.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Measured {
  int64_t at;
  int64_t ahead;
  int64_t error;
};

RankRun RunOf(const std::string& clock, const std::vector<Measured>& measured,
              int64_t size = 4) {
  RankRun run;
  run.clock = clock;
  run.size = size;
  for (const Measured& each : measured) {
    EventsLine& events = run.events.emplace_back();
    events.ended = each.at;
    events.ahead = each.ahead;
    events.ahead_error = each.error;
  }
  return run;
}

void ExpectPlace(const TimeLine& line, int64_t rank, int64_t time,
                 int64_t place, std::optional<int64_t> error) {
  const PlacedTime placed = line.Place(rank, time);
  EXPECT_EQ(placed.nanoseconds, place) << rank;
  EXPECT_EQ(placed.error, error) << rank;
}

TEST(TimeLine, RanksOfOneMachineHaveOneClock) {
  const RankRun zero = RunOf("a", {{100, 0, 0}});
  const RankRun one = RunOf("a", {{100, 7, 40}});
  const TimeLine line({{0, &zero}, {1, &one}});
  ExpectPlace(line, 0, 123, 123, 0);
  ExpectPlace(line, 1, 123, 123, 0);
}

TEST(TimeLine, OtherMachinesHaveMeasured) {
  const RankRun zero = RunOf("a", {{100, 0, 0}});
  const RankRun two =
      RunOf("b", {{10 * kSecond, 500, 60}, {20 * kSecond, 900, 80}});
  const RankRun three = RunOf("b", {{10 * kSecond, 510, 5}});
  const TimeLine line({{0, &zero}, {2, &two}, {3, &three}});
  ExpectPlace(line, 2, 10 * kSecond, 10 * kSecond - 500, 60);
  // Between two measurements, times are moved evenly. A second away from one,
  // the error is 20 us larger.
  ExpectPlace(line, 2, 11 * kSecond, 11 * kSecond - 540, 20'060 + 40);
  ExpectPlace(line, 2, 18 * kSecond, 18 * kSecond - 820, 40'080 + 80);
  ExpectPlace(line, 2, 25 * kSecond, 25 * kSecond - 900, 100'080);
  ExpectPlace(line, 2, 9 * kSecond, 9 * kSecond - 500, 20'060);
  // The first rank of a machine counts, so that its ranks fit together.
  ExpectPlace(line, 3, 10 * kSecond, 10 * kSecond - 500, 60);
}

// Measurements that differ by more than the time between them would turn times
// around.
TEST(TimeLine, TimesKeepTheirOrder) {
  const RankRun zero = RunOf("a", {{100, 0, 0}});
  std::vector<Measured> measured;
  for (int64_t i = 0; i < 100; ++i) {
    measured.push_back({1000 + 10 * i, i * i % 47 - 20, 50});
  }
  const RankRun one = RunOf("b", measured);
  const TimeLine line({{0, &zero}, {1, &one}});
  int64_t before = line.Place(1, 900).nanoseconds;
  for (int64_t time = 901; time < 2200; ++time) {
    const PlacedTime placed = line.Place(1, time);
    EXPECT_GE(placed.nanoseconds, before);
    EXPECT_NEAR(placed.nanoseconds, time, 80);
    // The error covers what the nearest measurement says.
    EXPECT_LE(*placed.error, 50 + 20 + 100);
    before = placed.nanoseconds;
  }
}

TEST(TimeLine, AClockThatJumpsIsNotTrusted) {
  const RankRun zero = RunOf("a", {{100, 0, 0}});
  const RankRun one = RunOf("b", {{1 * kSecond, 500, 60},
                                  {2 * kSecond, 520, 60},
                                  {3 * kSecond, 5 * kSecond, 60},
                                  {4 * kSecond, 5 * kSecond, 60}});
  const TimeLine line({{0, &zero}, {1, &one}});
  EXPECT_EQ(*line.Place(1, 1 * kSecond).error, 60);
  EXPECT_GT(*line.Place(1, 2 * kSecond).error, 4 * kSecond);
  EXPECT_GT(*line.Place(1, 3 * kSecond).error, 4 * kSecond);
}

TEST(TimeLine, WhatIsNotKnownHasNoError) {
  const RankRun zero = RunOf("", {{100, 0, 0}});
  const RankRun one = RunOf("", {{100, 0, -1}});
  const TimeLine line({{0, &zero}, {1, &one}});
  ExpectPlace(line, 0, 123, 123, 0);
  ExpectPlace(line, 1, 123, 123, std::nullopt);
}

// Without rank 0, its clock is still the time line.
TEST(TimeLine, Rank0MayBeMissing) {
  const RankRun one = RunOf("b", {{100, 7, 40}});
  const RankRun two = RunOf("b", {{100, 9, 30}});
  const TimeLine line({{1, &one}, {2, &two}});
  ExpectPlace(line, 1, 100, 93, 40);
  ExpectPlace(line, 2, 100, 93, 40);
}

TEST(TimeLine, ARankAloneNeedsNoOther) {
  const RankRun zero = RunOf("", {}, /*size=*/1);
  const TimeLine line({{0, &zero}});
  ExpectPlace(line, 0, 123, 123, 0);
}

}  // namespace
}  // namespace lockstep
