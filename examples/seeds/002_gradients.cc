// Note 002: how a few samples are split between ranks, a model that is trained
// on them, skipped steps of a rank, and a wait for one of two reductions.
//
//   lockstep launch -n 2 -- 002_gradients --config=002_gradients.toml
//       --set trainer.experiment=ddp
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/examples/trainer/optimizer.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/session/main.h"

namespace {

using lockstep::BufferOf;
using lockstep::Gradients;
using lockstep::Session;
using lockstep::Step;

enum class Experiment { kSplit, kDdp, kAsync };

struct TrainerOptions {
  Experiment experiment = Experiment::kSplit;
  int64_t skipping_rank = -1;
  bool join = false;
  absl::Duration late;
};

void BindOptions(TrainerOptions& options, lockstep::OptionTable& table) {
  table.Add("experiment", &options.experiment, "The part of the note.",
            {{"split", Experiment::kSplit},
             {"ddp", Experiment::kDdp},
             {"async", Experiment::kAsync}});
  table.Add("skipping_rank", &options.skipping_rank,
            "The rank that skips its steps; -1: none.");
  table.Add("join", &options.join,
            "If true, that rank joins in the steps of the others.");
  table.Add("late", &options.late, "How late rank 0 is.");
}

struct NumbersOptions {
  int64_t size = 0;
};

void BindOptions(NumbersOptions& options, lockstep::OptionTable& table) {
  table.Add("size", &options.size, "How many numbers there are.");
}

// A dataset in which sample i is i.
absl::StatusOr<std::shared_ptr<lockstep::Dataset>> MakeNumbers(
    const lockstep::PluginContext&, const NumbersOptions& options) {
  if (options.size < 0) return absl::InvalidArgumentError("size is below 0");
  std::vector<int64_t> numbers(options.size);

  std::iota(numbers.begin(), numbers.end(), 0);
  return lockstep::TensorDataset::Create({lockstep::NamedTensor::Own<int64_t>(
      "number", {options.size}, std::move(numbers))});
}

absl::Status RegisterParts(lockstep::PluginRegistry& registry) {
  return registry.Add<lockstep::Dataset>("numbers", "Sample i is i.",
                                         MakeNumbers);
}

// Prints the samples of each rank in each step, including padding.
absl::Status Split(Session& session, lockstep::Loader& train) {
  for (Step& step : session.Steps(train, /*epoch=*/0)) {
    for (const lockstep::Batch& batch : step) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto numbers,
                                batch.Values<int64_t>("number"));
      absl::PrintF("(rank:%d, i:%d, tensor([%s]))\n", session.rank(),
                   step.number(), absl::StrJoin(numbers, ", "));
    }
  }
  return absl::OkStatus();
}

// The model norm(u - x) with the parameter x.
struct Model {
  std::vector<float> x = {0}, gradient = {0}, total = {0};

  absl::Status AddGradients(const lockstep::Batch& batch) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto u, batch.Values<int64_t>("number"));
    for (int64_t row = 0; row < batch.valid(); ++row) {
      const float away = static_cast<float>(u[row]) - x[0];
      total[0] += std::abs(away);
      gradient[0] += away == 0 ? 0 : away > 0 ? -1 : 1;
    }
    return absl::OkStatus();
  }
};

// Trains with a rank that skips its steps, and joins in those of the others.
absl::Status TrainJoined(lockstep::Loader& train, bool is_skipping,
                         Model& model, Gradients& gradients,
                         trainer::Optimizer& optimizer) {
  for (absl::StatusOr<lockstep::Batch>& batch : train.Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    if (is_skipping) continue;  // here PyTorch hangs without Join
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
    LOCKSTEP_RETURN_IF_ERROR(model.AddGradients(*batch));
    lockstep::StepInput input;
    input.weight = batch->valid();
    LOCKSTEP_RETURN_IF_ERROR(gradients.Average(input).status());
    optimizer.Update(/*share=*/1);
  }
  return gradients.AverageUntilAllAreDone(
      [&](const lockstep::StepResult& step) {
        if (!step.skipped) optimizer.Update(/*share=*/1);
        return absl::OkStatus();
      });
}

// Trains the model by Adam.
absl::Status Ddp(Session& session, lockstep::Loader& train,
                 const TrainerOptions& options) {
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto gradients,
      session.MakeGradients(
          {{"x", BufferOf(model.x), BufferOf(model.gradient)}}));
  trainer::OptimizerOptions adam;
  adam.learning_rate = 0.1F;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto optimizer,
                            trainer::MakeOptimizer(adam, *gradients));
  const bool is_skipping = session.rank() == options.skipping_rank;
  if (options.join) {
    LOCKSTEP_RETURN_IF_ERROR(
        TrainJoined(train, is_skipping, model, *gradients, *optimizer));
  } else {
    for (Step& step : session.Steps(train, /*epoch=*/0)) {
      if (is_skipping) continue;  // here PyTorch hangs
      for (const lockstep::Batch& batch : step) {
        LOCKSTEP_RETURN_IF_ERROR(model.AddGradients(batch));
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      optimizer->Update(/*share=*/1);
    }
  }
  // The note's reduce_tensor computes the sum divided by the number of ranks.
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(session.group().AllReduce(
      BufferOf(model.total), BufferOf(model.total), lockstep::ReduceOp::kAvg)));
  absl::PrintF("tensor([%.4f])\ntensor(%.4f)\n", model.x[0], model.total[0]);
  return absl::OkStatus();
}

// Shows that it is enough to wait for the later of two reductions.

absl::Status Async(Session& session, absl::Duration late) {
  float inner = 1, outer = 1;
  const auto add_up = [&session](float& value) {
    const lockstep::Buffer buffer = BufferOf(&value, 1);
    return session.group().AllReduce(buffer, buffer, lockstep::ReduceOp::kSum);
  };
  if (session.rank() == 0) absl::SleepFor(late);
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Work op_outer, add_up(outer));
  const absl::StatusOr<lockstep::Work> op_inner = add_up(inner);
  if (absl::Status ended = lockstep::Wait(op_inner); !ended.ok()) {
    // The reduction must end before its memory on this stack is gone.
    session.group().Abort(ended);
    op_outer.Wait().IgnoreError();
    return ended;
  }

  absl::PrintF("(%d, %.1f)\n(%d, %.1f)\n", session.rank(), inner,
               session.rank(), outer);
  return op_outer.status();
}

absl::Status Train(Session& session, const TrainerOptions& options) {
  if (options.experiment == Experiment::kAsync) {
    return Async(session, options.late);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
  if (options.experiment == Experiment::kSplit) return Split(session, *train);
  return Ddp(session, *train, options);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, Train, RegisterParts);
}
