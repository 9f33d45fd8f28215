#include "lockstep/examples/trainer/optimizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
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
      optimizer.Update();
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
      optimizer.Update();
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
      optimizer.Update();
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(ValueOf(gradients, i), static_cast<float>(i), 3e-3) << i;
    }
  });
}

TEST_F(OptimizerTest, RefusesOptionsOutOfRange) {
  OptimizerOptions rate, momentum, decay;
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
