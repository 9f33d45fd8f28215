// Tests of buckets that travel before Average.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>  // NOLINT: ranks
#include <memory>
#include <numeric>
#include <string>
#include <thread>  // NOLINT: a trainer's own
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/on_ranks.h"

namespace lockstep {
namespace {

using Overlap = GradientsOptions::Overlap;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr char kBackends[][6] = {"local", "shm", "tcp"};

GradientsOptions With(Overlap overlap, int64_t bucket_bytes = 32 << 10) {
  GradientsOptions options;
  options.overlap = overlap;
  options.bucket_bytes = bucket_bytes;
  return options;
}

// A bucket has as many floats. Four parameters are four buckets.
constexpr int64_t kBucket = 8192;
const std::vector<int64_t> kFour = {kBucket, kBucket, kBucket, kBucket};

// Parameters of type f32, with their gradients.
struct Model {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> own;  // gradients of the trainer's
  std::unique_ptr<Gradients> gradients;

  absl::Status Make(Communicator& group, const std::vector<int64_t>& counts,
                    const GradientsOptions& options, bool is_own = false) {
    std::vector<Parameter> parameters;
    for (const int64_t count : counts) {
      values.emplace_back(count);
      own.emplace_back(count);
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      parameters.push_back({absl::StrCat("p", i), BufferOf(values[i])});
      if (is_own) parameters.back().gradient = BufferOf(own[i]);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        gradients, Gradients::Create(group, std::move(parameters), options));
    return absl::OkStatus();
  }

  // Takes the first step, too, in which the order of buckets is found out.
  absl::Status MakeWithOverlap(Communicator& group) {
    LOCKSTEP_RETURN_IF_ERROR(Make(group, kFour, With(Overlap::kOn)));
    return Step({0, 1, 2, 3});
  }

  absl::Span<float> Of(size_t parameter) const {
    return SpanOf<float>(gradients->views()[parameter].gradient);
  }

  void Fill(float value) const {
    for (size_t i = 0; i < values.size(); ++i) {
      for (float& each : Of(i)) each = value;
    }
  }

  void Mark(const std::vector<int64_t>& order) const {
    for (const int64_t parameter : order) gradients->MarkReady(parameter);
  }

  absl::StatusOr<StepResult> Average(int64_t weight = 1) const {
    StepInput input;
    input.weight = weight;
    return gradients->Average(input);
  }

  // A whole step, whose marks come in this order.
  absl::Status Step(const std::vector<int64_t>& order, float value = 1) const {
    LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
    Fill(value);
    Mark(order);
    return Average().status();
  }

  // Returns the names of the buckets that have been issued since, in the order,
  // such as "bucket 2 of over".
  std::vector<std::string> BucketsSince(int64_t issued) const {
    const Communicator& group = *gradients->groups()[0];
    std::vector<std::string> names;
    for (const OperationRecord& record :
         group.RecentOperations(group.issued_operations() - issued)) {
      const absl::string_view name(record.name, sizeof(record.name));
      names.emplace_back(name.substr(0, name.find(" of ")));
    }
    return names;
  }

  int64_t issued() const { return gradients->groups()[0]->issued_operations(); }
};

// ---- The launches.

// On rank 0, the last parameters are ready first. The buckets of all ranks then
// travel in that order, whatever the order of a rank's own marks is.
TEST(Overlap, BucketsTravelBeforeAverageInTheOrderOfRank0) {
  for (const char* const backend : kBackends) {
    OnRanks(
        3,
        [](Communicator& group) -> absl::Status {
          Model model;
          LOCKSTEP_RETURN_IF_ERROR(
              model.Make(group, kFour, With(Overlap::kOn)));
          EXPECT_FALSE(model.gradients->overlap().on);
          std::vector<int64_t> order = {2, 3, 0, 1};
          std::rotate(order.begin(), order.begin() + group.rank(), order.end());
          LOCKSTEP_RETURN_IF_ERROR(model.Step(order));
          EXPECT_TRUE(model.gradients->overlap().on);
          EXPECT_TRUE(model.gradients->overlap().is_final);

          LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
          const int64_t issued = model.issued();
          model.Fill(2);
          model.Mark({3});
          EXPECT_THAT(model.BucketsSince(issued), IsEmpty());
          model.Mark({2});
          EXPECT_THAT(model.BucketsSince(issued),
                      ElementsAre("bucket 2", "bucket 3"));
          model.Mark({1});
          model.Mark({0});
          EXPECT_THAT(
              model.BucketsSince(issued),
              ElementsAre("bucket 2", "bucket 3", "bucket 0", "bucket 1"));
          // They end although this rank only looks.
          while (
              model.gradients->groups()[0]->RecentOperations(1)[0].pending()) {
          }
          EXPECT_EQ(model.Of(1)[7], 6);
          LOCKSTEP_RETURN_IF_ERROR(model.Average(2).status());
          for (size_t i = 0; i < kFour.size(); ++i) {
            EXPECT_THAT(model.Of(i), Each(1));
          }
          EXPECT_THAT(model.BucketsSince(issued), SizeIs(4));
          return absl::OkStatus();
        },
        backend);
  }
}

TEST(Overlap, OnlyMarksOfTheLastPartLaunchBuckets) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    for (int step = 0; step < 2; ++step) {
      // The ranks have different numbers of parts.
      const int parts = 2 + group.rank() * step;
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep(parts));
      const int64_t issued = model.issued();
      for (int part = 0; part < parts; ++part) {
        LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginPart(part));
        EXPECT_THAT(model.BucketsSince(issued), IsEmpty());
        for (size_t i = 0; i < kFour.size(); ++i) {
          for (float& each : model.Of(i)) each += 1;
        }
        // Parameter 1 has no gradient in the last part.
        model.Mark(part + 1 < parts ? std::vector<int64_t>{0, 1, 2, 3}
                                    : std::vector<int64_t>{3, 0, 2});
      }
      EXPECT_THAT(model.BucketsSince(issued), ElementsAre("bucket 0"));
      LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
      EXPECT_THAT(model.BucketsSince(issued), SizeIs(4));
      EXPECT_THAT(model.Of(1), Each(static_cast<float>(4 + step) / 2));
    }
    return absl::OkStatus();
  });
}

// Parameters that a bucket shares, that are in several buckets, that have no
// elements, and that are frozen.
TEST(Overlap, ABucketWaitsForAllItsGradients) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(
        group, {100, 3 * kBucket, 0, 50, kBucket, 70}, With(Overlap::kOn)));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({0, 1, 2, 3, 4, 5}));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    const int64_t issued = model.issued();
    model.Fill(1);
    model.Mark({1, 2});
    EXPECT_THAT(model.BucketsSince(issued), IsEmpty());
    model.Mark({0});
    EXPECT_THAT(model.BucketsSince(issued),
                ElementsAre("bucket 0", "bucket 1", "bucket 2"));
    model.Mark({5, 4});
    EXPECT_THAT(model.BucketsSince(issued), SizeIs(3));
    model.Mark({3});
    EXPECT_EQ(model.BucketsSince(issued).size() + 1,
              model.gradients->collectives());
    LOCKSTEP_RETURN_IF_ERROR(model.Average(4).status());
    EXPECT_THAT(model.Of(3), Each(0.25));

    LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("p1", true));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    model.Mark({0, 1, 2, 3, 4, 5});
    LOCKSTEP_RETURN_IF_ERROR(model.Average(1).status());
    EXPECT_THAT(model.Of(0), Each(1));
    EXPECT_THAT(model.Of(1), Each(1)) << "it stays what this rank has added";
    EXPECT_THAT(model.Of(4), Each(1));
    return absl::OkStatus();
  });
}

// ---- The results.

// A trainer whose steps follow from a seed. It marks in any order, on two
// threads.
class RandomTrainer {
 public:
  RandomTrainer(Communicator& group, uint64_t seed) : group_(group) {
    Random random(seed);
    const auto below = [&random](uint64_t bound) {
      return static_cast<int64_t>(random.Below(bound));
    };
    const int64_t parameters = 1 + below(6);
    for (int64_t i = 0; i < parameters; ++i) {
      counts_.push_back(below(5) == 0 ? below(20'000) : below(300));
      dtypes_.push_back(below(4) == 0   ? DType::kF64
                        : below(3) == 0 ? DType::kF16
                                        : DType::kF32);
    }
    options_.bucket_bytes = (below(3)) * (32 << 10);
    options_.send_bf16 = below(4) == 0;
    options_.unused = GradientsOptions::Unused::kZero;
    options_.overwrite = below(3) == 0;
    options_.find_culprit = below(3) == 0;
    if (below(3) == 0) options_.loss_scale = LossScale();
    is_own_ = below(3) == 0;
    seed_ = seed;
  }

  // Returns the bits of all gradients and norms, and what the messages say.
  absl::StatusOr<std::vector<std::string>> Train(Overlap overlap) {
    options_.overlap = overlap;
    options_.name = absl::StrCat("overlap ", static_cast<int>(overlap));
    LOCKSTEP_RETURN_IF_ERROR(Make());
    std::vector<std::string> results;
    for (int64_t step = 0; step < 22; ++step) {
      LOCKSTEP_ASSIGN_OR_RETURN(results.emplace_back(), Step(step));
    }
    EXPECT_TRUE(overlap == Overlap::kAuto || group_.size() == 1 ||
                gradients_->overlap().on == (overlap == Overlap::kOn));
    return results;
  }

 private:
  absl::Status Make() {
    values_.assign(counts_.size(), {});
    own_.assign(counts_.size(), {});
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const auto buffer = [&](std::vector<char>& memory) {
        memory.resize(counts_[i] * SizeOf(dtypes_[i]) + 1);
        return Buffer{memory.data(), counts_[i], dtypes_[i], Device()};
      };
      parameters.push_back({absl::StrCat("p", i), buffer(values_[i])});
      parameters.back().gradient_dtype = dtypes_[i];
      if (is_own_ && i % 2 == 0) parameters.back().gradient = buffer(own_[i]);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(gradients_,
                              Gradients::Create(group_, parameters, options_));
    return absl::OkStatus();
  }

  // Writes or adds numbers to a gradient.
  void Compute(const GradientView& view, Random& random, bool adds,
               bool is_large) {
    uint64_t state = random();
    for (int64_t i = 0; i < view.gradient.count; ++i) {
      // A linear congruential generator is fast, also under a sanitizer.
      state = state * 6364136223846793005 + 1442695040888963407;
      double value = static_cast<double>(state >> 40) / (1 << 23) - 1;
      if (is_large && i == view.gradient.count / 2) value = 1e39;
      const auto put = [&](auto* data) {
        using T = std::remove_pointer_t<decltype(data)>;
        const double before =
            adds ? static_cast<double>(static_cast<float>(data[i])) : 0;
        data[i] = static_cast<T>(static_cast<float>(before + value));
      };
      if (view.gradient.dtype == DType::kF64) {
        put(static_cast<double*>(view.gradient.data));
      } else if (view.gradient.dtype == DType::kF32) {
        put(static_cast<float*>(view.gradient.data));
      } else {
        put(static_cast<Float16*>(view.gradient.data));
      }
    }
  }

  absl::StatusOr<std::string> Step(int64_t step) {
    const int rank = group_.rank();
    Random random(seed_, step * 8 + rank);
    const bool is_idle = step > 3 && random.Below(5) == 0;
    const auto parts = static_cast<int>(1 + random.Below(3));
    LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginStep(parts));
    for (int part = 0; part < parts; ++part) {
      LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginPart(part));
      if (is_idle) continue;
      std::vector<int64_t> order(counts_.size());
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.Below(i)]);
      }
      const bool is_large = options_.find_culprit && random.Below(6) == 0;
      // One parameter may have no gradient in this part.
      if (step > 2 && random.Below(3) == 0) order.pop_back();
      const size_t half = order.size() / 2;
      const auto run = [&](size_t begin, size_t end, uint64_t seed) {
        Random own(seed);
        for (size_t i = begin; i < end; ++i) {
          const auto number = static_cast<size_t>(order[i]);
          Compute(gradients_->views()[number], own,
                  part > 0 || !options_.overwrite, is_large && i == 0);
          gradients_->MarkReady(order[i]);
        }
      };
      const uint64_t seeds[] = {random(), random()};
      std::thread other([&] { run(half, order.size(), seeds[1]); });
      run(0, half, seeds[0]);
      other.join();
    }
    StepInput input;
    input.weight = is_idle ? 0 : 1 + static_cast<int64_t>(random.Below(9));
    input.step = absl::StrCat("step ", step);
    const absl::StatusOr<StepResult> result = gradients_->Average(input);
    if (!result.ok() && !absl::IsOutOfRange(result.status())) {
      return result.status();
    }
    std::string text = absl::StrCat(result.status().message(), " ",
                                    result.ok() ? result->norm : 0, " ",
                                    result.ok() ? result->not_finite : "");
    for (const GradientView& view : gradients_->views()) {
      text.append(static_cast<const char*>(view.gradient.data),
                  view.gradient.count * SizeOf(view.gradient.dtype));
    }
    return text;
  }

  Communicator& group_;
  uint64_t seed_;
  std::vector<int64_t> counts_;
  std::vector<DType> dtypes_;
  GradientsOptions options_;
  bool is_own_ = false;
  std::vector<std::vector<char>> values_, own_;
  std::unique_ptr<Gradients> gradients_;
};

// The same bits, norms and messages, whatever travels when.
TEST(Overlap, ChangesNoBit) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    OnRanks(
        static_cast<int>(2 + seed % 2),
        [seed](Communicator& group) -> absl::Status {
          RandomTrainer trainer(group, seed);
          LOCKSTEP_ASSIGN_OR_RETURN(const auto off,
                                    trainer.Train(Overlap::kOff));
          LOCKSTEP_ASSIGN_OR_RETURN(const auto on, trainer.Train(Overlap::kOn));
          LOCKSTEP_ASSIGN_OR_RETURN(const auto by_measurement,
                                    trainer.Train(Overlap::kAuto));
          EXPECT_EQ(on.size(), 22);
          EXPECT_TRUE(on == off);
          EXPECT_TRUE(by_measurement == off);
          return absl::OkStatus();
        },
        kBackends[seed % 3]);
  }
}

// ---- Steps that end otherwise.

TEST(Overlap, AStepThatIsDiscardedIsSettledByTheNextOne) {
  for (const char* const backend : kBackends) {
    OnRanks(
        2,
        [](Communicator& group) -> absl::Status {
          Model model;
          LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
          for (const bool ends : {false, true}) {
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
            model.Fill(5);
            if (group.rank() == 0) model.Mark({0, 1, 2});
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
            if (ends) {
              LOCKSTEP_RETURN_IF_ERROR(model.gradients->EndStep());
              EXPECT_THAT(model.Of(1), Each(0));
            }
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
            for (size_t i = 0; i < kFour.size(); ++i) {
              EXPECT_THAT(model.Of(i), Each(0));
            }
            model.Fill(3);
            model.Mark({1, 0, 3, 2});
            LOCKSTEP_RETURN_IF_ERROR(model.Average(1).status());
            EXPECT_THAT(model.Of(2), Each(3));
          }
          return absl::OkStatus();
        },
        backend);
  }
}

// Rank 1 goes on where rank 0 has thrown its step away. Without a word between
// them, rank 0's old buckets would meet rank 1's new ones.
TEST(Overlap, AStepThatOnlyOneRankDiscardsIsTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    if (group.rank() == 0) {
      model.Fill(100);
      model.Mark({0, 1, 2});
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
    }
    return model.Step({0, 1, 2, 3}, 1);
  });
  EXPECT_THAT(statuses, Each(StatusIs(kPrecondition,
                                      AllOf(HasSubstr("a step was discarded"),
                                            HasSubstr("step 3")))));
}

// A step without rows and marks travels, too, if it is averaged, and does not
// if it only ends.
TEST(Overlap, RanksMayHaveNoGradients) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult empty, model.Average(0));
    EXPECT_TRUE(empty.skipped);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    const int64_t issued = model.issued();
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->EndStep());
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    EXPECT_EQ(model.issued(), issued);
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->EndStep());
    // Rank 1 has three steps more than rank 0.
    int64_t updates = 0;
    for (int64_t left = 3 * group.rank(); left > 0; --left) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.Fill(4);
      model.Mark({0, 1, 2, 3});
      StepInput input;
      input.weight = 2;
      input.has_more = left > 1;
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                                model.gradients->Average(input));
      EXPECT_EQ(result.skipped, false);
      EXPECT_THAT(model.Of(0), Each(2));
      ++updates;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        model.gradients->AverageUntilAllAreDone([&](const StepResult& step) {
          EXPECT_THAT(model.Of(3), Each(2));
          updates += step.skipped ? 0 : 1;
          return absl::OkStatus();
        }));
    EXPECT_EQ(updates, 3);
    return absl::OkStatus();
  });
}

// An evaluation in the middle of a step needs no particular order of marks.
TEST(Overlap, SumsMayBeAddedUpWhileBucketsTravel) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    EXPECT_THAT(model.gradients->groups(), SizeIs(2));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    if (group.rank() == 0) model.Mark({0, 1});
    StepInput input;
    input.weight = 3;
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult sum,
                              model.gradients->AddUp(input));
    EXPECT_EQ(sum.weight, 6);
    model.Mark(group.rank() == 0 ? std::vector<int64_t>{2, 3}
                                 : std::vector<int64_t>{3, 2, 1, 0});
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_THAT(model.Of(2), Each(1));
    return absl::OkStatus();
  });
}

// A group that the trainer has given for what is not gradients is kept.
TEST(Overlap, TakesTheTrainersGroupForWeights) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto of_trainer,
                              group.Split("trainer", {0, 1}));
    GradientsOptions options = With(Overlap::kOn);
    options.host_group = of_trainer.get();
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, kFour, options));
    const std::vector<const Communicator*> groups = model.gradients->groups();
    EXPECT_THAT(groups, SizeIs(2));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({0, 1, 2, 3}));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({0, 1, 2, 3}));
    EXPECT_EQ(model.gradients->groups(), groups);
    EXPECT_TRUE(model.gradients->overlap().on);
    return absl::OkStatus();
  });
}

TEST(Overlap, AMistakeInMarksIsStillAnErrorOfAverage) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    if (group.rank() == 0) {
      model.Mark({0, 1, 3});
      EXPECT_THAT(model.Average(), StatusIs(kPrecondition, HasSubstr("'p2'")));
      model.Mark({2});  // that corrects it
    } else {
      model.Mark({0, 1, 2, 3});
    }
    LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
    EXPECT_THAT(model.Of(2), Each(1));
    return absl::OkStatus();
  });
}

// ---- Time, and ranks that fail.

// The messages about operations that are slow.
struct Slow {
  Mutex mutex;
  std::string messages ABSL_GUARDED_BY(mutex);
  std::promise<void> told_of_barrier;

  void Add(absl::string_view message) {
    MutexLock lock(mutex);
    const bool is_first = !absl::StrContains(messages, "barrier()");
    absl::StrAppend(&messages, message, "\n");
    if (is_first && absl::StrContains(message, "barrier()")) {
      told_of_barrier.set_value();
    }
  }
};

// Rank 1 computes until rank 0, which has computed before, is told that a later
// operation of another group is slow.
TEST(Overlap, BucketsAreNotSlowDuringTheBackwardPass) {
  for (const char* const backend : kBackends) {
    Slow slow;
    std::promise<void> looked_at;
    const auto rank = [&](World& world) -> absl::Status {
      GroupOptions options;
      options.backend = backend;
      LOCKSTEP_ASSIGN_OR_RETURN(const auto elsewhere, world.MakeGroup(options));
      options.name = "trainer";
      options.slow = absl::Milliseconds(1);
      if (world.rank() == 0) {
        options.on_slow = [&slow](absl::string_view what) { slow.Add(what); };
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(options));
      Model model;
      LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(*group));
      LOCKSTEP_RETURN_IF_ERROR(Wait(elsewhere->Barrier()));
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
      model.Fill(1);
      if (world.rank() == 0) {
        model.Mark({0, 1, 2, 3});
        LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
        MutexLock lock(slow.mutex);
        EXPECT_THAT(slow.messages, HasSubstr("barrier()"));
        EXPECT_THAT(slow.messages, Not(HasSubstr("overlapped step 2")));
        looked_at.set_value();
      } else {
        slow.told_of_barrier.get_future().wait();
        LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
        looked_at.get_future().wait();
        model.Mark({0, 1, 2, 3});
      }
      return model.Average().status();
    };
    EXPECT_THAT(LocalWorld(2).Run(rank), Each(IsOk()));
  }
}

TEST(Overlap, ARankThatFailsInItsBackwardPassIsNamed) {
  for (const char* const backend : kBackends) {
    std::promise<void> discarded;
    const std::shared_future<void> is_discarded =
        discarded.get_future().share();
    const auto statuses = StatusesOf(
        3,
        [&](Communicator& group) -> absl::Status {
          Model model;
          LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
          LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
          model.Fill(1);
          model.Mark({0, 1});
          if (group.rank() == 2) {
            // As the end of a loop over steps does. It needs no other rank.
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->Discard());
            discarded.set_value();
            return absl::DataLossError("no such row");  // and drops all
          }
          is_discarded.wait();
          model.Mark({2, 3});
          absl::Status status = model.Average().status();
          // Later calls say the same.
          EXPECT_THAT(model.gradients->BeginStep(), Not(IsOk()));
          return status;
        },
        backend);
    EXPECT_THAT(statuses[2], StatusIs(absl::StatusCode::kDataLoss));
    // The groups of gradients are two. A rank that notices the loss in one of
    // them aborts both, with the same blame.
    for (const int rank : {0, 1}) {
      const Blame blame = BlameOf(statuses[rank]).value_or(Blame());
      EXPECT_EQ(blame.cause, Blame::Cause::kLeft) << statuses[rank];
      EXPECT_EQ(blame.rank(), 2) << statuses[rank];
      EXPECT_THAT(std::string(statuses[rank].message()),
                  HasSubstr("rank 2 has left"));
    }
  }
}

TEST(Overlap, ARankThatAbortsInItsBackwardPassIsTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.MakeWithOverlap(group));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    model.Fill(1);
    model.Mark({0, 1, 2, 3});
    if (group.rank() == 1) {
      model.gradients->Abort(absl::DataLossError("no such row"));
    }
    return model.Average().status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kAborted,
                                      HasSubstr("no such row"))));
}

// Another thread may abort at any time, also while the second group is made.
TEST(Overlap, AnAbortAtAnyTimeIsTold) {
  for (int round = 0; round < 30; ++round) {
    const auto statuses =
        StatusesOf(2, [](Communicator& group) -> absl::Status {
          Model model;
          LOCKSTEP_RETURN_IF_ERROR(
              model.Make(group, kFour, With(Overlap::kOn)));
          std::thread other([&] {
            if (group.rank() == 0) {
              model.gradients->Abort(absl::DataLossError("no such row"));
            }
          });
          absl::Status status;
          while (status.ok()) status = model.Step({0, 1, 2, 3});
          other.join();
          return status;
        });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("no such row"));
    }
  }
}

// Several threads mark, so no single thread has issued all operations of the
// buckets. Ranks that wait for each other in two groups are found nevertheless.
TEST(Overlap, RanksThatWaitForEachOtherAreNamed) {
  for (const char* const backend : kBackends) {
    const auto statuses = StatusesOf(
        2,
        [](Communicator& group) -> absl::Status {
          Model model;
          LOCKSTEP_RETURN_IF_ERROR(
              model.Make(group, kFour, With(Overlap::kOn)));
          for (int step = 0; step < 3; ++step) {
            LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
            model.Fill(1);
            std::thread other([&] { model.Mark({0, 1}); });
            other.join();
            if (step == 2 && group.rank() == 1) {
              return Wait(group.Barrier());
            }
            model.Mark({2, 3});
            LOCKSTEP_RETURN_IF_ERROR(model.Average().status());
          }
          return absl::OkStatus();
        },
        backend);
    EXPECT_THAT(statuses,
                Each(StatusIs(kPrecondition,
                              AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                    HasSubstr("barrier()")))));
  }
}

// ---- The choice.

TEST(Overlap, IsTriedInTheFirstStepsAndDecidedAlikeOnAllRanks) {
  std::vector<std::string> reasons(3);
  OnRanks(
      3,
      [&reasons](Communicator& group) -> absl::Status {
        Model model;
        LOCKSTEP_RETURN_IF_ERROR(
            model.Make(group, kFour, With(Overlap::kAuto)));
        // Only this rank marks.
        const auto step_of = [&](int rank) -> absl::Status {
          if (group.rank() == rank) return model.Step({0, 1, 2, 3});
          return model.Step({});
        };
        LOCKSTEP_RETURN_IF_ERROR(model.Step({}));
        LOCKSTEP_RETURN_IF_ERROR(step_of(1));
        EXPECT_THAT(model.gradients->overlap().why, HasSubstr("MarkReady"));
        EXPECT_THAT(model.gradients->groups(), SizeIs(1));
        int with = 0;
        for (int step = 0; step < 17; ++step) {
          EXPECT_FALSE(model.gradients->overlap().is_final);
          if (model.gradients->overlap().on) ++with;
          // A step counts if any rank has marked. Then it is rank 0 first.
          LOCKSTEP_RETURN_IF_ERROR(step_of(step % 3));
          if (step == 9) LOCKSTEP_RETURN_IF_ERROR(model.Step({}));
        }
        EXPECT_EQ(with, 8);
        const OverlapDecision& decision = model.gradients->overlap();
        EXPECT_TRUE(decision.is_final);
        EXPECT_THAT(decision.why, HasSubstr("with overlap and"));
        reasons[group.rank()] = absl::StrCat(decision.on, decision.why);
        return model.Step({0, 1, 2, 3});
      },
      "tcp");
  EXPECT_THAT(reasons, Each(reasons[0]));
}

TEST(Overlap, IsNotTriedWhereItCanNotHelp) {
  const auto why = [](int size, const GradientsOptions& options) {
    std::string text;
    OnRanks(size, [&](Communicator& group) -> absl::Status {
      Model model;
      LOCKSTEP_RETURN_IF_ERROR(model.Make(group, kFour, options));
      for (int step = 0; step < 2; ++step) {
        LOCKSTEP_RETURN_IF_ERROR(model.Step({0, 1, 2, 3}));
      }
      const OverlapDecision& decision = model.gradients->overlap();
      EXPECT_TRUE(decision.is_final);
      EXPECT_FALSE(decision.on);
      EXPECT_THAT(model.gradients->groups(), SizeIs(1));
      if (group.rank() == 0) text = decision.why;
      return absl::OkStatus();
    });
    return text;
  };
  EXPECT_THAT(why(1, With(Overlap::kOn)), HasSubstr("alone"));
  EXPECT_THAT(why(2, With(Overlap::kAuto, 0)), HasSubstr("one bucket"));
  EXPECT_THAT(why(2, With(Overlap::kOff)), HasSubstr("GradientsOptions"));
}

// One bucket can't travel before the last mark. When more parameters are
// trained, there are more buckets.
TEST(Overlap, IsTriedWhenThereAreSeveralBuckets) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(model.Make(group, kFour, With(Overlap::kAuto)));
    for (const char* const name : {"p0", "p1", "p2"}) {
      LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen(name, true));
    }
    LOCKSTEP_RETURN_IF_ERROR(model.Step({3}));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({3}));
    EXPECT_FALSE(model.gradients->overlap().on);
    EXPECT_FALSE(model.gradients->overlap().is_final);
    EXPECT_THAT(model.gradients->overlap().why, HasSubstr("one bucket"));
    EXPECT_THAT(model.gradients->groups(), SizeIs(1));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("p0", false));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("p1", false));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({3, 0, 1}));
    EXPECT_TRUE(model.gradients->overlap().on);
    EXPECT_THAT(model.gradients->groups(), SizeIs(2));
    // The one that was never marked comes last.
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->SetFrozen("p2", false));
    LOCKSTEP_RETURN_IF_ERROR(model.gradients->BeginStep());
    const int64_t issued = model.issued();
    model.Fill(1);
    model.Mark({0, 1, 3, 2});
    EXPECT_THAT(model.BucketsSince(issued),
                ElementsAre("bucket 3", "bucket 0", "bucket 1", "bucket 2"));
    return model.Average().status();
  });
}

TEST(Overlap, RanksThatWantDifferentThingsAreTold) {
  const auto statuses = StatusesOf(2, [](Communicator& group) {
    Model model;
    return model.Make(group, kFour,
                      With(group.rank() == 0 ? Overlap::kOn : Overlap::kAuto));
  });
  EXPECT_THAT(statuses, Each(StatusIs(kPrecondition,
                                      HasSubstr("GradientsOptions::overlap"))));
}

// A model with more buckets than a log has operations by default.
TEST(Overlap, ALogHasAllOperationsOfAStep) {
  OnRanks(2, [](Communicator& group) -> absl::Status {
    Model model;
    LOCKSTEP_RETURN_IF_ERROR(
        model.Make(group, {1100 * kBucket}, With(Overlap::kOn)));
    LOCKSTEP_RETURN_IF_ERROR(model.Step({0}));
    const int64_t issued = model.issued();
    LOCKSTEP_RETURN_IF_ERROR(model.Step({0}));
    EXPECT_THAT(model.BucketsSince(issued), SizeIs(1100));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep
