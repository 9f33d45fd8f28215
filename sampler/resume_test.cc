// Restarts and resizes: whatever a job's history, every position of an epoch is
// accounted for exactly once over all its ranks.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

CutOptions RandomCut(Random& random) {
  CutOptions cut;
  cut.batch_size = random.Integer(1, 9);
  cut.world = random.Integer(1, 6);
  cut.tail = static_cast<Tail>(random.Below(4));
  cut.layout = static_cast<Layout>(random.Below(2));
  if (random.Below(4) == 0) cut.drop_last = true;
  if (random.Below(4) == 0) {
    cut.min_last_batch = random.Integer(0, cut.batch_size + 1);
    cut.small_last_batch = static_cast<SmallLastBatch>(random.Below(3));
  }
  return cut;
}

// A job on all its ranks. Records which positions it delivered, and what each
// of them held.
class Job {
 public:
  Job(const std::shared_ptr<const Order>& order, const CutOptions& cut) {
    SamplerOptions options;
    options.cut = cut;
    for (options.rank = 0; options.rank < cut.world; ++options.rank) {
      ranks_.push_back(*Sampler::Create(order, options));
    }
  }

  void Start(int64_t epoch) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->StartEpoch(epoch), IsOk());
    }
  }

  void Restore(const std::string& state) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->RestoreState(state), IsOk());
    }
  }

  void Skip(int64_t begin, int64_t end) {
    for (const auto& rank : ranks_) {
      ASSERT_THAT(rank->Skip(begin, end), IsOk());
    }
  }

  // One step on every rank; false when they all say that there is none.
  bool Step(std::map<int64_t, int64_t>& delivered) {
    int stepped = 0;
    for (const auto& rank : ranks_) {
      BatchIndices batch;
      const absl::StatusOr<bool> more = rank->Next(batch);
      EXPECT_THAT(more, IsOk());
      if (!*more) continue;
      ++stepped;
      for (int64_t row = 0; row < batch.valid; ++row) {
        EXPECT_TRUE(
            delivered.emplace(batch.positions[row], batch.indices[row]).second)
            << "position " << batch.positions[row] << " came twice";
      }
    }
    EXPECT_TRUE(stepped == 0 || stepped == static_cast<int>(ranks_.size()));
    return stepped > 0;
  }

  // The same bytes on every rank.
  std::string Save() const {
    for (const auto& rank : ranks_) {
      EXPECT_EQ(rank->SaveState(), ranks_[0]->SaveState());
    }
    return ranks_[0]->SaveState();
  }

  const Sampler& rank0() const { return *ranks_[0]; }

 private:
  std::vector<std::unique_ptr<Sampler>> ranks_;
};

using MakeOrder = std::function<std::shared_ptr<const Order>(int64_t size)>;

const std::map<std::string, MakeOrder>& Orders() {
  static const auto* const orders = new std::map<std::string, MakeOrder>{
      {"sequential",
       [](int64_t size) { return *SequentialOrder::Create(size); }},
      {"torch",
       [](int64_t size) {
         TorchShuffleOptions options;
         options.size = size;
         return *TorchShuffle::Create(options);
       }},
      {"native",
       [](int64_t size) {
         NativeShuffleOptions options;
         options.size = size;
         return *NativeShuffle::Create(options);
       }},
  };
  return *orders;
}

class Resume : public testing::TestWithParam<std::string> {};

TEST_P(Resume, ChainsAccountForEveryPositionOnce) {
  Random random(RandomKey(1, 0, 0));
  for (int chain = 0; chain < 2000; ++chain) {
    const int64_t size = random.Integer(0, 400);
    const auto order = Orders().at(GetParam())(size);
    std::map<int64_t, int64_t> delivered;
    int64_t dropped = 0, skipped = 0;
    std::string state;
    const int64_t lives = random.Integer(1, 21);
    for (int64_t life = 0; life < lives; ++life) {
      const bool last = life + 1 == lives;
      Job job(order, RandomCut(random));
      if (state.empty()) {
        job.Start(5);
      } else {
        job.Restore(state);
      }
      const int64_t position = job.rank0().progress().position;
      if (random.Below(8) == 0 && position < size) {
        const int64_t begin = random.Integer(position, size);
        job.Skip(begin, random.Integer(begin + 1, size + 1));
      }
      for (int64_t steps = last ? size + 1 : random.Integer(0, 6);
           steps > 0 && job.Step(delivered);) {
        --steps;
      }
      dropped += job.rank0().stats().dropped;
      skipped += job.rank0().stats().skipped;
      state = job.Save();
      if (last) {
        ASSERT_EQ(job.rank0().progress().position, size);
      }
    }
    ASSERT_EQ(static_cast<int64_t>(delivered.size()) + dropped + skipped, size)
        << chain;
    // A permutation of which nothing was lost is the whole dataset.
    std::vector<int64_t> indices;
    for (const auto& [position, index] : delivered) indices.push_back(index);
    std::sort(indices.begin(), indices.end());
    ASSERT_EQ(std::unique(indices.begin(), indices.end()), indices.end());
    if (dropped + skipped == 0 && size > 0) {
      ASSERT_EQ(indices.front(), 0);
      ASSERT_EQ(indices.back(), size - 1);
    }
  }
}

// With an unchanged global batch every global batch holds the same samples as
// without a resize.
TEST_P(Resume, ResizeKeepsGlobalBatches) {
  const auto order = Orders().at(GetParam())(1000);
  auto global_batches = [&order](const std::vector<int64_t>& worlds) {
    std::vector<std::vector<int64_t>> batches;
    std::string state;
    for (size_t life = 0; life < worlds.size(); ++life) {
      CutOptions cut;
      cut.world = worlds[life];
      cut.batch_size = 24 / cut.world;
      cut.tail = Tail::kUneven;
      Job job(order, cut);
      if (life == 0) {
        job.Start(2);
      } else {
        job.Restore(state);
      }
      for (int step = 0; step < 10 || life + 1 == worlds.size(); ++step) {
        std::map<int64_t, int64_t> delivered;
        if (!job.Step(delivered)) break;
        batches.emplace_back();
        for (const auto& [position, index] : delivered) {
          batches.back().push_back(index);
        }
      }
      state = job.Save();
    }
    return batches;
  };
  const auto expected = global_batches({1});
  EXPECT_EQ(expected.size(), 42u);
  EXPECT_EQ(global_batches({2, 3, 4, 8, 24}), expected);
  EXPECT_EQ(global_batches({12, 1, 6}), expected);
}

INSTANTIATE_TEST_SUITE_P(Orders, Resume,
                         testing::Values("sequential", "torch", "native"),
                         [](const auto& info) { return info.param; });

TEST(Restore, RefusesAnotherStreamUnlessAllowed) {
  CutOptions cut;
  Job job(Orders().at("native")(100), cut);
  job.Start(0);
  const std::string state = job.Save();
  SamplerOptions options;
  auto other = Sampler::Create(Orders().at("native")(50), options);
  EXPECT_THAT((*other)->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'size'")));
  LOCKSTEP_EXPECT_OK((*other)->RestoreState(state, {{"size"}}));
  auto torch = Sampler::Create(Orders().at("torch")(100), options);
  EXPECT_THAT((*torch)->RestoreState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("differs in 'order'")));
}

TEST(Restore, RefusesAPositionBeyondTheStream) {
  CutOptions cut;
  Job job(Orders().at("native")(100), cut);
  job.Start(0);
  std::map<int64_t, int64_t> delivered;
  while (job.Step(delivered)) {
  }
  auto other = Sampler::Create(Orders().at("native")(50), SamplerOptions());
  EXPECT_THAT((*other)->RestoreState(job.Save(), {{"size"}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("position 100")));
}

TEST(Restore, OfAnyBatchOfTheEpoch) {
  SamplerOptions options;
  options.cut.batch_size = 7;
  auto sampler = *Sampler::Create(Orders().at("native")(100), options);
  LOCKSTEP_ASSERT_OK(sampler->StartEpoch(1));
  std::vector<std::string> states;
  std::vector<std::vector<int64_t>> batches;
  BatchIndices batch;
  while (*sampler->Next(batch)) {
    batches.emplace_back(batch.indices.begin(), batch.indices.end());
    states.push_back(sampler->SaveState(batch.progress));
  }
  for (size_t i = 0; i + 1 < states.size(); ++i) {
    LOCKSTEP_ASSERT_OK(sampler->RestoreState(states[i]));
    EXPECT_THAT(sampler->Next(batch), IsOkAndHolds(true));
    EXPECT_THAT(batch.indices, testing::ElementsAreArray(batches[i + 1]));
    EXPECT_EQ(batch.step, static_cast<int64_t>(i) + 1);
  }
}

}  // namespace
}  // namespace lockstep
