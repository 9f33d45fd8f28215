// These tests overlap gradients on devices with the backward pass: buckets
// travel before the weight of the step is known, and are divided afterwards.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: a stream that is held up
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/on_devices.h"

namespace lockstep {
namespace {

using internal_gradients::FakeCuda;
using internal_gradients::Gate;
using internal_gradients::OnDevice;
using internal_gradients::OnRanks;
using internal_gradients::Weight;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 32768;  // of a gradient, and of a bucket

// Three parameters, each in a bucket of its own.
struct Model {
  std::unique_ptr<Gradients> gradients;

  int64_t issued() const { return gradients->groups()[0]->issued_operations(); }
};

absl::StatusOr<Model> MakeModel(const OnDevice& here, bool is_trainers,
                                DType dtype = DType::kF32) {
  std::vector<Parameter> parameters;
  for (const char* const name : {"a", "b", "c"}) {
    Parameter parameter = {name, here.Allocate(kBytes / SizeOf(dtype), dtype)};
    if (is_trainers)
      parameter.gradient = here.Allocate(kBytes / SizeOf(dtype), dtype);
    if (!is_trainers) parameter.gradient_dtype = dtype;
    parameters.push_back(std::move(parameter));
  }
  GradientsOptions options = here.options();
  options.overlap = GradientsOptions::Overlap::kOn;
  options.bucket_bytes = kBytes;
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(
      model.gradients, Gradients::Create(here.group(), parameters, options));
  return model;
}

// Queues what sets a gradient, as a kernel would, and marks it.
template <typename T>
void Compute(const OnDevice& here, Model& model, int64_t parameter, T value) {
  const std::vector<T> values(kBytes / sizeof(T), value);
  EXPECT_EQ(
      FakeCuda().MemcpyAsync(model.gradients->views()[parameter].gradient.data,
                             values.data(), kBytes, here.stream()),
      internal_gpu::kCudaSuccess);
  model.gradients->MarkReady(parameter);
}

// Returns the first and the last element of each gradient.
template <typename T>
absl::StatusOr<std::vector<float>> MeansOf(const OnDevice& here, Model& model) {
  LOCKSTEP_RETURN_IF_ERROR(model.gradients->Await());
  std::vector<float> means;
  for (const GradientView& view : model.gradients->views()) {
    const auto* const first = static_cast<const T*>(view.gradient.data);
    for (const T* const each : {first, first + view.gradient.count - 1}) {
      means.push_back(static_cast<float>(here.Read<T>(each)));
    }
  }
  return means;
}

// The first step has no overlap.
absl::Status FirstStep(const OnDevice& here, Model& model) {
  EXPECT_FALSE(model.gradients->overlap().on);
  LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
  for (const int64_t parameter : {2, 1, 0}) {
    Compute(here, model, parameter, 1.0F);
  }
  LOCKSTEP_RETURN_IF_ERROR(model.gradients->Average(Weight(1)).status());
  EXPECT_TRUE(model.gradients->overlap().on);
  return absl::OkStatus();
}

template <typename T>
absl::Status ExpectMeans(const OnDevice& here, bool is_trainers, DType dtype) {
  LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, is_trainers, dtype));
  for (int step = 0; step < 5; ++step) {
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    EXPECT_EQ(model.gradients->overlap().on, step > 0);
    for (const int64_t parameter : {2, 0, 1}) {
      const int64_t issued = model.issued();
      const auto number = static_cast<float>(parameter + step + here.rank());
      Compute(here, model, parameter, T(number));
      // The order is that of rank 0 in the first step, which is this one.
      EXPECT_EQ(model.issued() - issued, step > 0 ? 1 : 0);
    }
    LOCKSTEP_RETURN_IF_ERROR(
        model.gradients->Average(Weight(here.rank() == 0 ? 1 : 3)).status());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<float> means,
                              MeansOf<T>(here, model));
    std::vector<float> due;
    for (int parameter = 0; parameter < 3; ++parameter) {
      const auto sum = static_cast<float>(2 * (parameter + step) + 1);
      due.insert(due.end(), 2, sum / 4);
    }
    EXPECT_EQ(means, due);
  }
  return absl::OkStatus();
}

TEST(OverlapOnDevice, GivesMeans) {
  for (const bool is_trainers : {false, true}) {
    EXPECT_THAT(
        OnRanks(2,
                [&](const OnDevice& here) -> absl::Status {
                  LOCKSTEP_RETURN_IF_ERROR(
                      ExpectMeans<float>(here, is_trainers, DType::kF32));
                  LOCKSTEP_RETURN_IF_ERROR(
                      ExpectMeans<double>(here, is_trainers, DType::kF64));
                  return ExpectMeans<BFloat16>(here, is_trainers, DType::kBF16);
                }),
        Each(IsOk()));
  }
}

// A mark comes when the kernel that makes the gradient is queued, and may not
// have begun. What is queued after Average comes after the division.
TEST(OverlapOnDevice, BucketsTravelBetweenTheWorkOfTheStream) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, false));
    LOCKSTEP_RETURN_IF_ERROR(FirstStep(here, model));
    const Buffer copy = here.Allocate(3);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    Gate gate(here.stream());
    for (const int64_t parameter : {2, 1, 0}) {
      Compute(here, model, parameter, 12.0F);
    }
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Average(Weight(2)).status());
    auto* to = static_cast<float*>(copy.data);
    for (const GradientView& view : model.gradients->views()) {
      EXPECT_EQ(FakeCuda().MemcpyAsync(to++, view.gradient.data, sizeof(float),
                                       here.stream()),
                internal_gpu::kCudaSuccess);
    }
    gate.Open();
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Await());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(here.Read<float>(static_cast<float*>(copy.data) + i), 6.0F);
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST(OverlapOnDevice, StepsWithoutRowsAndStepsThatAreDiscardedEnd) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, false));
    LOCKSTEP_RETURN_IF_ERROR(FirstStep(here, model));
    // No rank has rows, and none marks.
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult nothing,
                              model.gradients->Average(Weight(0)));
    EXPECT_TRUE(nothing.skipped);
    // Rank 1 has marked one gradient, and rank 0 all.
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    for (int64_t parameter = 2; parameter >= 2 * here.rank(); --parameter) {
      Compute(here, model, parameter, 5.0F);
    }
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
    // Only rank 0 has rows.
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    if (here.rank() == 0) {
      for (const int64_t parameter : {2, 1, 0}) {
        Compute(here, model, parameter, 8.0F);
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(
        model.gradients->Average(Weight(here.rank() == 0 ? 2 : 0)).status());
    EXPECT_THAT(MeansOf<float>(here, model), IsOkAndHolds(Each(4.0F)));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// Buckets of a step that is thrown away wait for those of other ranks, which
// may never come.
TEST(OverlapOnDevice, ADiscardedStepIsNotWaitedFor) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, false));
    LOCKSTEP_RETURN_IF_ERROR(FirstStep(here, model));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    for (int64_t parameter = 2; parameter >= 2 * here.rank(); --parameter) {
      Compute(here, model, parameter, 5.0F);
    }
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Await());
    LOCKSTEP_RETURN_IF_ERROR(Wait(here.host_group().Barrier()));
    // Rank 0 ends the training first.
    if (here.rank() == 0) model.gradients = nullptr;
    return Wait(here.host_group().Barrier());
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// NCCL may round otherwise in other collectives, and a restart begins without
// overlap.
TEST(OverlapOnDevice, BucketsAreTheSameWithAndWithoutOverlap) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    GradientsOptions options = here.options();
    options.overlap = GradientsOptions::Overlap::kOn;
    std::vector<Parameter> parameters;
    for (const char* const name : {"a", "b", "c", "d"}) {
      parameters.push_back({name, here.Allocate(1 << 17)});
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(here.group(), parameters, options));
    std::vector<int64_t> collectives;
    for (int step = 0; step < 3; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
      for (const int64_t parameter : {3, 0, 2, 1}) {
        gradients->MarkReady(parameter);
      }
      LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
      collectives.push_back(gradients->collectives());
    }
    // A collective for the weights, and two for each bucket.
    EXPECT_THAT(collectives, ElementsAre(5, 5, 5));
    return gradients->Await();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST(OverlapOnDevice, ARankThatFailsIsToldToTheOthers) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, false));
    LOCKSTEP_RETURN_IF_ERROR(FirstStep(here, model));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    Compute(here, model, 2, 5.0F);
    if (here.rank() == 1) {
      model.gradients->Abort(absl::InternalError("no more rows"));
    }
    Compute(here, model, 1, 5.0F);
    Compute(here, model, 0, 5.0F);
    return model.gradients->Average(Weight(1)).status();
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kAborted,
                                   HasSubstr("no more rows"))));
}

TEST(OverlapOnDevice, IsLeftOutUnlessItIsAskedFor) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients, here.Make(4));
    EXPECT_TRUE(gradients->overlap().is_final);
    EXPECT_THAT(gradients->overlap().why, HasSubstr("with kOn alone"));
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    gradients->MarkReady(0);
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(Weight(1)).status());
    EXPECT_FALSE(gradients->overlap().on);
    return gradients->Await();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

// Sums of f16 may be too large.
TEST(OverlapOnDevice, F16IsRefused) {
  const auto ended = OnRanks(2, [](const OnDevice& here) -> absl::Status {
    return MakeModel(here, false, DType::kF16).status();
  });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kUnimplemented,
                                   AllOf(HasSubstr("parameter 'a'"),
                                         HasSubstr("gradient_dtype")))));
}

TEST(OverlapOnDevice, ARankAloneHasNone) {
  const auto ended = OnRanks(1, [](const OnDevice& here) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Model model, MakeModel(here, false));
    EXPECT_THAT(model.gradients->overlap().why, HasSubstr("alone"));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    for (const int64_t parameter : {2, 1, 0}) {
      Compute(here, model, parameter, 8.0F);
    }
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->Average(Weight(2)).status());
    EXPECT_THAT(MeansOf<float>(here, model), IsOkAndHolds(Each(4.0F)));
    return absl::OkStatus();
  });
  EXPECT_THAT(ended, Each(IsOk()));
}

}  // namespace
}  // namespace lockstep
