#include "lockstep/examples/trainer/mlp.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gradients/gradients.h"

namespace trainer {
namespace {

using ::lockstep::Parameter;
using ::lockstep::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model, and the gradients of its parameters.
struct Trained {
  Trained(int64_t inputs, const std::vector<int64_t>& hidden, int64_t classes)
      : model(*Mlp::Create(inputs, hidden, classes, /*seed=*/5)),
        parameters(model.parameters()) {
    for (const Parameter& parameter : parameters) {
      gradients.push_back(lockstep::SpanOf<float>(*parameter.gradient));
    }
  }

  Mlp model;
  std::vector<Parameter> parameters;
  std::vector<absl::Span<float>> gradients;
};

Matrix Inputs(int64_t rows, int64_t columns) {
  lockstep::Random random(9);
  Matrix inputs(rows, columns);
  for (float& value : inputs.reshaped()) {
    value = static_cast<float>(random.Normal());
  }
  return inputs;
}

TEST(Mlp, NamesItsParameters) {
  const Trained trained(3, {4}, 2);
  std::vector<std::string> names;
  std::vector<size_t> sizes;
  for (const Parameter& parameter : trained.parameters) {
    names.push_back(parameter.name);
    sizes.push_back(lockstep::SpanOf<float>(parameter.values).size());
  }
  EXPECT_THAT(names, ElementsAre("layer0/weights", "layer0/bias",
                                 "layer1/weights", "layer1/bias"));
  EXPECT_THAT(sizes, ElementsAre(12, 4, 8, 2));
}

// Each gradient equals the change of the loss per change of the parameter.
TEST(Mlp, ItsGradientsAreThoseOfItsLoss) {
  for (const std::vector<int64_t>& hidden :
       {std::vector<int64_t>{}, {5}, {5, 6}}) {
    Trained trained(3, hidden, 4);
    const Matrix inputs = Inputs(7, 3);
    const std::vector<int64_t> labels = {0, 1, 2, 3, 3, 2, 1};
    const Score score = trained.model.AddGradients(inputs, labels);
    EXPECT_EQ(score.loss, trained.model.Evaluate(inputs, labels).loss);
    for (size_t i = 0; i < trained.parameters.size(); ++i) {
      for (size_t j = 0; j < trained.gradients[i].size(); ++j) {
        constexpr float kStep = 1e-3F;
        float& value = lockstep::SpanOf<float>(trained.parameters[i].values)[j];
        const float before = value;
        value = before + kStep;
        const double above = trained.model.Evaluate(inputs, labels).loss;
        value = before - kStep;
        const double below = trained.model.Evaluate(inputs, labels).loss;
        value = before;
        EXPECT_NEAR(trained.gradients[i][j], (above - below) / (2 * kStep),
                    0.02)
            << trained.parameters[i].name << " " << j;
      }
    }
  }
}

TEST(Mlp, AddsToItsGradients) {
  Trained once(3, {5}, 4), twice(3, {5}, 4);
  const Matrix inputs = Inputs(2, 3);
  const std::vector<int64_t> labels = {0, 3};
  once.model.AddGradients(inputs, labels);
  twice.model.AddGradients(inputs, labels);
  twice.model.AddGradients(inputs, labels);
  for (size_t i = 0; i < once.gradients.size(); ++i) {
    for (size_t j = 0; j < once.gradients[i].size(); ++j) {
      EXPECT_EQ(twice.gradients[i][j], 2 * once.gradients[i][j]);
    }
  }
}

TEST(Mlp, ScoresWhatItKnows) {
  Trained trained(2, {}, 2);
  // The model computes outputs = inputs * 10.
  lockstep::SpanOf<float>(trained.parameters[0].values)[0] =
      lockstep::SpanOf<float>(trained.parameters[0].values)[3] = 10;
  lockstep::SpanOf<float>(trained.parameters[0].values)[1] =
      lockstep::SpanOf<float>(trained.parameters[0].values)[2] = 0;
  Matrix inputs(3, 2);
  inputs << 1, 0, 0, 1, 1, 0;
  const Score score =
      trained.model.Evaluate(inputs, std::vector<int64_t>{0, 1, 1});
  EXPECT_EQ(score.right, 2);
  EXPECT_NEAR(score.loss, 10 + 3 * std::log1p(std::exp(-10.0)), 1e-4);
  // Here the probability of the right class is 0 as a float.
  const Score sure =
      trained.model.Evaluate(inputs * 100, std::vector<int64_t>{1, 0, 1});
  EXPECT_EQ(sure.right, 0);
  EXPECT_TRUE(std::isfinite(sure.loss));
}

TEST(Mlp, BeginsWithWeightsOfItsSeed) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Mlp one, Mlp::Create(200, {}, 100, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Mlp same, Mlp::Create(200, {}, 100, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Mlp other, Mlp::Create(200, {}, 100, 2));
  const absl::Span<float> weights =
      lockstep::SpanOf<float>(one.parameters()[0].values);
  EXPECT_EQ(weights, lockstep::SpanOf<float>(same.parameters()[0].values));
  EXPECT_NE(weights, lockstep::SpanOf<float>(other.parameters()[0].values));
  double squares = 0;
  for (const float weight : weights) squares += weight * weight;
  EXPECT_NEAR(squares / static_cast<double>(weights.size()), 2.0 / 200, 5e-4);
}

TEST(Mlp, TakesNoRowsAndLargeNumbers) {
  Trained trained(3, {5}, 4);
  const Score none = trained.model.AddGradients(Matrix(0, 3), {});
  EXPECT_EQ(none.loss, 0);
  EXPECT_EQ(none.right, 0);
  for (const absl::Span<float> gradient : trained.gradients) {
    EXPECT_THAT(gradient, Each(0));
  }
  const Matrix large = Inputs(4, 3) * 1e6F;
  const Score score =
      trained.model.AddGradients(large, std::vector<int64_t>{0, 1, 2, 3});
  EXPECT_TRUE(std::isfinite(score.loss));
  for (const absl::Span<float> gradient : trained.gradients) {
    for (const float value : gradient) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Mlp, RefusesSizesThatAreNone) {
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_THAT(Mlp::Create(64, {size}, 10, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("should be from 1 to 1048576, but are 64")));
  }
}

}  // namespace
}  // namespace trainer
