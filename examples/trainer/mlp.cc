#include "lockstep/examples/trainer/mlp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"

namespace trainer {
namespace {

// Returns the score of the outputs of the last layer. Replaces these by the
// gradient of the loss, which is the probability of each class, minus 1 for the
// right one.
Score ScoreAndGradient(absl::Span<const int64_t> labels, Matrix& outputs) {
  Score score;
  for (int64_t row = 0; row < outputs.rows(); ++row) {
    auto classes = outputs.row(row).array();
    Eigen::Index highest = 0;
    const float most = classes.maxCoeff(&highest);
    if (highest == labels[row]) ++score.right;
    classes = (classes - most).exp();  // at most 1, so nothing overflows
    classes /= classes.sum();
    float& of_label = classes(labels[row]);
    score.loss -=
        std::log(std::max(of_label, std::numeric_limits<float>::min()));
    of_label -= 1;
  }
  return score;
}

}  // namespace

Layer::Layer(int64_t inputs, int64_t outputs, lockstep::Random& random)
    : weights_(inputs, outputs),
      bias_(Eigen::RowVectorXf::Zero(outputs)),
      weights_gradient_(Matrix::Zero(inputs, outputs)),
      bias_gradient_(bias_) {
  // With this deviation, rectified sums keep the magnitude of their inputs.
  const double deviation = std::sqrt(2.0 / static_cast<double>(inputs));
  for (float& weight : weights_.reshaped()) {
    weight = static_cast<float>(random.Normal(0, deviation));
  }
}

void Layer::AddGradients(const MatrixRef& inputs,
                         const Matrix& outputs_gradient) {
  weights_gradient_.noalias() += inputs.transpose() * outputs_gradient;
  bias_gradient_ += outputs_gradient.colwise().sum();
}

void Layer::AddParameters(const std::string& name,
                          std::vector<lockstep::Parameter>& parameters) {
  parameters.push_back(
      {absl::StrCat(name, "/weights"),
       lockstep::BufferOf(weights_.data(), weights_.size()),
       lockstep::BufferOf(weights_gradient_.data(), weights_gradient_.size())});
  parameters.push_back(
      {absl::StrCat(name, "/bias"),
       lockstep::BufferOf(bias_.data(), bias_.size()),
       lockstep::BufferOf(bias_gradient_.data(), bias_gradient_.size())});
}

absl::StatusOr<Mlp> Mlp::Create(int64_t inputs, std::vector<int64_t> hidden,
                                int64_t classes, uint64_t seed) {
  std::vector<int64_t> sizes = std::move(hidden);
  sizes.insert(sizes.begin(), inputs);
  sizes.push_back(classes);
  constexpr int64_t kMost = 1 << 20;
  for (const int64_t size : sizes) {
    if (size >= 1 && size <= kMost) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the sizes of a perceptron's layers should be from 1 to ",
                     kMost, ", but are ", absl::StrJoin(sizes, ", ")));
  }
  lockstep::Random random(seed);
  std::vector<Layer> layers;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers.emplace_back(sizes[i], sizes[i + 1], random);
  }
  return Mlp(std::move(layers));
}

std::vector<lockstep::Parameter> Mlp::parameters() {
  std::vector<lockstep::Parameter> parameters;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].AddParameters(absl::StrCat("layer", i), parameters);
  }
  return parameters;
}

std::vector<Matrix> Mlp::Forward(const MatrixRef& inputs) const {
  std::vector<Matrix> outputs = {layers_[0].Forward(inputs)};
  for (size_t i = 1; i < layers_.size(); ++i) {
    outputs[i - 1] = outputs[i - 1].cwiseMax(0);
    outputs.push_back(layers_[i].Forward(outputs[i - 1]));
  }
  return outputs;
}

Score Mlp::Evaluate(const MatrixRef& inputs,
                    absl::Span<const int64_t> labels) const {
  return ScoreAndGradient(labels, Forward(inputs).back());
}

Score Mlp::AddGradients(const MatrixRef& inputs,
                        absl::Span<const int64_t> labels) {
  std::vector<Matrix> outputs = Forward(inputs);
  Matrix gradient = outputs.back();
  const Score score = ScoreAndGradient(labels, gradient);
  for (size_t i = layers_.size() - 1; i > 0; --i) {
    layers_[i].AddGradients(outputs[i - 1], gradient);
    // A rectifier passes the gradient where it has passed the value.
    gradient = layers_[i].Backward(gradient).cwiseProduct(
        (outputs[i - 1].array() > 0).cast<float>().matrix());
  }
  layers_[0].AddGradients(inputs, gradient);
  return score;
}

}  // namespace trainer
