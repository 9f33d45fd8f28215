#include "lockstep/sampler/sampler_conformance.h"

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/order.h"

namespace lockstep {
namespace {

using Ranks = std::vector<std::unique_ptr<Sampler>>;

constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max();

// Returns no ranks if the factory refuses so many.
Ranks MakeRanks(const MakeSampler& make, int64_t count) {
  Ranks ranks;
  for (int64_t rank = 0; rank < count; ++rank) {
    absl::StatusOr<std::unique_ptr<Sampler>> sampler = make(rank, count);
    if (count > 1 && absl::IsInvalidArgument(sampler.status())) return {};
    EXPECT_THAT(sampler, IsOk());
    if (!sampler.ok()) return {};
    EXPECT_EQ((*sampler)->options().cut.world, count);
    EXPECT_EQ((*sampler)->options().rank, rank);
    ranks.push_back(*std::move(sampler));
  }
  return ranks;
}

// The stream of an epoch, and the number of times that each position came.
struct Account {
  std::vector<int64_t> indices;
  std::vector<int> times;
};

Account Open(const Order& order, int64_t epoch) {
  Account account;
  const auto stream = order.Open(epoch);
  EXPECT_THAT(stream, IsOk());
  if (!stream.ok()) return account;
  account.indices.resize(static_cast<size_t>((*stream)->size()));
  account.times.resize(account.indices.size());
  EXPECT_THAT((*stream)->Read(0, 1, absl::MakeSpan(account.indices)), IsOk());
  return account;
}

void Count(const BatchIndices& batch, Account& account) {
  for (int64_t i = 0; i < batch.samples(); ++i) {
    const auto at = static_cast<size_t>(batch.positions[i]);
    ASSERT_LT(at, account.indices.size());
    EXPECT_EQ(batch.indices[i], account.indices[at]) << "position " << at;
    ++account.times[at];
  }
}

// Takes steps on all ranks until the epoch ends or `most` steps are done, and
// returns the number of steps.
int64_t TakeSteps(const Ranks& ranks, int64_t most, Account& account) {
  const absl::StatusOr<int64_t> left = ranks[0]->StepsLeft();
  EXPECT_THAT(left, IsOk());
  int64_t steps = 0;
  for (; steps < most; ++steps) {
    size_t ended = 0;
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank->StepsLeft().value_or(-1), left.value_or(-2) - steps);
      BatchIndices batch;
      const absl::StatusOr<bool> more = rank->Next(batch);
      EXPECT_THAT(more, IsOk());
      if (!more.ok() || !*more) {
        ++ended;
      } else {
        Count(batch, account);
      }
    }
    if (ended == 0) continue;
    EXPECT_EQ(ended, ranks.size()) << "ranks have different numbers of steps";
    EXPECT_EQ(steps, left.value_or(-1));
    break;
  }
  return steps;
}

// `dropped` is the number of positions dropped by the tail policy, as the
// samplers counted.
void ExpectOnce(const Account& account, int64_t dropped) {
  int64_t missing = 0;
  for (size_t at = 0; at < account.times.size(); ++at) {
    EXPECT_LE(account.times[at], 1) << "position " << at << " came again";
    missing += account.times[at] == 0;
  }
  EXPECT_EQ(missing, dropped) << "positions are missing that were not dropped";
}

void ExpectEpoch(const Ranks& ranks, int64_t epoch) {
  Account account = Open(ranks[0]->order(), epoch);
  for (const auto& rank : ranks) {
    ASSERT_THAT(rank->StartEpoch(epoch), IsOk());
    EXPECT_TRUE(rank->JobFingerprint().summary() ==
                ranks[0]->JobFingerprint().summary())
        << "ranks mean different jobs";
  }
  TakeSteps(ranks, kAllSteps, account);
  ExpectOnce(account, ranks[0]->stats().dropped);
}

// An order that depends on the number of ranks says so in its description.
void ExpectResized(const Ranks& before, const Ranks& after, int64_t epoch) {
  const bool same_stream = before[0]->order().Describe().ToString() ==
                           after[0]->order().Describe().ToString();
  Account account = Open(before[0]->order(), epoch);
  for (const auto& rank : before) ASSERT_THAT(rank->StartEpoch(epoch), IsOk());
  const absl::StatusOr<int64_t> steps = before[0]->StepsLeft();
  ASSERT_THAT(steps, IsOk());
  TakeSteps(before, *steps / 2, account);
  const std::string state = before.back()->SaveState();
  for (const auto& rank : after) {
    const absl::Status restored = rank->RestoreState(state);
    if (!same_stream) {
      EXPECT_EQ(restored.code(), absl::StatusCode::kFailedPrecondition);
      return;
    }
    ASSERT_THAT(restored, IsOk());
  }
  TakeSteps(after, kAllSteps, account);
  ExpectOnce(account, after[0]->stats().dropped);
}

}  // namespace

void ExpectConforms(const MakeSampler& make) {
  std::vector<Ranks> sizes;
  for (int64_t count = 1; count <= 3; ++count) {
    Ranks ranks = MakeRanks(make, count);
    if (!ranks.empty()) sizes.push_back(std::move(ranks));
  }
  for (const int64_t epoch : {0, 1}) {
    for (const Ranks& ranks : sizes) {
      SCOPED_TRACE(testing::Message()
                   << "epoch " << epoch << " on " << ranks.size() << " ranks");
      ExpectEpoch(ranks, epoch);
      for (const Ranks& others : sizes) {
        if (&others == &ranks) continue;
        SCOPED_TRACE(testing::Message() << "then on " << others.size());
        ExpectResized(ranks, others, epoch);
      }
    }
  }
}

}  // namespace lockstep
