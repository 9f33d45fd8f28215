// Lockstep averages the gradients of a torch::nn::Module. Copy this file.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto parameters, TorchParameters(*model));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto averaged,
//                             session.MakeGradients(parameters));
//   TorchGradients gradients(*averaged, *model);
//   ...
//     for (const lockstep::Batch& batch : step) {
//       ...               // The loss is a sum over rows, and no mean.
//       loss.backward();  // Call it once for each batch, without zero_grad.
//     }
//     LOCKSTEP_RETURN_IF_ERROR(gradients.Average(step));
//     optimizer.step();
#ifndef TORCH_GRADIENTS_H_
#define TORCH_GRADIENTS_H_

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/session/main.h"

namespace torch_trainer {

// Returns the memory of a tensor. INVALID_ARGUMENT if Lockstep can't use it.
inline absl::StatusOr<lockstep::Buffer> TorchBuffer(
    const std::string& name, const torch::Tensor& tensor) {
  const std::pair<torch::ScalarType, lockstep::DType> accepted[] = {
      {torch::kFloat64, lockstep::DType::kF64},
      {torch::kFloat32, lockstep::DType::kF32},
      {torch::kFloat16, lockstep::DType::kF16},
      {torch::kBFloat16, lockstep::DType::kBF16}};
  for (const auto& [type, dtype] : accepted) {
    if (tensor.scalar_type() == type && tensor.device().is_cpu() &&
        tensor.layout() == torch::kStrided && tensor.is_contiguous()) {
      return lockstep::Buffer{tensor.data_ptr(), tensor.numel(), dtype, {}};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is of type ", torch::toString(tensor.scalar_type()), " on ",
      tensor.device().str(),
      "; accepted are contiguous tensors on the CPU, of ",
      "type Double, Float, Half and BFloat16"));
}

// Returns the parameters that require a gradient, for Session::MakeGradients or
// Gradients::Create. If `keeps_grad` is true, gradients stay in the memory of
// each .grad, which costs a copy in each step.
inline absl::StatusOr<std::vector<lockstep::Parameter>> TorchParameters(
    const torch::nn::Module& model, bool keeps_grad = false) {
  std::vector<lockstep::Parameter> parameters;
  std::set<const void*> seen;
  for (auto& [name, tensor] : model.named_parameters().pairs()) {
    if (!tensor.requires_grad()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;  // tied
    lockstep::Parameter& added = parameters.emplace_back();
    added.name = name;
    LOCKSTEP_ASSIGN_OR_RETURN(added.values, TorchBuffer(name, tensor));
    added.gradient_dtype = added.values.dtype;  // libtorch demands it
    added.shape = tensor.sizes().vec();
    if (!keeps_grad) continue;
    torch::Tensor& grad = tensor.mutable_grad();
    if (!grad.defined()) grad = torch::zeros_like(tensor);
    LOCKSTEP_ASSIGN_OR_RETURN(added.gradient,
                              TorchBuffer(name + ".grad", grad));
  }
  return parameters;
}

// Backward passes add to the gradients where Lockstep has them, and mark the
// parameters that they have reached, while this object lives.
// Requires: `gradients` are of TorchParameters(model), and live longer. They do
// not have GradientsOptions::overwrite, since backward passes add.
class TorchGradients {
 public:
  TorchGradients(lockstep::Gradients& gradients, const torch::nn::Module& model)
      : gradients_(gradients) {
    const auto named = model.named_parameters();
    for (const lockstep::GradientView& view : gradients.views()) {
      torch::Tensor tensor = named[view.name];
      if (!IsAt(view.gradient, tensor.grad())) {
        tensor.mutable_grad() = torch::from_blob(
            view.gradient.data, tensor.sizes(), tensor.options());
      }
      auto node = torch::autograd::impl::grad_accumulator(tensor);
      const auto number = static_cast<int64_t>(hooked_.size());
      const uintptr_t hook = node->add_post_hook(
          std::make_unique<torch::autograd::utils::LambdaPostHook>(
              [&gradients, number](const auto& outputs, const auto&) {
                gradients.MarkReady(number);
                return outputs;
              }));
      hooked_.push_back({tensor, std::move(node), hook});
    }
  }
  TorchGradients(const TorchGradients&) = delete;
  // Takes away the hooks, and each .grad.
  ~TorchGradients() {
    for (Hooked& each : hooked_) {
      each.node->del_post_hook(each.hook);
      each.tensor.mutable_grad().reset();
    }
  }

  // Does what Step::Average does. Returns the errors of Check, too.
  absl::Status Average(lockstep::Step& step) {
    LOCKSTEP_RETURN_IF_ERROR(Check());
    return step.Average(gradients_);
  }

  // Returns FAILED_PRECONDITION if a parameter or its .grad is in other memory
  // than at first. Without a session, call it before Gradients::Average.
  absl::Status Check() const {
    for (size_t i = 0; i < hooked_.size(); ++i) {
      const lockstep::GradientView& view = gradients_.views()[i];
      const bool is_moved = !IsAt(view.values, hooked_[i].tensor);
      if (!is_moved && IsAt(view.gradient, hooked_[i].tensor.grad())) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          is_moved ? "'" : "the .grad of '", view.name,
          "' is in other memory than at first: leave out zero_grad(), since a "
          "step begins with gradients of 0, and convert the model before"));
    }
    return absl::OkStatus();
  }

 private:
  struct Hooked {
    torch::Tensor tensor;
    decltype(torch::autograd::impl::grad_accumulator(torch::Tensor())) node;
    uintptr_t hook;
  };

  static bool IsAt(const lockstep::Buffer& memory, const torch::Tensor& at) {
    return at.defined() && (at.numel() == 0 || at.data_ptr() == memory.data);
  }

  lockstep::Gradients& gradients_;
  std::vector<Hooked> hooked_;
};

}  // namespace torch_trainer

#endif  // TORCH_GRADIENTS_H_
