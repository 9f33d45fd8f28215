#include "lockstep/tools/cli/doctor_report.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/pairs.h"
#include "lockstep/tools/doctor/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

DoctorReport Report() {
  MachineReport first;
  first.host = "trainer-0";
  first.about = "Linux 6.1.0, A Processor";
  first.facts = {{"processors", int64_t{8}},
                 {"processor_quota", 2.5},
                 {"kernel", std::string("Linux 6.1.0")}};
  first.findings = {
      {"processors", Verdict::kPass, "8 usable, no quota", ""},
      {"clock", Verdict::kNotJudged, "tsc", ""},
      {"locked memory", Verdict::kWarning,
       "a limit of 8 MiB, but NCCL locks the memory that it gives to mlx5_0",
       "remove the limit: ulimit -l unlimited, docker --ulimit memlock=-1"}};
  MachineReport second;
  second.host = "trainer-1";
  second.about = "Linux 6.1.0";
  second.findings = {
      {"processors", Verdict::kPass, "8 usable, no quota", ""},
      {"port", Verdict::kFailure, "29500 is taken\nby another", "free it"}};
  DoctorReport report;
  report.size = 2;
  report.machines = {first, second};
  RanksReport& ranks = report.ranks.emplace();
  ranks.hosts = {"trainer-0", "trainer-1"};
  ranks.findings = {{"tcp", Verdict::kPass, "all is right", ""}};
  ranks.unconnected = {{1, 0, "10.0.0.7:4", "timed out"}};
  ranks.copies = {10e9, 12.5e9};
  ranks.pairs = {{"tcp", {{0, 1, 23.456789e-6, 1.23456e9, false, 3.125e9}}}};
  return report;
}

std::string Text(const DoctorReport& report, OutputFormat format,
                 int printed = 0) {
  std::ostringstream out;
  PrintReport(report, format, printed, out);
  return out.str();
}

TEST(DoctorReport, AsText) {
  EXPECT_EQ(
      Text(Report(), OutputFormat::kText),
      "trainer-0 (Linux 6.1.0, A Processor)\n"
      "  WARN  locked memory  a limit of 8 MiB, but NCCL locks the memory that "
      "it gives\n"
      "                       to mlx5_0\n"
      "                       -> remove the limit: ulimit -l unlimited, docker "
      "--ulimit\n"
      "                       memlock=-1\n"
      "PASS: machine trainer-0; 1 warning\n"
      "trainer-1 (Linux 6.1.0)\n"
      "  FAIL  port           29500 is taken\n"
      "                       by another\n"
      "                       -> free it\n"
      "FAIL: machine trainer-1; 1 failure\n"
      "\n"
      "2 ranks\n"
      "  PASS  tcp            all is right\n"
      "\n"
      "Between two ranks over tcp: one way, 8 bytes (median) and large "
      "messages "
      "(best)\n"
      "backend  rank  host       other rank  other host  latency us  gb per s  "
      "limit gb per s\n"
      "tcp         0  trainer-0           1  trainer-1        23.46     1.235  "
      "         3.125\n"
      "\n"
      "FAIL: 2 ranks on 2 machines; 1 failure, 1 warning\n");
}

TEST(DoctorReport, HasAllOfAMachineAsText) {
  std::ostringstream out;
  PrintMachine(Report().machines[0], /*is_strict=*/true, out);
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("trainer-0 (Linux 6.1.0, A Processor)\n"
                              "  PASS  processors     8 usable, no quota\n"
                              "  -     clock          tsc\n"
                              "  WARN  locked memory  a limit"),
                    HasSubstr("FAIL: machine trainer-0; 1 warning\n")));
  // A machine that was printed before is not repeated.
  EXPECT_THAT(Text(Report(), OutputFormat::kText, 1),
              AllOf(Not(HasSubstr("machine trainer-0")),
                    HasSubstr("machine trainer-1")));
}

TEST(DoctorReport, AsJson) {
  EXPECT_EQ(Text(Report(), OutputFormat::kJson), R"({
  "version": 1,
  "verdict": "failure",
  "strict": false,
  "failures": 1,
  "warnings": 1,
  "machines": [
    {
      "host": "trainer-0",
      "facts": {"processors": 8, "processor_quota": 2.5, "kernel": "Linux 6.1.0"},
      "findings": [
        {"check": "processors", "verdict": "pass", "text": "8 usable, no quota", "remedy": null},
        {"check": "clock", "verdict": "not judged", "text": "tsc", "remedy": null},
        {"check": "locked memory", "verdict": "warning", "text": "a limit of 8 MiB, but NCCL locks the memory that it gives to mlx5_0", "remedy": "remove the limit: ulimit -l unlimited, docker --ulimit memlock=-1"}
      ]
    },
    {
      "host": "trainer-1",
      "facts": {},
      "findings": [
        {"check": "processors", "verdict": "pass", "text": "8 usable, no quota", "remedy": null},
        {"check": "port", "verdict": "failure", "text": "29500 is taken\nby another", "remedy": "free it"}
      ]
    }
  ],
  "ranks": {
    "hosts": ["trainer-0", "trainer-1"],
    "copied_gb_per_s": [10, 12.5],
    "findings": [
      {"check": "tcp", "verdict": "pass", "text": "all is right", "remedy": null}
    ],
    "unconnected": [
      {"from": 1, "to": 0, "place": "10.0.0.7:4", "why": "timed out"}
    ],
    "pairs": [
      {"backend": "tcp", "rank": 0, "host": "trainer-0", "other_rank": 1, "other_host": "trainer-1", "latency_us": 23.46, "gb_per_s": 1.235, "limit_gb_per_s": 3.125}
    ]
  }
}
)");
  DoctorReport alone = Report();
  alone.machines.pop_back();
  alone.ranks.reset();
  EXPECT_THAT(Text(alone, OutputFormat::kJson),
              AllOf(HasSubstr("\"verdict\": \"pass\""),
                    HasSubstr("  \"ranks\": null\n}\n")));
}

TEST(DoctorReport, AsCsv) {
  EXPECT_EQ(Text(Report(), OutputFormat::kCsv),
            "of,check,verdict,text,remedy\n"
            "machine trainer-0,processors,pass,\"8 usable, no quota\",\n"
            "machine trainer-0,clock,not judged,tsc,\n"
            "machine trainer-0,locked memory,warning,\"a limit of 8 MiB, but "
            "NCCL locks the memory that it gives to mlx5_0\",\"remove the "
            "limit: ulimit -l unlimited, docker --ulimit memlock=-1\"\n"
            "machine trainer-1,processors,pass,\"8 usable, no quota\",\n"
            "machine trainer-1,port,failure,\"29500 is taken\nby "
            "another\",free it\n"
            "ranks,tcp,pass,all is right,\n");
}

TEST(DoctorReport, FailsForWarningsIfItIsStrict) {
  DoctorReport report = Report();
  EXPECT_FALSE(report.passes());
  report.machines.pop_back();
  EXPECT_TRUE(report.passes());
  report.is_strict = true;
  EXPECT_FALSE(report.passes());
  report.machines.clear();
  EXPECT_TRUE(report.passes());
  report.ranks->findings[0].verdict = Verdict::kFailure;
  EXPECT_FALSE(report.passes());
}

TEST(DoctorReport, OfRanksThatHaveNotMet) {
  DoctorReport report = Report();
  report.have_met = false;
  report.ranks->pairs.clear();
  EXPECT_THAT(Text(report, OutputFormat::kText),
              HasSubstr("FAIL: 2 ranks that have not met; 1 failure"));
}

TEST(DoctorReport, ShowsTheSlowestOfManyPairs) {
  DoctorReport report = Report();
  std::vector<PairSpeed>& pairs = report.ranks->pairs[0].pairs;
  for (int i = 1; i < 40; ++i) pairs.push_back({0, 1, 1e-6, i * 1e9, true, 0});
  const std::string text = Text(report, OutputFormat::kText);
  EXPECT_THAT(text,
              AllOf(HasSubstr("The 10 slowest of 40 pairs"),
                    HasSubstr("         9\n"), Not(HasSubstr("        10\n"))));
  EXPECT_THAT(Text(report, OutputFormat::kJson),
              HasSubstr("\"gb_per_s\": 39, \"limit_gb_per_s\": null}"));
}

}  // namespace
}  // namespace lockstep
