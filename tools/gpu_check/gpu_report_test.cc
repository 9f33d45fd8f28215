#include "lockstep/tools/gpu_check/gpu_report.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(GpuReport, HasFactsSectionsAndRows) {
  GpuReport report;
  report.AddFact("card", "a \"GPU\"");
  report.AddFact("NCCL", "2.28.9");
  report.AddRow({"copies", "fast", 2.5, "GB/s"});
  report.EndSection("copies", absl::OkStatus());
  EXPECT_EQ(report.Json(), R"({
  "machine": {"card": "a \"GPU\"", "NCCL": "2.28.9"},
  "sections": [
    {"section": "copies", "result": "ok"}
  ],
  "rows": [
    {"section": "copies", "what": "fast", "value": 2.5, "unit": "GB/s", "target": null, "met": null}
  ]
}
)");
  EXPECT_EQ(report.Tables(), R"(On card a "GPU", NCCL 2.28.9.

| section | result |
|---|---|
| copies | ok |

| section | what | value | target | met? |
|---|---|---|---|---|
| copies | fast | 2.5 GB/s |  |  |
)");
  EXPECT_FALSE(report.failed());
}

TEST(GpuReport, AMissedTargetIsTheSectionsAlone) {
  GpuReport report;
  report.AddRow({"a", "slow", 3, "us", GpuRow::Bound::kAtMost, 2});
  report.AddRow({"a", "small", 97, "%", GpuRow::Bound::kAtLeast, 98});
  report.AddRow({"b", "just", 2, "us", GpuRow::Bound::kAtMost, 2});
  report.EndSection("a", absl::OkStatus());
  report.EndSection("b", absl::OkStatus());
  EXPECT_THAT(
      report.Json(),
      AllOf(HasSubstr("\"a\", \"result\": \"missed\""),
            HasSubstr("\"b\", \"result\": \"ok\""),
            HasSubstr("\"value\": 3, \"unit\": \"us\", \"target\": \"at most 2 "
                      "us\", \"met\": false"),
            HasSubstr("\"target\": \"at least 98 %\", \"met\": false"),
            HasSubstr("\"value\": 2, \"unit\": \"us\", \"target\": \"at most 2 "
                      "us\", \"met\": true")));
  EXPECT_THAT(
      report.Tables(),
      AllOf(HasSubstr("| a | slow | 3 us | at most 2 us | **missed** |"),
            HasSubstr("| b | just | 2 us | at most 2 us | yes |")));
  EXPECT_FALSE(report.failed());
}

TEST(GpuReport, WhatIsRefusedIsNoFailure) {
  GpuReport report;
  report.EndSection("a", absl::UnimplementedError("two | ranks\nno"));
  EXPECT_FALSE(report.failed());
  EXPECT_THAT(report.Json(), HasSubstr(R"("refused: two | ranks\nno")"));
  EXPECT_THAT(report.Tables(), HasSubstr("| a | refused: two \\| ranks no |"));
  report.EndSection("b", absl::InternalError("broken"));
  EXPECT_TRUE(report.failed());
  EXPECT_THAT(report.Json(), HasSubstr("\"failed: INTERNAL: broken\""));
}

}  // namespace
}  // namespace lockstep
