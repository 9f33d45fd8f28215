// Trains the model of testdata/generate/torch_training.py with Gradients, and
// compares the losses with those of PyTorch: of one process, and of
// DistributedDataParallel over Gloo. A loss may differ by a share of 1e-5.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep {
namespace {

using ::testing::Each;

constexpr double kMostShare = 1e-5;

// All of these are those of torch_training.py.
constexpr int64_t kRows = 29, kBatch = 6, kEpochs = 3;
constexpr int64_t kSteps = (kRows + kBatch - 1) / kBatch;  // of an epoch
constexpr int64_t kInputs = 5, kHidden = 4, kOutputs = 3;
constexpr float kRate = 0.5;
constexpr double kClip = 0.25;

float Number(int64_t i) {
  return static_cast<float>((37 * i + 11) % 127 - 63) / 64;
}

// ---- The golden file.

struct Golden {
  std::vector<double> losses, parameters;
};

// By "cross_entropy 2", for instance: the training and the number of ranks.
std::map<std::string, Golden> ReadGoldens() {
  std::map<std::string, Golden> goldens;
  std::ifstream file("testdata/training/torch_losses.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string training, ranks, what;
    words >> training >> ranks >> what;
    Golden& golden = goldens[absl::StrCat(training, " ", ranks)];
    std::vector<double>& numbers =
        what == "losses" ? golden.losses : golden.parameters;
    for (double number; words >> number;) numbers.push_back(number);
  }
  return goldens;
}

// ---- The model: linear, tanh, linear. Arrays are those of torch.nn.Linear.

struct Arrays {
  absl::Span<float> w1, b1, w2, b2;
};

// Adds the gradients of the loss of one row, times `factor`. Returns the loss.
double AddGradients(const std::string& training, int64_t row, float factor,
                    const Arrays& values, const Arrays& gradients) {
  std::array<float, kHidden> hidden;
  for (int64_t h = 0; h < kHidden; ++h) {
    float sum = values.b1[h];
    for (int64_t i = 0; i < kInputs; ++i) {
      sum += values.w1[h * kInputs + i] * Number(row * kInputs + i);
    }
    hidden[h] = std::tanh(sum);
  }
  std::array<float, kOutputs> outputs, errors;
  for (int64_t o = 0; o < kOutputs; ++o) {
    outputs[o] = values.b2[o];
    for (int64_t h = 0; h < kHidden; ++h) {
      outputs[o] += values.w2[o * kHidden + h] * hidden[h];
    }
  }
  double loss = 0;
  if (training == "squared_error") {
    for (int64_t o = 0; o < kOutputs; ++o) {
      const float error = outputs[o] - Number(row * kOutputs + o);
      loss += error * error;
      errors[o] = 2 * error;
    }
  } else {
    const int64_t right = row * row % kOutputs;
    double sum = 0;
    for (const float output : outputs) sum += std::exp(output);
    loss = std::log(sum) - outputs[right];
    for (int64_t o = 0; o < kOutputs; ++o) {
      errors[o] = static_cast<float>(std::exp(outputs[o]) / sum) -
                  (o == right ? 1.0F : 0.0F);
    }
  }
  for (float& error : errors) error *= factor;
  for (int64_t o = 0; o < kOutputs; ++o) {
    gradients.b2[o] += errors[o];
    for (int64_t h = 0; h < kHidden; ++h) {
      gradients.w2[o * kHidden + h] += errors[o] * hidden[h];
    }
  }
  for (int64_t h = 0; h < kHidden; ++h) {
    float error = 0;
    for (int64_t o = 0; o < kOutputs; ++o) {
      error += errors[o] * values.w2[o * kHidden + h];
    }
    error *= 1 - hidden[h] * hidden[h];
    gradients.b1[h] += error;
    for (int64_t i = 0; i < kInputs; ++i) {
      gradients.w1[h * kInputs + i] += error * Number(row * kInputs + i);
    }
  }
  return loss;
}

// ---- The training.

struct Case {
  std::string training;
  int64_t micro_batch;  // the rows of a part
  bool idle;            // the last rank has no rows in every third step
};

// Returns this rank's rows of a step. Rank r has the rows r, r + ranks, ...
std::vector<int64_t> RowsOf(const Case& c, const Communicator& group,
                            int64_t step) {
  const bool is_idle = c.idle && group.size() > 1 && step % 3 == 2;
  const int64_t ranks = group.size() - (is_idle ? 1 : 0);
  const int64_t begin = step % kSteps * kBatch;
  const int64_t end = std::min(begin + kBatch, kRows);
  std::vector<int64_t> rows;
  if (group.rank() >= ranks) return rows;
  for (int64_t row = begin + group.rank(); row < end; row += ranks) {
    rows.push_back(row);
  }
  return rows;
}

// Does a step, but for the update. Returns the mean loss of all ranks' rows.
absl::StatusOr<double> AverageStep(const Case& c,
                                   const std::vector<int64_t>& rows,
                                   const Arrays& values, Gradients& gradients) {
  Arrays of;
  LOCKSTEP_ASSIGN_OR_RETURN(of.w1, gradients.Of<float>("w1"));
  LOCKSTEP_ASSIGN_OR_RETURN(of.b1, gradients.Of<float>("b1"));
  LOCKSTEP_ASSIGN_OR_RETURN(of.w2, gradients.Of<float>("w2"));
  LOCKSTEP_ASSIGN_OR_RETURN(of.b2, gradients.Of<float>("b2"));
  const auto size = static_cast<int64_t>(rows.size());
  const int64_t parts =
      std::max<int64_t>(1, (size + c.micro_batch - 1) / c.micro_batch);
  // The mean over ranks of the ranks' means has the weight 1 on each rank.
  const bool by_rank = c.training == "by_rank";
  const float factor = by_rank ? 1.0F / static_cast<float>(size) : 1.0F;
  std::array<double, 2> sums = {0, static_cast<double>(size)};
  LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep(static_cast<int>(parts)));
  for (int64_t part = 0; part < parts; ++part) {
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(static_cast<int>(part)));
    const int64_t end = std::min((part + 1) * c.micro_batch, size);
    for (int64_t i = part * c.micro_batch; i < end; ++i) {
      sums[0] += AddGradients(c.training, rows[i], factor, values, of);
    }
  }
  StepInput input;
  input.weight = by_rank ? 1 : size;
  input.sums = absl::MakeSpan(sums);
  LOCKSTEP_RETURN_IF_ERROR(gradients.Average(input).status());
  return sums[0] / sums[1];
}

absl::Status Train(Communicator& group, const Case& c, const Golden& golden) {
  std::vector<float> w1(kHidden * kInputs), b1(kHidden);
  std::vector<float> w2(kOutputs * kHidden), b2(kOutputs);
  int64_t number = 1000;
  for (std::vector<float>* const values : {&w1, &b1, &w2, &b2}) {
    for (float& value : *values) value = Number(number++);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Gradients> gradients,
                            Gradients::Create(group, {{"w1", BufferOf(w1)},
                                                      {"b1", BufferOf(b1)},
                                                      {"w2", BufferOf(w2)},
                                                      {"b2", BufferOf(b2)}}));
  const Arrays values = {absl::MakeSpan(w1), absl::MakeSpan(b1),
                         absl::MakeSpan(w2), absl::MakeSpan(b2)};
  const auto steps = static_cast<int64_t>(golden.losses.size());
  EXPECT_EQ(steps, kEpochs * kSteps);
  for (int64_t step = 0; step < steps; ++step) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const double loss,
        AverageStep(c, RowsOf(c, group, step), values, *gradients));
    EXPECT_NEAR(loss, golden.losses[step], kMostShare * golden.losses[step])
        << "step " << step;
    if (c.training == "clipped") {
      LOCKSTEP_RETURN_IF_ERROR(gradients->ClipByNorm(kClip));
    }
    for (const GradientView& view : gradients->views()) {
      const auto of = SpanOf<float>(view.gradient);
      const auto parameter = SpanOf<float>(view.values);
      for (size_t i = 0; i < of.size(); ++i) parameter[i] -= kRate * of[i];
    }
  }
  size_t i = 0;
  for (const GradientView& view : gradients->views()) {
    for (const float value : SpanOf<float>(view.values)) {
      EXPECT_NEAR(value, golden.parameters.at(i), kMostShare)
          << view.name << ", number " << i << " of all";
      ++i;
    }
  }
  EXPECT_EQ(i, golden.parameters.size());
  return absl::OkStatus();
}

void TrainOn(int ranks, const Case& c, const Golden& golden) {
  SCOPED_TRACE(absl::StrCat(c.training, ", ", ranks,
                            " ranks, micro-batches of ", c.micro_batch,
                            c.idle ? ", idle" : ""));
  EXPECT_THAT(LocalWorld(ranks).Run([&](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    return Train(*group, c, golden);
  }),
              Each(IsOk()));
}

TEST(TorchTraining, LossesAreThoseOfOneProcessAndOfDdp) {
  const auto goldens = ReadGoldens();
  for (const char* const training :
       {"cross_entropy", "squared_error", "clipped"}) {
    for (const int ranks : {1, 2, 3}) {
      for (const int64_t micro_batch : {int64_t{1}, int64_t{3}, kBatch}) {
        TrainOn(ranks, {training, micro_batch, false},
                goldens.at(absl::StrCat(training, " ", ranks)));
      }
    }
  }
}

TEST(TorchTraining, LossesAreTheSameWhereARankHasNoRows) {
  const auto goldens = ReadGoldens();
  for (const int ranks : {2, 3}) {
    TrainOn(ranks, {"cross_entropy", 3, true}, goldens.at("cross_entropy 1"));
  }
}

// DistributedDataParallel takes the mean over the ranks, whatever their rows.
// If each rank's loss is a mean, too, the result is not that of one process.
TEST(TorchTraining, AMeanOfTheRanksMeansIsThatOfDdp) {
  const auto goldens = ReadGoldens();
  for (const int ranks : {1, 2, 3}) {
    const Golden& golden = goldens.at(absl::StrCat("by_rank ", ranks));
    for (const int64_t micro_batch : {int64_t{1}, kBatch}) {
      TrainOn(ranks, {"by_rank", micro_batch, false}, golden);
    }
    const double alone = goldens.at("cross_entropy 1").losses.back();
    if (ranks == 1) continue;
    EXPECT_GT(std::abs(golden.losses.back() - alone), 100 * kMostShare * alone);
  }
}

}  // namespace
}  // namespace lockstep
