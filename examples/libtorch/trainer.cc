// A trainer with a model of libtorch, which is a function with a session:
//
//   trainer --config=trainer.toml
//   lockstep launch -n 2 -- trainer --config=trainer.toml
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/session/main.h"
#include "torch_gradients.h"

namespace {

struct TrainerOptions {
  int64_t epochs = 4;
  int64_t samples = 960;
  int64_t inputs = 64;
  int64_t hidden = 32;
  double learning_rate = 0.02;
  double momentum = 0.9;
};

void BindOptions(TrainerOptions& options, lockstep::OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("samples", &options.samples, "The number of samples.");
  table.Add("inputs", &options.inputs, "The numbers of a sample.");
  table.Add("hidden", &options.hidden, "The size of the hidden layers.");
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
  table.Add("momentum", &options.momentum, "The momentum of SGD.");
}

// Returns samples x, and y, a linear function of x. All numbers are exact, so
// that ddp.py has the same ones.
absl::StatusOr<std::shared_ptr<lockstep::Dataset>> MakePoints(
    const TrainerOptions& options) {
  const torch::Tensor row = torch::arange(options.samples).unsqueeze(1);
  const torch::Tensor column = torch::arange(options.inputs).unsqueeze(0);
  const torch::Tensor x =
      ((row * 31 + column) * (row + column * 7) % 1009 - 504)
          .to(torch::kFloat) /
      512;
  const torch::Tensor weights = (column * 5 % 11 - 5).to(torch::kFloat) / 32;
  const torch::Tensor y = (x * weights).sum(1);
  return lockstep::TensorDataset::Create(
      {lockstep::NamedTensor::Copy<float>(
           "x", {options.samples, options.inputs},
           {x.data_ptr<float>(), static_cast<size_t>(x.numel())}),
       lockstep::NamedTensor::Copy<float>(
           "y", {options.samples},
           {y.data_ptr<float>(), static_cast<size_t>(y.numel())})});
}

// Returns the rows of a batch that are samples. They are in its memory.
absl::StatusOr<torch::Tensor> RowsOf(const lockstep::Batch& batch,
                                     absl::string_view field) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> values,
                            batch.Values<float>(field));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                            batch.Shape(field));
  return torch::from_blob(values.data(), shape).narrow(0, 0, batch.valid());
}

torch::nn::Sequential MakeModel(const TrainerOptions& options) {
  // ddp.py makes the same first parameters, in this order.
  torch::manual_seed(7);
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(options.inputs, options.hidden));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(options.hidden, options.hidden));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(options.hidden, 1));
  return model;
}

// Returns the key of a parameter in the state of an optimizer. It is a text in
// older releases of libtorch, and a pointer in newer ones.
template <typename Key>
Key KeyOf(const torch::Tensor& parameter) {
  if constexpr (std::is_pointer_v<Key>) {
    return parameter.unsafeGetTensorImpl();
  } else {
    std::ostringstream key;
    key << parameter.unsafeGetTensorImpl();
    return key.str();
  }
}

// Adds the momentum of each parameter to the checkpoints. It is 0 at first.
absl::Status AddMomentum(lockstep::Session& session,
                         const torch::nn::Module& model,
                         torch::optim::SGD& optimizer) {
  auto& states = optimizer.state();
  using Key = typename std::decay_t<decltype(states)>::key_type;
  for (const auto& [name, parameter] : model.named_parameters().pairs()) {
    const torch::Tensor momentum = torch::zeros_like(parameter);
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(momentum);
    states[KeyOf<Key>(parameter)] = std::move(state);
    LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Buffer buffer,
                              torch_trainer::TorchBuffer(name, momentum));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("momentum/" + name, buffer));
  }
  return absl::OkStatus();
}

absl::Status Train(lockstep::Session& session, const TrainerOptions& options) {
  lockstep::PluginContext context;
  LOCKSTEP_ASSIGN_OR_RETURN(context.dataset, MakePoints(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train,
                            session.MakeLoader("train", context));
  torch::nn::Sequential model = MakeModel(options);
  LOCKSTEP_ASSIGN_OR_RETURN(auto parameters,
                            torch_trainer::TorchParameters(*model));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto averaged,
                            session.MakeGradients(parameters));
  torch_trainer::TorchGradients gradients(*averaged, *model);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(options.learning_rate)
                                  .momentum(options.momentum));
  LOCKSTEP_RETURN_IF_ERROR(AddMomentum(session, *model, optimizer));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
    for (lockstep::Step& step : session.Steps(*train, epoch)) {
      for (const lockstep::Batch& batch : step) {
        LOCKSTEP_ASSIGN_OR_RETURN(const torch::Tensor x, RowsOf(batch, "x"));
        LOCKSTEP_ASSIGN_OR_RETURN(const torch::Tensor y, RowsOf(batch, "y"));
        const torch::Tensor loss = torch::mse_loss(model->forward(x).squeeze(1),
                                                   y, at::Reduction::Sum);
        loss.backward();
        step.Add("loss", loss.item<double>());
      }
      LOCKSTEP_RETURN_IF_ERROR(gradients.Average(step));
      optimizer.step();
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return lockstep::Main(argc, argv, Train); }
