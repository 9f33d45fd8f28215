// Sessions with gradients that travel before Average.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using Overlap = GradientsOptions::Overlap;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of two layers, of which each is a bucket.
struct Layers {
  std::vector<float> values[2] = {std::vector<float>(8192),
                                  std::vector<float>(8192)};
  Gradients* gradients = nullptr;

  absl::Status Make(Session& session, Overlap overlap) {
    GradientsOptions options;
    options.bucket_bytes = 32 << 10;
    options.overlap = overlap;
    LOCKSTEP_ASSIGN_OR_RETURN(
        gradients,
        session.MakeGradients(
            {{"0", BufferOf(values[0])}, {"1", BufferOf(values[1])}}, options));
    return absl::OkStatus();
  }

  absl::Span<float> Of(size_t layer) const {
    return SpanOf<float>(gradients->views()[layer].gradient);
  }

  // Adds the samples' numbers to a layer's gradient, and marks it.
  void Backward(const Batch& batch, size_t layer) const {
    for (float& each : Of(layer)) each += SumOf(batch);
    gradients->MarkReady(static_cast<int64_t>(layer));
  }
};

// Counted has the number of collectives of each step, by rank.
struct Counted {
  Mutex mutex;
  std::map<int64_t, std::vector<double>> collectives;
};

Counted* counted = nullptr;

class Sink : public MetricsSink {
 public:
  explicit Sink(int64_t rank) : rank_(rank) {}

  absl::Status Write(int64_t, absl::Span<const Metric> metrics) override {
    MutexLock lock(counted->mutex);
    for (const Metric& metric : metrics) {
      if (metric.name != "collectives") continue;
      counted->collectives[rank_].push_back(metric.value);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t rank_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeSink(
    const PluginContext& context, const NoOptions&) {
  return std::make_unique<Sink>(context.rank);
}

// Trains for some epochs of two steps, which have 6 and 4 rows. The gradient is
// the mean of the samples' numbers.
absl::Status TrainFor(Session& session, Overlap overlap, int64_t epochs) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  Layers layers;
  LOCKSTEP_RETURN_IF_ERROR(layers.Make(session, overlap));
  for (const int64_t epoch : session.Epochs(*train, epochs)) {
    for (Step& step : session.Steps(*train, epoch)) {
      for (const Batch& batch : step) {
        layers.Backward(batch, 1);
        layers.Backward(batch, 0);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*layers.gradients));
      EXPECT_EQ(layers.Of(0)[9], step.number() == 0 ? 2.5 : 7.5);
      EXPECT_EQ(layers.Of(1)[9], step.number() == 0 ? 2.5 : 7.5);
    }
  }
  return absl::OkStatus();
}

using OverlapTest = SessionTest;

// The first step moves the weights, both buckets, and their order.
TEST_F(OverlapTest, TheCollectivesOfAllGroupsAreCounted) {
  Counted all;
  counted = &all;
  LOCKSTEP_ASSERT_OK(registry_.Add<MetricsSink>("kept", "", MakeSink));
  const auto train = [](Session& session) {
    return TrainFor(session, Overlap::kOn, /*epochs=*/2);
  };
  EXPECT_THAT(RunJobs(std::vector<std::string>(
                          2, absl::StrCat(kJob, "[rank_metrics.kept]")),
                      train),
              Each(IsOk()));
  for (const int64_t rank : {0, 1}) {
    EXPECT_THAT(all.collectives[rank], ElementsAre(4, 3, 3, 3));
  }
}

TEST_F(OverlapTest, TheLogSaysOnceWhatTheStepsDecided) {
  const auto train = [](Session& session) {
    return TrainFor(session, Overlap::kAuto, /*epochs=*/10);
  };
  EXPECT_THAT(RunQuietly(2, train), Each(IsOk()));
  std::vector<std::string> said;
  for (const std::string& line : logged_) {
    if (absl::StrContains(line, "'gradients' travel ")) said.push_back(line);
  }
  EXPECT_THAT(said, ElementsAre(HasSubstr("with overlap and")));
}

// All ranks leave the first step of an epoch, where only one has marked.
TEST_F(OverlapTest, AStepMayBeLeftWhileGradientsTravel) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Layers layers;
    LOCKSTEP_RETURN_IF_ERROR(layers.Make(session, Overlap::kOn));
    for (const int64_t epoch : session.Epochs(*train, 4)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (const Batch& batch : step) {
          if (epoch == 1 && session.rank() == 1) continue;
          layers.Backward(batch, 0);
          if (epoch != 1) layers.Backward(batch, 1);
        }
        if (epoch == 1) break;
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*layers.gradients));
        EXPECT_EQ(layers.Of(0)[9], step.number() == 0 ? 2.5 : 7.5);
        EXPECT_EQ(layers.Of(1)[9], step.number() == 0 ? 2.5 : 7.5);
      }
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(RunQuietly(2, train), Each(IsOk()));
}

// The ranks have launched different buckets of the last step. A trainer that
// averages by itself is followed, too.
TEST_F(OverlapTest, TheTrainingMayEndWhileGradientsTravel) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Layers layers;
    LOCKSTEP_RETURN_IF_ERROR(layers.Make(session, Overlap::kOn));
    for (Step& step : session.Steps(*train, 0)) {
      for (const Batch& batch : step) {
        if (step.number() == 0 || session.rank() == 0) {
          layers.Backward(batch, 1);
          layers.Backward(batch, 0);
        }
      }
      if (step.number() == 1) return absl::OkStatus();
      StepInput input;
      input.weight = step.weight();
      LOCKSTEP_RETURN_IF_ERROR(layers.gradients->Average(input).status());
    }
    return absl::InternalError("the second step did not come");
  };
  EXPECT_THAT(RunQuietly(2, train), Each(IsOk()));
}

// It ends at once, and the others, which wait in Average, are told why.
TEST_F(OverlapTest, ARankMayFailWhileGradientsTravel) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Layers layers;
    LOCKSTEP_RETURN_IF_ERROR(layers.Make(session, Overlap::kOn));
    for (const int64_t epoch : session.Epochs(*train, 4)) {
      for (Step& step : session.Steps(*train, epoch)) {
        for (const Batch& batch : step) {
          layers.Backward(batch, 0);
          if (epoch == 1 && session.rank() == 1) {
            return absl::DataLossError("no gradient");
          }
          layers.Backward(batch, 1);
        }
        LOCKSTEP_RETURN_IF_ERROR(step.Average(*layers.gradients));
      }
    }
    return absl::OkStatus();
  };
  const std::vector<absl::Status> ended = RunQuietly(3, train);
  for (const absl::Status& status : ended) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("no gradient"));
    EXPECT_EQ(BlameOf(status).value_or(Blame()).rank(), 1) << status;
  }
}

}  // namespace
}  // namespace lockstep
