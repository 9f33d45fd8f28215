#include "lockstep/sampler/continued_mixture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/continued_mixture_testing.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_weighted.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/order_conformance.h"
#include "lockstep/sampler/quota.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_conformance.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The kinds from kTorchRandom on have no epochs before epoch 0.
enum Kind {
  kSequential,
  kNative,
  kTorchShuffle,
  kWeighted,
  kWeightedOnce,
  kStratified,
  kBlocks,
  kMixture,
  kContinued,
  kTorchRandom,
  kTorchDrawn,
  kAllKinds,
};

std::shared_ptr<const Order> MakeWeighted(Random& random, int64_t size,
                                          bool replacement) {
  NativeWeightedOptions options;
  for (int64_t i = 0; i < size; ++i) {
    options.weights.push_back(random.Uniform(0.1, 1));
  }
  options.num_samples = random.Integer(1, replacement ? 2 * size : size + 1);
  options.replacement = replacement;
  options.seed = random();
  return *NativeWeighted::Create(options);
}

std::shared_ptr<const Order> MakeMixture(Random& random, int64_t size) {
  MixtureOptions options;
  options.sources = {{size, random.Integer(1, 4)}, {3, random.Integer(0, 3)}};
  options.stop = MixtureStop::kAllExhausted;
  options.seed = random();
  return *MixtureOrder::Create(options);
}

std::shared_ptr<const Order> MakeTorchRandom(Random& random, int64_t size,
                                             bool replacement) {
  TorchRandomOptions options;
  options.size = size;
  options.num_samples = random.Integer(1, 2 * size + 1);
  options.replacement = replacement;
  options.seed = random.Below(100);
  return *TorchRandom::Create(options);
}

std::shared_ptr<const Order> MakeOrder(Random& random, Kind kind) {
  const int64_t size = random.Integer(1, 40);
  switch (kind) {
    case kSequential:
      return *SequentialOrder::Create(size);
    case kTorchShuffle:
      return *TorchShuffle::Create({size, random.Below(100)});
    case kWeighted:
    case kWeightedOnce:
      return MakeWeighted(random, size, kind == kWeighted);
    case kStratified: {
      StratifiedOptions options;
      for (int64_t i = 0; i < size; ++i) options.labels.push_back(i % 3);
      return *StratifiedOrder::Create(options);
    }
    case kBlocks:
      return *BlockShuffle::Create({size, 4, 2, random()});
    case kMixture:
      return MakeMixture(random, size);
    case kContinued:
      return Mix(Mixed({Native(size, random()), Native(5)}, {0.8, 0.2},
                       MixtureStop::kNumSamples, random.Integer(1, 50)));
    case kTorchRandom:
    case kTorchDrawn:
      return MakeTorchRandom(random, size, kind == kTorchDrawn);
    default:
      return Native(size, random());
  }
}

// A random mixture, and the turns that the sources of each phase should get.
struct Case {
  ContinuedMixtureOptions options;
  std::vector<std::vector<int64_t>> turns;
};

void AddPhase(Random& random, int64_t first, Case& made) {
  std::vector<int64_t> turns;
  for (size_t i = 0; i < made.options.sources.size(); ++i) {
    turns.push_back(std::max<int64_t>(0, random.Integer(-2, 10)));
  }
  turns[random.Below(turns.size())] += 1;
  const double unit = random.Uniform(0.001, 1000);
  ContinuedMixtureOptions::Phase phase{first, {}};
  for (const int64_t each : turns) {
    phase.weights.push_back(unit * static_cast<double>(each));
  }
  made.options.phases.push_back(std::move(phase));
  int64_t common = 0;
  for (const int64_t each : turns) common = std::gcd(common, each);
  for (int64_t& each : turns) each /= common;
  made.turns.push_back(std::move(turns));
}

Case RandomCase(Random& random, int kinds) {
  Case made;
  for (int64_t i = random.Integer(1, 6); i > 0; --i) {
    made.options.sources.push_back(MakeOrder(
        random, static_cast<Kind>(random.Below(static_cast<uint64_t>(kinds)))));
  }
  made.options.end = static_cast<MixtureStop>(random.Below(3));
  AddPhase(random, 0, made);
  if (made.options.end != MixtureStop::kNumSamples) return made;
  made.options.num_samples = random.Integer(1, 120);
  // Phases are sometimes shorter than a round, and sometimes longer than an
  // epoch.
  int64_t first = 0;
  for (int64_t i = random.Integer(0, 5); i > 0; --i) {
    first += random.Integer(1, random.Below(2) == 0 ? 10 : 200);
    AddPhase(random, first, made);
  }
  return made;
}

// Trains on a mixture, draw by draw, by a second reading of the header.
class Trainer {
 public:
  explicit Trainer(const Case& made)
      : options_(made.options), turns_(made.turns), deal_(turns_[0]) {
    int64_t begin = 0;
    for (const auto& order : options_.sources) {
      sources_.push_back({begin, order->Describe().size, {}, 0, 0});
      positions_.push_back((*order->Open(0))->size());
      begin += sources_.back().size;
    }
  }

  // Trains for an epoch, and compares what comes with the order.
  void TrainEpoch(const Order& order, int64_t epoch) {
    const std::vector<int64_t> indices = ReadEpoch(order, epoch);
    epoch_counts_.assign(sources_.size(), 0);
    if (options_.end != MixtureStop::kNumSamples) BeginDealing();
    for (size_t n = 0; !Ended(static_cast<int64_t>(n)); ++n) {
      ASSERT_LT(n, indices.size());
      StartPhase();
      ExpectParts(order, epoch, static_cast<int64_t>(n));
      const int64_t who = Deal();
      ASSERT_EQ(indices[n], Draw(who)) << "epoch " << epoch << " at " << n;
      ExpectProportions();
      if (testing::Test::HasFatalFailure()) return;
      ended_at_ = n + 1;
    }
    ASSERT_EQ(indices.size(), ended_at_);
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (options_.end == MixtureStop::kAllExhausted && turns_[0][i] > 0) {
        ASSERT_GE(epoch_counts_[i], positions_[i]);
      }
    }
  }

 private:
  struct Source {
    int64_t begin, size;
    std::vector<int64_t> pass;  // the epoch of its order
    int64_t passes;             // that were begun
    int64_t drawn;
  };

  void BeginDealing() {
    deal_ = QuotaTurns(turns_[phase_]);
    waiting_ = -1;
    counts_.assign(sources_.size(), 0);
    dealt_ = 0;
  }

  void StartPhase() {
    if (phase_ + 1 < options_.phases.size() &&
        options_.phases[phase_ + 1].first_sample == samples_) {
      ++phase_;
      BeginDealing();
    }
    ++samples_;
    if (counts_.empty()) BeginDealing();
  }

  // Returns true if an epoch of `n` positions is over.
  bool Ended(int64_t n) {
    switch (options_.end) {
      case MixtureStop::kNumSamples:
        return n == options_.num_samples;
      case MixtureStop::kFirstExhausted:
        waiting_ = deal_.Next();
        return epoch_counts_[waiting_] == positions_[waiting_];
      case MixtureStop::kAllExhausted:
        break;
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (turns_[0][i] > 0 && epoch_counts_[i] < positions_[i]) return false;
    }
    return true;
  }

  int64_t Deal() { return waiting_ >= 0 ? waiting_ : deal_.Next(); }

  int64_t Draw(int64_t who) {
    Source& source = sources_[who];
    if (source.drawn++ % positions_[who] == 0) {
      source.pass = ReadEpoch(*options_.sources[who], source.passes++);
    }
    ++counts_[who];
    ++epoch_counts_[who];
    ++dealt_;
    return source.begin + source.pass[(source.drawn - 1) % positions_[who]];
  }

  void ExpectParts(const Order& order, int64_t epoch, int64_t position) {
    const std::vector<Order::Part> parts = order.PartsAt(epoch, position);
    ASSERT_EQ(parts.size(), sources_.size());
    const std::vector<int64_t>& turns = turns_[phase_];
    const double round = static_cast<double>(
        std::accumulate(turns.begin(), turns.end(), int64_t{0}));
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(parts[i].size, sources_[i].size);
      ASSERT_EQ(parts[i].drawn, sources_[i].drawn);
      ASSERT_EQ(parts[i].share, static_cast<double>(turns[i]) / round);
    }
  }

  void ExpectProportions() {
    const std::vector<int64_t>& turns = turns_[phase_];
    const int64_t round =
        std::accumulate(turns.begin(), turns.end(), int64_t{0});
    for (size_t i = 0; i < turns.size(); ++i) {
      ASSERT_LT(std::abs(counts_[i] * round - turns[i] * dealt_), round);
    }
  }

  const ContinuedMixtureOptions options_;
  const std::vector<std::vector<int64_t>> turns_;
  std::vector<Source> sources_;
  std::vector<int64_t> positions_;  // of an epoch of each source
  size_t phase_ = 0;
  int64_t samples_ = 0;  // since epoch 0
  QuotaTurns deal_;
  int64_t waiting_ = -1;         // a source that may end the epoch
  std::vector<int64_t> counts_;  // since the turns began
  std::vector<int64_t> epoch_counts_;
  int64_t dealt_ = 0;
  size_t ended_at_ = 0;
};

TEST(ContinuedMixture, IsTheTrainingThatItsHeaderPromises) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const Case made = RandomCase(random, kAllKinds);
    const auto order = Mix(made.options);
    SCOPED_TRACE(order->Describe().ToString());
    Trainer trainer(made);
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      trainer.TrainEpoch(*order, epoch);
      if (HasFatalFailure()) return;
    }
  }
}

// Returns the samples of each source in some epochs, one after the other.
std::vector<std::vector<int64_t>> BySource(const Order& order,
                                           const Sources& sources,
                                           int64_t first, int64_t last) {
  std::vector<std::vector<int64_t>> samples(sources.size());
  for (int64_t epoch = first; epoch <= last; ++epoch) {
    for (int64_t index : ReadEpoch(order, epoch)) {
      size_t source = 0;
      while (index >= sources[source]->Describe().size) {
        index -= sources[source++]->Describe().size;
      }
      samples[source].push_back(index);
    }
  }
  return samples;
}

// A sample comes for the k-th time in the k-th epoch of its source.
TEST(ContinuedMixture, ComingsAreEpochsOfTheSource) {
  Random random(2);
  for (int round = 0; round < 50; ++round) {
    const Case made = RandomCase(random, 3);  // permutations
    const auto samples =
        BySource(*Mix(made.options), made.options.sources, 0, 10);
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t size = made.options.sources[i]->Describe().size;
      std::map<int64_t, int64_t> times;
      for (size_t n = 0; n < samples[i].size(); ++n) {
        ASSERT_EQ(times[samples[i][n]]++, static_cast<int64_t>(n) / size);
      }
    }
  }
}

// Before epoch 0 come the epochs of the sources before their epoch 0.
TEST(ContinuedMixture, NegativeEpochsComeBeforeEpoch0) {
  Random random(3);
  for (int round = 0; round < 50; ++round) {
    const Case made = RandomCase(random, kTorchRandom);
    const auto samples =
        BySource(*Mix(made.options), made.options.sources, -4, -1);
    for (size_t i = 0; i < samples.size(); ++i) {
      std::vector<int64_t> joined;
      for (int64_t epoch = -1; joined.size() < samples[i].size(); --epoch) {
        std::vector<int64_t> pass = ReadEpoch(*made.options.sources[i], epoch);
        pass.insert(pass.end(), joined.begin(), joined.end());
        joined = std::move(pass);
      }
      joined.erase(joined.begin(),
                   joined.end() - static_cast<int64_t>(samples[i].size()));
      ASSERT_EQ(samples[i], joined);
    }
  }
}

TEST(ContinuedMixture, PhasesBeginAtTheirFirstSample) {
  ContinuedMixtureOptions options =
      Mixed({*SequentialOrder::Create(100), *SequentialOrder::Create(100),
             *SequentialOrder::Create(100)},
            {1, 0, 0}, MixtureStop::kNumSamples, 10);
  options.phases.push_back({3, {0, 1, 0}});
  options.phases.push_back({4, {0, 0, 1}});
  options.phases.push_back({36, {1, 0, 0}});
  const auto order = Mix(options);
  EXPECT_THAT(ReadEpoch(*order, 0),
              ElementsAre(0, 1, 2, 100, 200, 201, 202, 203, 204, 205));
  EXPECT_THAT(ReadEpoch(*order, 3),
              ElementsAre(226, 227, 228, 229, 230, 231, 3, 4, 5, 6));
  EXPECT_THAT(ReadEpoch(*order, 4),
              ElementsAre(7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(ReadEpoch(*order, -1),
              ElementsAre(90, 91, 92, 93, 94, 95, 96, 97, 98, 99));
  EXPECT_EQ(order->PartsAt(3, 5)[2].share, 1);
  EXPECT_EQ(order->PartsAt(3, 6)[0].share, 1);
  EXPECT_EQ(order->PartsAt(3, 6)[2].drawn, 32);
}

TEST(ContinuedMixture, SourcesEndOnceInAnEpochOrAtLeastOnce) {
  const Sources sources = {Native(10), Native(10), Native(3)};
  const auto first =
      Mix(Mixed(sources, {0.7, 0.3, 0}, MixtureStop::kFirstExhausted));
  for (int64_t epoch = -3; epoch < 7; ++epoch) {
    const auto samples = BySource(*first, sources, epoch, epoch);
    EXPECT_EQ(samples[0].size(), 10u);
    EXPECT_LE(samples[1].size(), 5u);
    EXPECT_TRUE(samples[2].empty());
  }
  const auto all =
      Mix(Mixed(sources, {0.7, 0.3, 0}, MixtureStop::kAllExhausted));
  for (int64_t epoch = -3; epoch < 7; ++epoch) {
    const auto samples = BySource(*all, sources, epoch, epoch);
    EXPECT_GE(samples[0].size(), 22u);
    EXPECT_EQ(samples[1].size(), 10u);
    EXPECT_TRUE(samples[2].empty());
  }
}

TEST(ContinuedMixture, Conforms) {
  Random random(4);
  for (int round = 0; round < 40; ++round) {
    const Case made = RandomCase(random, kAllKinds);
    const auto order = Mix(made.options);
    EXPECT_TRUE(order->NeedsBlockedLayout());
    ExpectConforms(*order, 0);
    ExpectConforms(*order, round);
  }
  for (int round = 0; round < 20; ++round) {
    // Not even PyTorch's shuffles have epochs that are so far.
    const auto order = Mix(RandomCase(random, kTorchShuffle).options);
    for (const int64_t epoch : {int64_t{-1}, int64_t{-7}, kFar, -kFar}) {
      ExpectConforms(*order, epoch);
    }
  }
}

// The numbers of the sources' epochs wrap where they don't fit into 64 bits.
TEST(ContinuedMixture, CountsMayGoBeyond64Bits) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const MixtureStop end :
       {MixtureStop::kNumSamples, MixtureStop::kAllExhausted}) {
    const auto order = Mix(Mixed({Native(1), Native(1)}, {5, 1}, end, 24));
    for (const int64_t near : {kMost / 20, kMost / 5, kMost / 4, kMost}) {
      for (int64_t epoch = near - 3; epoch < near; ++epoch) {
        ExpectConforms(*order, epoch + 1);
        ExpectConforms(*order, -epoch);
        EXPECT_GT(order->PartsAt(epoch, 3)[0].drawn, kMost / 8);
        EXPECT_LT(order->PartsAt(-epoch, 3)[0].drawn, -(kMost / 8));
      }
    }
  }
}

TEST(ContinuedMixture, HugeSourcesDoNotOverflow) {
  NativeWeightedOptions weighted;
  weighted.weights = {1, 2};
  weighted.num_samples = kFar;
  const Sources sources = {*NativeWeighted::Create(weighted), Native(kFar - 3),
                           Native(1)};
  for (const auto end :
       {MixtureStop::kFirstExhausted, MixtureStop::kAllExhausted,
        MixtureStop::kNumSamples}) {
    for (const double small : {0.0, 1e-9, 0.1}) {
      const auto order = Mix(Mixed(sources, {1, 1e-7, small}, end, kFar));
      for (const int64_t epoch : {int64_t{0}, int64_t{1}, kFar, -kFar}) {
        const auto stream = *order->Open(epoch);
        const int64_t size = stream->size();
        int64_t last = -1;
        LOCKSTEP_EXPECT_OK(stream->Read(size - 1, 1, absl::MakeSpan(&last, 1)));
        EXPECT_GE(last, 0);
        LOCKSTEP_EXPECT_OK(stream->Read(0, 1, absl::MakeSpan(&last, 1)));
        EXPECT_GE(order->PartsAt(epoch, size).size(), 3u);
      }
    }
  }
}

std::vector<double> SharesOf(const Order& order) {
  std::vector<double> shares;
  for (const Order::Part& part : order.PartsAt(0, 0)) {
    shares.push_back(part.share);
  }
  return shares;
}

// Mixes as many sources of one sample as there are weights.
std::shared_ptr<const Order> OfWeights(std::vector<double> weights) {
  Sources sources(weights.size(), *SequentialOrder::Create(1));
  return Mix(Mixed(std::move(sources), std::move(weights),
                   MixtureStop::kNumSamples, 1));
}

TEST(ContinuedMixture, SharesAreSmallFractions) {
  EXPECT_THAT(OfWeights({0.7, 0.3})->Explain(),
              AllOf(HasSubstr("7 of 10 turns"), HasSubstr("3 of 10 turns")));
  EXPECT_THAT(OfWeights({0.7, 0.3})->Describe().details,
              HasSubstr("from:0:7+3"));
  EXPECT_THAT(OfWeights({1, 1, 1})->Describe().details,
              HasSubstr("from:0:1+1+1"));
  EXPECT_THAT(OfWeights({1.0 / 3, 2.0 / 3})->Describe().details,
              HasSubstr("from:0:1+2"));
  EXPECT_THAT(OfWeights({7e200, 0, 3e200})->Describe().details,
              HasSubstr("from:0:7+0+3"));
  EXPECT_THAT(OfWeights({5e-324})->Describe().details, HasSubstr("from:0:1"));
  EXPECT_THAT(OfWeights({0.123, 0.877})->Describe().details,
              HasSubstr("from:0:123+877"));
}

TEST(ContinuedMixture, TheSmallestWeightHasATurn) {
  constexpr double kTurn = 1.0 / (1 << 20);
  EXPECT_THAT(SharesOf(*OfWeights({1e-9, 1})), ElementsAre(kTurn, 1 - kTurn));
  EXPECT_THAT(SharesOf(*OfWeights({1e300, 5e-324, 0})),
              ElementsAre(1 - kTurn, kTurn, 0));
}

double FurthestShare(const Order& order, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::vector<double> shares = SharesOf(order);
  double furthest = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(shares[i] > 0, weights[i] > 0);
    furthest = std::max(furthest, std::abs(shares[i] - weights[i] / sum));
  }
  return furthest;
}

TEST(ContinuedMixture, SharesAreWhatWasAskedFor) {
  constexpr double kTurn = 1.0 / (1 << 20);
  Random random(5);
  EXPECT_LE(
      FurthestShare(*OfWeights({3.14159265358979, 1}), {3.14159265358979, 1}),
      kTurn / 2);
  // With so many sources, the nearest fractions hardly ever add up to 1.
  for (const int64_t count : {2, 3, 7, 30, 100, 1000, 20000, 20001}) {
    std::vector<double> weights;
    for (int64_t i = 0; i < count; ++i) {
      weights.push_back(random.Uniform(0.01, 0.02));
    }
    EXPECT_LT(FurthestShare(*OfWeights(weights), weights), kTurn)
        << count << " sources";
  }
}

// A turn for each of many small sources is taken from all large ones alike.
TEST(ContinuedMixture, LargeSourcesGiveTheTurnsOfSmallOnes) {
  std::vector<double> weights(1000, 1e-12);
  for (int i = 0; i < 10; ++i) weights.push_back(1 + 0.01 * i);
  EXPECT_LT(FurthestShare(*OfWeights(weights), weights), 102.0 / (1 << 20));
  std::vector<double> many((1 << 19) + 1000, 1e-12);
  many.insert(many.end(), {1, 1});
  const std::vector<double> shares = SharesOf(*OfWeights(many));
  EXPECT_NEAR(shares.back(), 0.25, 0.001);
  EXPECT_NEAR(shares[shares.size() - 2], 0.25, 0.001);
}

// An order that counts how often it was opened.
class CountingOrder : public Order {
 public:
  explicit CountingOrder(std::shared_ptr<const Order> inner)
      : inner_(std::move(inner)) {}

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override {
    ++opened_[epoch];
    return inner_->Open(epoch);
  }
  OrderDescription Describe() const override { return inner_->Describe(); }

  std::map<int64_t, int>& opened() const { return opened_; }

 private:
  const std::shared_ptr<const Order> inner_;
  mutable std::map<int64_t, int> opened_;
};

TEST(ContinuedMixture, EachEpochOfASourceIsOpenedOnce) {
  const auto large = std::make_shared<CountingOrder>(Native(2000));
  const auto small = std::make_shared<CountingOrder>(Native(35));
  const auto order =
      Mix(Mixed({large, small}, {0.7, 0.3}, MixtureStop::kNumSamples, 1000));
  large->opened().clear();
  small->opened().clear();
  const auto stream = *order->Open(0);
  EXPECT_TRUE(large->opened().empty());
  LOCKSTEP_ASSERT_OK(stream->Prepare());
  for (int64_t first = 0; first < 1000; first += 8) {
    std::vector<int64_t> out(8);
    LOCKSTEP_ASSERT_OK(stream->Read(first, 1, absl::MakeSpan(out)));
  }
  EXPECT_THAT(large->opened(), ElementsAre(testing::Pair(0, 1)));
  EXPECT_EQ(small->opened().size(), 9u);
  for (const auto& [epoch, times] : small->opened()) EXPECT_EQ(times, 1);
}

// After Prepare, the first draw of each source opens nothing, wherever in a
// round the epoch begins.
TEST(ContinuedMixture, PrepareOpensWhatIsReadFirst) {
  Random random(6);
  for (int round = 0; round < 50; ++round) {
    const auto a =
        std::make_shared<CountingOrder>(Native(random.Integer(1, 8)));
    const auto b =
        std::make_shared<CountingOrder>(Native(random.Integer(1, 8)));
    const auto order = Mix(Mixed({a, b}, {0.8, 0.2}, MixtureStop::kNumSamples,
                                 random.Integer(12, 20)));
    for (int64_t epoch = 0; epoch < 10; ++epoch) {
      a->opened().clear();
      b->opened().clear();
      const auto stream = *order->Open(epoch);
      LOCKSTEP_ASSERT_OK(stream->Prepare());
      EXPECT_EQ(a->opened().size() + b->opened().size(), 2u);
      bool met[2] = {false, false};
      for (int64_t first = 0; !met[0] || !met[1]; ++first) {
        const int64_t size = a->Describe().size;
        int64_t index = -1;
        const size_t opened = a->opened().size() + b->opened().size();
        LOCKSTEP_ASSERT_OK(stream->Read(first, 1, absl::MakeSpan(&index, 1)));
        bool& seen = met[index >= size];
        if (!seen) {
          EXPECT_EQ(a->opened().size() + b->opened().size(), opened);
        }
        seen = true;
      }
    }
  }
}

// The description names each setting that changes the stream.
TEST(ContinuedMixture, DescriptionsDiffer) {
  const Sources sources = {Native(10, 1), Native(20, 2)};
  std::vector<ContinuedMixtureOptions> all = {
      Mixed(sources, {1, 2}, MixtureStop::kNumSamples, 40),
      Mixed(sources, {2, 1}, MixtureStop::kNumSamples, 40),
      Mixed(sources, {1, 2}, MixtureStop::kNumSamples, 41),
      Mixed(sources, {1, 2}, MixtureStop::kFirstExhausted),
      Mixed(sources, {1, 2}, MixtureStop::kAllExhausted),
      Mixed({Native(10, 3), sources[1]}, {1, 2}, MixtureStop::kNumSamples, 40),
      Mixed({*SequentialOrder::Create(10), sources[1]}, {1, 2},
            MixtureStop::kNumSamples, 40)};
  all.push_back(all[0]);
  all.back().phases.push_back({50, {1, 1}});
  all.push_back(all[0]);
  all.back().phases.push_back({51, {1, 1}});
  std::map<std::string, int> texts;
  for (const ContinuedMixtureOptions& options : all) {
    const OrderDescription description = Mix(options)->Describe();
    EXPECT_EQ(description.order, "continued_mixture");
    EXPECT_EQ(description.size, 30);
    ++texts[description.ToString()];
  }
  EXPECT_EQ(texts.size(), all.size());
}

TEST(ContinuedMixture, ExplainsWhatAnEpochHas) {
  EXPECT_EQ(Mix(Mixed({Native(10), Native(20), Native(0)}, {0.7, 0.3, 0},
                      MixtureStop::kFirstExhausted))
                ->Explain(),
            "a mixture with 14 samples an epoch: part 0 of 10 samples has 7 of "
            "10 turns (it comes 1 times an epoch), part 1 of 20 samples has 3 "
            "of 10 turns (it comes 0.2 times an epoch), part 2 of 0 samples "
            "has 0 of 10 turns");
}

ContinuedMixtureOptions WithPhases() {
  ContinuedMixtureOptions options =
      Mixed({Native(30), *TorchShuffle::Create({7, 3}),
             *TorchRandom::Create({11, 20})},
            {0.5, 0.3, 0.2}, MixtureStop::kNumSamples, 101);
  options.phases.push_back({40, {0, 0.3, 0.2}});
  options.phases.push_back({150, {0.1, 0.1, 0.1}});
  return options;
}

TEST(ContinuedMixture, SamplersConform) {
  const Case random_case = [] {
    Random random(8);
    return RandomCase(random, kTorchRandom);
  }();
  for (const ContinuedMixtureOptions& mixture :
       {WithPhases(), random_case.options}) {
    for (const Tail tail : {Tail::kPad, Tail::kUneven}) {
      ExpectConforms([&mixture, tail](int64_t rank, int64_t ranks) {
        SamplerOptions options;
        options.cut.batch_size = 4;
        options.cut.world = ranks;
        options.cut.layout = Layout::kBlocked;
        options.cut.tail = tail;
        options.rank = rank;
        return Sampler::Create(Mix(mixture), options);
      });
    }
  }
}

// Padding at the end of an epoch comes from its beginning, where each source
// was in an earlier epoch of its order.
TEST(ContinuedMixture, PaddingIsTheBeginningOfTheEpoch) {
  const auto order = Mix(WithPhases());
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int64_t> expected = ReadEpoch(*order, epoch);
    for (int64_t rank = 0; rank < 6; ++rank) {
      SamplerOptions options;
      options.cut.batch_size = 20;
      options.cut.world = 6;
      options.cut.layout = Layout::kBlocked;
      options.cut.tail = Tail::kPad;
      options.rank = rank;
      const auto sampler = *Sampler::Create(order, options);
      LOCKSTEP_ASSERT_OK(sampler->StartEpoch(epoch));
      BatchIndices batch;
      int64_t rows = 0;
      while (*sampler->Next(batch)) {
        for (size_t row = 0; row < batch.indices.size(); ++row) {
          const int64_t position = batch.positions[row] % 101;
          ASSERT_EQ(batch.indices[row],
                    expected[static_cast<size_t>(position)]);
          ++rows;
        }
      }
      EXPECT_GE(rows, 17);
    }
  }
}

}  // namespace
}  // namespace lockstep
