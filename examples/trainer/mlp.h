// A multi-layer perceptron on Eigen, for classification. It has layers of
// weights with rectifiers between them, and the cross entropy of a softmax
// after the last one. The forward and backward passes are written out.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(Mlp model,
//                             Mlp::Create(/*inputs=*/64, /*hidden=*/{128},
//                                         /*classes=*/10, /*seed=*/1));
//   LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
//                             session.MakeGradients(model.parameters()));
//   const Score score = model.AddGradients(images, labels);
//   step.Add("loss", score.loss);
//
// It knows nothing of ranks. It computes sums over rows, and Lockstep divides
// them by the number of rows on all ranks.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_MLP_H_
#define LOCKSTEP_EXAMPLES_TRAINER_MLP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/gradients/gradients.h"

namespace trainer {

// A matrix has one row for each sample.
using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixRef = Eigen::Ref<const Matrix>;

// Sums over some samples.
struct Score {
  double loss = 0;
  int64_t right = 0;  // samples whose class has the highest output
};

// A Layer computes outputs = inputs * weights + bias.
// Thread-safety: thread-compatible.
class Layer {
 public:
  Layer(int64_t inputs, int64_t outputs, lockstep::Random& random);

  Matrix Forward(const MatrixRef& inputs) const {
    return (inputs * weights_).rowwise() + bias_;
  }

  // Adds the gradients of the weights and the bias, given those of the outputs.
  void AddGradients(const MatrixRef& inputs, const Matrix& outputs_gradient);

  // Returns the gradient of the inputs, given that of the outputs.
  Matrix Backward(const Matrix& outputs_gradient) const {
    return outputs_gradient * weights_.transpose();
  }

  // Appends the layer's parameters.
  void AddParameters(const std::string& name,
                     std::vector<lockstep::Parameter>& parameters);

 private:
  Matrix weights_;
  Eigen::RowVectorXf bias_;
  Matrix weights_gradient_;
  Eigen::RowVectorXf bias_gradient_;
};

// The model.
// Thread-safety: thread-compatible.
class Mlp {
 public:
  // `hidden` has the sizes of the hidden layers; if it is empty, the model has
  // only one layer. Returns INVALID_ARGUMENT if a number is too small or too
  // large.
  static absl::StatusOr<Mlp> Create(int64_t inputs, std::vector<int64_t> hidden,
                                    int64_t classes, uint64_t seed);

  // Returns the parameters for Session::MakeGradients. After this call, the
  // model must stay where it is.
  std::vector<lockstep::Parameter> parameters();

  // Does the forward pass, and returns the score of the samples. Each sample is
  // a row of `inputs` and a label, which counts from 0.
  Score Evaluate(const MatrixRef& inputs,
                 absl::Span<const int64_t> labels) const;

  // Does both passes, and adds the gradients of the loss to those of the
  // parameters.
  Score AddGradients(const MatrixRef& inputs, absl::Span<const int64_t> labels);

 private:
  explicit Mlp(std::vector<Layer> layers) : layers_(std::move(layers)) {}

  // Returns the outputs of each layer, rectified except for the last layer.
  std::vector<Matrix> Forward(const MatrixRef& inputs) const;

  std::vector<Layer> layers_;
};

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_MLP_H_
