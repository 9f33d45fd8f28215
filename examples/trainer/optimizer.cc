#include "lockstep/examples/trainer/optimizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/session.h"

namespace trainer {
namespace {

using lockstep::Gradients;
using lockstep::Parameter;
using lockstep::Session;

using Array = Eigen::Map<Eigen::ArrayXf>;

Array ArrayOf(absl::Span<float> values) {
  return Array(values.data(), static_cast<Eigen::Index>(values.size()));
}

// Calls `update` for each parameter, with its values, its gradient, and its
// offset among all gradients. The optimizer uses the same offset in its own
// state.
template <typename Function>
void ForEach(const Gradients& gradients, const Function& update) {
  Eigen::Index at = 0;
  for (const Parameter& parameter : gradients.parameters()) {
    Array values = ArrayOf(parameter.values);
    update(values, ArrayOf(*parameter.gradient), at);
    at += values.size();
  }
}

// Sgd moves against the gradient, with momentum.
// Thread-safety: thread-compatible.
class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, Gradients& gradients)
      : options_(options),
        gradients_(gradients),
        velocities_(Eigen::ArrayXf::Zero(gradients.all().size())) {}

  absl::Status AddStateTo(Session& session) override {
    return session.AddState(
        "optimizer/velocities",
        lockstep::BufferOf(velocities_.data(), velocities_.size()));
  }

  void Update() override {
    ForEach(gradients_,
            [&](Array& values, const Array& gradient, Eigen::Index at) {
              auto velocity = velocities_.segment(at, values.size());
              velocity = options_.momentum * velocity + gradient;
              values -= options_.learning_rate * velocity;
            });
  }

 private:
  const OptimizerOptions options_;
  const Gradients& gradients_;
  Eigen::ArrayXf velocities_;
};

// Adam divides the step of Sgd by the size of recent gradients. In its paper,
// momentum and decay are called beta 1 and beta 2.
// Thread-safety: thread-compatible.
class Adam : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, Gradients& gradients)
      : options_(options),
        gradients_(gradients),
        means_(Eigen::ArrayXf::Zero(gradients.all().size())),
        squares_(means_) {}

  absl::Status AddStateTo(Session& session) override {
    LOCKSTEP_RETURN_IF_ERROR(session.AddState(
        "optimizer/updates", lockstep::BufferOf(&updates_, 1)));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState(
        "optimizer/means", lockstep::BufferOf(means_.data(), means_.size())));
    return session.AddState(
        "optimizer/squares",
        lockstep::BufferOf(squares_.data(), squares_.size()));
  }

  void Update() override {
    ++updates_;
    const auto count = static_cast<double>(updates_);
    // Both averages start at 0, so at first they have only these shares of
    // their size.
    const auto mean_share =
        static_cast<float>(1 - std::pow(double{options_.momentum}, count));
    const auto square_share =
        static_cast<float>(1 - std::pow(double{options_.decay}, count));
    const float rate = options_.learning_rate / mean_share;
    ForEach(
        gradients_, [&](Array& values, const Array& gradient, Eigen::Index at) {
          auto mean = means_.segment(at, values.size());
          auto square = squares_.segment(at, values.size());
          mean += (1 - options_.momentum) * (gradient - mean);
          square += (1 - options_.decay) * (gradient.square() - square);
          values -= rate * mean / ((square / square_share).sqrt() + kEpsilon);
        });
  }

 private:
  static constexpr float kEpsilon = 1e-8F;  // avoids a division by 0

  const OptimizerOptions options_;
  const Gradients& gradients_;
  int64_t updates_ = 0;
  Eigen::ArrayXf means_, squares_;
};

absl::Status CheckShare(absl::string_view name, float share) {
  if (share >= 0 && share < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " should be from 0 to below 1, but is ", share));
}

}  // namespace

void BindOptions(OptimizerOptions& options, lockstep::OptionTable& table) {
  using Kind = OptimizerOptions::Kind;
  table.Add("kind", &options.kind, "The way in which parameters move.",
            {{"sgd", Kind::kSgd}, {"adam", Kind::kAdam}});
  table.Add("learning_rate", &options.learning_rate,
            "How far a step goes; 0 or more.");
  table.Add("momentum", &options.momentum,
            "The share of the steps before in a step, from 0 to below 1.");
  table.Add("decay", &options.decay,
            "The same for the squares of gradients, which adam alone has.");
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, Gradients& gradients) {
  if (options.learning_rate < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "learning_rate should be 0 or more, but is ", options.learning_rate));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckShare("momentum", options.momentum));
  LOCKSTEP_RETURN_IF_ERROR(CheckShare("decay", options.decay));
  if (options.kind == OptimizerOptions::Kind::kSgd) {
    return std::make_unique<Sgd>(options, gradients);
  }
  return std::make_unique<Adam>(options, gradients);
}

}  // namespace trainer
