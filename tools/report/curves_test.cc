#include "lockstep/tools/report/curves.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CurvesTest : public testing::Test {
 protected:
  CurvesTest() {
    std::string folder = testing::TempDir() + "/curvesXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    path_ = folder + "/metrics";
  }

  static std::string Header(int64_t pid, double time = 1) {
    return absl::StrCat(R"({"format":"lockstep metrics","version":2,"time":)",
                        time, R"(,"rank":0,"size":2,"pid":)", pid,
                        ",\"file\":1}\n");
  }
  static std::string After(int64_t steps) {
    return absl::StrCat("{\"after\":", steps, ",\"time\":1,\"rank\":0}\n");
  }
  static std::string Line(int64_t step, absl::string_view metrics) {
    return absl::StrCat("{\"step\":", step, ",\"time\":1,\"rank\":0,", metrics,
                        "}\n");
  }
  static std::string Loss(int64_t step, double loss) {
    return Line(step, absl::StrCat("\"train/loss\":", loss, ",\"seconds\":1"));
  }

  void Write(absl::string_view text, absl::string_view end = "") const {
    std::ofstream(absl::StrCat(path_, ".rank0000.jsonl", end), std::ios::binary)
        << text;
  }

  std::string path_;
};

TEST_F(CurvesTest, MetricsOfStepsAndEvaluations) {
  Write(absl::StrCat(Header(7), After(0), Loss(1, 3), Loss(2, 5),
                     Line(2, "\"test/loss\":0.5,\"test/hits\":0.25"),
                     Loss(3, 2)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  ASSERT_THAT(curves, SizeIs(3));
  EXPECT_EQ(curves[0].name, "train/loss");
  EXPECT_TRUE(curves[0].is_of_steps);
  ASSERT_THAT(curves[0].points, SizeIs(3));
  EXPECT_EQ(curves[0].points[1].step, 2);
  EXPECT_EQ(curves[0].points[1].value, 5);
  EXPECT_EQ(curves[0].last.value, 2);
  EXPECT_EQ(curves[0].last.step, 3);
  EXPECT_EQ(curves[0].least.step, 3);
  EXPECT_EQ(curves[0].most.value, 5);
  EXPECT_EQ(curves[1].name, "test/loss");
  EXPECT_FALSE(curves[1].is_of_steps);
  EXPECT_EQ(curves[2].name, "test/hits");
}

TEST_F(CurvesTest, StepsThatARestartRepeatsCountOnce) {
  Write(absl::StrCat(Header(7), After(0), Loss(1, 1), Loss(2, 2), Loss(3, 3)),
        ".old");
  Write(absl::StrCat(Header(8), After(1), Loss(2, 20), Header(9), After(2),
                     Loss(3, 300)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{8, 1}));
  // The process 9 is a later run.
  ASSERT_THAT(curves, SizeIs(1));
  ASSERT_THAT(curves[0].points, SizeIs(2));
  EXPECT_EQ(curves[0].points[0].value, 1);
  EXPECT_EQ(curves[0].points[1].value, 20);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(curves, ReadCurves(path_, std::nullopt));
  ASSERT_THAT(curves[0].points, SizeIs(3));
  EXPECT_EQ(curves[0].points[2].value, 300);
}

TEST_F(CurvesTest, AnEvaluationThatComesAgainCountsOnce) {
  Write(absl::StrCat(Header(7), Line(4, "\"test/loss\":2"), After(4),
                     Line(4, "\"test/loss\":3")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  ASSERT_THAT(curves[0].points, SizeIs(1));
  EXPECT_EQ(curves[0].points[0].value, 3);
}

TEST_F(CurvesTest, MeansStandForManySteps) {
  std::string text = Header(7);
  for (int64_t step = 1; step <= 3000; ++step) {
    text += Loss(step, static_cast<double>(step % 10));
  }
  Write(text);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  ASSERT_THAT(curves[0].points, SizeIs(Curve::kMostPoints));
  EXPECT_EQ(curves[0].points[0].step, 10);
  EXPECT_DOUBLE_EQ(curves[0].points[0].value, 4.5);
  EXPECT_EQ(curves[0].most.value, 9);
  EXPECT_EQ(curves[0].last.step, 3000);
}

TEST_F(CurvesTest, WhatCanNotBeReadIsLeftOut) {
  Write(absl::StrCat(Header(7), Loss(1, 1), "{\"step\":2,\"ti\n",
                     Line(3, "\"train/loss\":null,\"seconds\":1"), Loss(4, 4)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  EXPECT_THAT(curves[0].points, SizeIs(2));
}

TEST_F(CurvesTest, ValuesThatAreNotFiniteAreCounted) {
  Write(absl::StrCat(Header(7), Loss(1, 1),
                     Line(2, "\"train/loss\":null,\"train/x\":null")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  ASSERT_THAT(curves, SizeIs(2));
  EXPECT_EQ(curves[0].not_finite, 1);
  EXPECT_EQ(curves[0].last.step, 1);
  EXPECT_EQ(curves[1].not_finite, 1);
  EXPECT_THAT(curves[1].points, IsEmpty());
}

TEST_F(CurvesTest, AProcessIsKnownByItsBeginning) {
  // In containers, processes of several runs have one number.
  Write(absl::StrCat(Header(7, 100), Loss(1, 1), Header(7, 200), Loss(1, 2),
                     Header(7, 300), Loss(1, 3)));
  for (const int run : {1, 2, 3}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const std::vector<Curve> curves,
        ReadCurves(path_, CurveWriter{7, run * 100.0 - 1}));
    EXPECT_EQ(curves[0].last.value, run);
  }
}

TEST_F(CurvesTest, RecordsOfRanksAreRefused) {
  Write(absl::StrCat(Header(7),
                     R"({"run":5,"time":1,"rank":0,"host":"a","clock":"b"})",
                     "\n", Loss(1, 1)));
  EXPECT_THAT(ReadCurves(path_, CurveWriter{7, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has the records of ranks")));
}

TEST_F(CurvesTest, MetricsOfOtherProcessesAreRefused) {
  Write(absl::StrCat(Header(7), Loss(1, 1)));
  EXPECT_THAT(ReadCurves(path_, CurveWriter{8, 1}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("metrics of other processes than this run's "
                                 "rank 0, which is process 8")));
  EXPECT_THAT(ReadCurves(path_ + "s", CurveWriter{7, 1}),
              StatusIs(absl::StatusCode::kNotFound));
  Write(Header(7));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  EXPECT_THAT(curves, IsEmpty());
}

TEST_F(CurvesTest, NamesWithoutEndAreBounded) {
  std::string line;
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&line, i > 0 ? "," : "", "\"a/", i, "\":1");
  }
  Write(Header(7) + Line(1, line) + Loss(2, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Curve> curves,
                                ReadCurves(path_, CurveWriter{7, 1}));
  EXPECT_THAT(curves, SizeIs(200));
}

}  // namespace
}  // namespace lockstep
