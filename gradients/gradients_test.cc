#include "lockstep/gradients/gradients.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/held.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gradients/on_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRange = absl::StatusCode::kOutOfRange;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

StepInput Weight(int64_t weight) {
  StepInput input;
  input.weight = weight;
  return input;
}

// Two parameters with gradients of Lockstep's.
struct TwoArrays {
  std::vector<float> a = std::vector<float>(3);
  std::vector<float> b = std::vector<float>(5);
  std::unique_ptr<Gradients> gradients;
  absl::Span<float> of_a, of_b;
  int64_t operations_of_make = 0;

  std::vector<Parameter> parameters() {
    return {{"a", BufferOf(a)}, {"b", BufferOf(b)}};
  }

  absl::Status Make(Communicator& group, const GradientsOptions& options = {}) {
    LOCKSTEP_ASSIGN_OR_RETURN(gradients,
                              Gradients::Create(group, parameters(), options));
    LOCKSTEP_ASSIGN_OR_RETURN(of_a, gradients->Of<float>("a"));
    LOCKSTEP_ASSIGN_OR_RETURN(of_b, gradients->Of<float>("b"));
    operations_of_make = gradients->groups()[0]->issued_operations();
    return absl::OkStatus();
  }

  absl::StatusOr<StepResult> Average(int64_t weight = 1) {
    return gradients->Average(Weight(weight));
  }

  void Fill(float value) {
    for (float& each : of_a) each = value;
    for (float& each : of_b) each = value;
  }
};

// ---- The same as one rank with all data.

// A model of one layer, y = w x + b, whose loss is a sum of squares over rows.
constexpr int64_t kInputs = 6;
constexpr int64_t kRows = 17;

template <typename T>
double From(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

template <typename T>
T Of(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

double InputOf(int64_t row, int64_t i) {
  return Random(11, row * kInputs + i).Uniform(-1, 1);
}

// Returns the gradient of the loss of a row; its last element is that of b.
template <typename T>
std::vector<double> GradientOfRow(int64_t row, const std::vector<T>& w,
                                  const std::vector<T>& b) {
  double error = From(b[0]) - 0.5 * static_cast<double>(row % 3);
  for (int64_t i = 0; i < kInputs; ++i) error += From(w[i]) * InputOf(row, i);
  std::vector<double> gradient;
  for (int64_t i = 0; i < kInputs; ++i) {
    gradient.push_back(2 * error * InputOf(row, i));
  }
  gradient.push_back(2 * error);
  return gradient;
}

// The weight of a row: 1, or a number of tokens.
int64_t WeightOf(int64_t row, bool by_tokens) {
  return by_tokens ? 1 + row * row % 7 : 1;
}

// Returns true if the rank has the row: rank r has those with row % size == r,
// and the last rank has none in every third step.
bool HasRow(int rank, int size, int64_t step, int64_t row) {
  const bool is_idle = size > 1 && step % 3 == 2;
  return row % (is_idle ? size - 1 : size) == rank;
}

// A rounded sum of n numbers differs from the sum by at most about n * eps
// times the sum of their absolute values. kRows + 6 numbers are added and
// divided here.
constexpr double kMostErrors = kRows + 8;

struct Case {
  std::string backend;
  int size;
  int64_t micro_batch;
  bool by_tokens;
};

// Trains on all rows, 3 epochs of 2 steps, and compares each step's gradients
// with those of one process in f64 with the same parameters. T is the type of
// parameters, and G that of gradients.
template <typename T, typename G>
absl::Status Train(Communicator& group, const Case& c, double eps,
                   const GradientsOptions& options = {}) {
  std::vector<T> w(kInputs), b(1);
  for (T& value : w) value = Of<T>(group.rank() == 0 ? 0.25 : 9);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Gradients> gradients,
      Gradients::Create(group,
                        {{"w", BufferOf(w), {}, DTypeOf<G>(), {}},
                         {"b", BufferOf(b), {}, DTypeOf<G>(), {}}},
                        options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto of_w, gradients->Of<G>("w"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto of_b, gradients->Of<G>("b"));
  EXPECT_EQ(From(w[0]), 0.25) << "rank 0's values are everybody's";
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t begin = step % 2 == 0 ? 0 : 9;
    const int64_t end = step % 2 == 0 ? 9 : kRows;
    std::vector<int64_t> rows;
    std::vector<double> sums(kInputs + 1), sizes(kInputs + 1);
    double total = 0;
    for (int64_t row = begin; row < end; ++row) {
      if (HasRow(group.rank(), group.size(), step, row)) rows.push_back(row);
      const std::vector<double> gradient = GradientOfRow(row, w, b);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += gradient[i];
        sizes[i] += std::abs(gradient[i]);
      }
      total += static_cast<double>(WeightOf(row, c.by_tokens));
    }
    const int64_t parts = std::max<int64_t>(
        1, (static_cast<int64_t>(rows.size()) + c.micro_batch - 1) /
               c.micro_batch);
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep(static_cast<int>(parts)));
    int64_t weight = 0;
    for (int64_t part = 0; part < parts; ++part) {
      LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(static_cast<int>(part)));
      for (int64_t i = part * c.micro_batch;
           i < std::min<int64_t>((part + 1) * c.micro_batch, rows.size());
           ++i) {
        const std::vector<double> gradient = GradientOfRow(rows[i], w, b);
        for (int64_t k = 0; k < kInputs; ++k) {
          of_w[k] = Of<G>(From(of_w[k]) + gradient[k]);
        }
        of_b[0] = Of<G>(From(of_b[0]) + gradient[kInputs]);
        weight += WeightOf(rows[i], c.by_tokens);
      }
    }
    StepInput input = Weight(weight);
    double sum_of_rows = static_cast<double>(rows.size());
    input.sums = absl::MakeSpan(&sum_of_rows, 1);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                              gradients->Average(input));
    EXPECT_EQ(static_cast<double>(result.weight), total);
    EXPECT_EQ(sum_of_rows, static_cast<double>(end - begin));
    double squares = 0;
    for (int64_t i = 0; i <= kInputs; ++i) {
      const double mean = From(i < kInputs ? of_w[i] : of_b[0]);
      EXPECT_NEAR(mean, sums[i] / total, kMostErrors * eps * sizes[i] / total)
          << "element " << i << " of step " << step;
      squares += mean * mean;
    }
    EXPECT_NEAR(result.norm, std::sqrt(squares), 1e-12 * result.norm);
    for (int64_t i = 0; i < kInputs; ++i) {
      w[i] = Of<T>(From(w[i]) - 0.1 * From(of_w[i]));
    }
    b[0] = Of<T>(From(b[0]) - 0.1 * From(of_b[0]));
  }
  return absl::OkStatus();
}

constexpr double kEps64 = 0x1p-53, kEps32 = 0x1p-24, kEps16 = 0x1p-11,
                 kEpsBrain = 0x1p-8;

void TrainAllTypes(const Case& c) {
  SCOPED_TRACE(absl::StrCat(c.backend, ", ", c.size,
                            " ranks, micro-batches of ", c.micro_batch,
                            c.by_tokens ? ", tokens" : ""));
  OnRanks(
      c.size,
      [&](Communicator& group) -> absl::Status {
        const auto named = [](const char* name) {
          GradientsOptions options;
          options.name = name;
          return options;
        };
        LOCKSTEP_RETURN_IF_ERROR(
            (Train<double, double>(group, c, kEps64, named("f64"))));
        LOCKSTEP_RETURN_IF_ERROR(
            (Train<float, float>(group, c, kEps32, named("f32"))));
        LOCKSTEP_RETURN_IF_ERROR(
            (Train<Float16, float>(group, c, kEps32, named("f16"))));
        LOCKSTEP_RETURN_IF_ERROR(
            (Train<BFloat16, float>(group, c, kEps32, named("bf16"))));
        LOCKSTEP_RETURN_IF_ERROR(
            (Train<Float16, Float16>(group, c, kEps16, named("f16 alone"))));
        LOCKSTEP_RETURN_IF_ERROR((Train<BFloat16, BFloat16>(
            group, c, kEpsBrain, named("bf16 alone"))));
        GradientsOptions brain = named("sent as bf16");
        brain.send_bf16 = true;
        return Train<float, float>(group, c, kEpsBrain, brain);
      },
      c.backend);
}

TEST(Gradients, AreThoseOfOneRankWithAllRows) {
  for (int size = 1; size <= 6; ++size) {
    for (const int64_t micro_batch : {int64_t{1}, int64_t{3}, kRows}) {
      TrainAllTypes({"auto", size, micro_batch, micro_batch == 3});
    }
  }
}

TEST(Gradients, AreThoseOfOneRankOverSharedMemory) {
  TrainAllTypes({"shm", 3, 3, true});
}

TEST(Gradients, AreThoseOfOneRankOverTcp) {
  TrainAllTypes({"tcp", 3, 3, true});
}

// Many floats with gradients of Lockstep's, of which a rank sets the first and
// the last.
absl::Status AverageMany(Communicator& group, std::vector<float>& values,
                         absl::StatusCode sharing) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto gradients,
      Gradients::Create(group, {{"values", BufferOf(values)}}));
  EXPECT_EQ(gradients->sharing().code(), sharing) << gradients->sharing();
  if (group.size() > 1) {
    const auto mebibytes = static_cast<int64_t>(values.size() >> 18);
    const bool are_small = sharing == absl::StatusCode::kOk && mebibytes > 16;
    EXPECT_EQ(gradients->collectives(), (are_small ? mebibytes : 1) + 1);
  }
  LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> of_values,
                            gradients->Of<float>("values"));
  of_values.front() = of_values.back() = 3;
  LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(2)).status());
  EXPECT_EQ(of_values.front(), 1.5F);
  EXPECT_EQ(of_values[1], 0);
  EXPECT_EQ(of_values.back(), 1.5F);
  return absl::OkStatus();
}

TEST(Gradients, LieInMemoryThatTheRanksShareIfTheyCan) {
  std::vector<std::vector<float>> values(2, std::vector<float>(18 << 18));
  const auto average = [&](absl::StatusCode sharing) {
    return [&values, sharing](Communicator& group) {
      return AverageMany(group, values[group.rank()], sharing);
    };
  };
  OnRanks(2, average(absl::StatusCode::kOk), "shm");
  OnRanks(2, average(absl::StatusCode::kUnimplemented), "tcp");
  OnRanks(1, average(absl::StatusCode::kUnimplemented), "shm");
  // The memory of a group is smaller than this limit, and gradients are larger.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit little = before;
  little.rlim_cur = 4 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  OnRanks(2, average(absl::StatusCode::kResourceExhausted), "shm");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

// A rank's files, threads and mappings do not grow while its group has one
// Gradients after the other.
TEST(Gradients, LeaveNothingBehindInTheirGroup) {
  std::vector<std::vector<float>> values(2, std::vector<float>(100'000));
  OnRanks(
      2,
      [&](Communicator& group) -> absl::Status {
        Held before;
        for (int i = 0; i < 100; ++i) {
          LOCKSTEP_RETURN_IF_ERROR(
              AverageMany(group, values[group.rank()], absl::StatusCode::kOk));
          LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
          if (i == 20) before = HeldNow();
          LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
        }
        EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
        return Wait(group.Barrier());
      },
      "shm");
}

TEST(Gradients, AMeanIsExactWhereRanksHaveDifferentWeights) {
  // Megatron-LM has had 14/3 for this 4: (1 * 2 + 3 * 14 / 3) / 4.
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(group.rank() == 0 ? 2 : 14);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                              model.Average(group.rank() == 0 ? 1 : 3));
    EXPECT_EQ(result.weight, 4);
    EXPECT_THAT(model.of_a, Each(4));
    EXPECT_THAT(model.of_b, Each(4));
    EXPECT_EQ(result.norm, std::sqrt(8 * 16.0));
    return absl::OkStatus();
  });
}

TEST(Gradients, WeightsAreExactAbove24Bits) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const StepResult result,
        model.Average((int64_t{1} << 40) + 1 + group.rank()));
    EXPECT_EQ(result.weight, (int64_t{1} << 41) + 3);
    return absl::OkStatus();
  });
}

// ---- Buckets and memory.

// Fills the gradients, averages, and returns the bits of all of them and of the
// norm.
absl::StatusOr<std::vector<double>> AverageOnce(Gradients& gradients,
                                                int rank) {
  LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
  int64_t parameter = 0;
  for (const GradientView& view : gradients.views()) {
    Random random(parameter++, rank);
    auto* const data = static_cast<float*>(view.gradient.data);
    for (int64_t i = 0; i < view.gradient.count; ++i) {
      data[i] = static_cast<float>(random.Uniform(-1, 1));
    }
  }
  StepInput input = Weight(3);
  LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, gradients.Average(input));
  std::vector<double> values = {result.norm};
  for (const GradientView& view : gradients.views()) {
    const auto* const data = static_cast<const float*>(view.gradient.data);
    values.insert(values.end(), data, data + view.gradient.count);
  }
  return values;
}

// Returns what the means and their norm are for each memory and each size of
// buckets.
std::vector<std::vector<double>> ResultsOfAllMemories(
    const std::string& backend) {
  std::vector<std::vector<double>> of_rank_0;
  const std::vector<int64_t> counts = {1, 20'000, 0, 17, 8192, 5};
  OnRanks(
      2,
      [&](Communicator& group) -> absl::Status {
        std::vector<std::vector<float>> values, own;
        for (const int64_t count : counts) {
          values.emplace_back(count);
          own.emplace_back(count);
        }
        std::vector<float> flat(1 + 20'000 + 17 + 8192 + 5);
        std::vector<std::vector<double>> results;
        for (const char* const memory :
             {"ours", "scattered", "flat", "mixed"}) {
          for (const int64_t bucket_bytes : {0, 32 << 10, 96 << 10}) {
            std::vector<Parameter> parameters;
            float* next = flat.data();
            for (size_t i = 0; i < counts.size(); ++i) {
              parameters.push_back({absl::StrCat(i), BufferOf(values[i])});
              std::optional<Buffer>& gradient = parameters.back().gradient;
              if (memory[0] == 's' || (memory[0] == 'm' && i % 2 == 1)) {
                gradient = BufferOf(own[i]);
              }
              if (memory[0] == 'f') gradient = BufferOf(next, counts[i]);
              next += counts[i];
            }
            GradientsOptions options;
            options.name = absl::StrCat(memory, " ", bucket_bytes);
            options.bucket_bytes = bucket_bytes;
            LOCKSTEP_ASSIGN_OR_RETURN(
                const auto gradients,
                Gradients::Create(group, parameters, options));
            LOCKSTEP_ASSIGN_OR_RETURN(results.emplace_back(),
                                      AverageOnce(*gradients, group.rank()));
          }
        }
        if (group.rank() == 0) of_rank_0 = results;
        return absl::OkStatus();
      },
      backend);
  return of_rank_0;
}

TEST(Gradients, HaveTheSameBitsForAllBucketsAndMemories) {
  const std::vector<std::vector<double>> results = ResultsOfAllMemories("auto");
  ASSERT_THAT(results, testing::SizeIs(12));
  EXPECT_GT(results[0][0], 0);
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_EQ(ResultsOfAllMemories("shm"), results);
}

// Only on rank 0, the trainer's gradients lie as in a bucket, or all gradients
// are Lockstep's. Parameters freeze and thaw, which needs no other rank.
void AverageWhereverGradientsLie(const std::string& backend, bool all_ours) {
  OnRanks(
      3,
      [&](Communicator& group) -> absl::Status {
        constexpr int64_t kCount = 4096;
        std::vector<std::vector<float>> values(4, std::vector<float>(kCount)),
            scattered = values;
        std::vector<float> flat(4 * kCount);
        std::vector<Parameter> parameters;
        std::vector<float*> own;
        for (int i = 0; i < 4; ++i) {
          parameters.push_back({absl::StrCat(i), BufferOf(values[i])});
          // On rank 2, the last gradient is Lockstep's.
          if (all_ours || (group.rank() == 2 && i == 3)) continue;
          own.push_back(group.rank() == 0 ? &flat[i * kCount]
                                          : scattered[i].data());
          parameters.back().gradient = BufferOf(own.back(), kCount);
        }
        LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                                  Gradients::Create(group, parameters));
        while (own.size() < 4) {
          LOCKSTEP_ASSIGN_OR_RETURN(
              const auto ours, gradients->Of<float>(absl::StrCat(own.size())));
          own.push_back(ours.data());
        }
        for (const char* const frozen : {"", "1", "3", ""}) {
          for (const char* const each : {"1", "3"}) {
            LOCKSTEP_RETURN_IF_ERROR(
                gradients->SetFrozen(each, absl::string_view(frozen) == each));
          }
          const int64_t issued = gradients->groups()[0]->issued_operations();
          LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
          EXPECT_EQ(gradients->groups()[0]->issued_operations(), issued);
          for (float* const each : own) {
            std::fill_n(each, kCount, static_cast<float>(group.rank() + 1));
          }
          LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
          for (int i = 0; i < 4; ++i) {
            const bool is_frozen = absl::StrCat(i) == frozen;
            EXPECT_EQ(own[i][kCount - 1],
                      is_frozen ? static_cast<float>(group.rank() + 1) : 2)
                << i << " where '" << frozen << "' is frozen";
          }
        }
        return absl::OkStatus();
      },
      backend);
}

TEST(Gradients, ATrainersMayLieElsewhereOnEachRank) {
  for (const char* const backend : {"auto", "shm", "tcp"}) {
    AverageWhereverGradientsLie(backend, /*all_ours=*/false);
    AverageWhereverGradientsLie(backend, /*all_ours=*/true);
  }
}

TEST(Gradients, MemoryBetweenTheTrainersGradientsStaysAsItIs) {
  // They lie as in a bucket, with 11 numbers of the trainer's own in between.
  OnRanks(2, [](Communicator& group) -> absl::Status {
    std::vector<float> a(5), b(5), flat(21);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(group, {{"a", BufferOf(a), BufferOf(flat.data(), 5)},
                                  {"b", BufferOf(b), BufferOf(&flat[16], 5)}}));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    for (float& each : flat) each = 3;
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(2)).status());
    for (size_t i = 0; i < flat.size(); ++i) {
      EXPECT_EQ(flat[i], i < 5 || i >= 16 ? 1.5F : 3) << i;
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, SumsOfF16MayPassTheLargestF16) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    std::vector<Float16> w(3), gradient(3);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(group, {{"w", BufferOf(w), BufferOf(gradient)}}));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    for (Float16& each : gradient) each = Float16(40000);
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(2)).status());
    for (const Float16 each : gradient) {
      EXPECT_EQ(static_cast<float>(each), 20000);
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, BucketsAreCounted) {
  std::vector<float> values(100'000);
  OnRanks(2, [&](Communicator& group) -> absl::Status {
    std::vector<float> mine = values;
    GradientsOptions options;
    options.bucket_bytes = 128 << 10;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(group, {{"w", BufferOf(mine)}}, options));
    EXPECT_EQ(gradients->collectives(), 4 + 1) << "4 buckets, and the weights";
    return absl::OkStatus();
  });
}

TEST(Gradients, AViewStaysInItsPlace) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    for (const bool frozen : {true, false}) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("a", frozen));
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.Fill(3);
      LOCKSTEP_RETURN_IF_ERROR(model.Average(2).status());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto again,
                                model.gradients->Of<float>("b"));
      EXPECT_EQ(again.data(), model.of_b.data());
      EXPECT_EQ(model.gradients->views()[1].gradient.data, model.of_b.data());
      EXPECT_THAT(model.of_b, Each(1.5F));
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, OfChecksTheNameAndTheType) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    EXPECT_THAT(model.gradients->Of<float>("c"),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("'c'")));
    EXPECT_THAT(model.gradients->Of<double>("a"),
                StatusIs(kInvalid, AllOf(HasSubstr("f32"), HasSubstr("f64"))));
    return absl::OkStatus();
  });
}

// ---- The ranks' parameters.

TEST(Gradients, TheFirstParameterThatDiffersIsToldOnAllRanks) {
  const auto statuses = StatusesOf(2, [](Communicator& group) {
    std::vector<float> w(6), b(4);
    std::vector<Parameter> parameters = {{"w", BufferOf(w)},
                                         {"b", BufferOf(b)}};
    parameters[1].shape = {2, 2};
    if (group.rank() == 1) parameters[1].shape = {4, 1};
    return Gradients::Create(group, parameters).status();
  });
  EXPECT_THAT(
      statuses,
      Each(StatusIs(kPrecondition, AllOf(HasSubstr("'b'"), HasSubstr("2 x 2"),
                                         HasSubstr("4 x 1")))));
}

TEST(Gradients, ValuesThatDifferAreToldIfTheyAreNotShared) {
  for (const bool differ : {false, true}) {
    const auto statuses = StatusesOf(3, [&](Communicator& group) {
      TwoArrays model;
      GradientsOptions options;
      options.share_values = false;
      if (differ && group.rank() == 2) model.b[4] = 1;
      return model.Make(group, options);
    });
    if (differ) {
      EXPECT_THAT(statuses,
                  Each(StatusIs(kPrecondition,
                                AllOf(HasSubstr("'b'"), HasSubstr("2")))));
    } else {
      EXPECT_THAT(statuses, Each(IsOk()));
    }
  }
}

TEST(Gradients, ValuesAreComparedEveryFewSteps) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.compare_every = 2;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    for (int step = 1; step <= 4; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      const absl::Status averaged = model.Average().status();
      EXPECT_EQ(averaged.ok(), step < 4) << averaged;
      LOCKSTEP_RETURN_IF_ERROR(averaged);
      if (step == 2 && group.rank() == 1) model.a[1] = 1;  // a bug
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses,
              Each(StatusIs(kPrecondition, AllOf(HasSubstr("'a'"),
                                                 HasSubstr("before step 4")))));
}

TEST(Gradients, BadParametersAreRefused) {
  std::vector<float> w(6), other(6);
  std::vector<int> integers(6);
  Parameter good = {"w", BufferOf(w)};
  const auto with = [&](const std::function<void(Parameter&)>& change) {
    Parameter changed = good;
    change(changed);
    return std::vector<Parameter>{changed};
  };
  const std::vector<std::pair<std::vector<Parameter>, const char*>> bad = {
      {{good, {"w", BufferOf(other)}}, "two parameters have the name 'w'"},
      {with([](Parameter& p) { p.name = ""; }), "needs a name"},
      {with([](Parameter& p) { p.values.data = nullptr; }), "no memory"},
      {with([](Parameter& p) { p.values.count = -1; }), "no memory"},
      {with([&](Parameter& p) { p.values = BufferOf(integers); }), "i32"},
      {with([](Parameter& p) { p.gradient_dtype = DType::kI8; }), "i8"},
      {with([](Parameter& p) { p.values.count = int64_t{1} << 60; }),
       "no memory"},
      {with([](Parameter& p) { p.gradient = BufferOf<float>(nullptr, 6); }),
       "no memory for its gradient"},
      {with([](Parameter& p) {
         p.shape = {2, 2};
       }),
       "2 x 2"},
      {with([](Parameter& p) {
         p.shape = {-2, -3};
       }),
       "-2 x -3"},
      {with([](Parameter& p) {
         p.shape = {int64_t{1} << 40, int64_t{1} << 40};
       }),
       "no memory has"},
      {with([&](Parameter& p) { p.gradient = BufferOf(other.data(), 5); }),
       "memory for 5"},
      {with([&](Parameter& p) {
         p.gradient = BufferOf(other);
         p.gradient_dtype = DType::kF64;
       }),
       "f64"},
      {with([&](Parameter& p) { p.gradient = BufferOf(w); }),
       "the same memory"},
      {{good, {"v", BufferOf(w.data() + 5, 1)}}, "shares memory with"},
  };
  OnRanks(1, [&](Communicator& group) -> absl::Status {
    for (const auto& [parameters, text] : bad) {
      EXPECT_THAT(Gradients::Create(group, parameters),
                  StatusIs(kInvalid, HasSubstr(text)));
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, BadOptionsAreRefused) {
  const auto with = [](const std::function<void(GradientsOptions&)>& change) {
    GradientsOptions options;
    change(options);
    return options;
  };
  const std::vector<std::pair<GradientsOptions, const char*>> bad = {
      {with([](auto& o) { o.name = ""; }), "name"},
      {with([](auto& o) { o.bucket_bytes = 1000; }), "multiples of 32768"},
      {with([](auto& o) { o.bucket_bytes = -32768; }), "-32768"},
      {with([](auto& o) { o.compare_every = -1; }), "compare_every"},
      {with([](auto& o) { o.backward_deadline = absl::ZeroDuration(); }),
       "backward_deadline"},
      {with([](auto& o) {
         o.loss_scale = LossScale{0, 2, 2000, 0.5};
       }),
       "initial=0"},
      {with([](auto& o) {
         o.loss_scale = LossScale{8, 0.5, 2000, 0.5};
       }),
       "growth=0.5"},
      {with([](auto& o) {
         o.loss_scale = LossScale{8, 2, 0, 0.5};
       }),
       "growth_steps=0"},
      {with([](auto& o) {
         o.loss_scale = LossScale{8, 2, 2000, 1};
       }),
       "backoff=1"},
  };
  OnRanks(1, [&](Communicator& group) -> absl::Status {
    for (const auto& [options, text] : bad) {
      TwoArrays model;
      EXPECT_THAT(model.Make(group, options),
                  StatusIs(kInvalid, HasSubstr(text)));
    }
    return absl::OkStatus();
  });
}

// ---- Steps and parts.

TEST(Gradients, ATrainersOwnCollectivesDoNotComeBetween) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    std::vector<float> mine(4, 1);
    const Buffer buffer = BufferOf(mine);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    Work work;
    if (group.rank() == 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          work, group.AllReduce(buffer, buffer, ReduceOp::kSum));
    }
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    if (group.rank() == 1) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          work, group.AllReduce(buffer, buffer, ReduceOp::kSum));
    }
    return work.Wait();
  });
}

TEST(Gradients, StepsAndPartsComeInTheirOrder) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    Gradients& gradients = *model.gradients;
    EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr("outside")));
    EXPECT_THAT(gradients.BeginPart(0), StatusIs(kPrecondition));
    EXPECT_THAT(gradients.BeginStep(0), StatusIs(kInvalid));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep(3));
    EXPECT_THAT(gradients.BeginPart(1),
                StatusIs(kPrecondition, HasSubstr("part 0 is next")));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(0));
    EXPECT_THAT(gradients.BeginPart(0), StatusIs(kPrecondition));
    EXPECT_THAT(gradients.BeginPart(2),
                StatusIs(kPrecondition, HasSubstr("part 1 is next")));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(1));
    EXPECT_THAT(model.Average(),
                StatusIs(kPrecondition, HasSubstr("after part 1")));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(2));
    EXPECT_THAT(gradients.BeginPart(3),
                StatusIs(kPrecondition, HasSubstr("the last one")));
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_THAT(model.Average(),
                StatusIs(kPrecondition, HasSubstr("once in a step")));
    return absl::OkStatus();
  });
}

TEST(Gradients, PartsAddUp) {
  // InfiniTrain has reduced at the first part, and DDP trainers forget no_sync.
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    for (int step = 0; step < 2; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep(4));
      for (int part = 0; part < 4; ++part) {
        LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginPart(part));
        for (float& each : model.of_a) each += static_cast<float>(part + 1);
      }
      LOCKSTEP_RETURN_IF_ERROR(model.Average(5).status());
      EXPECT_THAT(model.of_a, Each(2));
      EXPECT_THAT(model.of_b, Each(0));
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, ThatAreNotAveragedAreNotLostInSilence) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.of_b[2] = 1;
    EXPECT_THAT(
        model.gradients->BeginStep(),
        StatusIs(kPrecondition, AllOf(HasSubstr("'b'"), HasSubstr("Discard"))));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
    EXPECT_THAT(model.of_b, Each(0));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    return absl::OkStatus();
  });
}

TEST(Gradients, AStepThatIsMarkedAndNotAveragedIsNotLostInSilence) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.overwrite = true;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.gradients->MarkReady(1);
    EXPECT_THAT(model.gradients->EndStep(),
                StatusIs(kPrecondition, HasSubstr("'b'")));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->EndStep());
    return model.gradients->SetFrozen("a", true);
  });
}

TEST(Gradients, AfterAFailedAverageNothingIsClipped) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    for (const float value : {8.0F, INFINITY}) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.of_a[0] = value;
      EXPECT_EQ(model.Average().ok(), value == 8);
    }
    EXPECT_THAT(model.gradients->ClipByNorm(1), StatusIs(kPrecondition));
    EXPECT_THAT(model.of_a, Each(0));
    EXPECT_EQ(model.gradients->last().norm, 0);
    EXPECT_THAT(model.gradients->last().not_finite, HasSubstr("'a'"));
    EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr("outside")));
    return absl::OkStatus();
  });
}

TEST(Gradients, NamesOfAnyLengthAreCompared) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    StepInput input = Weight(1);
    for (const bool differ : {false, true}) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      input.step = std::string(300, 's');
      input.sum_names = std::string(300, 'n');
      if (differ && group.rank() == 1) input.sum_names.back() = 'm';
      absl::Status averaged = model.gradients->Average(input).status();
      if (differ) return averaged;
      LOCKSTEP_RETURN_IF_ERROR(averaged);
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, Each(StatusIs(kPrecondition, HasSubstr("differ"))));
}

TEST(Gradients, ASecondOneOfTheSameNameHasANumber) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays first, second;
    LOCKSTEP_RETURN_IF_ERROR(first.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(second.Make(group));
    EXPECT_EQ(first.gradients->groups()[0]->name(), "gradients");
    EXPECT_EQ(second.gradients->groups()[0]->name(), "gradients 2");
    return absl::OkStatus();
  });
}

TEST(Gradients, AWeightThatIsNoneIsRefusedAndTheGroupGoesOn) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    for (const int64_t weight : {int64_t{-2}, int64_t{1} << 53}) {
      EXPECT_THAT(model.Average(weight),
                  StatusIs(kInvalid, HasSubstr(absl::StrCat(weight))));
    }
    EXPECT_THAT(model.gradients->Average(StepInput()),
                StatusIs(kInvalid, HasSubstr("is not set")));
    EXPECT_THAT(model.of_a, Each(1)) << "nothing has happened";
    LOCKSTEP_RETURN_IF_ERROR(model.Average(2).status());
    EXPECT_THAT(model.of_a, Each(0.5F));
    return absl::OkStatus();
  });
}

TEST(Gradients, AStepWithoutWeightIsSkipped) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, model.Average(0));
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.norm, 0);
    EXPECT_THAT(model.of_a, Each(0));
    return absl::OkStatus();
  });
}

TEST(Gradients, StopsAndEndsAreThoseOfAllRanks) {
  OnRanks(3, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    for (int step = 0; step < 4; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      StepInput input = Weight(1);
      input.stop = group.rank() < step;
      input.has_more = group.rank() > step;
      std::vector<double> sums = {1e-3, static_cast<double>(group.rank())};
      input.sums = absl::MakeSpan(sums);
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                                model.gradients->Average(input));
      EXPECT_EQ(result.stops, std::min(step, 3));
      EXPECT_EQ(result.any_more, step < 2);
      EXPECT_THAT(sums, ElementsAre(1e-3 + 1e-3 + 1e-3, 3));
    }
    return absl::OkStatus();
  });
}

// ---- Ranks with different numbers of steps.

// Ranks have different numbers of batches, of which each has rank + 1 rows.
// Their gradient is the number of the batch for each row.
constexpr int64_t kBatches[][3] = {{0, 1, 5}, {2, 0, 0}, {0, 0, 0}, {3, 3, 3}};

// Returns the mean gradient of a step over the rows of the ranks that have any.
float MeanOfUnevenStep(const int64_t (&batches)[3], int64_t step) {
  for (const int64_t each : batches) {
    if (step < each) return static_cast<float>(step + 1);
  }
  return 0;
}

TEST(Gradients, RanksMayHaveDifferentNumbersOfSteps) {
  for (const bool knows_its_end : {true, false}) {
    OnRanks(3, [&](Communicator& group) -> absl::Status {
      TwoArrays own;
      LOCKSTEP_RETURN_IF_ERROR(own.Make(group));
      int64_t operations = own.operations_of_make;
      for (const auto& batches : kBatches) {
        const int64_t mine = batches[group.rank()];
        const int64_t most = *std::max_element(batches, batches + 3);
        int64_t step = 0;
        double sum = 0;
        StepInput input;
        input.sums = absl::MakeSpan(&sum, 1);
        const auto update = [&](const StepResult& result) {
          // The step at the end is there where the ranks do not know it.
          EXPECT_EQ(result.skipped, step >= most);
          EXPECT_EQ(own.of_a[0], MeanOfUnevenStep(batches, step));
          EXPECT_EQ(sum, static_cast<double>(result.weight));
          own.a[0] += own.of_a[0];
          // The means of both arrays take one collective, and the rest another,
          // which comes alone where no rank has rows.
          operations += result.skipped ? 1 : 2;
          ++step;
          return absl::OkStatus();
        };
        while (step < mine) {
          LOCKSTEP_RETURN_IF_ERROR(own.gradients->BeginStep());
          const int64_t rows = group.rank() + 1;
          own.Fill(static_cast<float>((step + 1) * rows));
          sum = static_cast<double>(rows);
          input.weight = rows;
          input.has_more = !knows_its_end || step + 1 < mine;
          LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                                    own.gradients->Average(input));
          LOCKSTEP_RETURN_IF_ERROR(update(result));
        }
        LOCKSTEP_RETURN_IF_ERROR(
            own.gradients->AverageUntilAllAreDone(update, input));
        const bool has_one_more = !knows_its_end || most == 0;
        EXPECT_EQ(step, most + (has_one_more ? 1 : 0));
      }
      EXPECT_EQ(own.a[0], 15 + 3 + 6);  // on all ranks
      EXPECT_EQ(own.gradients->groups()[0]->issued_operations(), operations);
      return absl::OkStatus();
    });
  }
}

TEST(Gradients, AStopEndsUnevenLoopsOnAllRanks) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays own;
    LOCKSTEP_RETURN_IF_ERROR(own.Make(group));
    int64_t steps = 0;
    const auto update = [&steps](const StepResult&) {
      ++steps;
      return absl::OkStatus();
    };
    // Rank 0 has no data. Rank 1 asks to stop in its third step of many.
    for (int step = 0; group.rank() == 1 && step < 3; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(own.gradients->BeginStep());
      own.Fill(1);
      StepInput input = Weight(1);
      input.stop = step == 2;
      LOCKSTEP_RETURN_IF_ERROR(own.gradients->Average(input).status());
      ++steps;
    }
    LOCKSTEP_RETURN_IF_ERROR(own.gradients->AverageUntilAllAreDone(update));
    EXPECT_EQ(steps, 3);
    return absl::OkStatus();
  });
}

// The last step of a loop may be one whose gradients are not finite.
TEST(Gradients, AnUnevenLoopMayEndWithWhatIsNotFinite) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays own;
    LOCKSTEP_RETURN_IF_ERROR(own.Make(group));
    for (int epoch = 0; epoch < 2; ++epoch) {
      int64_t steps = 0;
      for (; steps < group.rank() * 2; ++steps) {
        LOCKSTEP_RETURN_IF_ERROR(own.gradients->BeginStep());
        own.Fill(steps == 1 ? std::numeric_limits<float>::infinity() : 2.0F);
        StepInput input = Weight(1);
        input.has_more = steps == 0;
        const absl::Status averaged = own.gradients->Average(input).status();
        EXPECT_THAT(averaged,
                    StatusIs(steps == 1 ? kRange : absl::StatusCode::kOk));
      }
      // The trainer goes on after such a step, and so does a rank that is done.
      absl::Status done;
      do {
        done =
            own.gradients->AverageUntilAllAreDone([&](const StepResult& step) {
              ++steps;
              EXPECT_FALSE(step.skipped);
              EXPECT_EQ(own.of_a[0], 2);
              return absl::OkStatus();
            });
        if (!done.ok()) {
          EXPECT_THAT(done, StatusIs(kRange));
          ++steps;
        }
      } while (!done.ok());
      EXPECT_EQ(steps, 2);
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, TheUpdateOfARankThatIsDoneMayFail) {
  const std::vector<absl::Status> ended =
      StatusesOf(2, [](Communicator& group) -> absl::Status {
        TwoArrays own;
        LOCKSTEP_RETURN_IF_ERROR(own.Make(group));
        const auto update = [](const StepResult&) {
          return absl::DataLossError("no more");
        };
        absl::Status status = own.gradients->AverageUntilAllAreDone(update);
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
        StepInput named;
        named.step = "step 3";
        EXPECT_THAT(own.gradients->AverageUntilAllAreDone(update, named),
                    StatusIs(kInvalid, HasSubstr("leave StepInput::step")));
        EXPECT_THAT(own.gradients->AverageUntilAllAreDone(nullptr),
                    StatusIs(kInvalid, HasSubstr("no function `update`")));
        return status;
      });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kDataLoss)));
}

// A rank that is done answers the operations of its gradients alone.
TEST(Gradients, AnOwnCollectiveThatNeedsARankThatIsDoneNamesIt) {
  const std::vector<absl::Status> ended =
      StatusesOf(2, [](Communicator& group) -> absl::Status {
        TwoArrays own;
        LOCKSTEP_RETURN_IF_ERROR(own.Make(group));
        if (group.rank() == 1) {
          CallOptions call;
          call.name = "accuracy";
          call.deadline = absl::Milliseconds(200);
          absl::Status late = Wait(group.Barrier(call));
          own.gradients->Abort(late);
          return late;
        }
        return own.gradients->AverageUntilAllAreDone(
            [](const StepResult&) { return absl::OkStatus(); });
      });
  EXPECT_THAT(ended[1],
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("accuracy"), HasSubstr("rank 0"))));
  EXPECT_FALSE(ended[0].ok());
}

TEST(Gradients, SumsMayBeAddedUpWithoutGradients) {
  OnRanks(3, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(3);
    StepInput input = Weight(2);
    double sum = group.rank();
    input.sums = absl::MakeSpan(&sum, 1);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                              model.gradients->AddUp(input));
    EXPECT_EQ(result.weight, 6);
    EXPECT_EQ(sum, 3);
    EXPECT_THAT(model.of_a, Each(3)) << "the step is still open";
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_THAT(model.of_a, Each(3));
    input.weight = -2;
    EXPECT_THAT(model.gradients->AddUp(input), StatusIs(kInvalid));
    return absl::OkStatus();
  });
}

TEST(Gradients, ARankThatDoesNotAverageIsTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    if (group.rank() == 0) return model.Average().status();
    StepInput input = Weight(2);
    input.step = "without Average";
    return model.gradients->AddUp(input).status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(kPrecondition,
                                      AllOf(HasSubstr("name 'step 1'"),
                                            HasSubstr("without Average")))));
}

TEST(Gradients, RanksInDifferentStepsAreTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    if (group.rank() == 1) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    }
    return model.Average().status();
  });
  EXPECT_THAT(statuses,
              Each(StatusIs(kPrecondition,
                            AllOf(HasSubstr("step 1"), HasSubstr("step 2")))));
}

// ---- Marks.

// Marks from two threads, as a parallel backward pass does.
void MarkBoth(Gradients& gradients) {
  std::thread other([&] { gradients.MarkReady(0); });
  gradients.MarkReady(1);
  other.join();
}

TEST(Gradients, MarksThatAreWrongAreErrorsOfAverage) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    Gradients& gradients = *model.gradients;
    const std::vector<std::pair<std::function<void()>, const char*>> wrong = {
        {[&] { gradients.MarkReady(1); }, "twice"},
        {[&] { gradients.MarkReady(2); }, "MarkReady(2)"},
        {[&] { gradients.MarkReady(-1); }, "MarkReady(-1)"},
    };
    for (const auto& [mark, text] : wrong) {
      LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
      MarkBoth(gradients);
      mark();
      for (int again = 0; again < 2; ++again) {
        EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr(text)));
      }
      LOCKSTEP_RETURN_IF_ERROR(gradients.Discard());
    }
    // A step that is thrown away takes its mistakes with it.
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
    gradients.MarkReady(2);
    LOCKSTEP_RETURN_IF_ERROR(gradients.Discard());
    gradients.MarkReady(0);
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
    EXPECT_THAT(
        model.Average(),
        StatusIs(kPrecondition, AllOf(HasSubstr("'a'"), HasSubstr("outside"))));
    LOCKSTEP_RETURN_IF_ERROR(gradients.Discard());
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    return absl::OkStatus();
  });
}

TEST(Gradients, AParameterIsMarkedInEachPart) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep(3));
    for (int part = 0; part < 3; ++part) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginPart(part));
      MarkBoth(*model.gradients);
    }
    return model.Average().status();
  });
}

TEST(Gradients, AnUnusedParameterIsAnErrorWithItsName) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.gradients->MarkReady(0);
    EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr("'b'")));
    model.gradients->MarkReady(1);
    return model.Average().status();
  });
}

TEST(Gradients, AnUnusedParameterMayCountAsZeroOrBeSkipped) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    using Unused = GradientsOptions::Unused;
    for (const Unused unused : {Unused::kZero, Unused::kSkip}) {
      TwoArrays model;
      GradientsOptions options;
      options.unused = unused;
      options.name = unused == Unused::kZero ? "zero" : "skip";
      LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
      for (int step = 0; step < 2; ++step) {
        // Rank 1 uses b in the first step, and nobody in the second one.
        LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
        for (float& each : model.of_a) each = 2;
        model.gradients->MarkReady(0);
        const bool uses = step == 0 && group.rank() == 1;
        if (uses) {
          for (float& each : model.of_b) each = 6;
          model.gradients->MarkReady(1);
        }
        LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
        EXPECT_THAT(model.of_a, Each(2));
        EXPECT_THAT(model.of_b, Each(step == 0 ? 3 : 0));
        EXPECT_TRUE(model.gradients->views()[0].used);
        EXPECT_EQ(model.gradients->views()[1].used,
                  unused == Unused::kZero || step == 0);
      }
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, APartMayLeaveOutWhatAnotherOneUses) {
  // No gradient of an earlier part is lost because a later one is without it.
  OnRanks(1, [](Communicator& group) -> absl::Status {
    for (const bool overwrite : {false, true}) {
      TwoArrays model;
      GradientsOptions options;
      options.overwrite = overwrite;
      options.name = overwrite ? "overwrites" : "adds";
      LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
      model.Fill(overwrite ? 99 : 0);  // is stale
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep(2));
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginPart(0));
      for (float& each : model.of_a) each = 1;
      model.gradients->MarkReady(0);
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginPart(1));
      EXPECT_THAT(model.of_b, Each(0));
      for (float& each : model.of_b) each += 2;
      model.gradients->MarkReady(1);
      LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
      EXPECT_THAT(model.of_a, Each(1));
      EXPECT_THAT(model.of_b, Each(2));
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, ATrainerThatOverwritesHasNoStaleGradients) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.overwrite = true;
    options.unused = GradientsOptions::Unused::kZero;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    for (int step = 0; step < 3; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      if (step == 0) {
        model.Fill(4);
        MarkBoth(*model.gradients);
      } else if (step == 1 && group.rank() == 0) {
        for (float& each : model.of_a) each = 8;
        model.gradients->MarkReady(0);
      }
      LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
      EXPECT_THAT(model.of_a, Each(step < 2 ? 4 : 0));
      EXPECT_THAT(model.of_b, Each(step < 1 ? 4 : 0));
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, ATrainerThatOverwritesMustMarkItsRows) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.overwrite = true;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(4);
    EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr("'a'")));
    return model.Average(0).status();  // a rank without rows marks none
  });
}

TEST(Gradients, FrozenParametersAreLeftAlone) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("a", true));
    EXPECT_THAT(model.gradients->SetFrozen("c", true),
                StatusIs(absl::StatusCode::kNotFound));
    for (int step = 0; step < 2; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      EXPECT_THAT(model.gradients->SetFrozen("b", true),
                  StatusIs(kPrecondition));
      EXPECT_TRUE(model.gradients->AreZero());
      std::fill(model.of_a.begin(), model.of_a.end(), 1.0F);
      EXPECT_EQ(model.gradients->AreZero(), step == 0);
      model.Fill(static_cast<float>(group.rank()));
      if (step == 0) model.gradients->MarkReady(1);
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, model.Average());
      EXPECT_THAT(model.of_b, Each(0.5F));
      if (step == 0) {
        EXPECT_THAT(model.of_a, Each(group.rank()));
        EXPECT_EQ(result.norm, std::sqrt(5 * 0.25));
        EXPECT_TRUE(model.gradients->views()[0].frozen);
        LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("a", false));
      } else {
        EXPECT_THAT(model.of_a, Each(0.5F));
      }
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, ARankThatMarksNothingDoesNotMakeParametersUsed) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.unused = GradientsOptions::Unused::kSkip;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    for (const bool marks : {true, false}) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      if (marks && group.rank() == 0) model.gradients->MarkReady(0);
      LOCKSTEP_RETURN_IF_ERROR(
          model.Average(group.rank() == 0 ? 1 : 0).status());
      EXPECT_TRUE(model.gradients->views()[0].used);
      EXPECT_EQ(model.gradients->views()[1].used, !marks);
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, RanksThatFreezeDifferentParametersAreTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    std::vector<float> a(4), b(4);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(group, {{"a", BufferOf(a)}, {"b", BufferOf(b)}}));
    LOCKSTEP_RETURN_IF_ERROR(
        gradients->SetFrozen(group.rank() == 0 ? "a" : "b", true));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    StepInput input = Weight(1);
    return gradients->Average(input).status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(kPrecondition, HasSubstr("frozen"))));
}

// ---- Norms, clipping, loss scales.

TEST(Gradients, ClipByNormIsPyTorchs) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.of_a[0] = 3;
    model.of_b[0] = -4;
    EXPECT_THAT(model.gradients->ClipByNorm(1),
                StatusIs(kPrecondition, HasSubstr("after an Average")));
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, model.Average());
    EXPECT_EQ(result.norm, 5);
    for (const double most : {0.0, -1.0, std::nan("")}) {
      EXPECT_THAT(model.gradients->ClipByNorm(most), StatusIs(kInvalid));
    }
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->ClipByNorm(6));
    EXPECT_EQ(model.of_a[0], 3);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->ClipByNorm(2));
    const auto factor = static_cast<float>(2 / (5 + 1e-6));
    EXPECT_EQ(model.of_a[0], 3 * factor);
    EXPECT_EQ(model.of_b[0], -4 * factor);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->ClipByNorm(2));
    EXPECT_NEAR(model.of_a[0], 3 * factor, 1e-6) << "they are clipped already";
    return absl::OkStatus();
  });
}

// The goldens are those of clip_grad_norm_ of PyTorch 2.15.
TEST(Gradients, ClipByNormHasPyTorchsGoldens) {
  const std::vector<std::pair<double, std::vector<float>>> clipped = {
      {1, {0.182574153F, 0.365148306F, 0.547722459F, 0.730296612F}},
      {4, {0.730296612F, 1.46059322F, 2.19088984F, 2.92118645F}},
      {100, {1, 2, 3, 4}}};
  OnRanks(1, [&](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    for (const auto& [most, expected] : clipped) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      for (size_t i = 0; i < 4; ++i) {
        model.of_b[i] = static_cast<float>(i + 1);
      }
      LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
      EXPECT_NEAR(model.gradients->last().norm, 5.47722578, 1e-6);
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->ClipByNorm(most));
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_FLOAT_EQ(model.of_b[i], expected[i]) << most;
      }
    }
    return absl::OkStatus();
  });
}

TEST(Gradients, ThatAreNotFiniteAreAnErrorOnAllRanks) {
  for (const bool find_culprit : {false, true}) {
    OnRanks(3, [&](Communicator& group) -> absl::Status {
      TwoArrays model;
      GradientsOptions options;
      options.find_culprit = find_culprit;
      LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      if (group.rank() == 2) model.of_b[1] = std::nanf("");
      EXPECT_THAT(
          model.Average(),
          StatusIs(kRange, AllOf(HasSubstr("parameter 'b'"),
                                 HasSubstr(find_culprit ? "on rank 2"
                                                        : "find_culprit"))));
      // The group goes on.
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.Fill(3);
      LOCKSTEP_RETURN_IF_ERROR(model.Average(3).status());
      EXPECT_THAT(model.of_b, Each(1));
      return absl::OkStatus();
    });
  }
}

TEST(Gradients, ASumThatIsTooLargeHasNoCulprit) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.find_culprit = true;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.of_a[0] = std::numeric_limits<float>::max();
    EXPECT_THAT(model.Average(),
                StatusIs(kRange, HasSubstr("the sum over ranks")));
    return absl::OkStatus();
  });
}

TEST(Gradients, ALossScaleSkipsAndGrowsOnAllRanks) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.loss_scale = LossScale{1024, 2, 3, 0.25};
    options.find_culprit = true;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    std::vector<double> scales;
    for (int step = 0; step < 8; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      const auto scale = static_cast<float>(model.gradients->loss_scale());
      model.Fill(3 * scale);
      if (step == 2 && group.rank() == 1) model.of_a[2] = INFINITY;
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, model.Average(2));
      EXPECT_EQ(result.skipped, step == 2);
      EXPECT_EQ(result.not_finite.empty(), step != 2);
      if (step == 2) {
        EXPECT_THAT(result.not_finite,
                    AllOf(HasSubstr("'a'"), HasSubstr("rank 1")));
      }
      EXPECT_THAT(model.of_a, Each(step == 2 ? 0 : 1.5F));
      scales.push_back(model.gradients->loss_scale());
    }
    EXPECT_THAT(scales, ElementsAre(1024, 1024, 256, 256, 256, 512, 512, 512));
    return absl::OkStatus();
  });
}

TEST(Gradients, LossScalesThatDifferAreTold) {
  for (const bool restored : {false, true}) {
    const auto statuses =
        StatusesOf(2, [&](Communicator& group) -> absl::Status {
          TwoArrays model;
          GradientsOptions options;
          options.loss_scale = LossScale();
          if (!restored && group.rank() == 1) options.loss_scale->initial = 8;
          LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
          if (group.rank() == 1) {
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->RestoreLossScale({8, 0}));
          }
          LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
          return model.Average().status();
        });
    EXPECT_THAT(statuses,
                Each(StatusIs(kPrecondition,
                              AllOf(ContainsRegex("loss.scale"),
                                    HasSubstr("65536"), HasSubstr("8")))));
  }
}

TEST(Gradients, ALossScaleStaysAFloat) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.loss_scale = LossScale{0x1p120, 256, 1, 0.5};
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_EQ(model.gradients->loss_scale(), 0x1p120);
    return absl::OkStatus();
  });
}

TEST(Gradients, ALossScaleGoesOnAfterARestart) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model, plain;
    GradientsOptions options;
    options.loss_scale = LossScale{1024, 2, 3, 0.5};
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->RestoreLossScale({64, 2}));
    EXPECT_EQ(model.gradients->loss_scale(), 64);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_EQ(model.gradients->loss_scale(), 128);
    EXPECT_EQ(model.gradients->loss_scale_state().good_steps, 0);
    for (const LossScaleState& state : std::vector<LossScaleState>{
             {0, 0}, {-1, 0}, {std::nan(""), 0}, {INFINITY, 0}, {1, -1}}) {
      EXPECT_THAT(model.gradients->RestoreLossScale(state), StatusIs(kInvalid));
    }
    options = {};
    options.name = "plain";
    LOCKSTEP_RETURN_IF_ERROR(plain.Make(group, options));
    EXPECT_THAT(plain.gradients->RestoreLossScale({64, 2}),
                StatusIs(kPrecondition));
    EXPECT_EQ(plain.gradients->loss_scale(), 1);
    return absl::OkStatus();
  });
}

TEST(Gradients, ALossThatIsNeverFiniteIsAnErrorInTheEnd) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    GradientsOptions options;
    options.loss_scale = LossScale{1, 2, 3, 0x1p-20};
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, options));
    std::vector<absl::StatusCode> codes;
    for (int step = 0; step < 3; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.of_a[0] = INFINITY;
      codes.push_back(model.Average().status().code());
    }
    EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kOk,
                                   kRange));
    return absl::OkStatus();
  });
}

// ---- Failures.

TEST(Gradients, ARankThatAbortsIsToldToTheOthers) {
  const auto statuses = StatusesOf(3, [](Communicator& group) -> absl::Status {
    TwoArrays model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    if (group.rank() == 1) {
      model.gradients->Abort(absl::DataLossError("the disk is gone"));
    }
    return model.Average().status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kAborted,
                                      HasSubstr("the disk is gone"))));
}

TEST(Gradients, MemoryThatIsNotThereIsAStatus) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    // Nothing reads the values of a model that has no memory for gradients.
    float value = 0;
    EXPECT_THAT(
        Gradients::Create(group, {{"w", BufferOf(&value, int64_t{1} << 50)}}),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 HasSubstr(absl::StrCat(int64_t{4} << 50, " bytes"))));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep
