// Tests of gradients that have the same bits on any number of ranks.
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/held.h"
#include "lockstep/base/random.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/on_ranks.h"

namespace lockstep {
namespace {

using Overlap = GradientsOptions::Overlap;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

constexpr int kSteps = 12;

// A Setting has what does not change the result of a job.
struct Setting {
  int64_t shards = 24;
  int64_t bucket_bytes = 0;
  Overlap overlap = Overlap::kOff;
  std::string backend = "local";
  bool is_own = false;  // the gradients are in the trainer's memory
  bool overwrites = false;
  bool discards = false;  // some steps are begun and thrown away before
  bool finds_culprit = false;
  bool skips_unused = false;
  int64_t compare_every = 0;
};

// A Task has what decides the result of a job.
struct Task {
  int64_t shards = 24;    // in which steps are cut, whatever Setting::shards is
  int micro_batches = 1;  // of a shard
  bool freezes = false;   // a parameter is frozen for some steps
  bool scales = false;    // the loss
};

// One rank of a job.
class Trainer {
 public:
  Trainer(const Task& task, const Setting& setting)
      : task_(task), setting_(setting) {}

  absl::StatusOr<std::string> Train(Communicator& group) {
    LOCKSTEP_RETURN_IF_ERROR(Make(group));
    for (step_ = 0; step_ < kSteps; ++step_) {
      if (task_.freezes && step_ % 4 == 1) {
        LOCKSTEP_RETURN_IF_ERROR(
            gradients_->SetFrozen("halves", step_ % 8 == 1));
      }
      for (int thrown = 0; setting_.discards && thrown < step_ % 3; ++thrown) {
        LOCKSTEP_RETURN_IF_ERROR(BeginStep(group, /*most_parts=*/1 + thrown));
        LOCKSTEP_RETURN_IF_ERROR(gradients_->Discard());
      }
      LOCKSTEP_RETURN_IF_ERROR(BeginStep(group, /*most_parts=*/INT_MAX));
      LOCKSTEP_RETURN_IF_ERROR(EndStep());
    }
    std::string all = digest_;
    for (const GradientView& view : gradients_->views()) {
      absl::StrAppend(&all, DigestOf(Bytes(view.values)).ToString());
    }
    return DigestOf(all).ToString();
  }

 private:
  static absl::string_view Bytes(const Buffer& buffer) {
    return {static_cast<const char*>(buffer.data),
            static_cast<size_t>(buffer.count * SizeOf(buffer.dtype))};
  }

  absl::Status Make(Communicator& group) {
    std::vector<Parameter> parameters = {{"large", BufferOf(large_)},
                                         {"halves", BufferOf(halves_)},
                                         {"doubles", BufferOf(doubles_)},
                                         {"small", BufferOf(small_)},
                                         {"brains", BufferOf(brains_)}};
    // Its gradient is in bf16, too.
    parameters[4].gradient_dtype = DType::kBF16;
    if (setting_.is_own) {
      parameters[0].gradient = BufferOf(own_);
      parameters[3].gradient = BufferOf(own_halves_);
    } else {
      parameters[3].gradient_dtype = DType::kF16;
    }
    GradientsOptions options;
    options.shards = setting_.shards;
    options.bucket_bytes = setting_.bucket_bytes;
    options.overlap = setting_.overlap;
    options.overwrite = setting_.overwrites;
    options.find_culprit = setting_.finds_culprit;
    options.compare_every = setting_.compare_every;
    if (setting_.skips_unused) {
      options.unused = GradientsOptions::Unused::kSkip;
    }
    if (task_.scales) {
      options.loss_scale = LossScale();
      options.loss_scale->initial = 3;
      options.loss_scale->growth_steps = 2;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        gradients_, Gradients::Create(group, std::move(parameters), options));
    return absl::OkStatus();
  }

  // The rows of a shard: in every third step, the last shards have none.
  int64_t RowsOf(int64_t shard) const {
    return step_ % 3 == 2 && shard * 3 > task_.shards * 2 ? 0 : 3 + shard % 4;
  }

  // Adds to the gradient of one parameter what the rows of a shard give.
  template <typename T>
  void AddTo(size_t parameter, int64_t shard, int micro_batch, bool sets) {
    const GradientView& view = gradients_->views()[parameter];
    const auto wide = [](auto value) {
      if constexpr (std::is_same_v<T, double>) {
        return static_cast<double>(value);
      } else {
        return static_cast<float>(value);
      }
    };
    const absl::Span<T> gradient = SpanOf<T>(view.gradient);
    Random random(
        RandomKey(step_, parameter, shard * task_.micro_batches + micro_batch));
    const bool has_rows = RowsOf(shard) > 0;
    for (T& each : gradient) {
      const double value = has_rows ? random.Uniform(-3, 3) : 0;
      each = T(wide((sets ? 0 : wide(each)) + value));
    }
  }

  void AddRows(int64_t shard, int micro_batch, bool is_first) {
    const bool sets = setting_.overwrites && is_first;
    // In the order in which a backward pass may have them.
    AddTo<BFloat16>(4, shard, micro_batch, sets);
    gradients_->MarkReady(4);
    AddTo<Float16>(3, shard, micro_batch, sets);
    gradients_->MarkReady(3);
    AddTo<double>(2, shard, micro_batch, sets);
    gradients_->MarkReady(2);
    AddTo<float>(1, shard, micro_batch, sets);
    gradients_->MarkReady(1);
    AddTo<float>(0, shard, micro_batch, sets);
    gradients_->MarkReady(0);
  }

  // Begins a step, and does its parts, or at most so many of them.
  absl::Status BeginStep(Communicator& group, int most_parts) {
    ShardRange own = gradients_->shards();
    if (setting_.shards == 0) {
      own = {task_.shards * group.rank() / group.size(),
             task_.shards * (group.rank() + 1) / group.size()};
    }
    const auto shards =
        static_cast<int>((task_.shards + group.size() - 1) / group.size());
    const int parts = shards * task_.micro_batches;
    LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginStep(parts));
    weight_ = 0;
    sums_.assign(setting_.shards == 0 ? 2 : 2 * (own.end - own.begin), 0);
    for (int part = 0; part < std::min(parts, most_parts); ++part) {
      const int64_t i = part / task_.micro_batches;
      const int64_t shard = own.begin + i;
      LOCKSTEP_RETURN_IF_ERROR(
          gradients_->BeginPart(part, shard < own.end ? shard : -1));
      if (shard >= own.end) {
        for (int64_t mark = 4; mark >= 0; --mark) gradients_->MarkReady(mark);
        continue;
      }
      AddRows(shard, part % task_.micro_batches, part == 0);
      if (part % task_.micro_batches > 0) continue;
      weight_ += RowsOf(shard);
      double* const of_shard = &sums_[setting_.shards == 0 ? 0 : 2 * i];
      Random random(RandomKey(step_, 77, shard));
      of_shard[0] += random.Normal();
      of_shard[1] += random.Normal() * 1e6;
    }
    return absl::OkStatus();
  }

  absl::Status EndStep() {
    StepInput input;
    input.weight = weight_;
    std::vector<double> added_up = sums_;
    input.sums = absl::MakeSpan(added_up);
    LOCKSTEP_RETURN_IF_ERROR(gradients_->AddUp(input).status());
    input.sums = absl::MakeSpan(sums_);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                              gradients_->Average(input));
    EXPECT_EQ(added_up, sums_);
    LOCKSTEP_RETURN_IF_ERROR(gradients_->ClipByNorm(0.5));
    absl::StrAppend(&digest_, result.weight, " ",
                    DigestOf(absl::StrCat(absl::Hex(Bits(result.norm)), " ",
                                          absl::Hex(Bits(sums_[0])), " ",
                                          absl::Hex(Bits(sums_[1]))))
                        .ToString(),
                    "\n");
    for (const GradientView& view : gradients_->views()) {
      if (view.frozen) continue;
      absl::StrAppend(&digest_, DigestOf(Bytes(view.gradient)).ToString());
    }
    return absl::OkStatus();
  }

  static uint64_t Bits(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }

  const Task task_;
  const Setting setting_;
  int64_t step_ = 0;
  int64_t weight_ = 0;
  std::vector<double> sums_;
  std::string digest_;
  std::vector<float> large_ = std::vector<float>(10'007);
  std::vector<Float16> halves_ = std::vector<Float16>(4'099);
  std::vector<double> doubles_ = std::vector<double>(33);
  std::vector<Float16> small_ = std::vector<Float16>(5);
  std::vector<BFloat16> brains_ = std::vector<BFloat16>(70);
  std::vector<float> own_ = std::vector<float>(10'007);
  std::vector<Float16> own_halves_ = std::vector<Float16>(5);
  std::unique_ptr<Gradients> gradients_;
};

// Trains on so many ranks, and returns a digest of all that they have found.
std::string DigestOn(int ranks, const Task& task, Setting setting) {
  std::vector<std::string> digests(ranks);
  OnRanks(
      ranks,
      [&](Communicator& group) -> absl::Status {
        Trainer trainer(task, setting);
        LOCKSTEP_ASSIGN_OR_RETURN(digests[group.rank()], trainer.Train(group));
        return absl::OkStatus();
      },
      setting.backend);
  EXPECT_THAT(digests, Each(digests[0])) << ranks << " ranks";
  return digests[0];
}

class ExactGradients : public testing::TestWithParam<Task> {};

INSTANTIATE_TEST_SUITE_P(
    Tasks, ExactGradients,
    testing::Values(Task{4}, Task{12}, Task{12, 2}, Task{24}, Task{16, 3},
                    Task{1, 2}, Task{12, 1, /*freezes=*/true},
                    Task{6, 2, /*freezes=*/false, /*scales=*/true}),
    [](const auto& info) {
      const Task& task = info.param;
      return absl::StrCat(task.shards, "Shards", task.micro_batches,
                          "MicroBatches", task.freezes ? "Frozen" : "",
                          task.scales ? "Scaled" : "");
    });

Setting RandomSetting(const Task& task, const std::string& backend,
                      Random& random) {
  Setting setting;
  setting.shards = task.shards;
  setting.backend = backend;
  setting.bucket_bytes = random.Below(2) * (32 << 10);
  constexpr Overlap kOverlaps[] = {Overlap::kOff, Overlap::kOn, Overlap::kAuto};
  setting.overlap = kOverlaps[random.Below(3)];
  setting.is_own = random.Below(2) == 0;
  setting.overwrites = random.Below(2) == 0;
  setting.discards = random.Below(2) == 0;
  setting.finds_culprit = random.Below(2) == 0;
  setting.skips_unused = random.Below(2) == 0;
  setting.compare_every = random.Integer(0, 3);
  return setting;
}

std::string Describe(const Setting& setting) {
  return absl::StrCat(
      "over ", setting.backend, ", bucket_bytes ", setting.bucket_bytes,
      ", overlap ", static_cast<int>(setting.overlap), ", own ", setting.is_own,
      ", overwrites ", setting.overwrites, ", discards ", setting.discards,
      ", finds_culprit ", setting.finds_culprit, ", skips_unused ",
      setting.skips_unused, ", compare_every ", setting.compare_every);
}

// The reference has one rank alone, which adds up in a single bucket.
TEST_P(ExactGradients, HaveTheSameBitsOnAnyNumberOfRanks) {
  const Task& task = GetParam();
  Setting alone;
  alone.shards = task.shards;
  const std::string expected = DigestOn(1, task, alone);
  const int most = static_cast<int>(std::min<int64_t>(8, task.shards));
  Random random(1);
  for (int ranks = 1; ranks <= most; ++ranks) {
    for (const char* const backend : {"local", "shm", "tcp"}) {
      const Setting setting = RandomSetting(task, backend, random);
      EXPECT_EQ(DigestOn(ranks, task, setting), expected)
          << ranks << " ranks " << Describe(setting);
    }
  }
}

// The bits are a promise (docs/determinism.md).
TEST(ExactGradients, HaveTheBitsOfThisDigest) {
  Setting setting;
  EXPECT_EQ(DigestOn(1, Task(), setting), "ec237bb4ab66ec2f830f9b88ebd84232");
  EXPECT_EQ(DigestOn(3, Task(), setting), "ec237bb4ab66ec2f830f9b88ebd84232");
}

// Without shards, the same job must differ on some of these numbers, or else
// the test above shows nothing.
TEST(ExactGradients, DifferInTheOrderOfRanks) {
  for (const int64_t shards : {4, 12, 24}) {
    const Task task = {shards};
    Setting setting;
    setting.shards = 0;
    std::vector<std::string> digests;
    for (const int ranks : {1, 2, 4}) {
      digests.push_back(DigestOn(ranks, task, setting));
    }
    EXPECT_NE(digests[0], digests[1]) << "VACUOUS";
    EXPECT_NE(digests[1], digests[2]) << "VACUOUS";
  }
}

// ---- One parameter, whose gradient is set in each shard.

struct Single {
  std::vector<float> values = std::vector<float>(3);
  std::unique_ptr<Gradients> gradients;
  absl::Span<float> gradient;

  absl::Status Make(Communicator& group, GradientsOptions options = {},
                    int64_t shards = 6) {
    options.shards = shards;
    LOCKSTEP_ASSIGN_OR_RETURN(
        gradients,
        Gradients::Create(group, {{"p", BufferOf(values)}}, options));
    LOCKSTEP_ASSIGN_OR_RETURN(gradient, gradients->Of<float>("p"));
    return absl::OkStatus();
  }

  // Adds what `value` returns for each shard.
  template <typename Value>
  absl::Status Parts(int parts, const Value& value) const {
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep(parts));
    const ShardRange own = gradients->shards();
    for (int part = 0; part < parts; ++part) {
      const int64_t shard = own.begin + part < own.end ? own.begin + part : -1;
      LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(part, shard));
      EXPECT_THAT(gradient, Each(0)) << part;
      if (shard >= 0) gradient[0] += value(shard);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StepResult> Average(int64_t weight = 1) const {
    StepInput input;
    input.weight = weight;
    return gradients->Average(input);
  }
};

// Each bracket of ((0 + 1) + 2) + ((3 + 4) + 5) shows.
TEST(ExactGradients, AreAddedUpAlongTheTree) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    OnRanks(ranks, [&](Communicator& group) -> absl::Status {
      Single single;
      LOCKSTEP_RETURN_IF_ERROR(single.Make(group));
      const int parts = (6 + ranks - 1) / ranks;
      const std::vector<float> values = {1e8F, 1, -1e8F, 1, 1, 1};
      LOCKSTEP_RETURN_IF_ERROR(
          single.Parts(parts, [&](int64_t shard) { return values[shard]; }));
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step, single.Average());
      EXPECT_EQ(step.weight, ranks);
      EXPECT_EQ(single.gradient[0], 3.0F / static_cast<float>(ranks));
      return absl::OkStatus();
    });
  }
}

// A trainer that overwrites may set -0, and one that adds can't.
TEST(ExactGradients, NegativeZerosCountAsZeros) {
  for (const int ranks : {1, 2, 3, 6}) {
    OnRanks(ranks, [&](Communicator& group) -> absl::Status {
      Single single;
      GradientsOptions options;
      options.overwrite = true;
      LOCKSTEP_RETURN_IF_ERROR(single.Make(group, options));
      const int parts = 6 / ranks;
      LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginStep(parts));
      for (int part = 0; part < parts; ++part) {
        LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginPart(
            part, single.gradients->shards().begin + part));
        for (float& each : single.gradient) {
          each = part == 0 ? -0.0F : each + -0.0F;
        }
        single.gradients->MarkReady(0);
      }
      LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
      EXPECT_FALSE(std::signbit(single.gradient[0])) << ranks << " ranks";
      std::vector<double> sums(parts, -0.0);
      StepInput input;
      input.weight = 1;
      input.sums = absl::MakeSpan(sums);
      LOCKSTEP_RETURN_IF_ERROR(single.gradients->AddUp(input).status());
      EXPECT_FALSE(std::signbit(sums[0])) << ranks << " ranks";
      return absl::OkStatus();
    });
  }
}

#if defined(__x86_64__)
// The trainer's thread flushes subnormal values to 0, which the transports'
// threads do not. On one rank, this thread adds up all: a - (a - tiny) + a,
// where `tiny` is subnormal.
TEST(ExactGradients, ModesOfTheThreadHaveNoInfluence) {
  constexpr uint32_t kBits[] = {0x01000000, 0x80fffffe, 0x01000000, 0, 0, 0};
  for (const int ranks : {1, 2, 3, 6}) {
    OnRanks(ranks, [&](Communicator& group) -> absl::Status {
      Single single;
      LOCKSTEP_RETURN_IF_ERROR(single.Make(group));
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | 0x8040);
      absl::Status status = single.Parts(6 / ranks, [&](int64_t shard) {
        float value = 0;
        std::memcpy(&value, &kBits[shard], sizeof(value));
        return value;
      });
      StepInput input;
      input.weight = group.rank() == 0 ? 1 : 0;
      if (status.ok()) status = single.gradients->Average(input).status();
      _mm_setcsr(before);
      uint32_t sum = 0;
      std::memcpy(&sum, &single.gradient[0], sizeof(sum));
      EXPECT_EQ(sum, 0x01000001) << ranks << " ranks";
      return status;
    });
  }
}
#endif

// Ranks whose data has ended answer with zeros.
TEST(ExactGradients, RanksMayHaveFewerSteps) {
  OnRanks(3, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group, {}, /*shards=*/12));
    const int steps = group.rank() + 1;
    std::vector<float> means;
    for (int step = 0; step < steps; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(
          single.Parts(4, [](int64_t shard) { return shard; }));
      StepInput input;
      input.weight = 4;
      input.has_more = step + 1 < steps;
      LOCKSTEP_RETURN_IF_ERROR(single.gradients->Average(input).status());
      means.push_back(single.gradient[0]);
    }
    StepInput rest;
    std::vector<double> sums(0);
    LOCKSTEP_RETURN_IF_ERROR(single.gradients->AverageUntilAllAreDone(
        [&](const StepResult& step) {
          means.push_back(single.gradient[0]);
          return absl::OkStatus();
        },
        rest));
    EXPECT_THAT(means, testing::ElementsAre(66.0F / 12, 60.0F / 8, 38.0F / 4));
    return absl::OkStatus();
  });
}

// ---- Numbers.

// 8 shards on 3 ranks: 3, 3 and 2. The sums of 1e16 and 1 lose the 1.
TEST(ExactGradients, SumsAreAddedUpByShard) {
  for (const int ranks : {1, 2, 3, 8}) {
    OnRanks(ranks, [&](Communicator& group) -> absl::Status {
      Single single;
      LOCKSTEP_RETURN_IF_ERROR(single.Make(group, {}, /*shards=*/8));
      const ShardRange own = single.gradients->shards();
      std::vector<double> sums;
      for (int64_t shard = own.begin; shard < own.end; ++shard) {
        const std::vector<double> values = {1e16, 1, -1e16, 1, 1, 1, 1, 1};
        sums.push_back(values[shard]);
        sums.push_back(static_cast<double>(shard));
      }
      for (const bool alone : {false, true}) {
        std::vector<double> added = sums;
        StepInput input;
        input.weight = group.rank() + 1;
        input.stop = group.rank() == 0;
        input.sums = absl::MakeSpan(added);
        LOCKSTEP_ASSIGN_OR_RETURN(const StepResult all,
                                  alone ? AddUpStep(group, input, /*shards=*/8)
                                        : single.gradients->AddUp(input));
        EXPECT_EQ(all.weight, ranks * (ranks + 1) / 2);
        EXPECT_EQ(all.stops, 1);
        EXPECT_TRUE(all.any_more);
        // (1e16 + 1) + (-1e16 + 1), and then 4
        EXPECT_EQ(added[0], 4);
        EXPECT_EQ(added[1], 28);
        EXPECT_THAT(absl::MakeSpan(added).subspan(2), Each(0));
      }
      return absl::OkStatus();
    });
  }
}

// ---- What travels.

// Returns the elements that a rank gives to its all-reduces of gradients in a
// step, as a multiple of those of the gradient.
std::vector<double> GivenOn(int ranks, int64_t shards) {
  std::vector<double> given(ranks);
  OnRanks(ranks, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(10'000);
    GradientsOptions options;
    options.shards = shards;
    options.overlap = Overlap::kOff;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gradients,
        Gradients::Create(group, {{"p", BufferOf(values)}}, options));
    const ShardRange run = gradients->shards();
    const auto parts = std::max<int64_t>(1, run.end - run.begin);
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep(static_cast<int>(parts)));
    for (int part = 0; part < parts; ++part) {
      LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(part, run.begin + part));
    }
    const Communicator& own = *gradients->groups()[0];
    const int64_t before = own.issued_operations();
    StepInput input;
    input.weight = 1;
    LOCKSTEP_RETURN_IF_ERROR(gradients->Average(input).status());
    for (const OperationRecord& record :
         own.RecentOperations(own.issued_operations() - before)) {
      if (record.dtype != DType::kF32) continue;
      given[group.rank()] += static_cast<double>(record.in_count) / 10'000;
    }
    return absl::OkStatus();
  });
  return given;
}

TEST(ExactGradients, TravelAsFewSums) {
  for (const int ranks : {2, 4, 8}) {
    EXPECT_THAT(GivenOn(ranks, 24), Each(1)) << ranks;
    EXPECT_EQ(GivenOn(ranks, 24), GivenOn(ranks, 0)) << ranks;
  }
  EXPECT_THAT(GivenOn(3, 24), testing::ElementsAre(2, 4, 3));
  EXPECT_THAT(GivenOn(6, 24), testing::ElementsAre(2, 3, 2, 2, 3, 2));
}

// docs/determinism.md states the memory: on one rank, four sums wait beside the
// gradients. On three, some rank has four, too, and all ranks allocate as much.
TEST(ExactGradients, TakeTheMemoryThatIsStated) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  constexpr int64_t kCount = int64_t{8} << 20;
  for (const int ranks : {1, 3}) {
    std::vector<std::vector<float>> values(ranks, std::vector<float>(kCount));
    const int64_t before = HeldNow().resident_kib;
    OnRanks(ranks, [&](Communicator& group) -> absl::Status {
      GradientsOptions options;
      options.shards = 24;
      options.overlap = Overlap::kOff;
      options.share_values = false;
      LOCKSTEP_ASSIGN_OR_RETURN(
          const auto gradients,
          Gradients::Create(group, {{"p", BufferOf(values[group.rank()])}},
                            options));
      LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
      if (group.rank() == 0) {
        const double buffers =
            static_cast<double>(HeldNow().resident_kib - before) * 1024 /
            (ranks * kCount * sizeof(float));
        EXPECT_GT(buffers, 4.9) << ranks;
        EXPECT_LT(buffers, 5.4) << ranks;
      }
      return Wait(group.Barrier());
    });
  }
}

// ---- Mistakes.

TEST(ExactGradients, OptionsThatCanNotBeAreRefused) {
  OnRanks(4, [](Communicator& group) -> absl::Status {
    const auto refused = [&](const GradientsOptions& options, int64_t shards,
                             absl::string_view why) {
      EXPECT_THAT(Single().Make(group, options, shards),
                  StatusIs(kInvalid, HasSubstr(why)));
    };
    refused(
        {}, 10,
        "GradientsOptions::shards should be 0 (what ranks bring is added up "
        "in their order), 2^n or 3 * 2^n, such as 8, 12, 16 or 24, and at most "
        "65536, but got shards=10");
    refused({}, -1, "but got shards=-1");
    refused({}, 3,
            "there should be at least as many shards as ranks, 4, but got "
            "GradientsOptions::shards=3: set more shards, or use fewer ranks");
    GradientsOptions rounded;
    rounded.send_bf16 = true;
    refused(rounded, 8, "send_bf16 rounds what each rank sends");
    return absl::OkStatus();
  });
}

TEST(ExactGradients, RanksMustHaveTheSameShards) {
  EXPECT_THAT(
      StatusesOf(2,
                 [](Communicator& group) {
                   return Single().Make(group, {}, group.rank() == 0 ? 8 : 6);
                 }),
      Each(StatusIs(kPrecondition, HasSubstr("GradientsOptions::shards"))));
}

TEST(ExactGradients, SumsOfAnotherNumberAreRefused) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(single.Parts(3, [](int64_t) { return 1; }));
    StepInput input;
    input.weight = 1;
    std::vector<double> sums(4);
    input.sums = absl::MakeSpan(sums);
    const auto refused = StatusIs(
        kInvalid,
        HasSubstr(absl::StrCat(
            "StepInput::sums has 4 numbers, and should have a multiple of 3: "
            "those of each shard of this rank, which has shards ",
            group.rank() == 0 ? "0 to 2" : "3 to 5",
            " of 6, one shard after another")));
    EXPECT_THAT(single.gradients->Average(input), refused);
    EXPECT_THAT(single.gradients->AddUp(input), refused);
    EXPECT_THAT(AddUpStep(group, input, /*shards=*/6), refused);
    EXPECT_THAT(AddUpStep(group, input, /*shards=*/10),
                StatusIs(kInvalid, HasSubstr("but got shards=10")));
    EXPECT_THAT(AddUpStep(group, input, /*shards=*/1),
                StatusIs(kInvalid, HasSubstr("but got "
                                             "GradientsOptions::shards=1")));
    input.weight.reset();
    EXPECT_THAT(AddUpStep(group, input), StatusIs(kInvalid));
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
    EXPECT_EQ(single.gradient[0], 3);
    return absl::OkStatus();
  });
}

// So a loader with another number of shards is found, too.
TEST(ExactGradients, PartsOfOtherShardsAreRefused) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group, {}, /*shards=*/4));
    Gradients& gradients = *single.gradients;
    const int64_t first = 2 * group.rank();
    const auto refused = [&](int part, int64_t shard, absl::string_view why) {
      EXPECT_THAT(gradients.BeginPart(part, shard),
                  StatusIs(kPrecondition, HasSubstr(why)));
    };
    const std::string run =
        group.rank() == 0 ? "shards 0 to 1 of 4" : "shards 2 to 3 of 4";
    refused(0, first, "BeginPart(0) comes outside of a step");
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep(4));
    EXPECT_THAT(gradients.BeginPart(0),
                StatusIs(kPrecondition,
                         HasSubstr("BeginPart(0) does not say of which shard "
                                   "the rows are")));
    EXPECT_THAT(single.Average(),
                StatusIs(kPrecondition, HasSubstr("after part 0 of a step")));
    refused(0, first + 1,
            absl::StrCat("BeginPart(0, ", first + 1, ") comes where shard ",
                         first, " is next. This rank has ", run,
                         ": give the "
                         "loader as many shards as GradientsOptions::shards"));
    refused(0, -1, absl::StrCat("shard ", first, " is next"));
    refused(1, first, "where part 0 is next");
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(0, first));
    refused(1, first - 1, absl::StrCat("shard ", first + 1, " is next"));
    refused(1, -1, absl::StrCat("shard ", first + 1, " is next"));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(1, first));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(2, first));
    refused(3, first,
            absl::StrCat("BeginPart(3, ", first,
                         ") comes where the step has "
                         "no further part, and this rank has 1 shard left. "
                         "This rank has ",
                         run));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(3, first + 1));
    single.gradient[0] = 1;
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
    EXPECT_EQ(single.gradient[0], 1);

    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep(4));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(0, first));
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(1, first + 1));
    refused(2, first + 2, "comes where no shard is left, and -1 is next");
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(2, -1));
    refused(3, first + 1, "comes where no shard is left, and -1 is next");
    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginPart(3, -1));
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());

    LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
    EXPECT_THAT(
        single.Average(),
        StatusIs(kPrecondition,
                 HasSubstr("Average comes before the shards of this rank")));
    return absl::OkStatus();
  });
}

// Without shards, BeginPart takes what a loader says.
TEST(ExactGradients, WithoutShardsNoneIsLookedAt) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group, {}, /*shards=*/0));
    EXPECT_EQ(single.gradients->shards().end, 0);
    LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginStep(2));
    LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginPart(0, group.rank()));
    LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginPart(1, -1));
    single.gradient[0] = 2;
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
    EXPECT_EQ(single.gradient[0], 2);
    return absl::OkStatus();
  });
}

TEST(ExactGradients, NothingIsAddedWithoutAShard) {
  OnRanks(4, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group));  // 2, 2, 1 and 1 shards
    LOCKSTEP_RETURN_IF_ERROR(single.Parts(2, [](int64_t) { return 1; }));
    if (group.rank() >= 2) {
      single.gradient[1] = 1;
      EXPECT_THAT(
          single.Average(),
          StatusIs(kPrecondition,
                   HasSubstr("the gradient of parameter 'p' is not 0 at the "
                             "end of part 1, in which this rank has no "
                             "shard")));
      single.gradient[1] = 0;
    }
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
    EXPECT_EQ(single.gradient[0], 1.5F);
    return absl::OkStatus();
  });
}

// The gradients do not have any more what was added in earlier parts, so this
// looks at the sums of shards.
TEST(ExactGradients, AStepThatIsNotAveragedIsAnError) {
  OnRanks(1, [](Communicator& group) -> absl::Status {
    Single single;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group));
    LOCKSTEP_RETURN_IF_ERROR(
        single.Parts(6, [](int64_t shard) { return shard == 1 ? 1 : 0; }));
    EXPECT_THAT(single.gradients->BeginStep(6),
                StatusIs(kPrecondition,
                         HasSubstr("the gradient of parameter 'p' is not 0 and "
                                   "was not averaged")));
    LOCKSTEP_RETURN_IF_ERROR(single.gradients->Discard());
    LOCKSTEP_RETURN_IF_ERROR(single.Parts(6, [](int64_t shard) { return 1; }));
    LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
    EXPECT_EQ(single.gradient[0], 6);
    return absl::OkStatus();
  });
}

// With overlap, buckets of the step that was thrown away may be on their way.
TEST(ExactGradients, AStepMayBeThrownAway) {
  OnRanks(3, [](Communicator& group) -> absl::Status {
    Single single;
    GradientsOptions options;
    options.overlap = Overlap::kOn;
    LOCKSTEP_RETURN_IF_ERROR(single.Make(group, options));
    for (const int thrown_in : {-1, 0, 1}) {
      LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginStep(2));
      for (int part = 0; part <= thrown_in; ++part) {
        LOCKSTEP_RETURN_IF_ERROR(single.gradients->BeginPart(
            part, single.gradients->shards().begin + part));
        single.gradient[0] = 9;
        single.gradients->MarkReady(0);
      }
      if (thrown_in >= 0) LOCKSTEP_RETURN_IF_ERROR(single.gradients->Discard());
      LOCKSTEP_RETURN_IF_ERROR(
          single.Parts(2, [](int64_t shard) { return shard; }));
      single.gradients->MarkReady(0);
      LOCKSTEP_RETURN_IF_ERROR(single.Average().status());
      EXPECT_EQ(single.gradient[0], 5);
    }
    return absl::OkStatus();
  });
}

TEST(ExactGradients, AGradientThatIsNotFiniteIsFoundInAnyShard) {
  for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
    for (const int64_t bad : {0, 3, 5}) {
      OnRanks(2, [&](Communicator& group) -> absl::Status {
        Single single;
        GradientsOptions options;
        options.overlap = overlap;
        options.find_culprit = true;
        LOCKSTEP_RETURN_IF_ERROR(single.Make(group, options));
        for (int step = 0; step < 3; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(single.Parts(3, [&](int64_t shard) {
            return step == 1 && shard == bad
                       ? std::numeric_limits<float>::infinity()
                       : 1.0F;
          }));
          single.gradients->MarkReady(0);
          const absl::Status averaged = single.Average().status();
          if (step == 1) {
            EXPECT_THAT(
                averaged,
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr(absl::StrCat(
                             "the gradient of parameter 'p' is not finite on "
                             "rank ",
                             bad / 3))));
            EXPECT_THAT(single.gradient, Each(0));
          } else {
            LOCKSTEP_EXPECT_OK(averaged);
            EXPECT_EQ(single.gradient[0], 3);
          }
        }
        return absl::OkStatus();
      });
    }
  }
}

}  // namespace
}  // namespace lockstep
