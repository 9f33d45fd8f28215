// After the first step, a step allocates only what its collectives do.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
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

// The allocations of a rank's thread in a step, after the first one.
struct Counts {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
};

// Does the steps on ranks that are threads, and returns the counts of all of
// them. A rank's thread may do the work of another rank, too, so only the least
// count is the same in each run.
Counts CountsOf(int ranks, const MakeSteps& make) {
  std::vector<Counts> of_ranks(ranks);
  FailAllocations(&CountOwn);
  EXPECT_THAT(LocalWorld(ranks).Run([&](World& world) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
    LOCKSTEP_ASSIGN_OR_RETURN(const DoStep step, make(*group));
    Counts& counts = of_ranks[world.rank()];
    for (int number = 1; number <= kSteps; ++number) {
      const int64_t before = allocations_of_thread;
      LOCKSTEP_RETURN_IF_ERROR(step(number));
      const int64_t more = allocations_of_thread - before;
      if (number == 1) continue;
      counts.least = std::min(counts.least, more);
      counts.most = std::max(counts.most, more);
    }
    return absl::OkStatus();
  }),
              Each(IsOk()));
  FailAllocations(nullptr);
  Counts all;
  for (const Counts& counts : of_ranks) {
    all.least = std::min(all.least, counts.least);
    all.most = std::max(all.most, counts.most);
  }
  return all;
}

// Steps of several parts, in which each parameter is marked.
Counts CountsOfGradients(int ranks, int tensors) {
  std::vector<std::vector<float>> values(ranks * tensors,
                                         std::vector<float>(10));
  return CountsOf(ranks, [&](Communicator& group) -> absl::StatusOr<DoStep> {
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
Counts CountsOfCollectives(int ranks, int tensors) {
  return CountsOf(ranks, [&](Communicator& group) -> absl::StatusOr<DoStep> {
    const auto gradients = std::make_shared<std::vector<float>>(16 * tensors);
    const auto weights = std::make_shared<std::vector<double>>(4);
    return [=, &group](int number) -> absl::Status {
      CallOptions options;
      options.name = absl::StrCat("step ", number);
      const Buffer first = BufferOf(*weights), second = BufferOf(*gradients);
      LOCKSTEP_RETURN_IF_ERROR(
          Wait(group.AllReduce(first, first, ReduceOp::kSum, options)));
      options.name = absl::StrCat("bucket 0 of step ", number);
      return Wait(group.AllReduce(second, second, ReduceOp::kSum, options));
    };
  });
}

TEST(Allocation, NoneOfARankAlone) {
  for (const int tensors : {1, 200}) {
    EXPECT_EQ(CountsOfGradients(1, tensors).most, 0);
  }
}

TEST(Allocation, ThatOfTheCollectivesAlone) {
  const int64_t by_hand = CountsOfCollectives(2, 200).least;
  EXPECT_GT(by_hand, 0);
  for (const int tensors : {1, 200}) {
    EXPECT_LE(CountsOfGradients(2, tensors).least, by_hand);
  }
}

}  // namespace
}  // namespace lockstep
