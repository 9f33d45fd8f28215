// Acme's model: a line through points, y = slope * x + offset.
#ifndef TRAINER_LINE_H_
#define TRAINER_LINE_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/session/main.h"

namespace acme {

struct Line {
  std::vector<float> parameters = {0, 0};  // slope and offset
  std::vector<float> gradients = {0, 0};

  // Returns the sum of the squared errors of the batch, and adds the gradients
  // of its samples.
  absl::StatusOr<double> AddGradients(const lockstep::Batch& batch) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
    double loss = 0;
    for (size_t row = 0; row < static_cast<size_t>(batch.valid()); ++row) {
      const float error = parameters[0] * x[row] + parameters[1] - y[row];
      gradients[0] += error * x[row];
      gradients[1] += error;
      loss += static_cast<double>(error * error);
    }
    return loss;
  }

  void Update(float learning_rate) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] -= learning_rate * gradients[i];
    }
  }
};

}  // namespace acme

#endif  // TRAINER_LINE_H_
