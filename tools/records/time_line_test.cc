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
  // A second away, the error is 20 us larger.
  ExpectPlace(line, 2, 11 * kSecond, 11 * kSecond - 500, 20'060);
  ExpectPlace(line, 2, 18 * kSecond, 18 * kSecond - 900, 40'080);
  ExpectPlace(line, 2, 25 * kSecond, 25 * kSecond - 900, 100'080);
  ExpectPlace(line, 2, 9 * kSecond, 9 * kSecond - 500, 20'060);
  // The first rank of a machine counts, so that its ranks fit together.
  ExpectPlace(line, 3, 10 * kSecond, 10 * kSecond - 500, 60);
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
