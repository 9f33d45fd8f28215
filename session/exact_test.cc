// Trains with exact gradients on many numbers of ranks, and compares digests of
// the results. exact_kill_test does the same with ranks that are killed.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/session/exact_testing.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/step.h"
#include "lockstep/session/sums.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class ExactTest : public SessionWithCheckpoints {
 protected:
  ExactTest() { LOCKSTEP_EXPECT_OK(RegisterMade(registry_)); }

  // Trains on ranks that are threads, until so many steps have ended, or to
  // the end if that is 0. Returns the digest, or "" if there is none yet.
  std::string Train(const ExactJob& job, int ranks, int64_t until = 0,
                    const std::string& backend = "local",
                    const ExactTrainerOptions& options = {}) {
    std::vector<std::string> digests(ranks);
    const std::vector<absl::Status> ended =
        LocalWorld(ranks).Run([&](World& world) -> absl::Status {
          GroupOptions how;
          how.backend = backend;
          LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup(how));
          SessionOptions own;
          own.group = group.get();
          own.log = [](absl::string_view) {};
          own.stop_after = until;
          return UseSession(job.Text(), own, [&](Session& session) {
            return session.Run([&](Session& running) {
              return TrainExactly(running, options, &digests[world.rank()]);
            });
          });
        });
    EXPECT_THAT(ended, Each(IsOk()));
    EXPECT_THAT(digests, Each(digests[0]));
    return digests[0];
  }

  // The same, in several starts on these numbers of ranks.
  std::string TrainInTurns(ExactJob job, const std::vector<int>& ranks,
                           Random& random, const std::string& backend,
                           const ExactTrainerOptions& options) {
    job.path = absl::StrCat(path_, ++paths_);
    int64_t steps = 0;
    for (size_t i = 0; i + 1 < ranks.size(); ++i) {
      steps += 1 + random.Below(200 / ranks.size());
      EXPECT_EQ(Train(job, ranks[i], steps, backend, options), "");
    }
    return Train(job, ranks.back(), 0, backend, options);
  }

  // Expects one digest of a job, whatever the ranks, the backend, the buckets
  // and the restarts are.
  void ExpectOneDigest(const ExactJob& job, Random& random) {
    const std::string wanted = Train(job, 1);
    // 19 epochs of 500 samples in batches of 48, or of 700 that are packed.
    EXPECT_THAT(wanted,
                HasSubstr(job.packed ? "after 245 steps" : "after 209 steps"));
    EXPECT_THAT(wanted, Not(HasSubstr(absl::StrCat("rate ", kExactRate, ","))))
        << "the rate should change on a plateau";
    const char* const backends[] = {"local", "shm", "tcp"};
    for (int ranks = 2; ranks <= 8 && ranks <= job.shards; ++ranks) {
      ExactTrainerOptions options;
      options.marks = random.Below(3) > 0;
      if (options.marks && random.Below(2) > 0) {
        options.overlap = GradientsOptions::Overlap::kOn;
      }
      if (random.Below(2) > 0) options.bucket_bytes = 32768;
      std::vector<int> turns;
      for (uint64_t i = random.Below(3); i > 0; --i) {
        turns.push_back(1 + static_cast<int>(random.Below(
                                std::min<int64_t>(8, job.shards))));
      }
      turns.push_back(ranks);
      const std::string backend = backends[random.Below(3)];
      EXPECT_EQ(TrainInTurns(job, turns, random, backend, options), wanted)
          << "on " << testing::PrintToString(turns) << " ranks over " << backend
          << ", marks " << options.marks << ", overlap "
          << static_cast<int>(options.overlap) << ", bucket_bytes "
          << options.bucket_bytes;
    }
  }

  int paths_ = 0;
};

TEST_F(ExactTest, OneDigestOnAnyNumberOfRanks) {
  Random random(RandomKey(1, 2, 3), 4);
  for (const int64_t shards : {4, 12, 24}) {
    for (const int64_t micro_batch_size : {0, 1, 5}) {
      // 48 rows are 12, 4 or 2 for each shard.
      if (micro_batch_size > 48 / shards) continue;
      SCOPED_TRACE(
          absl::StrCat(shards, " shards, micro_batch_size ", micro_batch_size));
      ExactJob job;
      job.shards = shards;
      job.micro_batch_size = micro_batch_size;
      ExpectOneDigest(job, random);
    }
  }
}

TEST_F(ExactTest, OneDigestOfPackedDocuments) {
  Random random(RandomKey(4, 3, 2), 1);
  for (const int64_t shards : {4, 12, 24}) {
    SCOPED_TRACE(absl::StrCat(shards, " shards"));
    ExactJob job;
    job.shards = shards;
    job.packed = true;
    ExpectOneDigest(job, random);
  }
}

// The same trainings differ where sums are in the order of ranks.
TEST_F(ExactTest, ControlSumsInTheOrderOfRanksDiffer) {
  for (const bool packed : {false, true}) {
    ExactJob job;
    job.exact = false;
    job.packed = packed;
    EXPECT_NE(Train(job, 1), Train(job, 3)) << "VACUOUS: nothing is shown";
  }
}

// ---- What is refused, and what is found.

// A job of 8 samples a step, in 4 shards.
std::string SmallJob(absl::string_view more = "",
                     absl::string_view sampler = "") {
  return absl::StrCat(R"(
[gradients]
exact = true
shards = 4
[progress]
every = "0s"
[loader.train]
num_workers = 0
dataset = {name = "numbers", size = 22}
sampler = {name = "sequential", global_batch_size = 8, tail = "uneven")",
                      sampler, "}\n", more);
}

// Makes the loader and the model, and calls `in_step` in each step.
absl::Status TrainSmall(
    Session& session,
    const std::function<absl::Status(Step&, Model&, Gradients&)>& in_step) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                            session.MakeGradients(model.parameters()));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (const int64_t epoch : session.Epochs(*train, 10)) {
    for (Step& step : session.Steps(*train, epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(in_step(step, model, *gradients));
    }
  }
  return absl::OkStatus();
}

// Matches the error of the rank that finds it, and what the others are told.
auto Tells(absl::StatusCode code, const std::string& message) {
  return AnyOf(StatusIs(code, HasSubstr(message)),
               StatusIs(absl::StatusCode::kAborted, HasSubstr(message)));
}

class ExactErrors : public ExactTest {
 protected:
  // Expects that all of three ranks end with this error. The last one has an
  // empty part in each step.
  void ExpectError(
      const std::string& job,
      const std::function<absl::Status(Step&, Model&, Gradients&)>& in_step,
      absl::StatusCode code, const std::string& message) {
    EXPECT_THAT(
        RunJobs(std::vector<std::string>(3, job),
                [&](Session& session) { return TrainSmall(session, in_step); }),
        Each(Tells(code, message)));
  }

  // The same for a step that does this with each batch, and then averages.
  void ExpectErrorInPart(
      const std::function<void(Step&, const Batch&)>& in_part,
      const std::string& message) {
    ExpectError(
        SmallJob(),
        [&](Step& step, Model& model, Gradients& gradients) {
          for (const Batch& batch : step) {
            model.AddGradients(batch);
            in_part(step, batch);
          }
          return step.Average(gradients);
        },
        absl::StatusCode::kFailedPrecondition, message);
  }
};

absl::Status AverageAllParts(Step& step, Model& model, Gradients& gradients) {
  for (const Batch& batch : step) {
    model.AddGradients(batch);
    step.Add("sum", SumOf(batch));
  }
  return step.Average(gradients);
}

TEST_F(ExactErrors, SumsAndWeightsAreOfAPart) {
  const auto after = [](const std::function<void(Step&)>& call) {
    return [=](Step& step, Model& model, Gradients& gradients) {
      for (const Batch& batch : step) model.AddGradients(batch);
      call(step);
      return step.Average(gradients);
    };
  };
  ExpectError(SmallJob(), after([](Step& step) { step.Add("loss", 1); }),
              absl::StatusCode::kFailedPrecondition,
              "Add(loss) comes outside of the loop over the batches of step 0 "
              "of epoch 0: with gradients.exact,");
  ExpectError(SmallJob(), after([](Step& step) { step.AddWeight(1); }),
              absl::StatusCode::kFailedPrecondition,
              "AddWeight comes outside of the loop over the batches");
}

TEST_F(ExactErrors, PartsWithoutRowsBringNothing) {
  ExpectErrorInPart([](Step& step, const Batch&) { step.Add("batches", 1); },
                    "the sum 'batches' got 1 from a batch without rows");
  ExpectErrorInPart([](Step& step, const Batch&) { step.AddWeight(2); },
                    "AddWeight(2) in step 0 of epoch 0 is for a batch without "
                    "rows");
}

// A step's weight would depend on which rank has the batches without AddWeight.
TEST_F(ExactErrors, AllBatchesHaveAWeightOrNone) {
  const std::string told =
      "in step 1 of epoch 0, AddWeight was called for some batches that have "
      "rows and not for others";
  for (const int ranks : {1, 2, 4}) {
    for (const bool skips : {false, true}) {
      const auto in_step = [&](Step& step, Model& model, Gradients& gradients) {
        for (const Batch& batch : step) {
          model.AddGradients(batch);
          const bool has_weight = step.number() == 1 && batch.shard() > 0;
          if (has_weight || (step.number() == 1 && !skips)) {
            step.AddWeight(batch.valid());
          }
        }
        return step.Average(gradients);
      };
      const auto ended = RunJobs(
          std::vector<std::string>(ranks, SmallJob()),
          [&](Session& session) { return TrainSmall(session, in_step); });
      if (skips) {
        EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr(told))));
      } else {
        EXPECT_THAT(ended, Each(IsOk()));
      }
    }
  }
}

TEST_F(ExactErrors, AnEvaluationBringsNothingForPartsWithoutRows) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    return session
        .Evaluate(*train,
                  [](const Batch&, Sums& sums) {
                    sums.Add("batches", 1);
                    return absl::OkStatus();
                  })
        .status();
  };
  EXPECT_THAT(RunJobs(std::vector<std::string>(3, SmallJob()), train),
              Each(Tells(absl::StatusCode::kFailedPrecondition,
                         "the sum 'batches' got 1 from a batch without rows")));
}

// The trainer adds up in memory of its own, and gives all to the last part that
// has rows. It trains on, since this may be right.
TEST_F(ExactErrors, ATrainerThatAddsUpOverPartsIsTold) {
  for (const bool second : {false, true}) {
    logged_.clear();
    const auto train = [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      Model first, other;
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                session.MakeGradients(first.parameters()));
      LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const others,
                                session.MakeGradients(other.parameters()));
      for (const int64_t epoch : session.Epochs(*train, 10)) {
        for (Step& step : session.Steps(*train, epoch)) {
          float sum = 0;
          for (const Batch& batch : step) {
            sum += SumOf(batch) + 1;
            if (second) first.AddGradients(batch);
          }
          if (!second) first.sum_gradient[0] = sum;
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
          // The second model gets its gradients between the two calls.
          if (second) other.sum_gradient[0] = sum;
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*others));
        }
      }
      return absl::OkStatus();
    };
    EXPECT_THAT(RunJobs({SmallJob()}, train), Each(IsOk()));
    EXPECT_THAT(logged_,
                Contains(HasSubstr(absl::StrCat(
                    "rank 0: in each of 10 steps, the gradients 'gradients",
                    second ? " 2" : "", "' were 0 at the end of all shards"))))
        << "a chance of 4^-10";
  }
}

// Such a step has the right sum, and other bits on another number of ranks,
// which a verification finds at once.
TEST_F(ExactErrors, VerifyFindsATrainerThatAddsUpOverParts) {
  // Each of 3 ranks has 4 shards, and each of 2 ranks 6.
  const std::string job = absl::StrReplaceAll(
      SmallJob(), {{"shards = 4", "shards = 12"},
                   {"global_batch_size = 8", "global_batch_size = 24"},
                   {"size = 22", "size = 70"}});
  for (const bool adds_up : {true, false}) {
    const auto train = [&](Session& session) {
      std::vector<float> sum(1);
      return TrainSmall(session, [&](Step& step, Model& model, Gradients& all) {
        sum[0] = 0;
        for (const Batch& batch : step) {
          if (batch.valid() == 0) continue;
          const float part = 1.0F / (3.0F + std::fmod(SumOf(batch), 7.0F));
          sum[0] += part;
          model.count_gradient[0] += part;  // the log tells nothing
          if (adds_up && batch.shard() == all.shards().end - 1) {
            model.sum_gradient[0] = sum[0];
          }
          if (!adds_up) model.sum_gradient[0] += part;
        }
        LOCKSTEP_RETURN_IF_ERROR(step.Average(all));
        model.sum[0] += model.sum_gradient[0];
        model.count[0] = 2 * model.sum[0];
        return absl::OkStatus();
      });
    };
    const auto with_checkpoints = [&](Session& session) -> absl::Status {
      VerifyOptions options;
      options.steps = 12;
      options.ranks = 2;
      return VerifyRestart(session, train, options);
    };
    const auto verified =
        UseSessions(std::vector<std::string>(3, job), with_checkpoints);
    if (adds_up) {
      EXPECT_THAT(
          verified,
          Each(AllOf(Tells(absl::StatusCode::kFailedPrecondition,
                           "not go on exactly on 2 of 3 ranks: after 24 steps "
                           "the two differ in parameters/sum"),
                     Tells(absl::StatusCode::kFailedPrecondition,
                           "There are also differences in parameters/count"),
                     Tells(absl::StatusCode::kFailedPrecondition,
                           "docs/determinism.md"))));
    } else {
      EXPECT_THAT(verified, Each(IsOk()));
    }
  }
}

TEST_F(ExactErrors, NumbersOfShards) {
  EXPECT_THAT(JobOf("[gradients]\nshards = 20\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("job.toml:2:1: gradients: shards should be "
                                 "2^n or 3 * 2^n")));
  EXPECT_THAT(
      RunJobs(std::vector<std::string>(5, SmallJob()),
              [](Session&) { return absl::InternalError("it ran"); }),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("gradients: there should be at least as many "
                              "shards as ranks, 5, but got shards=4"))));
  ExpectError(SmallJob("", ", shards = 8"), AverageAllParts,
              absl::StatusCode::kInvalidArgument,
              "shards=8 contradicts gradients.shards=4 of the job");
  ExpectError(absl::StrReplaceAll(SmallJob(), {{"shards = 4", "shards = 24"}}),
              AverageAllParts, absl::StatusCode::kInvalidArgument,
              "global_batch_size should be a positive multiple of "
              "gradients.shards=24, such as 24 or 48, but got "
              "global_batch_size=8; or set gradients.shards to a number that "
              "divides it: 4 or 8");
  ExpectError(
      absl::StrReplaceAll(SmallJob(),
                          {{"global_batch_size", "rank_batch_size"}}),
      AverageAllParts, absl::StatusCode::kInvalidArgument,
      "with gradients.shards=4 a step is the same on any number of ranks");
}

TEST_F(ExactErrors, SettingsOfGradients) {
  const auto make = [&](const std::string& job,
                        const std::function<void(GradientsOptions&)>& set) {
    return RunJobs({job, job}, [&](Session& session) -> absl::Status {
      std::vector<float> values(3);
      GradientsOptions options;
      set(options);
      return session.MakeGradients({{"p", BufferOf(values)}}, options).status();
    });
  };
  EXPECT_THAT(make(kJob, [](auto& options) { options.shards = 4; }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("whose gradients are not exact, but got "
                                      "GradientsOptions::shards=4"))));
  EXPECT_THAT(make(SmallJob(), [](auto& options) { options.shards = 8; }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("which has gradients.shards=4, but got "
                                      "GradientsOptions::shards=8"))));
  EXPECT_THAT(make(SmallJob(), [](auto& options) { options.shards = 4; }),
              Each(IsOk()));
  EXPECT_THAT(make(SmallJob(), [](auto& options) { options.send_bf16 = true; }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("send_bf16"))));
}

// A job may become exact, but its number of shards stays.
TEST_F(ExactErrors, ACheckpointKeepsTheNumberOfShards) {
  const auto one_step = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    Model model;
    LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                              session.MakeGradients(model.parameters()));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 9)) {
      for (Step& step : session.Steps(*train, epoch)) {
        session.RequestStop();
        LOCKSTEP_RETURN_IF_ERROR(AverageAllParts(step, model, *gradients));
      }
    }
    return absl::OkStatus();
  };
  const auto run = [&](int ranks, const std::string& gradients) {
    const std::string job = absl::StrReplaceAll(
        SmallJob(absl::StrCat("[checkpoint]\npath = \"", path_, "\"\n")),
        {{"exact = true\nshards = 4", gradients}});
    return RunJobs(std::vector<std::string>(ranks, job), one_step);
  };
  EXPECT_THAT(run(2, "exact = false"), Each(IsOk()));
  EXPECT_THAT(run(4, "exact = true\nshards = 4"), Each(IsOk()));
  EXPECT_THAT(run(3, "exact = true\nshards = 4"), Each(IsOk()));
  EXPECT_THAT(run(2, "exact = true\nshards = 8"),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("shards"))));
  EXPECT_THAT(run(2, "exact = false"),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("shards"))));
  EXPECT_TRUE(Exists(3));
}

// ---- Loaders of the trainer's own.

class OwnLoaders : public ExactErrors {
 protected:
  static absl::StatusOr<std::unique_ptr<Loader>> MakeOwn(
      int64_t size, const SamplerOptions& options) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto dataset,
        TensorDataset::Create({NamedTensor::Own<float>(
            "x", {size},
            std::vector<float>(static_cast<size_t>(size), 0.1F))}));
    LOCKSTEP_ASSIGN_OR_RETURN(auto order, SequentialOrder::Create(size));
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                              Sampler::Create(std::move(order), options));
    LoaderOptions loader;
    loader.num_workers = 0;
    return Loader::Create(std::move(dataset), std::move(sampler), loader);
  }

  // Trains on ranks with loaders that `change` has changed, and on sizes.
  std::vector<absl::Status> RunOwn(
      const std::vector<int64_t>& sizes,
      const std::function<void(SamplerOptions&)>& change) {
    return RunJobs(
        std::vector<std::string>(sizes.size(), SmallJob()),
        [&](Session& session) -> absl::Status {
          SamplerOptions options;
          options.cut.batch_size = 2;
          options.cut.shards = 4;
          options.cut.world = session.size();
          options.cut.tail = Tail::kUneven;
          options.rank = session.rank();
          change(options);
          LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                                    MakeOwn(sizes[session.rank()], options));
          Model model;
          LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                    session.MakeGradients(model.parameters()));
          for (Step& step : session.Steps(*loader, 0)) {
            LOCKSTEP_RETURN_IF_ERROR(AverageAllParts(step, model, *gradients));
          }
          return session
              .Evaluate(*loader,
                        [](const Batch& batch, Sums& sums) {
                          sums.Add("sum", SumOf(batch));
                          return absl::OkStatus();
                        })
              .status();
        });
  }
};

TEST_F(OwnLoaders, NeedTheShardsOfTheJob) {
  const auto wrong = [](const std::string& numbers) {
    return Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("each step is cut into shards=4 for 2 "
                                         "ranks, and this is rank "),
                               HasSubstr(numbers))));
  };
  EXPECT_THAT(
      RunOwn({20, 20}, [](SamplerOptions& options) { options.cut.shards = 0; }),
      wrong("has a sampler with shards=0, world=2, rank="));
  EXPECT_THAT(RunOwn({20, 20},
                     [](SamplerOptions& options) {
                       options.cut.world = 1;
                       options.rank = 0;
                     }),
              wrong("has a sampler with shards=4, world=1, rank=0"));
  EXPECT_THAT(RunOwn({20, 20},
                     [](SamplerOptions& options) {
                       options.replicas = options.data_stride = 2;
                     }),
              wrong(", replicas=2: let MakeLoader make"));
}

TEST_F(OwnLoaders, NeedTheSameStepsOnAllRanks) {
  EXPECT_THAT(RunOwn({20, 12}, [](SamplerOptions&) {}),
              Each(Tells(absl::StatusCode::kFailedPrecondition,
                         "this rank has no data in step 2 of epoch 0, which "
                         "other ranks have: with gradients.exact,")));
}

// ---- Verifications on other numbers of ranks.

class Verifications : public ExactErrors {
 protected:
  // Verifies on each of these numbers of ranks, one after the other.
  std::vector<absl::Status> Verify(
      const std::vector<int64_t>& ranks,
      const std::function<absl::Status(Session&, Step&)>& in_step) {
    const auto train = [&](Session& session) {
      return TrainSmall(session,
                        [&](Step& step, Model& model, Gradients& gradients) {
                          LOCKSTEP_RETURN_IF_ERROR(in_step(session, step));
                          return AverageAllParts(step, model, gradients);
                        });
    };
    return UseSessions(
        std::vector<std::string>(4, SmallJob()),
        [&](Session& session) -> absl::Status {
          for (const int64_t each : ranks) {
            VerifyOptions options;
            options.steps = 2;
            options.ranks = each;
            LOCKSTEP_RETURN_IF_ERROR(VerifyRestart(session, train, options));
            if (session.stop_requested()) {
              return absl::InternalError("it should have stopped");
            }
          }
          return absl::OkStatus();
        });
  }
};

TEST_F(Verifications, MayFollowEachOther) {
  EXPECT_THAT(Verify({2, 3, 2, 4, 1, 3},
                     [](Session&, Step&) { return absl::OkStatus(); }),
              Each(IsOk()));
}

TEST_F(Verifications, EndOnAllRanksWhereOneFails) {
  EXPECT_THAT(
      Verify({2},
             [](Session& session, Step&) {
               return session.size() == 2 && session.rank() == 1
                          ? absl::DataLossError("the mistake")
                          : absl::OkStatus();
             }),
      Each(AnyOf(StatusIs(absl::StatusCode::kDataLoss, HasSubstr("mistake")),
                 StatusIs(absl::StatusCode::kAborted, HasSubstr("mistake")))));
}

TEST_F(Verifications, StopOnAllRanks) {
  EXPECT_THAT(Verify({2},
                     [](Session& session, Step&) {
                       if (session.size() == 2 && session.rank() == 1) {
                         session.RequestStop();
                       }
                       return absl::OkStatus();
                     }),
              Each(StatusIs(absl::StatusCode::kCancelled)));
}

// A rank that waits for the others passes its stop on when they come.
TEST_F(Verifications, ARankThatWaitsMayBeStopped) {
  Mutex mutex;
  Session* waits = nullptr;
  const auto in_step = [&](Session& session, Step&) {
    const MutexLock lock(mutex);
    if (session.size() == 2 && session.rank() == 0) waits->RequestStop();
    return absl::OkStatus();
  };
  const auto train = [&](Session& session) {
    return TrainSmall(session,
                      [&](Step& step, Model& model, Gradients& gradients) {
                        LOCKSTEP_RETURN_IF_ERROR(in_step(session, step));
                        return AverageAllParts(step, model, gradients);
                      });
  };
  const auto ended = UseSessions(
      std::vector<std::string>(3, SmallJob()), [&](Session& session) {
        if (session.rank() == 2) {
          const MutexLock lock(mutex);
          waits = &session;
        }
        VerifyOptions options;
        options.steps = 2;
        options.ranks = 2;
        return VerifyRestart(session, train, options);
      });
  EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kCancelled)));
}

// ---- Sessions without gradients.

// Keeps the means of all steps, to the last bit.
// Thread-safety: as SessionHooks.
class KeepsMeans : public SessionHooks {
 public:
  absl::Status OnStep(Session&, const Step& step) override {
    Keep(step.means());
    return absl::OkStatus();
  }

  void Keep(absl::Span<const Metric> means) {
    for (const Metric& mean : means) {
      absl::StrAppendFormat(&kept_, "%s %.17g\n", mean.name, mean.value);
    }
  }

  const std::string& kept() const { return kept_; }

 private:
  std::string kept_;
};

// Returns the means of all steps and of an evaluation, without an Average.
absl::StatusOr<std::string> MeansWithoutGradients(Session& session,
                                                  KeepsMeans& means) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
  const auto sum_of = [](const Batch& batch) {
    double sum = 0;
    for (const int64_t index : batch.indices().first(batch.valid())) {
      sum += 1.0 / (3.0 + static_cast<double>(index));
    }
    return sum;
  };
  for (Step& step : session.Steps(*train, 0)) {
    for (const Batch& batch : step) {
      step.Add("mean", sum_of(batch));
      step.Add("own", sum_of(batch), static_cast<double>(batch.rows()));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Evaluation evaluation,
      session.Evaluate(*test, [&](const Batch& batch, Sums& sums) {
        sums.Add("tested", sum_of(batch));
        return absl::OkStatus();
      }));
  means.Keep(evaluation.means);
  return absl::StrCat(means.kept(), evaluation.samples);
}

// The sums of an evaluation, and of steps that are not averaged, have the same
// bits also where nothing was made by MakeGradients.
TEST_F(ExactErrors, SessionsWithoutGradientsAddUpShardsToo) {
  const std::string exact = SmallJob(R"(
[loader.test]
num_workers = 0
dataset = {name = "numbers", size = 30}
sampler = {name = "sequential", global_batch_size = 8, tail = "mask"}
)");
  const std::string plain = absl::StrReplaceAll(
      exact, {{"exact = true", "exact = false"},
              {"global_batch_size = 8", "shards = 4, global_batch_size = 8"}});
  for (const std::string& job : {exact, plain}) {
    std::vector<std::string> results;
    for (const int ranks : {1, 2, 3, 4}) {
      const std::vector<absl::Status> ended =
          LocalWorld(ranks).Run([&](World& world) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
            KeepsMeans means;
            SessionOptions own = WithHooks({&means});
            own.group = group.get();
            own.log = [](absl::string_view) {};
            return UseSession(job, own, [&](Session& session) {
              return session.Run([&](Session& running) -> absl::Status {
                LOCKSTEP_ASSIGN_OR_RETURN(
                    const std::string kept,
                    MeansWithoutGradients(running, means));
                if (world.rank() == 0) results.push_back(kept);
                return absl::OkStatus();
              });
            });
          });
      EXPECT_THAT(ended, Each(IsOk()));
    }
    ASSERT_EQ(results.size(), 4);
    EXPECT_THAT(results[0], HasSubstr("\n30"));
    if (job == exact) {
      EXPECT_THAT(results, Each(results[0]));
    } else {
      EXPECT_THAT(results, Not(Each(results[0]))) << "VACUOUS";
    }
  }
}

}  // namespace
}  // namespace lockstep
