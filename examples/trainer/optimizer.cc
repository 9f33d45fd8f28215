#include "lockstep/examples/trainer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/session/session.h"

namespace trainer {
namespace {

using lockstep::Gradients;
using lockstep::GradientView;
using lockstep::Session;

using Array = Eigen::Map<Eigen::ArrayXf>;

Array ArrayOf(const lockstep::Buffer& values) {
  return Array(lockstep::SpanOf<float>(values).data(), values.count);
}

// Returns the number of all gradients.
Eigen::Index SizeOf(const Gradients& gradients) {
  Eigen::Index size = 0;
  for (const GradientView& view : gradients.views()) {
    size += view.gradient.count;
  }
  return size;
}

// The settings of one parameter.
struct Group {
  float rate = 1;
  float weight_decay = 0;
};

// Returns the value of the longest key that is the end of the name.
float ValueOf(const std::map<std::string, float>& by_ending,
              absl::string_view name, float otherwise) {
  size_t longest = 0;
  float value = otherwise;
  for (const auto& [ending, own] : by_ending) {
    if (!absl::EndsWith(name, ending) || ending.size() < longest) continue;
    longest = ending.size();
    value = own;
  }
  return value;
}

std::vector<Group> GroupsOf(const OptimizerOptions& options,
                            const Gradients& gradients) {
  std::vector<Group> groups;
  for (const GradientView& view : gradients.views()) {
    Group group;
    group.rate = ValueOf(options.rates, view.name, 1);
    group.weight_decay =
        ValueOf(options.weight_decays, view.name, options.weight_decay);
    groups.push_back(group);
  }
  return groups;
}

// Calls `update` for each parameter, with its values, its gradient, its offset
// among all gradients, and its settings. The optimizer uses the same offset in
// its own state.
template <typename Function>
void ForEach(const Gradients& gradients, const std::vector<Group>& groups,
             const Function& update) {
  Eigen::Index at = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const GradientView& view = gradients.views()[i];
    Array values = ArrayOf(view.values);
    update(values, ArrayOf(view.gradient), at, groups[i]);
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
        groups_(GroupsOf(options, gradients)),
        velocities_(Eigen::ArrayXf::Zero(SizeOf(gradients))) {}

  absl::Status AddStateTo(Session& session) override {
    return session.AddState(
        "optimizer/velocities",
        lockstep::BufferOf(velocities_.data(), velocities_.size()));
  }

  void Update(double share) override {
    const float rate = options_.learning_rate * static_cast<float>(share);
    ForEach(gradients_, groups_,
            [&](Array& values, const Array& gradient, Eigen::Index at,
                const Group& group) {
              auto velocity = velocities_.segment(at, values.size());
              velocity = options_.momentum * velocity + gradient;
              values -= rate * group.rate * velocity;
            });
  }

 private:
  const OptimizerOptions options_;
  const Gradients& gradients_;
  const std::vector<Group> groups_;
  Eigen::ArrayXf velocities_;
};

// Adam divides the step of Sgd by the size of recent gradients. In its paper,
// momentum and decay are called beta 1 and beta 2. With a weight decay, it is
// AdamW.
// Thread-safety: thread-compatible.
class Adam : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, Gradients& gradients)
      : options_(options),
        gradients_(gradients),
        groups_(GroupsOf(options, gradients)),
        means_(Eigen::ArrayXf::Zero(SizeOf(gradients))),
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

  void Update(double share) override {
    ++updates_;
    const auto count = static_cast<double>(updates_);
    // Both averages start at 0, so at first they have only these shares of
    // their size.
    const auto mean_share =
        static_cast<float>(1 - std::pow(double{options_.momentum}, count));
    const auto square_share =
        static_cast<float>(1 - std::pow(double{options_.decay}, count));
    ForEach(gradients_, groups_,
            [&](Array& values, const Array& gradient, Eigen::Index at,
                const Group& group) {
              const float rate = options_.learning_rate *
                                 static_cast<float>(share) * group.rate;
              auto mean = means_.segment(at, values.size());
              auto square = squares_.segment(at, values.size());
              mean += (1 - options_.momentum) * (gradient - mean);
              square += (1 - options_.decay) * (gradient.square() - square);
              if (group.weight_decay > 0) {
                values *= 1 - rate * group.weight_decay;
              }
              values -= rate / mean_share * mean /
                        ((square / square_share).sqrt() + kEpsilon);
            });
  }

 private:
  static constexpr float kEpsilon = 1e-8F;  // avoids a division by 0

  const OptimizerOptions options_;
  const Gradients& gradients_;
  const std::vector<Group> groups_;
  int64_t updates_ = 0;
  Eigen::ArrayXf means_, squares_;
};

absl::Status CheckNotNegative(absl::string_view name, float value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " should be 0 or more, but is ", value));
}

absl::Status CheckGroups(absl::string_view name,
                         const std::map<std::string, float>& by_ending,
                         const Gradients& gradients) {
  for (const auto& [ending, value] : by_ending) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckNotNegative(absl::StrCat(name, ".", ending), value));
    if (std::none_of(gradients.views().begin(), gradients.views().end(),
                     [&end = ending](const GradientView& view) {
                       return absl::EndsWith(view.name, end);
                     })) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has the key '", ending,
                       "', but no parameter's name ends with it"));
    }
  }
  return absl::OkStatus();
}

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
  table.Add("weight_decay", &options.weight_decay,
            "How fast adam moves parameters towards 0; 0 or more.");
  table.Add("rates", &options.rates,
            "Factors of the learning rate, by ends of parameters' names.");
  table.Add("weight_decays", &options.weight_decays,
            "Other weight decays, by ends of parameters' names.");
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, Gradients& gradients) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNotNegative("learning_rate", options.learning_rate));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNotNegative("weight_decay", options.weight_decay));
  LOCKSTEP_RETURN_IF_ERROR(CheckGroups("rates", options.rates, gradients));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckGroups("weight_decays", options.weight_decays, gradients));
  LOCKSTEP_RETURN_IF_ERROR(CheckShare("momentum", options.momentum));
  LOCKSTEP_RETURN_IF_ERROR(CheckShare("decay", options.decay));
  if (options.kind == OptimizerOptions::Kind::kSgd) {
    if (options.weight_decay > 0 || !options.weight_decays.empty()) {
      return absl::InvalidArgumentError(
          "sgd has no weight decay: leave out weight_decay and weight_decays");
    }
    return std::make_unique<Sgd>(options, gradients);
  }
  return std::make_unique<Adam>(options, gradients);
}

}  // namespace trainer
