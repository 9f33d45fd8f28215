// These tests write metrics to a file in Prometheus' text format, and read it.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/sinks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

using Sink = absl::StatusOr<std::unique_ptr<MetricsSink>>;

class PrometheusSink : public testing::Test {
 protected:
  PrometheusSink() {
    std::string folder = testing::TempDir() + "/prometheusXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/train.prom";
  }

  // Makes a sink that replaces the file in each step, unless `every` differs.
  Sink Make(absl::Duration every = absl::ZeroDuration(),
            int64_t rank = 0) const {
    PrometheusOptions options;
    options.path = folder_ + "/train";
    options.every = every;
    return MakePrometheusSink(options, rank);
  }

  std::vector<std::string> Lines() const { return LinesOf(path_); }

  static std::vector<std::string> LinesOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return LinesOf(file);
  }

  static std::vector<std::string> LinesOf(std::ifstream& file) {
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  // Returns the lines that have values, without the time.
  std::vector<std::string> Values() const {
    std::vector<std::string> values = Lines();
    values.erase(std::remove_if(values.begin(), values.end(),
                                [](const std::string& line) {
                                  return line[0] == '#' ||
                                         absl::StartsWith(line,
                                                          "lockstep_written_");
                                }),
                 values.end());
    return values;
  }

  static std::vector<std::string> NamesOf(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  std::string path_;  // of rank 0's file
};

TEST_F(PrometheusSink, HasTheseLines) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Begin(119));
  LOCKSTEP_EXPECT_OK(sink->Write(120, {{"train/loss", 0.25}}));
  EXPECT_THAT(
      Lines(),
      ElementsAre(
          "# HELP lockstep_step The number of steps of the training.",
          "# TYPE lockstep_step gauge", "lockstep_step{rank=\"0\"} 120",
          "# HELP lockstep_written_seconds The time of writing these values, "
          "in seconds since 1970.",
          "# TYPE lockstep_written_seconds gauge",
          MatchesRegex("lockstep_written_seconds.rank=\"0\".+ "
                       "[0-9]+[.][0-9]{6}"),
          "# HELP lockstep_train_loss The metric train/loss.",
          "# TYPE lockstep_train_loss gauge",
          "lockstep_train_loss{rank=\"0\"} 0.25"));
}

// An evaluation comes seldom, and its metrics stay.
TEST_F(PrometheusSink, HasTheLastValueOfEachMetric) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Write(120, {{"train/loss", 0.25}}));
  LOCKSTEP_EXPECT_OK(sink->Write(120, {{"test/accuracy", 0.5}}));
  LOCKSTEP_EXPECT_OK(sink->Write(121, {{"train/loss", 0.125}}));
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 121",
                                    "lockstep_test_accuracy{rank=\"0\"} 0.5",
                                    "lockstep_train_loss{rank=\"0\"} 0.125"));
}

TEST_F(PrometheusSink, WritesStrangeNumbersAndNames) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{"a", -NAN},
                                     {"b", INFINITY},
                                     {"c", -INFINITY},
                                     {"d", 123456789012},
                                     {"e", 1e-20},
                                     {"\xc3\xa9\n\"\\:", 1}}));
  EXPECT_THAT(
      Values(),
      ElementsAre("lockstep_step{rank=\"0\"} 1",
                  "lockstep_______{rank=\"0\"} 1", "lockstep_a{rank=\"0\"} NaN",
                  "lockstep_b{rank=\"0\"} +Inf", "lockstep_c{rank=\"0\"} -Inf",
                  "lockstep_d{rank=\"0\"} 123456789012",
                  "lockstep_e{rank=\"0\"} 1e-20"));
  EXPECT_THAT(Lines(),
              Contains(R"(# HELP lockstep_______ The metric \\xc3\\xa9\\n\\"\\)"
                       R"(\\:.)"));
}

TEST_F(PrometheusSink, NoTwoMetricsHaveOneName) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{"a/b", 1}}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        sink->Write(2, {{"a_b", 2}, {"loss", 3}}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(absl::StrCat(
                     "the metric 'a_b' would be called lockstep_a_b in ", path_,
                     ", but so is 'a/b': give the metric another name"))));
  }
  for (const char* const name : {"step", "written/seconds"}) {
    EXPECT_THAT(sink->Write(3, {{name, 4}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name),
                               HasSubstr("but so is one of the sink's own"))));
  }
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 3",
                                    "lockstep_a_b{rank=\"0\"} 1",
                                    "lockstep_loss{rank=\"0\"} 3"));
}

TEST_F(PrometheusSink, HasNoMoreThanTenThousandMetrics) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                Make(absl::InfiniteDuration()));
  std::vector<Metric> metrics;
  for (int i = 0; i < 10'000; ++i) metrics.push_back({absl::StrCat("m", i), 1});
  LOCKSTEP_EXPECT_OK(sink->Write(1, metrics));
  metrics = {{"more", 2}, {"m7", 2}};
  EXPECT_THAT(sink->Write(2, metrics),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("'more' is not in "),
                             HasSubstr("has 10000 metrics"))));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  const std::vector<std::string> values = Values();
  EXPECT_EQ(values.size(), 10'001);
  EXPECT_THAT(values, Contains("lockstep_m7{rank=\"0\"} 2"));
}

// The first step replaces the file, and then the end of `every`, a Flush, and
// the end of the sink.
TEST_F(PrometheusSink, ReplacesTheFileOnceInAWhile) {
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  Make(absl::InfiniteDuration()));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    EXPECT_THAT(NamesOf(folder_), IsEmpty());
    LOCKSTEP_EXPECT_OK(sink->Write(1, {}));
    EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 1"));
    LOCKSTEP_EXPECT_OK(sink->Write(2, {}));
    LOCKSTEP_EXPECT_OK(sink->Write(3, {}));
    EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 1"));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 3"));
    // Without news, the file stays as it is.
    std::filesystem::remove(path_);
    LOCKSTEP_EXPECT_OK(sink->Flush());
    EXPECT_THAT(NamesOf(folder_), IsEmpty());
    LOCKSTEP_EXPECT_OK(sink->Write(4, {}));
  }
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 4"));
}

// A reader of the file sees all of it, also while it is replaced.
TEST_F(PrometheusSink, TheFileIsNeverIncomplete) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Write(1, {{"loss", 1}}));
  std::ifstream before(path_, std::ios::binary);
  LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 2}}));
  EXPECT_THAT(LinesOf(before), Contains("lockstep_loss{rank=\"0\"} 1"));
  EXPECT_THAT(Values(), Contains("lockstep_loss{rank=\"0\"} 2"));
  EXPECT_THAT(NamesOf(folder_), ElementsAre("train.prom"));
}

// A file may have at most 10 bytes here, as on a full disk.
TEST_F(PrometheusSink, KeepsTheOldFileIfTheNewOneDoesNotFit) {
  const pid_t child = fork();
  if (child == 0) {
    const Sink sink = Make();
    const bool fits = sink.ok() && (*sink)->Write(1, {{"loss", 1}}).ok();
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {10, 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool fails = fits && !(*sink)->Write(2, {{"loss", 2}}).ok();
    _exit(fails ? 0 : 1);
  }
  int ended = 1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_THAT(NamesOf(folder_), ElementsAre("train.prom"));
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 1",
                                    "lockstep_loss{rank=\"0\"} 1"));
}

TEST_F(PrometheusSink, EachRankHasAFile) {
  for (const int64_t rank : {0, 3, 12345}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  Make(absl::ZeroDuration(), rank));
    LOCKSTEP_EXPECT_OK(sink->Write(1, {{"loss", 1}}));
    // The path may have the ending already.
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto other, MakePrometheusSink({folder_ + "/new/a.prom"}, rank));
    LOCKSTEP_EXPECT_OK(other->Write(1, {{"loss", 1}}));
  }
  EXPECT_THAT(NamesOf(folder_),
              ElementsAre("new", "train.prom", "train.rank0003.prom",
                          "train.rank12345.prom"));
  EXPECT_THAT(NamesOf(folder_ + "/new"),
              ElementsAre("a.prom", "a.rank0003.prom", "a.rank12345.prom"));
  EXPECT_THAT(LinesOf(folder_ + "/train.rank0003.prom"),
              Contains("lockstep_loss{rank=\"3\"} 1"));
}

TEST_F(PrometheusSink, SaysWhereItCanNotWrite) {
  for (const char* const path : {"", "/tmp/"}) {
    EXPECT_THAT(MakePrometheusSink({path}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("should name a folder and a file")));
  }
  EXPECT_THAT(Make(absl::Seconds(-1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("every is -1s; accepted are 0s and more")));
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(MakePrometheusSink({folder_ + "/file/train"}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(folder_ + "/file")));
  EXPECT_THAT(MakePrometheusSink({"/proc/train"}).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("can't write metrics to /proc/train.prom")));
}

// After an error, the next step tries again, and makes the folder again.
TEST_F(PrometheusSink, SurvivesWhatHappensToItsFolder) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make());
  std::filesystem::create_directories(path_ + "/x");
  EXPECT_THAT(
      sink->Write(1, {{"loss", 1}}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path_)));
  EXPECT_THAT(NamesOf(folder_), ElementsAre("train.prom"));
  std::filesystem::remove_all(folder_);
  LOCKSTEP_EXPECT_OK(sink->Flush());
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 1",
                                    "lockstep_loss{rank=\"0\"} 1"));
}

// A job may name the sink under [metrics] and under [rank_metrics].
TEST_F(PrometheusSink, AFileIsOfOneSink) {
  {
    const Sink first = Make();
    LOCKSTEP_ASSERT_OK(first);
    EXPECT_THAT(Make(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("another sink writes metrics to")));
    // On another rank, it has another name.
    LOCKSTEP_EXPECT_OK(Make(absl::ZeroDuration(), /*rank=*/1));
  }
  LOCKSTEP_EXPECT_OK(Make());
}

TEST_F(PrometheusSink, AForkWritesNothing) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto sink, Make());
  LOCKSTEP_EXPECT_OK(sink->Write(1, {}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto slow, Make(absl::InfiniteDuration(), 1));
  LOCKSTEP_EXPECT_OK(slow->Write(1, {}));
  LOCKSTEP_EXPECT_OK(slow->Write(2, {}));
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right = absl::IsFailedPrecondition(sink->Write(2, {})) &&
                          absl::IsFailedPrecondition(slow->Write(3, {})) &&
                          absl::IsFailedPrecondition(slow->Flush());
    sink = nullptr;
    slow = nullptr;
    _exit(is_right ? 0 : 1);
  }
  int ended = 1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_THAT(Values(), ElementsAre("lockstep_step{rank=\"0\"} 1"));
  EXPECT_THAT(LinesOf(folder_ + "/train.rank0001.prom"),
              Contains("lockstep_step{rank=\"1\"} 1"));
}

}  // namespace
}  // namespace lockstep
