// The dataset "digits" has images of handwritten digits, each with its number:
//
//   [loader.train]
//   dataset = {name = "digits", path = "digits.csv", noise = 0.15}
//
//   [loader.test]
//   dataset = {name = "digits", path = "digits.csv", part = "held_out"}
//
// data/README.md says where the file comes from.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_DIGITS_H_
#define LOCKSTEP_EXAMPLES_TRAINER_DIGITS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/examples/trainer/mlp.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/plugin/registry.h"

namespace trainer {

constexpr int64_t kPixels = 64;  // of an image
constexpr int64_t kDigits = 10;

struct DigitsOptions {
  // Lines 5, 10, 15, ... of the file are held out.
  enum class Part { kTraining, kHeldOut };

  std::string path = "examples/trainer/data/digits.csv";
  Part part = Part::kTraining;
  float noise = 0;
};

void BindOptions(DigitsOptions& options, lockstep::OptionTable& table);

// The dataset, which is in memory.
// Thread-safety: Read is thread-safe.
class Digits : public lockstep::Dataset {
 public:
  // Reads the file.
  //   INVALID_ARGUMENT  it has no digits, or an invalid line; or the noise is
  //                     negative
  //   and the system's errors for a file that can't be read
  static absl::StatusOr<std::shared_ptr<lockstep::Dataset>> Create(
      const lockstep::PluginContext& context, const DigitsOptions& options);

  int64_t size() const override { return static_cast<int64_t>(digits_.size()); }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext& context,
                    lockstep::SampleRow& row) override;

 private:
  Digits(std::vector<float> pixels, std::vector<int64_t> digits, float noise)
      : pixels_(std::move(pixels)), digits_(std::move(digits)), noise_(noise) {}

  const std::vector<float> pixels_;  // kPixels for each digit, from 0 to 1
  const std::vector<int64_t> digits_;
  const float noise_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"pixels", lockstep::DType::kF32, {kPixels}, 0},
      {"digit", lockstep::DType::kI64, {}, 0}};
};

// The rows of a batch that are samples. They are valid as long as the batch.
struct DigitRows {
  Eigen::Map<const Matrix> pixels;
  absl::Span<const int64_t> digits;
};
absl::StatusOr<DigitRows> RowsOf(const lockstep::Batch& batch);

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_DIGITS_H_
