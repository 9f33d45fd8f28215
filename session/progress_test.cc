#include "lockstep/session/progress.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A fixture with its own clock, which each step advances by its duration.
class ProgressTest : public testing::Test {
 protected:
  Progress LinesEvery(absl::Duration every) {
    return Progress(every, "tokens", Append(lines_), nullptr);
  }
  Progress WithBar() {
    return Progress(absl::Seconds(30), "tokens", Append(lines_), Append(bars_));
  }

  // Returns a step of 48 rows that waits for data for a quarter of its time.
  StepReport Step(absl::Duration duration, std::vector<Metric> means = {},
                  int64_t rows = 48) {
    means_ = std::move(means);
    StepReport step;
    step.epoch = epoch_;
    step.number = number_++;
    step.total_weight = rows;
    step.means = means_;
    weights_.assign(means_.size(), static_cast<double>(step.total_weight));
    step.mean_weights = weights_;
    step.before = step.asked = now_;
    step.data_seconds = absl::ToDoubleSeconds(duration / 4);
    step.ended = now_ = After(duration, now_);
    return step;
  }

  void Add(Progress& progress, const StepReport& step) {
    progress.AddStep(step, [this] {
      ++asked_;
      return steps_in_epoch_;
    });
  }

  static Progress::Output Append(std::vector<std::string>& texts) {
    return [&texts](absl::string_view text) { texts.emplace_back(text); };
  }

  SteadyTime now_;
  int64_t epoch_ = 0;
  int64_t number_ = 0;
  int64_t steps_in_epoch_ = 10;
  int asked_ = 0;
  std::vector<Metric> means_;
  std::vector<double> weights_;
  std::vector<std::string> lines_, bars_;
};

TEST_F(ProgressTest, LinesComeEverySoOften) {
  Progress progress = LinesEvery(absl::Seconds(3));
  progress.BeginSteps(now_);
  for (int i = 0; i < 10; ++i) {
    Add(progress, Step(absl::Seconds(1), {{"loss", 1.0 - 0.1 * i}}));
  }
  EXPECT_THAT(
      lines_,
      ElementsAre("epoch 0: step 3 of 10, 0:07 left, loss 0.9, 48 rows/s, 25% "
                  "waiting for data",
                  "epoch 0: step 6 of 10, 0:04 left, loss 0.6, 48 rows/s, 25% "
                  "waiting for data",
                  "epoch 0: step 9 of 10, 0:01 left, loss 0.3, 48 rows/s, 25% "
                  "waiting for data"));
  progress.EndSteps();
  EXPECT_EQ(lines_.back(),
            "epoch 0: 10 steps in 10.0 s, loss 0.55, 48 rows/s, 25% waiting "
            "for data");
  EXPECT_EQ(asked_, 1);
}

// A short epoch gets only the line at its end, so its length is not asked for.
TEST_F(ProgressTest, AnEpochHasALineAtItsEnd) {
  Progress progress = LinesEvery(absl::Seconds(30));
  for (epoch_ = 0; epoch_ < 2; ++epoch_) {
    progress.BeginSteps(now_);
    Add(progress, Step(absl::Milliseconds(40)));
    progress.EndSteps();
    progress.EndSteps();
    now_ = After(absl::Seconds(20), now_);  // an evaluation
  }
  EXPECT_THAT(lines_, ElementsAre("epoch 0: 1 step in 40 ms, 1200 rows/s, 25% "
                                  "waiting for data",
                                  "epoch 1: 1 step in 40 ms, 1200 rows/s, 25% "
                                  "waiting for data"));
  EXPECT_EQ(asked_, 0);
}

TEST_F(ProgressTest, VeryShortEpochsHaveATimeToo) {
  Progress progress = LinesEvery(absl::Seconds(30));
  progress.BeginSteps(now_);
  Add(progress, Step(absl::Microseconds(400)));
  progress.EndSteps();
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("1 step in 0.4 ms, ")));
}

// The time between steps, in hooks and in checkpoints, is part of the rate.
TEST_F(ProgressTest, RatesAreOfTheWholeTime) {
  Progress progress = LinesEvery(absl::Seconds(4));
  progress.BeginSteps(now_);
  Add(progress, Step(absl::Seconds(1)));
  const SteadyTime before = now_;
  now_ = After(absl::Seconds(8), now_);
  StepReport step = Step(absl::Seconds(1));
  step.before = before;
  step.collective_seconds = 2;  // two run at a time
  Add(progress, step);
  EXPECT_THAT(lines_, ElementsAre("epoch 0: step 2 of 10, 0:40 left, 9.6 "
                                  "rows/s, 5% waiting for data, 20% in "
                                  "collectives, 80% between steps"));
}

TEST_F(ProgressTest, MeansAreOverRows) {
  Progress progress = LinesEvery(absl::Seconds(3));
  progress.BeginSteps(now_);
  Add(progress, Step(absl::Seconds(1), {{"loss", 1}}, 30));
  Add(progress, Step(absl::Seconds(1), {{"loss", 5}}, 10));
  Add(progress, Step(absl::Seconds(1), {{"loss", NAN}}, 0));  // without rows
  EXPECT_THAT(lines_, ElementsAre("epoch 0: step 3 of 10, 0:07 left, loss 2, "
                                  "13.3 rows/s, 25% waiting for data"));
}

TEST_F(ProgressTest, MeansMayHaveWeightsOfTheirOwn) {
  Progress progress = LinesEvery(absl::Seconds(3));
  progress.BeginSteps(now_);
  for (const double tokens : {100., 300., 0.}) {
    const StepReport step =
        Step(absl::Seconds(1), {{"loss", tokens == 0 ? NAN : tokens}});
    weights_ = {tokens};
    Add(progress, step);
  }
  EXPECT_THAT(lines_, ElementsAre("epoch 0: step 3 of 10, 0:07 left, loss 250, "
                                  "48 rows/s, 25% waiting for data"));
}

TEST_F(ProgressTest, AWeightNeedNotBeRows) {
  Progress progress = LinesEvery(absl::Seconds(1));
  progress.BeginSteps(now_);
  StepReport step = Step(absl::Seconds(1));
  step.total_weight = 2'345'678;
  step.is_weight_rows = false;
  steps_in_epoch_ = 0;  // unknown
  Add(progress, step);
  EXPECT_THAT(lines_, ElementsAre("epoch 0: step 1, 2.3M tokens/s, 25% waiting "
                                  "for data"));
}

// A NaN does not affect later lines.
TEST_F(ProgressTest, ABadStepIsTold) {
  Progress progress = LinesEvery(absl::Seconds(1));
  progress.BeginSteps(now_);
  Add(progress, Step(absl::Seconds(1), {{"loss", -NAN}}));
  Add(progress, Step(absl::Seconds(1), {{"loss", 0.5}}));
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr(", loss nan, "));
  EXPECT_THAT(lines_[1], HasSubstr(", loss 0.5, "));
}

// A loader with advance_epochs has all epochs in one range of steps.
TEST_F(ProgressTest, AnEpochEndsWhereTheNextBegins) {
  Progress progress = LinesEvery(absl::Seconds(30));
  progress.BeginSteps(now_);
  Add(progress, Step(absl::Seconds(1), {{"loss", 1}}));
  epoch_ = 1;
  number_ = 0;
  Add(progress, Step(absl::Seconds(2), {{"loss", 3}}));
  progress.EndSteps();
  EXPECT_THAT(lines_, ElementsAre("epoch 0: 1 step in 1.0 s, loss 1, 48 "
                                  "rows/s, 25% waiting for data",
                                  "epoch 1: 1 step in 2.0 s, loss 3, 24 "
                                  "rows/s, 25% waiting for data"));
}

TEST_F(ProgressTest, LongTimesHaveHours) {
  Progress progress = LinesEvery(absl::Seconds(1));
  progress.BeginSteps(now_);
  steps_in_epoch_ = 3725;
  Add(progress, Step(absl::Seconds(1)));
  EXPECT_THAT(lines_, ElementsAre("epoch 0: step 1 of 3725, 1:02:04 left, 48 "
                                  "rows/s, 25% waiting for data"));
}

// The bar is updated at most ten times in a second. Its rates are over the last
// 5 to 10 s.
TEST_F(ProgressTest, ABarShowsItAtAllTimes) {
  Progress progress = WithBar();
  progress.BeginSteps(now_);
  steps_in_epoch_ = 1000;
  for (int i = 0; i < 9; ++i) Add(progress, Step(absl::Milliseconds(10)));
  EXPECT_THAT(bars_, IsEmpty());
  Add(progress, Step(absl::Milliseconds(10), {{"loss", 0.5}}));
  for (int i = 0; i < 9; ++i) Add(progress, Step(absl::Milliseconds(10)));
  EXPECT_THAT(bars_, SizeIs(1));
  EXPECT_EQ(bars_[0],
            "epoch 0 [>               ] 10/1000, 0:10 left, loss 0.5, 4800 "
            "rows/s, 25% waiting for data");
  for (int i = 0; i < 11; ++i) Add(progress, Step(absl::Seconds(5)));
  EXPECT_EQ(bars_.back(),
            "epoch 0 [>               ] 30/1000, 1:20:50 left, 9.6 rows/s, 25% "
            "waiting for data");
  EXPECT_THAT(lines_, IsEmpty());
  progress.EndSteps();
  EXPECT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(bars_.back(), "");
}

TEST_F(ProgressTest, ABarIsFullAtTheEnd) {
  Progress progress = WithBar();
  progress.BeginSteps(now_);
  for (int i = 0; i < 10; ++i) Add(progress, Step(absl::Seconds(1)));
  EXPECT_EQ(bars_[4].substr(0, 31), "epoch 0 [========>       ] 5/10");
  EXPECT_EQ(bars_[9].substr(0, 32), "epoch 0 [================] 10/10");
}

TEST_F(ProgressTest, EvaluationsHaveALine) {
  Progress progress = LinesEvery(absl::Seconds(30));
  progress.AddEvaluation("test", 417, 360, {{"loss", 0.03}, {"right", 0.98}});
  progress.AddEvaluation("test", 1, 1, {});
  EXPECT_THAT(lines_, ElementsAre("test after 417 steps: loss 0.03, right 0.98 "
                                  "over 360 samples",
                                  "test after 1 step: 1 sample"));
}

}  // namespace
}  // namespace lockstep::internal_session
