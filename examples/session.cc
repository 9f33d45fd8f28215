// A trainer of sixty lines that uses a Session: a linear model of points. It
// trains on any number of ranks, tests after each epoch, and continues from its
// checkpoints.
//
//   session --config=examples/session.toml
//   lockstep launch -n 3 -- session --config=examples/session.toml
//       --set trainer.epochs=12 --set checkpoint.path=/tmp/points
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/examples/small_model.h"
#include "lockstep/session/main.h"

namespace {

using examples::kInputs;
using lockstep::Batch;
using lockstep::BufferOf;
using lockstep::Dataset;
using lockstep::NoOptions;
using lockstep::OptionTable;
using lockstep::PluginContext;
using lockstep::PluginRegistry;
using lockstep::Session;
using lockstep::Step;
using lockstep::Sums;

// ---- The model: y = weights * x + bias.

struct Model {
  std::vector<float> weights = std::vector<float>(kInputs);
  std::vector<float> bias = {0};
  std::vector<float> weights_gradient = std::vector<float>(kInputs);
  std::vector<float> bias_gradient = {0};

  // Returns the sum of the squared errors over the valid rows. Also adds their
  // gradients if `adds_gradients` is true.
  absl::StatusOr<double> Run(const Batch& batch, bool adds_gradients) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
    double loss = 0;
    for (int64_t row = 0; row < batch.valid(); ++row) {
      const float* const inputs = &x[row * kInputs];
      const float error = std::inner_product(weights.begin(), weights.end(),
                                             inputs, bias[0] - y[row]);
      loss += error * error;
      if (!adds_gradients) continue;
      for (int64_t i = 0; i < kInputs; ++i) {
        weights_gradient[i] += error * inputs[i];
      }
      bias_gradient[0] += error;
    }
    return loss;
  }

  void Update(float learning_rate) {
    for (int64_t i = 0; i < kInputs; ++i) {
      weights[i] -= learning_rate * weights_gradient[i];
    }
    bias[0] -= learning_rate * bias_gradient[0];
  }
};

// ---- The training.

struct TrainerOptions {
  int64_t epochs = 6;
  float learning_rate = 0.1;
};

void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakePoints(const PluginContext&,
                                                    const NoOptions&) {
  return std::make_shared<examples::Points>();
}

absl::Status RegisterParts(PluginRegistry& registry) {
  return registry.Add<Dataset>("points", "Points and a function of them.",
                               MakePoints);
}

absl::Status Train(Session& session, const TrainerOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test, session.MakeLoader("test"));
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto gradients,
      session.MakeGradients(
          {{"weights", BufferOf(model.weights),
            BufferOf(model.weights_gradient)},
           {"bias", BufferOf(model.bias), BufferOf(model.bias_gradient)}}));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
    for (Step& step : session.Steps(*train, epoch)) {
      for (const Batch& batch : step) {
        LOCKSTEP_ASSIGN_OR_RETURN(const double loss, model.Run(batch, true));
        step.Add("loss", loss);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      model.Update(options.learning_rate);
    }
    const auto evaluate = [&](const Batch& batch, Sums& sums) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double loss, model.Run(batch, false));
      sums.Add("loss", loss);
      return absl::OkStatus();
    };
    LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, evaluate).status());
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, Train, RegisterParts);
}
