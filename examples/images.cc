// Learns to tell warm images from cold ones, by a weight for each pixel. The
// images are files in a folder for each class:
//
//   make_images.sh data
//   images --config=examples/images.toml
//       --set 'loader.train.dataset.dataset.path="data"'
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

// Logistic regression on the pixels of an image.
class Model {
 public:
  // Returns how likely the image is of class 1.
  double Predict(absl::Span<const float> pixels) const {
    double sum = bias_;
    for (size_t i = 0; i < weights_.size(); ++i) sum += weights_[i] * pixels[i];
    return 1 / (1 + std::exp(-sum));
  }

  void Learn(absl::Span<const float> pixels, int64_t label) {
    weights_.resize(pixels.size());
    const double error = Predict(pixels) - static_cast<double>(label);
    constexpr double kRate = 1e-4;
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] -= kRate * error * pixels[i];
    }
    bias_ -= kRate * error;
  }

 private:
  std::vector<double> weights_;
  double bias_ = 0;
};

absl::Status Run(int argc, char** argv) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Config config,
                            lockstep::ConfigOfCommandLine(argc, argv));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::Job job,
      lockstep::ReadJob(config, lockstep::OptionTable(), {"train"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            job.MakeLoader(registry, "train", {}));
  const lockstep::FieldSpec& images = loader->dataset().fields()[0];
  std::printf("%s of %d samples\n", images.ToString().c_str(),
              static_cast<int>(loader->dataset().size()));
  Model model;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    double right = 0, count = 0;
    for (auto& batch : loader->Epoch(epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto labels,
                                batch->Values<int64_t>("label"));
      for (int64_t row = 0; row < batch->valid(); ++row) {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto pixels,
                                  batch->Row<float>(images.name, row));
        right += (model.Predict(pixels) > 0.5) == (labels[row] == 1) ? 1 : 0;
        ++count;
        model.Learn(pixels, labels[row]);
      }
    }
    std::printf("epoch %d: %.1f %% right\n", static_cast<int>(epoch),
                100 * right / count);
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
