#include "torch_gradients.h"

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"

namespace torch_trainer {
namespace {

using ::lockstep::Gradients;
using ::lockstep::GradientsOptions;
using ::lockstep::IsOk;
using ::lockstep::StatusIs;
using ::lockstep::StepInput;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kInputs = 5;

// Two layers that share their weights, a parameter that is not trained, and one
// that the loss may leave out.
struct Net : torch::nn::Module {
  explicit Net(torch::ScalarType type = torch::kFloat64) {
    const auto options = torch::TensorOptions(type);
    weights = register_parameter(
        "weights", torch::linspace(-1, 1, kInputs * kInputs, options)
                       .view({kInputs, kInputs}));
    again = register_parameter("again", weights);
    bias = register_parameter("bias", torch::zeros({kInputs}, options));
    spare = register_parameter("spare", torch::ones({2}, options));
    fixed = register_parameter("fixed", torch::ones({2}, options),
                               /*requires_grad=*/false);
  }

  // Returns the sum over the rows of x.
  torch::Tensor Loss(const torch::Tensor& x, bool uses_spare = true) {
    const torch::Tensor y = torch::relu(x.matmul(weights) + bias).matmul(again);
    const torch::Tensor loss = y.pow(2).sum();
    return uses_spare ? loss + x.sum() * spare.sum() : loss;
  }

  torch::Tensor weights, again, bias, spare, fixed;
};

torch::Tensor Rows(int64_t begin, int64_t end,
                   torch::ScalarType type = torch::kFloat64) {
  const torch::Tensor row = torch::arange(begin, end).unsqueeze(1);
  return ((row * 7 + torch::arange(kInputs) * 3) % 11 - 5).to(type) / 4;
}

// The gradients of a Net on a rank.
struct Rank {
  std::unique_ptr<Net> net;
  std::unique_ptr<Gradients> averaged;
  std::unique_ptr<TorchGradients> gradients;
};

absl::StatusOr<Rank> MakeRank(lockstep::Communicator& group,
                              std::unique_ptr<Net> net, bool keeps_grad = false,
                              const GradientsOptions& options = {}) {
  Rank rank = {std::move(net), nullptr, nullptr};
  LOCKSTEP_ASSIGN_OR_RETURN(auto parameters,
                            TorchParameters(*rank.net, keeps_grad));
  LOCKSTEP_ASSIGN_OR_RETURN(
      rank.averaged, Gradients::Create(group, std::move(parameters), options));
  rank.gradients = std::make_unique<TorchGradients>(*rank.averaged, *rank.net);
  return rank;
}

absl::Status Average(Rank& rank, int64_t weight) {
  LOCKSTEP_RETURN_IF_ERROR(rank.gradients->Check());
  StepInput input;
  input.weight = weight;
  return rank.averaged->Average(input).status();
}

// Runs a function on threads that are ranks. All must end with OK.
void OnRanks(
    int ranks,
    const std::function<absl::Status(lockstep::Communicator& group)>& run) {
  EXPECT_THAT(lockstep::LocalWorld(ranks).Run(
                  [&](lockstep::World& world) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(const auto group,
                                              world.MakeGroup());
                    return run(*group);
                  }),
              Each(IsOk()));
}

// Three ranks have 3, 1 and 0 rows, in two parts. Their gradients are the means
// that one backward pass over all rows gives.
void CompareWithOneRank(torch::ScalarType type, double tolerance,
                        bool keeps_grad) {
  constexpr int64_t kRows = 4;
  Net alone(type);
  (alone.Loss(Rows(0, kRows, type)) / kRows).backward();
  OnRanks(3, [&](lockstep::Communicator& group) -> absl::Status {
    auto net = std::make_unique<Net>(type);
    if (group.rank() > 0) {
      const torch::NoGradGuard guard;
      net->weights.fill_(7);  // rank 0's values count
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank,
                              MakeRank(group, std::move(net), keeps_grad));
    const std::vector<int64_t> begins = {0, 3, 4};
    for (int step = 0; step < 2; ++step) {
      int64_t rows = 0;
      LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep(/*parts=*/2));
      for (int part = 0; part < 2; ++part) {
        LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginPart(part));
        const int64_t begin = begins[group.rank()];
        const int64_t end =
            group.rank() == 2 ? kRows : begins[group.rank() + 1];
        const int64_t cut = begin + (end - begin) / 2;
        const torch::Tensor x =
            part == 0 ? Rows(begin, cut, type) : Rows(cut, end, type);
        rank.net->Loss(x).backward();
        rows += x.size(0);
      }
      LOCKSTEP_RETURN_IF_ERROR(Average(rank, rows));
      const auto named = rank.net->named_parameters();
      for (const auto& expected : alone.named_parameters()) {
        if (!expected->requires_grad()) continue;
        EXPECT_TRUE(torch::allclose(named[expected.key()].grad(),
                                    expected->grad(), tolerance, tolerance))
            << expected.key() << named[expected.key()].grad()
            << expected->grad();
      }
    }
    return absl::OkStatus();
  });
}

TEST(TorchGradients, AreThoseOfOneRankWithAllRows) {
  CompareWithOneRank(torch::kFloat64, 1e-12, /*keeps_grad=*/false);
  CompareWithOneRank(torch::kFloat32, 1e-5, /*keeps_grad=*/false);
  CompareWithOneRank(torch::kBFloat16, 0.05, /*keeps_grad=*/false);
}

TEST(TorchGradients, StayInTheModulesMemory) {
  CompareWithOneRank(torch::kFloat64, 1e-12, /*keeps_grad=*/true);
  OnRanks(1, [&](lockstep::Communicator& group) -> absl::Status {
    const torch::Tensor flat = torch::zeros({2}, torch::kFloat64);
    auto net = std::make_unique<Net>();
    net->spare.mutable_grad() = flat;
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank, MakeRank(group, std::move(net),
                                                  /*keeps_grad=*/true));
    LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
    rank.net->Loss(torch::ones({2, kInputs}, torch::kFloat64)).backward();
    LOCKSTEP_RETURN_IF_ERROR(Average(rank, 2));
    EXPECT_EQ(flat[0].item<double>(), kInputs);
    return absl::OkStatus();
  });
}

TEST(TorchGradients, AreNamedAsInTheModule) {
  const Net net;
  const auto parameters = TorchParameters(net);
  ASSERT_THAT(parameters, IsOk());
  ASSERT_THAT(*parameters, SizeIs(3));  // neither again nor fixed
  EXPECT_EQ((*parameters)[0].name, "weights");
  EXPECT_THAT((*parameters)[0].shape, testing::ElementsAre(kInputs, kInputs));
  EXPECT_EQ((*parameters)[1].name, "bias");
  EXPECT_EQ((*parameters)[2].name, "spare");
}

TEST(TorchGradients, ParametersThatLockstepCannotUseAreNamed) {
  Net net;
  net.register_parameter("turned", torch::ones({2, 3}).t());
  EXPECT_THAT(TorchParameters(net).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'turned' is of type Float on cpu")));
  Net complex;
  complex.register_parameter("waves", torch::ones({2}, torch::kComplexFloat));
  EXPECT_THAT(TorchParameters(complex).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'waves' is of type ComplexFloat on cpu")));
  Net sparse;
  sparse.spare.mutable_grad() = torch::zeros({2}).to_sparse();
  EXPECT_THAT(TorchParameters(sparse, /*keeps_grad=*/true).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'spare.grad' is of type Float on cpu")));
}

TEST(TorchGradients, MemoryThatWasReplacedIsNamed) {
  OnRanks(1, [](lockstep::Communicator& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank,
                              MakeRank(group, std::make_unique<Net>()));
    LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
    rank.net->zero_grad(/*set_to_none=*/false);  // harmless
    rank.net->Loss(Rows(0, 2)).backward();
    LOCKSTEP_RETURN_IF_ERROR(Average(rank, 2));

    LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
    rank.net->bias.mutable_grad().reset();
    rank.net->Loss(Rows(0, 2)).backward();
    EXPECT_THAT(Average(rank, 2),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("the .grad of 'bias'"),
                               HasSubstr("leave out zero_grad()"))));

    rank.net->weights.set_data(rank.net->weights.clone());
    EXPECT_THAT(rank.gradients->Check(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("'weights' is in other memory")));
    return rank.averaged->Discard();
  });
}

TEST(TorchGradients, ParametersThatNoBackwardReachesAreNamed) {
  OnRanks(2, [](lockstep::Communicator& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank,
                              MakeRank(group, std::make_unique<Net>()));
    LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
    rank.net->Loss(Rows(0, 2), /*uses_spare=*/false).backward();
    EXPECT_THAT(Average(rank, 2),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("not marked in the step: 'spare';")));
    return rank.averaged->Discard();
  });
}

TEST(TorchGradients, ParametersThatNoRankReachesMayBeLeftOut) {
  OnRanks(2, [](lockstep::Communicator& group) -> absl::Status {
    GradientsOptions options;
    options.unused = GradientsOptions::Unused::kSkip;
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank,
                              MakeRank(group, std::make_unique<Net>(),
                                       /*keeps_grad=*/false, options));
    for (const bool uses_spare : {false, true}) {
      LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
      // Rank 1 alone may use it.
      rank.net->Loss(Rows(0, 2), uses_spare && group.rank() == 1).backward();
      LOCKSTEP_RETURN_IF_ERROR(Average(rank, 2));
      EXPECT_TRUE(rank.averaged->views()[0].used);
      EXPECT_EQ(rank.averaged->views()[2].used, uses_spare);
    }
    return absl::OkStatus();
  });
}

TEST(TorchGradients, LeaveTheModuleAtTheEnd) {
  OnRanks(1, [](lockstep::Communicator& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Rank rank,
                              MakeRank(group, std::make_unique<Net>()));
    // The loss keeps the nodes of autograd that had the hooks.
    const torch::Tensor loss = rank.net->Loss(Rows(0, 2), /*uses_spare=*/false);
    rank.gradients.reset();
    EXPECT_FALSE(rank.net->weights.grad().defined());
    LOCKSTEP_RETURN_IF_ERROR(rank.averaged->BeginStep());
    // If this marked some parameters, Average would miss the others.
    loss.backward();
    EXPECT_TRUE(rank.net->weights.grad().defined());
    StepInput input;
    input.weight = 2;
    return rank.averaged->Average(input).status();
  });
}

}  // namespace
}  // namespace torch_trainer
