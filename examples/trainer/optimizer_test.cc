#include "lockstep/examples/trainer/optimizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/examples/trainer/ema.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace trainer {
namespace {

using ::lockstep::BufferOf;
using ::lockstep::Gradients;
using ::lockstep::GradientView;
using ::lockstep::Session;
using ::lockstep::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;

using Kind = OptimizerOptions::Kind;

class OptimizerTest : public lockstep::SessionTest {
 protected:
  // Sets gradients, and calls the optimizer of a model with two parameters.
  using Use = std::function<void(Optimizer& optimizer, Gradients& gradients)>;

  void With(const OptimizerOptions& options, const Use& use) {
    EXPECT_THAT(RunQuietly(1,
                           [&](Session& session) -> absl::Status {
                             return UseOne(session, options, use);
                           }),
                Each(lockstep::IsOk()));
  }

  absl::Status UseOne(Session& session, const OptimizerOptions& options,
                      const Use& use) {
    std::vector<float> first = {1, 2, 3}, second = {4};
    LOCKSTEP_ASSIGN_OR_RETURN(
        Gradients* const gradients,
        session.MakeGradients(
            {{"first", BufferOf(first)}, {"second", BufferOf(second)}}));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                              MakeOptimizer(options, *gradients));
    use(*optimizer, *gradients);
    return absl::OkStatus();
  }
};

// Returns the gradient of element i in an update.
float GradientOf(size_t i, int update) {
  return 0.5F * static_cast<float>(i + 1) *
         (update % 3 == 0 ? -1.0F : 1.0F + static_cast<float>(update));
}

// Returns element i of all values or gradients together.
float& ElementOf(const Gradients& gradients, size_t i,
                 lockstep::Buffer GradientView::*buffer) {
  size_t parameter = 0;
  for (; i >= static_cast<size_t>(gradients.views()[parameter].values.count);
       ++parameter) {
    i -= gradients.views()[parameter].values.count;
  }
  return static_cast<float*>((gradients.views()[parameter].*buffer).data)[i];
}

float ValueOf(const Gradients& gradients, size_t i) {
  return ElementOf(gradients, i, &GradientView::values);
}

void SetGradient(const Gradients& gradients, size_t i, float value) {
  ElementOf(gradients, i, &GradientView::gradient) = value;
}

void SetGradients(int update, const Gradients& gradients) {
  for (size_t i = 0; i < 4; ++i) {
    SetGradient(gradients, i, GradientOf(i, update));
  }
}

constexpr int kUpdates = 20;

TEST_F(OptimizerTest, SgdHasMomentum) {
  OptimizerOptions options;
  options.kind = Kind::kSgd;
  options.learning_rate = 0.01F;
  options.momentum = 0.8F;
  With(options, [&](Optimizer& optimizer, Gradients& gradients) {
    for (int update = 0; update < kUpdates; ++update) {
      SetGradients(update, gradients);
      optimizer.Update(/*share=*/1);
    }
    // Each gradient moves its parameter in its own update and, less and less,
    // in all later ones.
    for (size_t i = 0; i < 4; ++i) {
      double value = static_cast<double>(i + 1);
      for (int update = 0; update < kUpdates; ++update) {
        const int steps = kUpdates - update;
        value -= 0.01 * GradientOf(i, update) * (1 - std::pow(0.8, steps)) /
                 (1 - 0.8);
      }
      EXPECT_NEAR(ValueOf(gradients, i), value, 1e-4) << i;
    }
  });
}

TEST_F(OptimizerTest, AdamIsAsItsAuthorsHaveIt) {
  OptimizerOptions options;
  options.learning_rate = 0.01F;
  options.momentum = 0.8F;
  options.decay = 0.95F;
  With(options, [&](Optimizer& optimizer, Gradients& gradients) {
    for (int update = 0; update < kUpdates; ++update) {
      SetGradients(update, gradients);
      optimizer.Update(/*share=*/1);
    }
    for (size_t i = 0; i < 4; ++i) {
      double value = static_cast<double>(i + 1), m = 0, v = 0;
      for (int t = 1; t <= kUpdates; ++t) {
        const double gradient = GradientOf(i, t - 1);
        m = 0.8 * m + 0.2 * gradient;
        v = 0.95 * v + 0.05 * gradient * gradient;
        value -= 0.01 * (m / (1 - std::pow(0.8, t))) /
                 (std::sqrt(v / (1 - std::pow(0.95, t))) + 1e-8);
      }
      EXPECT_NEAR(ValueOf(gradients, i), value, 1e-4) << i;
    }
  });
}

// If the gradient is constant, all of Adam's steps have the same size.
TEST_F(OptimizerTest, AdamGoesAsFarWhateverTheGradient) {
  OptimizerOptions options;
  options.learning_rate = 0.125F;
  With(options, [&](Optimizer& optimizer, Gradients& gradients) {
    for (int update = 0; update < 8; ++update) {
      for (size_t i = 0; i < 4; ++i) {
        SetGradient(gradients, i,
                    std::pow(100.0F, static_cast<float>(i)) * 1e-5F);
      }
      optimizer.Update(/*share=*/1);
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(ValueOf(gradients, i), static_cast<float>(i), 3e-3) << i;
    }
  });
}

// The goldens are PyTorch 2.15's (testdata/generate/optimizers.py).
TEST_F(OptimizerTest, AdamWIsPyTorchs) {
  OptimizerOptions options;
  options.learning_rate = 0.01F;
  options.momentum = 0.8F;
  options.decay = 0.95F;
  options.weight_decay = 0.1F;
  const std::vector<float> plain = {0.839899123F, 1.82008815F, 2.80027652F,
                                    3.78046584F};
  const std::vector<float> plain_averages = {0.914016962F, 1.90188992F,
                                             2.8897624F, 3.87763572F};
  const std::vector<float> grouped = {0.839899123F, 1.82008815F, 2.80027652F,
                                      3.92933869F};
  const std::vector<float> grouped_averages = {0.914016962F, 1.90188992F,
                                               2.8897624F, 3.96286106F};
  for (const bool has_groups : {false, true}) {
    if (has_groups) {
      options.rates = {{"cond", 9}, {"second", 0.5F}};
      options.weight_decays = {{"second", 0}};
    }
    With(options, [&](Optimizer& optimizer, Gradients& gradients) {
      Ema ema(gradients, 0.9F);
      for (int update = 0; update < kUpdates; ++update) {
        SetGradients(update, gradients);
        optimizer.Update(/*share=*/1);
        ema.Update();
      }
      const auto expect = [&](const std::vector<float>& values) {
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_NEAR(ValueOf(gradients, i), values[i], 1e-6) << i;
        }
      };
      expect(has_groups ? grouped : plain);
      {
        const Ema::Swapped averaged(ema);
        expect(has_groups ? grouped_averages : plain_averages);
      }
      expect(has_groups ? grouped : plain);
    });
  }
}

// A share of the learning rate is as good as a smaller learning rate.
TEST_F(OptimizerTest, TheShareIsOfTheLearningRate) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdam}) {
    std::vector<float> values;
    for (const float rate : {0.01F, 0.02F}) {
      OptimizerOptions options;
      options.kind = kind;
      options.learning_rate = rate;
      With(options, [&](Optimizer& optimizer, Gradients& gradients) {
        for (int update = 0; update < 3; ++update) {
          SetGradients(update, gradients);
          optimizer.Update(rate == 0.01F ? 1 : 0.5);
        }
        values.push_back(ValueOf(gradients, 3));
      });
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

// The averages are in checkpoints, and so the sections of both.
TEST_F(OptimizerTest, AveragesAreStates) {
  EXPECT_THAT(
      RunQuietly(1,
                 [&](Session& session) -> absl::Status {
                   std::vector<float> values = {1};
                   LOCKSTEP_ASSIGN_OR_RETURN(
                       Gradients* const gradients,
                       session.MakeGradients({{"x", BufferOf(values)}}));
                   Ema ema(*gradients, 0.9F);
                   LOCKSTEP_RETURN_IF_ERROR(ema.AddStateTo(session));
                   EXPECT_THAT(session.AddState("ema/x", &values),
                               StatusIs(absl::StatusCode::kAlreadyExists));
                   return absl::OkStatus();
                 }),
      Each(lockstep::IsOk()));
}

TEST_F(OptimizerTest, RefusesOptionsOutOfRange) {
  OptimizerOptions rate, momentum, decay, weights, negative, nobody, sgd;
  weights.weight_decay = -1;
  negative.rates = {{"first", -1}};
  nobody.weight_decays = {{"third", 1}};
  sgd.kind = Kind::kSgd;
  sgd.weight_decay = 1;
  for (const auto& [options, told] :
       {std::make_pair(weights, "weight_decay should be 0 or more"),
        std::make_pair(negative, "rates.first should be 0 or more"),
        std::make_pair(nobody,
                       "weight_decays has the key 'third', but no "
                       "parameter's name ends with it"),
        std::make_pair(sgd, "sgd has no weight decay")}) {
    EXPECT_THAT(
        RunQuietly(1,
                   [&, wrong = options](Session& session) {
                     return UseOne(session, wrong, {});
                   }),
        Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(told))));
  }
  rate.learning_rate = -1;
  momentum.momentum = 1;
  decay.decay = -0.5F;
  EXPECT_THAT(
      RunQuietly(
          1, [&](Session& session) { return UseOne(session, rate, {}); })[0],
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("learning_rate should be 0 or more")));
  for (const OptimizerOptions& options : {momentum, decay}) {
    EXPECT_THAT(RunQuietly(1,
                           [&](Session& session) {
                             return UseOne(session, options, {});
                           })[0],
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("should be from 0 to below 1, but is")));
  }
}

}  // namespace
}  // namespace trainer
