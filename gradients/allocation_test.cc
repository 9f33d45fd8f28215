// After the first step, a step allocates only what its collectives do.
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep {
namespace {

using ::testing::Each;

constexpr int kSteps = 300;
constexpr int kParts = 3;

// The allocations of this thread, while FailAllocations has CountOwn.
thread_local int64_t allocations_of_thread = 0;

bool CountOwn() {
  ++allocations_of_thread;
  return false;
}

// Does step `number` of a rank.
using DoStep = std::function<absl::Status(int number)>;
using MakeSteps = std::function<absl::StatusOr<DoStep>(Communicator& group)>;

// Does the steps on ranks that are threads, and returns the allocations of all
// of them in the steps after the first one. A rank's thread may do the work of
// another rank, too, so only the sum over ranks is about the same in each run.
int64_t AllocationsOf(int ranks, const MakeSteps& make) {
  std::vector<int64_t> of_ranks(ranks);
  FailAllocations(&CountOwn);
  EXPECT_THAT(LocalWorld(ranks).Run([&](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    LOCKSTEP_ASSIGN_OR_RETURN(const DoStep step, make(*group));
    LOCKSTEP_RETURN_IF_ERROR(step(1));
    const int64_t before = allocations_of_thread;
    for (int number = 2; number <= kSteps; ++number) {
      LOCKSTEP_RETURN_IF_ERROR(step(number));
    }
    of_ranks[world.rank()] = allocations_of_thread - before;
    return absl::OkStatus();
  }),
              Each(IsOk()));
  FailAllocations(nullptr);
  return std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{0});
}

// Steps of several parts, in which each parameter is marked.
int64_t AllocationsOfGradients(int ranks, int tensors) {
  std::vector<std::vector<float>> values(ranks * tensors,
                                         std::vector<float>(10));
  return AllocationsOf(
      ranks, [&](Communicator& group) -> absl::StatusOr<DoStep> {
        std::vector<Parameter> parameters;
        for (int i = 0; i < tensors; ++i) {
          parameters.push_back({absl::StrCat("tensor ", i),
                                BufferOf(values[group.rank() * tensors + i])});
        }
        LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Gradients> gradients,
                                  Gradients::Create(group, parameters));
        return [gradients, tensors](int /*number*/) -> absl::Status {
          LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep(kParts));
          for (int part = 0; part < kParts; ++part) {
            LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(part));
            for (int i = 0; i < tensors; ++i) gradients->MarkReady(i);
          }
          StepInput input;
          input.weight = 1;
          return gradients->Average(input).status();
        };
      });
}

// The same collectives, by hand.
int64_t AllocationsOfCollectives(int ranks, int tensors) {
  return AllocationsOf(
      ranks, [&](Communicator& group) -> absl::StatusOr<DoStep> {
        const auto gradients =
            std::make_shared<std::vector<float>>(16 * tensors);
        const auto weights = std::make_shared<std::vector<double>>(4);
        return [=, &group](int number) -> absl::Status {
          CallOptions options;
          options.name = absl::StrCat("step ", number);
          const Buffer first = BufferOf(*weights),
                       second = BufferOf(*gradients);
          LOCKSTEP_RETURN_IF_ERROR(
              Wait(group.AllReduce(first, first, ReduceOp::kSum, options)));
          options.name = absl::StrCat("bucket 0 of step ", number);
          return Wait(group.AllReduce(second, second, ReduceOp::kSum, options));
        };
      });
}

TEST(Allocation, NoneOfARankAlone) {
  for (const int tensors : {1, 200}) {
    EXPECT_EQ(AllocationsOfGradients(1, tensors), 0);
  }
}

TEST(Allocation, ThatOfTheCollectivesAlone) {
  const int64_t by_hand = AllocationsOfCollectives(2, 200);
  EXPECT_GT(by_hand, 0);
  for (const int tensors : {1, 200}) {
    // The queues of the collectives grow in a step now and then. An allocation
    // in each step would be more than these.
    EXPECT_LT(AllocationsOfGradients(2, tensors), by_hand + kSteps / 2);
  }
}

}  // namespace
}  // namespace lockstep
