// The model and the dataset of training.cc: two layers, and points. A real
// trainer would use the model of a framework.
#ifndef LOCKSTEP_EXAMPLES_SMALL_MODEL_H_
#define LOCKSTEP_EXAMPLES_SMALL_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace examples {

constexpr int64_t kInputs = 8;

// A dataset of points x, in which y is a linear function of x. Sample i is the
// point `first` + i.
// Thread-safety: thread-safe.
class Points : public lockstep::Dataset {
 public:
  explicit Points(int64_t size = 1003, int64_t first = 0)
      : size_(size), first_(first) {}
  int64_t size() const override { return size_; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext&,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x, row.Mutable<float>(0));
    const int64_t point = first_ + index;
    float y = 3;
    for (int64_t i = 0; i < kInputs; ++i) {
      x[i] = static_cast<float>(point * (i + 3) % 17 - 8) / 8;
      y += x[i] * static_cast<float>(i + 1) / 4;
    }
    return row.Set<float>(1, y);
  }

 private:
  const int64_t size_;
  const int64_t first_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"x", lockstep::DType::kF32, {kInputs}, 0},
      {"y", lockstep::DType::kF32, {}, 0}};
};

// The model computes hidden = weights * x and y = scale * hidden + bias.
struct Model {
  std::array<float, kInputs> weights = {1, 1, 1, 1, 1, 1, 1, 1};
  float scale = 0.5;
  float bias = 0;
  float loss = 0;  // the mean over the last step
};

// The places in Sums::second, and their number (kSecond).
enum { kScale, kBias, kLoss, kSamples, kStops, kSecond };

// The sums of a step over its samples: the gradients of the first layer, and
// those of the second one followed by the loss, the number of samples and the
// number of ranks that want to stop. An evaluation has sums of its own.
struct Sums {
  std::vector<float> first = std::vector<float>(kInputs);
  std::vector<float> second = std::vector<float>(kSecond);
  std::vector<float> evaluated;
};

// Returns the errors of `rows` samples, and sets sums.second, since the
// backward pass begins with the second layer.
inline std::vector<float> SumSecondLayer(const Model& model,
                                         absl::Span<const float> x,
                                         absl::Span<const float> y,
                                         int64_t rows, Sums& sums) {
  std::vector<float> errors;
  sums.second.assign(kSecond, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float hidden =
        std::inner_product(model.weights.begin(), model.weights.end(),
                           x.begin() + row * kInputs, 0.F);
    const float error = model.scale * hidden + model.bias - y[row];
    sums.second[kScale] += error * hidden;
    sums.second[kBias] += error;
    sums.second[kLoss] += error * error;
    sums.second[kSamples] += 1;
    errors.push_back(error);
  }
  return errors;
}

inline void SumFirstLayer(const Model& model, absl::Span<const float> x,
                          absl::Span<const float> errors, Sums& sums) {
  sums.first.assign(kInputs, 0);
  for (size_t row = 0; row < errors.size(); ++row) {
    for (int64_t i = 0; i < kInputs; ++i) {
      sums.first[i] += errors[row] * model.scale * x[row * kInputs + i];
    }
  }
}

// Moves the model against the mean gradient.
inline void Update(const Sums& sums, float learning_rate, Model& model) {
  const float samples = sums.second[kSamples];
  for (int64_t i = 0; i < kInputs; ++i) {
    model.weights[i] -= learning_rate * sums.first[i] / samples;
  }
  model.scale -= learning_rate * sums.second[kScale] / samples;
  model.bias -= learning_rate * sums.second[kBias] / samples;
  model.loss = sums.second[kLoss] / samples;
}

}  // namespace examples

#endif  // LOCKSTEP_EXAMPLES_SMALL_MODEL_H_
