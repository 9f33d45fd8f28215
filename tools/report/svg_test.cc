#include "lockstep/tools/report/svg.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::internal_report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::string> Labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> labels;
  for (const Tick& tick : ticks) labels.push_back(tick.label);
  return labels;
}

TEST(Axis, BeginsAndEndsWithRoundNumbers) {
  const Axis axis = NumberAxis(0.13, 0.87, 4);
  EXPECT_THAT(Labels(axis.ticks),
              ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_NEAR(axis.PlaceOf(0.5), 0.5, 1e-9);
  EXPECT_EQ(axis.PlaceOf(-5), 0);
  EXPECT_EQ(axis.PlaceOf(5), 1);
}

TEST(Axis, HasTheUnitOfItsTimes) {
  EXPECT_THAT(Labels(SecondsAxis(0, 0.018, 2).ticks),
              ElementsAre("0 ms", "10 ms", "20 ms"));
  EXPECT_THAT(Labels(SecondsAxis(0, 150e-6, 2).ticks),
              ElementsAre("0 us", "100 us", "200 us"));
  EXPECT_THAT(Labels(SecondsAxis(0, 3000, 2).ticks),
              ElementsAre("0 s", "2,000 s", "4,000 s"));
}

TEST(Axis, MayHavePowersOfTen) {
  const Axis axis = LogarithmicAxis(0.002, 50, 3);
  EXPECT_THAT(Labels(axis.ticks), ElementsAre("0.001", "0.1", "10", "1,000"));
  EXPECT_DOUBLE_EQ(axis.least, 0.001);
  EXPECT_DOUBLE_EQ(axis.most, 1000);
  EXPECT_NEAR(axis.PlaceOf(1), 0.5, 1e-9);
  EXPECT_EQ(axis.PlaceOf(0), 0);
  EXPECT_EQ(axis.PlaceOf(1e9), 1);
  // Powers of ten are the ends by themselves.
  EXPECT_THAT(Labels(LogarithmicAxis(0.01, 1000, 5).ticks),
              ElementsAre("0.01", "0.1", "1", "10", "100", "1,000"));
}

// An axis has a width and few ticks, whatever the values are.
TEST(Axis, IsThereForAnyValues) {
  const double values[] = {0,    -0.0,  1,      -1,        5e-324, 1e-200,
                           1e16, 1e300, -1e308, kInfinity, kNan,   -kInfinity};
  for (const double least : values) {
    for (const double most : values) {
      for (const Axis& axis :
           {NumberAxis(least, most, 4), SecondsAxis(least, most, 4),
            LogarithmicAxis(least, most, 4)}) {
        EXPECT_TRUE(std::isfinite(axis.least)) << least << " " << most;
        EXPECT_TRUE(std::isfinite(axis.most)) << least << " " << most;
        EXPECT_LT(axis.least, axis.most) << least << " " << most;
        EXPECT_GE(axis.ticks.size(), 2) << least << " " << most;
        EXPECT_LE(axis.ticks.size(), 9) << least << " " << most;
        const double place = axis.PlaceOf(least);
        EXPECT_TRUE(place >= 0 && place <= 1) << least << " " << most;
      }
      EXPECT_LE(RoundNumbers(least, most, 4).size(), 6);
    }
  }
}

TEST(NumberTicks, AreWholeNumbers) {
  EXPECT_THAT(Labels(NumberTicks(1, 3, 4)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(Labels(NumberTicks(1, 10000, 4)), ElementsAre("5,000", "10,000"));
  EXPECT_THAT(Labels(NumberTicks(7, 7, 4)), ElementsAre("7"));
}

TEST(StackedBar, HasPartsByTheirShares) {
  const std::string svg = StackedBar(
      "a <bar>", {{"one", 1, "data"}, {"two", 3, "own"}, {"no", kNan, "x"}});
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-label=\"a &lt;bar&gt;\""));
  EXPECT_THAT(svg, HasSubstr("class=\"data\" x=\"0%\" width=\"25%\""));
  EXPECT_THAT(svg, HasSubstr("class=\"own\" x=\"25%\" width=\"75%\""));
  EXPECT_THAT(svg, Not(HasSubstr("class=\"x\"")));
}

TEST(CellMap, JoinsNeighboursOfAClass) {
  CellMap map;
  map.rows = 2;
  map.columns = 6;
  const int classes[2][6] = {{0, 0, 1, -1, 0, 0}, {1, 1, 1, 1, 1, 1}};
  map.class_of = [&classes](size_t row, size_t column) {
    return classes[row][column];
  };
  const std::string svg = map.Svg("a map");
  EXPECT_THAT(svg, HasSubstr("class=\"c0\" d=\"M0 0h2m2 0h2\""));
  EXPECT_THAT(svg, HasSubstr("class=\"c1\" d=\"M2 0h1M0 1h6\""));
}

TEST(LineChart, HasGapsWhereNothingIsKnown) {
  LineChart chart({}, NumberAxis(0, 10, 2), 100);
  const std::vector<double> places = {0, 0.25, 0.5, 0.75, 1};
  chart.AddLine("mean", places, {0, 10, kNan, 5, kInfinity});
  chart.AddArea("band", places, {0, 0, 0, 0, kNan}, {10, 5, kNan, 10, 1});
  chart.AddPoints("first", places, {kNan, 10, kNan, kNan, kNan});
  const std::string svg = chart.Svg("a chart");
  EXPECT_THAT(svg, HasSubstr("\"line mean\" d=\"M0 1000L500 0M1500 500h0\""));
  EXPECT_THAT(svg, HasSubstr("\"area band\" d=\"M0 0L500 500L500 1000 0 1000z"
                             "M1500 0L1500 1000z\""));
  EXPECT_THAT(svg, HasSubstr("\"points first\" d=\"M500 0h0\""));
}

}  // namespace
}  // namespace lockstep::internal_report
