// These tests check the reports of a session: the progress in the log, and the
// metrics in sinks.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/sums.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Written is one call of a sink's Write.
struct Written {
  int64_t step = 0;
  std::map<std::string, double> values;
};

// Told holds everything that the sinks of all ranks received.
struct Told {
  Mutex mutex;
  std::map<int64_t, std::vector<Written>> written;  // by rank
  std::map<int64_t, int> flushes;
  std::vector<int64_t> begun;  // the steps of Begin, on all ranks
  int fails_from = -1;         // the range of writes that fail, on each rank
  int fails_until = -1;
  bool throws = false;
};

class RecordingSink : public MetricsSink {
 public:
  RecordingSink(Told& told, int64_t rank) : told_(told), rank_(rank) {}

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    MutexLock lock(told_.mutex);
    const int call = calls_++;
    if (call >= told_.fails_from && call < told_.fails_until) {
      if (told_.throws) throw std::runtime_error("thrown");
      return absl::ResourceExhaustedError("the disk is full");
    }
    Written written;
    written.step = step;
    for (const Metric& metric : metrics) {
      written.values[metric.name] = metric.value;
    }
    told_.written[rank_].push_back(written);
    return absl::OkStatus();
  }
  absl::Status Begin(int64_t steps) override {
    MutexLock lock(told_.mutex);
    told_.begun.push_back(steps);
    return absl::OkStatus();
  }
  absl::Status Flush() override {
    MutexLock lock(told_.mutex);
    ++told_.flushes[rank_];
    return absl::OkStatus();
  }

 private:
  Told& told_;
  const int64_t rank_;
  int calls_ = 0;
};

Told* told = nullptr;

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeRecording(
    const PluginContext& context, const NoOptions&) {
  return std::make_unique<RecordingSink>(*told, context.rank);
}

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeBroken(
    const PluginContext& context, const NoOptions&) {
  if (context.rank != 1) {
    return std::make_unique<RecordingSink>(*told, context.rank);
  }
  return absl::UnavailableError("nobody listens");
}

class SessionMetricsTest : public SessionTest {
 protected:
  SessionMetricsTest() {
    LOCKSTEP_EXPECT_OK(
        registry_.Add<MetricsSink>("recording", "", MakeRecording));
    LOCKSTEP_EXPECT_OK(registry_.Add<MetricsSink>("broken", "", MakeBroken));
    told = &told_;
  }

  std::vector<absl::Status> RunWith(absl::string_view tables, int size,
                                    const Train& train) {
    return RunJobs(std::vector<std::string>(size, absl::StrCat(kJob, tables)),
                   train);
  }

  // Trains for two epochs of two steps, which have 6 and 4 rows. The loss of
  // sample i is i, so the mean is 2.5 in the first step, and 7.5 in the second.
  static absl::Status TrainOn(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (const Batch& batch : step) {
          model.AddGradients(batch);
          step.Add("loss", SumOf(batch));
        }
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      }
      LOCKSTEP_RETURN_IF_ERROR(
          session
              .Evaluate(*test,
                        [](const Batch& batch, Sums& sums) {
                          sums.Add("loss", SumOf(batch));
                          return absl::OkStatus();
                        })
              .status());
    }
    return absl::OkStatus();
  }

  std::vector<std::string> LinesWith(absl::string_view text) {
    std::vector<std::string> lines;
    for (const std::string& line : logged_) {
      if (absl::StrContains(line, text)) lines.push_back(line);
    }
    return lines;
  }

  // Returns the trainer's own metrics, in the order of steps.
  std::vector<std::string> OfTrainer() {
    std::vector<std::string> texts;
    for (const auto& [step, values] : told_.written[0]) {
      for (const auto& [name, value] : values) {
        absl::string_view own = name;
        if (!absl::ConsumePrefix(&own, "trainer/")) continue;
        texts.push_back(absl::StrCat(step, " ", own, " ", value));
      }
    }
    return texts;
  }

  Told told_;
};

// ---- Of all ranks.

TEST_F(SessionMetricsTest, MeansOfAllRanksGoToTheSinksOfRank0) {
  for (const int size : {1, 2, 3}) {
    told_.written.clear();
    ASSERT_THAT(RunWith("[metrics.recording]", size, TrainOn), Each(IsOk()));
    ASSERT_THAT(told_.written, ElementsAre(Pair(0, SizeIs(6))));
    const std::vector<Written>& written = told_.written[0];
    const int64_t steps[] = {1, 2, 2, 3, 4, 4};
    for (size_t i = 0; i < written.size(); ++i) {
      EXPECT_EQ(written[i].step, steps[i]);
      if (i % 3 == 2) {
        EXPECT_THAT(written[i].values, ElementsAre(Pair("test/loss", 2)));
        continue;
      }
      EXPECT_THAT(written[i].values,
                  ElementsAre(Pair("average_seconds", Ge(0)),
                              Pair("between_seconds", Ge(0)),
                              Pair("blocked_seconds", Ge(0)),
                              Pair("collective_seconds", Ge(0)),
                              Pair("data_seconds", Ge(0)), Pair("epoch", i / 3),
                              Pair("seconds", Ge(0)),
                              Pair("train/loss", i % 3 == 0 ? 2.5 : 7.5),
                              Pair("weight_per_second", Ge(0))));
      EXPECT_GE(written[i].values.at("seconds"),
                written[i].values.at("data_seconds"));
    }
  }
}

TEST_F(SessionMetricsTest, ATrainerAddsItsOwn) {
  EXPECT_THAT(RunWith("[metrics.recording]", 2,
                      [](Session& session) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                                  session.MakeLoader("train"));
                        session.WriteMetrics({{"begin", 1}});
                        session.WriteMetrics({});
                        for (Step& step : session.Steps(*train, 0)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.status());
                          session.WriteMetrics({{"rate", 0.5}});
                        }
                        session.WriteMetrics({{"end", 2}});
                        return absl::OkStatus();
                      }),
              Each(IsOk()));
  // Metrics of a step are written together with the session's own.
  ASSERT_THAT(told_.written, ElementsAre(Pair(0, SizeIs(4))));
  EXPECT_THAT(OfTrainer(),
              ElementsAre("0 begin 1", "1 rate 0.5", "2 rate 0.5", "2 end 2"));
}

// ---- Of orders.

// Returns the last value of a metric.
double LastOf(const std::vector<Written>& written, const std::string& name) {
  for (auto each = written.rbegin(); each != written.rend(); ++each) {
    const auto found = each->values.find(name);
    if (found != each->values.end()) return found->second;
  }
  return -1;
}

absl::Status TakeSteps(Session& session) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  for (const int64_t epoch : session.Epochs(*train, 2)) {
    for (Step& step : session.Steps(*train, epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
  }
  return absl::OkStatus();
}

TEST_F(SessionMetricsTest, PartsOfAMixtureAreTold) {
  const char* const text = R"(
[loader.train]
sampler = {name = "mixture", weights = [2, 1], end = "samples", num_samples = 12, global_batch_size = 6}
[loader.train.dataset]
name = "concat"
datasets = [{name = "numbers", size = 32}, {name = "numbers", size = 4}]
[metrics.recording]
)";
  ASSERT_THAT(RunJobs({text, text}, TakeSteps), Each(IsOk()));
  const std::vector<Written>& written = told_.written[0];
  // Two epochs of 12 samples have 16 of the one part and 8 of the other.
  EXPECT_DOUBLE_EQ(LastOf(written, "train/part0_share"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(LastOf(written, "train/part1_share"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(LastOf(written, "train/part0_passes"), 0.5);
  EXPECT_DOUBLE_EQ(LastOf(written, "train/part1_passes"), 2);
  EXPECT_THAT(LinesWith("the loader 'train' has a mixture with 12 samples an "
                        "epoch: part 0 of 32 samples has 2 of 3 turns"),
              SizeIs(1));
}

// Sample i has 1 + i % 3 elements.
// Thread-safety: thread-safe.
class Documents : public Dataset {
 public:
  int64_t size() const override { return 12; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    const std::vector<int32_t> tokens(static_cast<size_t>(1 + index % 3), 7);
    return row.Copy<int32_t>(0, tokens);
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "length") return Dataset::ReadColumn(name);
    return std::vector<int64_t>{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  }

 private:
  const std::vector<FieldSpec> fields_ = {{"tokens", DType::kI32, {-1}, 3}};
};

TEST_F(SessionMetricsTest, WhatStaysEmptyInPackedRowsIsTold) {
  LOCKSTEP_ASSERT_OK((registry_.Add<Dataset, NoOptions>(
      "documents", "A few.",
      [](const PluginContext&,
         const NoOptions&) -> absl::StatusOr<std::shared_ptr<Dataset>> {
        return std::make_shared<Documents>();
      })));
  const char* const text = R"(
[loader.train]
dataset = {name = "documents"}
sampler = {name = "packed", row_length = 4, order = {name = "sequential"}, global_batch_size = 4}
[metrics.recording]
)";
  ASSERT_THAT(RunJobs({text}, TakeSteps), Each(IsOk()));
  // First fit makes seven rows of 4: 1 2 1, 3 1, 2 2, 3 1, 3, 2, 3.
  EXPECT_DOUBLE_EQ(LastOf(told_.written[0], "train/empty_share"), 4.0 / 28);
  EXPECT_THAT(LinesWith("the loader 'train' has rows of 4 elements; the first "
                        "window packs 12 samples into 7 rows"),
              SizeIs(1));
}

// ---- Of each rank.

TEST_F(SessionMetricsTest, EachRankTellsOfItself) {
  constexpr int kRanks = 2;
  ASSERT_THAT(
      RunWith("[rank_metrics.mine]\nname = \"recording\"", kRanks, TrainOn),
      Each(IsOk()));
  ASSERT_THAT(told_.written,
              ElementsAre(Pair(0, SizeIs(4)), Pair(1, SizeIs(4))));
  for (int i = 0; i < 4; ++i) {
    double rows = 0;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const Written& written = told_.written[rank][i];
      EXPECT_EQ(written.step, i + 1);
      EXPECT_THAT(
          written.values,
          ElementsAre(Pair("average_seconds", Ge(0)),
                      Pair("between_seconds", Ge(0)),
                      Pair("blocked_seconds", Ge(0)),
                      Pair("clock_error_seconds", Ge(0)),
                      Pair("clock_offset_seconds", AllOf(Ge(-60), Not(Ge(60)))),
                      Pair("collective_seconds", Ge(0)), Pair("collectives", 2),
                      Pair("data_seconds", Ge(0)), Pair("epoch", i / 2),
                      Pair("position", i % 2 == 0 ? 6 : 10),
                      Pair("ready_batches", Ge(0)), Pair("rows", Ge(1)),
                      Pair("seconds", Ge(0)),
                      Pair("slowest_collective_seconds", Ge(0))));
      EXPECT_GT(written.values.at("slowest_collective_seconds"), 0);
      EXPECT_LE(written.values.at("slowest_collective_seconds"),
                written.values.at("collective_seconds"));
      EXPECT_LE(written.values.at("collective_seconds"),
                written.values.at("seconds"));
      EXPECT_EQ(written.values.at("clock_error_seconds") > 0, rank > 0);
      rows += written.values.at("rows");
    }
    EXPECT_EQ(rows, i % 2 == 0 ? 6 : 4);
  }
}

// A trainer may release a batch after it has copied it, and may give a step the
// weight 0.
TEST_F(SessionMetricsTest, BatchesMayBeReleased) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (const int64_t epoch : session.Epochs(*train, 2)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (Batch& batch : step) {
          step.Add("loss", SumOf(batch));
          batch.Release();
        }
        if (step.number() == 1) step.AddWeight(0);
      }
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunWith("[rank_metrics.recording]", 1, train), Each(IsOk()));
  ASSERT_THAT(told_.written[0], SizeIs(4));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(told_.written[0][i].values.at("epoch"), i / 2);
    EXPECT_EQ(told_.written[0][i].values.at("rows"), i % 2 == 0 ? 6 : 4);
  }
  EXPECT_THAT(LinesWith("epoch "),
              ElementsAre(HasSubstr("loss 2.5"), HasSubstr("loss 2.5")));
  told_.written.clear();
  EXPECT_THAT(RunWith("[metrics.recording]", 1, train), Each(IsOk()));
  ASSERT_THAT(told_.written[0], SizeIs(4));
  EXPECT_EQ(told_.written[0][0].values.at("train/loss"), 2.5);
  EXPECT_EQ(told_.written[0][1].values.count("train/loss"), 0);
}

// A weight belongs to one step. A line comes after each step, and the last one
// is that of the epoch.
TEST_F(SessionMetricsTest, RatesAreOfRowsAgain) {
  EXPECT_THAT(RunWith("[progress]\nevery = \"1ns\"\nweight = \"tokens\"", 1,
                      [](Session& session) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                                  session.MakeLoader("train"));
                        for (Step& step : session.Steps(*train, 0)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.status());
                          if (step.number() == 0) step.AddWeight(100);
                        }
                        return absl::OkStatus();
                      }),
              Each(IsOk()));
  EXPECT_THAT(LinesWith("epoch "),
              ElementsAre(HasSubstr(" tokens/s"), HasSubstr(" rows/s"),
                          HasSubstr(" tokens/s")));
}

// The trainer's collectives within a step count, and those between steps do
// not.
TEST_F(SessionMetricsTest, CollectivesAreThoseOfTheStep) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      for (int64_t i = 0; i < 20 * step.number(); ++i) {
        LOCKSTEP_RETURN_IF_ERROR(Wait(session.group().Barrier()));
      }
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunWith("[rank_metrics.recording]", 2, train), Each(IsOk()));
  for (int64_t rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(told_.written[rank], SizeIs(2));
    EXPECT_EQ(told_.written[rank][0].values.at("collectives"), 1);
    EXPECT_EQ(told_.written[rank][1].values.at("collectives"), 21);
    EXPECT_GT(told_.written[rank][1].values.at("collective_seconds"),
              told_.written[rank][1].values.at("slowest_collective_seconds"));
  }
}

// ---- Errors.

TEST_F(SessionMetricsTest, ASinkThatCanNotBeMadeEndsTheTraining) {
  const std::vector<absl::Status> ended =
      RunWith("[rank_metrics.broken]", 2, TrainOn);
  EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("nobody listens")));
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kAborted,
                                 AllOf(HasSubstr("rank 1"),
                                       HasSubstr("nobody listens"))));
  EXPECT_THAT(RunWith("[metrics.recordng]", 1, TrainOn)[0],
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("did you mean 'recording'?")));
}

// A sink that fails does not end the training, and the log shows each error at
// failures 1, 2, 4 and so on.
TEST_F(SessionMetricsTest, ASinkThatFailsIsTold) {
  for (const bool throws : {false, true}) {
    told_.written.clear();
    logged_.clear();
    told_.fails_from = 1;
    told_.fails_until = 4;
    told_.throws = throws;
    ASSERT_THAT(RunWith("[metrics.recording]", 2, TrainOn), Each(IsOk()));
    EXPECT_THAT(told_.written[0], SizeIs(3));
    const std::string why =
        throws ? "it threw std::runtime_error: thrown" : "the disk is full";
    const std::string end = "; the training goes on without these metrics";
    EXPECT_THAT(
        LinesWith("metrics.recording"),
        ElementsAre(
            absl::StrCat("metrics.recording: ", why, end),
            absl::StrCat("metrics.recording: ", why, " (2 times so far)", end),
            // The calls are one Begin, six Writes, and three Flushes.
            "metrics.recording: 3 of 10 calls have failed, and their metrics "
            "are lost"));
  }
}

// Sinks are flushed before a checkpoint, at the end of an epoch, and at the end
// of the training, even if it fails.
TEST_F(SessionMetricsTest, SinksAreFlushed) {
  ASSERT_THAT(RunWith("[metrics.recording]", 1, TrainOn), Each(IsOk()));
  EXPECT_EQ(told_.flushes[0], 3);  // two epochs and the end
  told_.flushes.clear();
  EXPECT_THAT(RunWith("[metrics.recording]", 1,
                      [](Session&) { return absl::InternalError("broken"); }),
              Each(StatusIs(absl::StatusCode::kInternal)));
  EXPECT_EQ(told_.flushes[0], 1);
  told_.flushes.clear();
  std::string folder = testing::TempDir() + "/metricsXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_THAT(RunWith(absl::StrCat("[metrics.recording]\n[checkpoint]\npath='",
                                   folder, "/c'\nevery_steps = 1\n"),
                      1, TrainOn),
              Each(IsOk()));
  // Two of the four checkpoints are at the end of an epoch.
  EXPECT_EQ(told_.flushes[0], 3 + 4);
}

// ---- Restarts.

// Metrics that are written before Restore do not remove those of earlier runs.
TEST_F(SessionMetricsTest, NothingIsToldBeforeItIsKnownWhereTheTrainingIs) {
  std::string folder = testing::TempDir() + "/metricsXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string tables = absl::StrCat(
      "[metrics.recording]\n[checkpoint]\npath='", folder, "/c'\n");
  const auto tells_first = [](Session& session) {
    session.WriteMetrics({{"parameters", 3}});
    return TrainOn(session);
  };
  EXPECT_THAT(RunWith(tables, 1, tells_first), Each(IsOk()));
  EXPECT_THAT(RunWith(tables, 1, tells_first), Each(IsOk()));
  EXPECT_THAT(told_.begun, ElementsAre(0, 4));
  EXPECT_THAT(OfTrainer(), ElementsAre("0 parameters 3", "4 parameters 3"));
}

// A job that fails before it knows its first step removes no metrics.
TEST_F(SessionMetricsTest, NothingIsTakenBackByATrainingThatDoesNotBegin) {
  std::string folder = testing::TempDir() + "/metricsXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_THAT(RunWith(absl::StrCat("[metrics.recording]\n[checkpoint]\npath='",
                                   folder, "/c'\n"),
                      1,
                      [](Session& session) {
                        session.WriteMetrics({{"parameters", 3}});
                        return session.MakeLoader("tset").status();
                      }),
              Each(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(RunWith("[metrics.recording]", 1,
                      [](Session&) { return absl::InternalError("broken"); }),
              Each(StatusIs(absl::StatusCode::kInternal)));
  EXPECT_THAT(told_.begun, IsEmpty());
  EXPECT_THAT(told_.written, IsEmpty());
}

TEST_F(SessionMetricsTest, StepsGoOnAfterARestart) {
  std::string folder = testing::TempDir() + "/metricsXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string tables = absl::StrCat(
      "[metrics.recording]\n[checkpoint]\npath='", folder, "/c'\n");
  const auto stops_first = [](Session& session) {
    session.RequestStop();
    return TrainOn(session);
  };
  EXPECT_THAT(RunWith(tables, 2, stops_first), Each(IsOk()));
  ASSERT_THAT(told_.written[0], SizeIs(1));
  EXPECT_THAT(RunWith(tables, 3, TrainOn), Each(IsOk()));
  ASSERT_THAT(told_.written[0], SizeIs(6));
  EXPECT_THAT(told_.begun, ElementsAre(0, 1));
  EXPECT_EQ(told_.written[0][1].step, 2);
  EXPECT_EQ(told_.written[0][1].values.at("train/loss"), 7.5);
}

TEST_F(SessionMetricsTest, AVerificationIsNotTold) {
  const std::string text =
      absl::StrCat(kJob, "[metrics.recording]\n[rank_metrics.recording]\n");
  const auto verify = [](Session& session) {
    VerifyOptions options;
    options.steps = 1;
    return VerifyRestart(session, TrainOn, options);
  };
  EXPECT_THAT(UseSessions({text, text}, verify), Each(IsOk()));
  EXPECT_THAT(told_.written, IsEmpty());
  EXPECT_THAT(LinesWith("epoch"), IsEmpty());
}

// ---- Progress.

TEST_F(SessionMetricsTest, ProgressIsLoggedOnce) {
  ASSERT_THAT(RunWith("", 3, TrainOn), Each(IsOk()));
  EXPECT_THAT(
      LinesWith("epoch "),
      ElementsAre(StartsWith("epoch 0: 2 steps in "),
                  AllOf(StartsWith("epoch 1: 2 steps in "),
                        HasSubstr("s, loss 4.5, "), HasSubstr(" rows/s, "))));
  EXPECT_THAT(LinesWith("test "),
              ElementsAre("test after 2 steps: loss 2 over 5 samples",
                          "test after 4 steps: loss 2 over 5 samples"));
}

TEST_F(SessionMetricsTest, ALineMayEndWithALineBreak) {
  const auto train = [](Session& session) -> absl::Status {
    session.Log("two\nlines\n");
    return TrainOn(session);
  };
  ASSERT_THAT(RunWith("", 1, train), Each(IsOk()));
  EXPECT_THAT(LinesWith("two"), ElementsAre("two\nlines"));
}

TEST_F(SessionMetricsTest, ALongEpochHasLines) {
  ASSERT_THAT(RunWith("[progress]\nevery = \"1ns\"", 2, TrainOn), Each(IsOk()));
  EXPECT_THAT(LinesWith("epoch 1: step "),
              ElementsAre(HasSubstr(" left, loss 2.5, "),
                          StartsWith("epoch 1: step 2 of 2, 0:00 left, loss "
                                     "7.5, ")));
}

TEST_F(SessionMetricsTest, ALoopThatIsLeftHasALine) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (step.number() == 1) break;
    }
    return absl::OkStatus();
  };
  ASSERT_THAT(RunWith("[metrics.recording]", 1, train), Each(IsOk()));
  EXPECT_THAT(
      LinesWith("epoch "),
      ElementsAre(HasSubstr("left step 1 of epoch 0 of the loader 'train'"),
                  StartsWith("epoch 0: 1 step ")));
}

TEST_F(SessionMetricsTest, ProgressCanBeTurnedOff) {
  ASSERT_THAT(RunWith("[progress]\nevery = \"0s\"", 2, TrainOn), Each(IsOk()));
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("steps"))));
}

}  // namespace
}  // namespace lockstep
