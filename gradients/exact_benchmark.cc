// Measures what steps take whose gradients have the same bits on any number of
// ranks (GradientsOptions::shards), beside the same micro-batches without
// shards, and beside one batch of all rows of a rank. The ranks are threads.
// The ways of a step take turns. Prints the rows of a table.
//
//   exact_benchmark [ROUNDS [LAYERS [WIDTH]]]
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <chrono>  // NOLINT: SteadyTime is of it
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep {
namespace {

constexpr int64_t kShards = 24;
constexpr double kMost = 1.3;  // of the time of micro-batches

struct Settings {
  int64_t rounds = 5;
  int64_t layers = 13;
  int64_t width = 512;
};

using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// A stack of linear layers, and the gradients of its squared error.
class Model {
 public:
  Model(const Settings& settings, int64_t most_rows)
      : width_(settings.width),
        values_(settings.layers * width_ * width_),
        activations_(settings.layers + 1,
                     Matrix::Constant(most_rows, width_, 1)) {
    Random random(7);
    random.FillUniform(absl::MakeSpan(values_));
    // With these weights, activations are about as large in all layers.
    const float scale = std::sqrt(12.0F / static_cast<float>(width_));
    for (float& value : values_) value = (value - 0.5F) * scale;
    activations_[0].setRandom();
  }

  std::vector<Parameter> Parameters() {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i + 1 < activations_.size(); ++i) {
      parameters.push_back({absl::StrCat("layer ", i),
                            BufferOf(absl::MakeSpan(values_).subspan(
                                i * width_ * width_, width_ * width_))});
    }
    return parameters;
  }

  // Adds the gradients of the first rows.
  void AddGradients(int64_t rows, const Gradients& gradients) {
    const size_t layers = activations_.size() - 1;
    for (size_t i = 0; i < layers; ++i) {
      activations_[i + 1].topRows(rows).noalias() =
          activations_[i].topRows(rows) * Weights(i);
    }
    Matrix error = activations_[layers].topRows(rows).array() - 1;
    Matrix next(rows, width_);
    for (size_t i = layers; i-- > 0;) {
      float* const data = SpanOf<float>(gradients.views()[i].gradient).data();
      Eigen::Map<Matrix>(data, width_, width_).noalias() +=
          activations_[i].topRows(rows).transpose() * error;
      if (i == 0) break;
      next.noalias() = error * Weights(i).transpose();
      error.swap(next);
    }
  }

  void Update(const Gradients& gradients) {
    for (size_t i = 0; i + 1 < activations_.size(); ++i) {
      const absl::Span<const float> gradient =
          SpanOf<float>(gradients.views()[i].gradient);
      Weights(i) -=
          1e-6F * Eigen::Map<const Matrix>(gradient.data(), width_, width_);
    }
  }

 private:
  Eigen::Map<Matrix> Weights(size_t layer) {
    return {values_.data() + layer * width_ * width_, width_, width_};
  }

  const int64_t width_;
  std::vector<float> values_;
  std::vector<Matrix> activations_;  // the input, and each layer's output
};

enum Way { kExact, kMicroBatches, kWhole, kWays };

// The steps of a rank, whose shards have so many rows.
class Steps {
 public:
  static absl::StatusOr<std::unique_ptr<Steps>> Make(const Settings& settings,
                                                     Communicator& group,
                                                     int64_t rows) {
    std::unique_ptr<Steps> steps(new Steps(settings, group, rows));
    for (const Way way : {kExact, kMicroBatches, kWhole}) {
      GradientsOptions options;
      options.shards = way == kExact ? kShards : 0;
      LOCKSTEP_ASSIGN_OR_RETURN(
          steps->gradients_[way],
          Gradients::Create(group, steps->model_.Parameters(), options));
    }
    return steps;
  }

  // Does a step. Returns its seconds, until all ranks have ended it.
  absl::StatusOr<double> Do(Way way) {
    LOCKSTEP_RETURN_IF_ERROR(Wait(group_.Barrier()));
    const SteadyTime begin = SteadyNow();
    Gradients& gradients = *gradients_[way];
    const int64_t parts = way == kWhole ? 1 : kShards / group_.size();
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep(static_cast<int>(parts)));
    for (int part = 0; part < parts; ++part) {
      LOCKSTEP_RETURN_IF_ERROR(
          gradients.BeginPart(part, gradients.shards().begin + part));
      model_.AddGradients(own_rows_ / parts, gradients);
    }
    StepInput input;
    input.weight = own_rows_;
    LOCKSTEP_RETURN_IF_ERROR(gradients.Average(input).status());
    model_.Update(gradients);
    LOCKSTEP_RETURN_IF_ERROR(Wait(group_.Barrier()));
    return absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - begin));
  }

 private:
  Steps(const Settings& settings, Communicator& group, int64_t rows)
      : group_(group),
        own_rows_(kShards / group.size() * rows),
        model_(settings, own_rows_) {}

  Communicator& group_;
  const int64_t own_rows_;
  Model model_;
  std::array<std::unique_ptr<Gradients>, kWays> gradients_;
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Measures steps on the ranks of the group, and prints a row on rank 0.
absl::Status Measure(const Settings& settings, Communicator& group,
                     int64_t rows) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto steps,
                            Steps::Make(settings, group, rows));
  std::array<std::vector<double>, kWays> seconds;
  // The first round does not count.
  for (int64_t round = 0; round <= settings.rounds; ++round) {
    for (const Way way : {kExact, kMicroBatches, kWhole}) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double time, steps->Do(way));
      if (round > 0) seconds[way].push_back(time);
    }
  }
  if (group.rank() > 0) return absl::OkStatus();
  std::array<std::vector<double>, kWays> ratios;
  for (size_t i = 0; i < seconds[kExact].size(); ++i) {
    for (const Way way : {kMicroBatches, kWhole}) {
      ratios[way].push_back(seconds[kExact][i] / seconds[way][i]);
    }
  }
  const auto spread = [](const std::vector<double>& values) {
    const auto ends = std::minmax_element(values.begin(), values.end());
    return absl::StrCat(absl::SixDigits(std::round(*ends.first * 100) / 100),
                        " to ",
                        absl::SixDigits(std::round(*ends.second * 100) / 100));
  };
  const double ratio = MedianOf(ratios[kMicroBatches]);
  // The target is for shards of 32 rows.
  std::printf("| %d | %d | %.2f | %s | %s | %s | %.2f | %s | %.4g ms |\n",
              group.size(), static_cast<int>(rows), ratio,
              spread(ratios[kMicroBatches]).c_str(),
              rows == 32 ? absl::StrCat("at most ", kMost).c_str() : "",
              rows != 32 || ratio <= kMost ? "" : "**missed**",
              MedianOf(ratios[kWhole]), spread(ratios[kWhole]).c_str(),
              MedianOf(seconds[kExact]) * 1e3);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status MeasureAll(const Settings& settings) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const int64_t rows : {3, 16, 32}) {
      for (const absl::Status& status :
           LocalWorld(ranks).Run([&](World& world) -> absl::Status {
             GroupOptions options;
             options.backend = "shm";
             LOCKSTEP_ASSIGN_OR_RETURN(const auto group,
                                       world.MakeGroup(options));
             return Measure(settings, *group, rows);
           })) {
        LOCKSTEP_RETURN_IF_ERROR(status);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Settings settings;
  if (argc > 1) settings.rounds = std::atoll(argv[1]);
  if (argc > 2) settings.layers = std::atoll(argv[2]);
  if (argc > 3) settings.width = std::atoll(argv[3]);
  const absl::Status status = lockstep::MeasureAll(settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
