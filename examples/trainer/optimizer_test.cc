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
#include "lockstep/examples/trainer/clipping.h"
#include "lockstep/examples/trainer/ema.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace trainer {
namespace {

using ::lockstep::Gradients;
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
    absl::Span<float> first_gradient, second_gradient;
    LOCKSTEP_ASSIGN_OR_RETURN(
        Gradients* const gradients,
        session.MakeGradients(
            {{"first", absl::MakeSpan(first), &first_gradient},
             {"second", absl::MakeSpan(second), &second_gradient}}));
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

void SetGradients(int update, Gradients& gradients) {
  for (size_t i = 0; i < gradients.all().size(); ++i) {
    gradients.all()[i] = GradientOf(i, update);
  }
}

float ValueOf(const Gradients& gradients, size_t i) {
  return i < 3 ? gradients.parameters()[0].values[i]
               : gradients.parameters()[1].values[0];
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
        gradients.all()[i] = std::pow(100.0F, static_cast<float>(i)) * 1e-5F;
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

TEST_F(OptimizerTest, ClippingIsPyTorchs) {
  const std::map<double, std::vector<float>> clipped = {
      {1, {0.182574153F, 0.365148306F, 0.547722459F, 0.730296612F}},
      {4, {0.730296612F, 1.46059322F, 2.19088984F, 2.92118645F}},
      {100, {1, 2, 3, 4}}};
  for (const auto& [most, expected] : clipped) {
    With(OptimizerOptions(), [&, most = most, &values = expected](
                                 Optimizer&, Gradients& gradients) {
      SetGradients(1, gradients);
      EXPECT_NEAR(ClipByNorm(gradients, most), 5.47722578, 1e-6);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(gradients.all()[i], values[i], 2e-6) << most;
      }
    });
  }
}

TEST_F(OptimizerTest, ClippingLeavesWhatIsNotFinite) {
  With(OptimizerOptions(), [&](Optimizer&, Gradients& gradients) {
    SetGradients(1, gradients);
    gradients.all()[2] = INFINITY;
    EXPECT_EQ(ClipByNorm(gradients, 1), INFINITY);
    EXPECT_EQ(gradients.all()[3], 4);
    // Their squares do not fit into a float.
    gradients.all()[2] = 3e30F;
    EXPECT_NEAR(ClipByNorm(gradients, 1), 3e30, 1e24);
    EXPECT_NEAR(gradients.all()[2], 1, 1e-6);
  });
}

// The averages are in checkpoints, and so the sections of both.
TEST_F(OptimizerTest, AveragesAreStates) {
  EXPECT_THAT(RunQuietly(1,
                         [&](Session& session) -> absl::Status {
                           std::vector<float> values = {1};
                           absl::Span<float> gradient;
                           LOCKSTEP_ASSIGN_OR_RETURN(
                               Gradients* const gradients,
                               session.MakeGradients(
                                   {{"x", absl::MakeSpan(values), &gradient}}));
                           Ema ema(*gradients, 0.9F);
                           LOCKSTEP_RETURN_IF_ERROR(ema.AddStateTo(session));
                           EXPECT_THAT(
                               session.AddState("ema/x", &values),
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
