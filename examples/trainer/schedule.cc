#include "lockstep/examples/trainer/schedule.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/option_table.h"

namespace trainer {
namespace {

using Kind = ScheduleOptions::Kind;

constexpr double kPi = 3.14159265358979323846;

}  // namespace

void BindOptions(ScheduleOptions& options, lockstep::OptionTable& table) {
  table.Add("kind", &options.kind, "How the rate falls after the warm-up.",
            {{"constant", Kind::kConstant},
             {"cosine", Kind::kCosine},
             {"decay", Kind::kDecay}});
  table.Add("warmup", &options.warmup, "The steps in which the rate rises.");
  table.Add("steps", &options.steps,
            "The steps, with the warm-up, after which cosine is lowest.");
  table.Add("least", &options.least,
            "The lowest rate of cosine, as a share of the learning rate.");
  table.Add("every", &options.every,
            "The number of steps between two reductions by decay.");
  table.Add("factor", &options.factor,
            "The factor by which decay multiplies the rate, from 0 to 1.");
}

absl::Status CheckSchedule(const ScheduleOptions& options) {
  if (options.warmup < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("warmup should be 0 or more, but is ", options.warmup));
  }
  if (options.kind == Kind::kCosine && options.steps <= options.warmup) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps should be more than warmup, which is ",
                     options.warmup, ", but is ", options.steps));
  }
  if (!(options.least >= 0 && options.least <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("least should be from 0 to 1, but is ", options.least));
  }
  if (options.every < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("every should be 1 or more, but is ", options.every));
  }
  if (!(options.factor >= 0 && options.factor <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("factor should be from 0 to 1, but is ", options.factor));
  }
  return absl::OkStatus();
}

double ShareOf(const ScheduleOptions& options, int64_t step) {
  if (step <= options.warmup) {
    return static_cast<double>(step) / static_cast<double>(options.warmup);
  }
  const int64_t done = step - 1 - options.warmup;  // after the warm-up
  switch (options.kind) {
    case Kind::kConstant:
      return 1;
    case Kind::kCosine: {
      const int64_t all = options.steps - options.warmup;
      if (done >= all) return options.least;
      const double way = static_cast<double>(done) / static_cast<double>(all);
      return options.least +
             (1 - options.least) * (1 + std::cos(kPi * way)) / 2;
    }
    case Kind::kDecay:
      return std::pow(options.factor, done / options.every);
  }
  return 1;
}

}  // namespace trainer
