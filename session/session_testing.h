// Helpers for the tests of sessions, in which each rank of a job is a thread:
//
//   TEST_F(SessionTest, Trains) {
//     EXPECT_THAT(Run(2, [](Session& session) { return Train(session); }),
//                 Each(IsOk()));
//   }
#ifndef LOCKSTEP_SESSION_SESSION_TESTING_H_
#define LOCKSTEP_SESSION_SESSION_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/sums.h"

namespace lockstep {
// The settings of the dataset Numbers.

struct NumbersOptions {
  int64_t size = 10;
  int64_t broken = -1;
  int64_t also_broken = -1;
};

inline void BindOptions(NumbersOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many numbers there are.");
  table.Add("broken", &options.broken, "The one that can't be read.");
  table.Add("also_broken", &options.also_broken, "Another one.");
}

// A dataset in which sample i has the value i, except for `broken` and
// `also_broken`, which fail.
// Thread-safety: thread-safe.
class Numbers : public Dataset {
 public:
  explicit Numbers(const NumbersOptions& options) : options_(options) {}
  int64_t size() const override { return options_.size; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    if (index == options_.broken || index == options_.also_broken) {
      return absl::DataLossError("a bad sector");
    }
    return row.Set<float>(0, static_cast<float>(index));
  }

 private:
  const NumbersOptions options_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {}, 0}};
};

inline absl::StatusOr<std::shared_ptr<Dataset>> MakeNumbers(
    const PluginContext&, const NumbersOptions& options) {
  return std::make_shared<Numbers>(options);
}

// There are 10 samples in batches of 6, so with two ranks each has 2 rows in
// the second step. With "uneven", ranks may have different numbers of rows.
inline constexpr char kJob[] = R"(
[loader.train]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {name = "sequential", global_batch_size = 6, tail = "uneven"}

[loader.test]
num_workers = 0
dataset = {name = "numbers", size = 5}
sampler = {name = "sequential", global_batch_size = 6, tail = "mask"}
)";

inline absl::StatusOr<Job> JobOf(absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ParseConfig(text, "job.toml"));
  NoOptions none;
  return ReadJob(config, &none);
}

inline float SumOf(const Batch& batch) {
  const absl::StatusOr<absl::Span<float>> x = batch.Values<float>("x");
  float sum = 0;
  for (int64_t row = 0; row < batch.valid(); ++row) sum += (*x)[row];
  return sum;
}

using Train = std::function<absl::Status(Session&)>;

// A fixture that runs the ranks of a job as threads of this process.
// Thread-safety: use it on one thread. Threads of the ranks append to logged_.
class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    LOCKSTEP_EXPECT_OK(
        registry_.Add<Dataset>("numbers", "Sample i is i.", MakeNumbers));
  }

  // Runs `train` on `size` ranks, and returns the result of Run on each.
  std::vector<absl::Status> Run(int size, const Train& train,
                                const SessionOptions& options = {}) {
    return RunJobs(std::vector<std::string>(size, kJob), train, options);
  }

  // The same, without lines of progress in the log.
  std::vector<absl::Status> RunQuietly(int size, const Train& train) {
    const std::string text = absl::StrCat(kJob, "[progress]\nevery = \"0s\"\n");
    return RunJobs(std::vector<std::string>(size, text), train);
  }

  // The same, with a separate job text for each rank.
  std::vector<absl::Status> RunJobs(const std::vector<std::string>& texts,
                                    const Train& train,
                                    const SessionOptions& options = {}) {
    return UseSessions(
        texts, [&](Session& session) { return session.Run(train); }, options);
  }

  // The same, but calls `use` with each session in place of Session::Run.
  std::vector<absl::Status> UseSessions(const std::vector<std::string>& texts,
                                        const Train& use,
                                        const SessionOptions& options = {}) {
    const int size = static_cast<int>(texts.size());
    return LocalWorld(size).Run([&](World& world) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world.MakeGroup());
      SessionOptions own = options;
      own.group = group.get();
      own.log_patience = absl::Hours(1);
      own.log = [this](absl::string_view text) {
        MutexLock lock(mutex_);
        logged_.push_back(std::string(text));
      };
      return UseSession(texts[world.rank()], own, use);
    });
  }

  absl::Status UseSession(const std::string& text,
                          const SessionOptions& options, const Train& use) {
    LOCKSTEP_ASSIGN_OR_RETURN(Job job, JobOf(text));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::unique_ptr<Session> session,
        Session::Create(std::move(job), registry_, options));
    return use(*session);
  }

  PluginRegistry registry_;
  Mutex mutex_;
  std::vector<std::string> logged_;
};

// A fixture for jobs that keep checkpoints.
// Thread-safety: as SessionTest.
class SessionWithCheckpoints : public SessionTest {
 protected:
  SessionWithCheckpoints() {
    std::string folder = testing::TempDir() + "/sessionXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    path_ = folder + "/model";
  }

  // Returns a job with checkpoints, in which each epoch has two steps, of 6 and
  // 4 samples.
  std::string Text(absl::string_view more = "") const {
    return absl::StrCat(kJob, "[checkpoint]\npath = \"", path_, "\"\n", more,
                        "\n");
  }

  absl::Status RunAlone(const Train& train, absl::string_view more = "",
                        const SessionOptions& options = {}) {
    return RunJobs({Text(more)}, train, options)[0];
  }

  bool Exists(int64_t step) const {
    return std::ifstream(
               absl::StrCat(path_, ".", absl::Dec(step, absl::kZeroPad12)))
        .good();
  }

  std::string path_;
};

// A second loader for training.
inline constexpr char kMore[] = R"([loader.more]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {name = "sequential", global_batch_size = 6, tail = "uneven"}
)";

inline absl::Status Nothing(const Batch&, Sums&) { return absl::OkStatus(); }

// Does the steps of an epoch, and nothing in them.
inline absl::Status ReadSteps(Session& session, Loader& loader, int64_t epoch) {
  for (Step& step : session.Steps(loader, epoch)) {
    LOCKSTEP_RETURN_IF_ERROR(step.status());
  }
  return absl::OkStatus();
}

// Calls a function at each event, with the event's name.
// Thread-safety: as SessionHooks.
class AtEvents : public SessionHooks {
 public:
  using Call = std::function<absl::Status(Session&, absl::string_view event)>;
  explicit AtEvents(Call call) : call_(std::move(call)) {}

  absl::Status OnStart(Session& session) override {
    return call_(session, "OnStart");
  }
  absl::Status OnEpochBegin(Session& session, int64_t) override {
    return call_(session, "OnEpochBegin");
  }
  absl::Status OnStep(Session& session, const Step&) override {
    return call_(session, "OnStep");
  }
  absl::Status OnEpochEnd(Session& session, int64_t) override {
    return call_(session, "OnEpochEnd");
  }
  absl::Status OnEvaluation(Session& session, const Evaluation&) override {
    return call_(session, "OnEvaluation");
  }
  absl::Status OnCheckpointSave(Session& session) override {
    return call_(session, "OnCheckpointSave");
  }
  absl::Status OnCheckpointLoad(Session& session) override {
    return call_(session, "OnCheckpointLoad");
  }
  absl::Status OnFailure(Session& session, const absl::Status&) override {
    return call_(session, "OnFailure");
  }
  absl::Status OnShutdown(Session& session) override {
    return call_(session, "OnShutdown");
  }

 private:
  const Call call_;
};

inline SessionOptions WithHooks(std::vector<SessionHooks*> hooks) {
  SessionOptions options;
  options.hooks = std::move(hooks);
  return options;
}

// A model with two parameters. Their gradients are the sum of the samples (with
// both signs) and the number of samples.
struct Model {
  std::vector<float> sum = {0, 0};
  std::vector<float> count = {0};
  std::vector<float> sum_gradient = {0, 0};
  std::vector<float> count_gradient = {0};

  std::vector<Parameter> parameters() {
    return {{"sum", BufferOf(sum), BufferOf(sum_gradient)},
            {"count", BufferOf(count), BufferOf(count_gradient)}};
  }

  void AddGradients(const Batch& batch) {
    sum_gradient[0] += SumOf(batch);
    sum_gradient[1] -= SumOf(batch);
    count_gradient[0] += static_cast<float>(batch.valid());
  }
};

// A trainer whose parameters show what it has done: `seen` counts how often it
// has seen each sample, and `weight`, which has a momentum, depends on the
// order.
struct CountingTrainer {
  // The settings of the test.
  int64_t epochs = 4;
  int64_t stop_in = -1;  // the last rank asks to stop in this step
  bool keeps_momentum = true;
  std::function<absl::Status(Session&)> in_step;

  // The results on this rank.
  std::vector<float> seen = std::vector<float>(10);
  std::vector<float> weight = {0.5};
  std::vector<float> momentum = {0};
  int evaluations = 0;
  int64_t began_at = -1;
  int64_t ended_at = -1;

  std::vector<float> seen_gradient = std::vector<float>(10);
  std::vector<float> weight_gradient = {0};

  absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        Gradients* const gradients,
        session.MakeGradients(
            {{"seen", BufferOf(seen), BufferOf(seen_gradient)},
             {"weight", BufferOf(weight), BufferOf(weight_gradient)}}));
    if (keeps_momentum) {
      LOCKSTEP_RETURN_IF_ERROR(
          session.AddState("momentum", BufferOf(momentum)));
    }
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    began_at = ended_at = session.steps();
    for (const int64_t epoch : session.Epochs(*train, epochs)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(DoStep(session, step, *gradients));
      }
      ended_at = session.steps();
      LOCKSTEP_RETURN_IF_ERROR(
          session
              .Evaluate(*test,
                        [](const Batch&, Sums&) { return absl::OkStatus(); })
              .status());
      ++evaluations;
    }
    return absl::OkStatus();
  }

  absl::Status DoStep(Session& session, Step& step, Gradients& gradients) {
    for (const Batch& batch : step) {
      for (int64_t row = 0; row < batch.valid(); ++row) {
        const int64_t sample = batch.indices()[row];
        seen_gradient[sample] += 1;
        weight_gradient[0] += weight[0] - static_cast<float>(sample % 10);
      }
    }
    if (in_step) LOCKSTEP_RETURN_IF_ERROR(in_step(session));
    if (session.steps() == stop_in && session.rank() == session.size() - 1) {
      session.RequestStop();
    }
    LOCKSTEP_RETURN_IF_ERROR(step.Average(gradients));
    for (size_t i = 0; i < seen.size(); ++i) {
      seen[i] += seen_gradient[i] * static_cast<float>(step.total_weight());
    }
    momentum[0] = 0.9F * momentum[0] + weight_gradient[0];
    weight[0] -= 0.05F * momentum[0];
    return absl::OkStatus();
  }
};

// A trainer that counts the samples of its steps, and halves its rate after
// each epoch.
struct ScriptedTrainer {
  std::vector<std::string> loaders = {"train"};
  size_t trains = 1;  // so many of the loaders are read in each epoch
  int64_t epochs = 3;
  float factor = 0.5;        // of the rate after each epoch
  bool saves = false;        // calls Save after each epoch
  int64_t fails_after = -1;  // steps
  bool stops = false;        // in each step
  std::function<absl::Status(Session&, Step&)> in_step;
  std::function<absl::Status(Session&)> after_steps;  // of an epoch

  int bodies = 0;
  std::vector<float> rate = {1};
  std::vector<float> seen = std::vector<float>(10);
  std::vector<Loader*> made;

  absl::Status Begin(Session& session) {
    for (const std::string& name : loaders) {
      LOCKSTEP_ASSIGN_OR_RETURN(made.emplace_back(), session.MakeLoader(name));
    }
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", BufferOf(rate)));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("seen", BufferOf(seen)));
    return session.Restore();
  }

  absl::Status Read(Session& session, size_t which, int64_t epoch) {
    for (Step& step : session.Steps(*made[which], epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      for (const Batch& batch : step) Count(batch);
      if (in_step) LOCKSTEP_RETURN_IF_ERROR(in_step(session, step));
      if (session.steps() == fails_after) return absl::InternalError("fails");
      if (stops) session.RequestStop();
    }
    return absl::OkStatus();
  }

  void Count(const Batch& batch) {
    for (const int64_t index : batch.indices()) seen[index] += 1;
  }

  absl::Status Train(Session& session) {
    LOCKSTEP_RETURN_IF_ERROR(Begin(session));
    return Continue(session);
  }

  absl::Status Continue(Session& session) {
    for (const int64_t epoch : session.Epochs(*made[0], epochs)) {
      for (size_t which = 0; which < trains; ++which) {
        LOCKSTEP_RETURN_IF_ERROR(Read(session, which, epoch));
      }
      rate[0] *= factor;
      ++bodies;
      if (after_steps) LOCKSTEP_RETURN_IF_ERROR(after_steps(session));
      if (saves) LOCKSTEP_RETURN_IF_ERROR(session.Save());
    }
    return absl::OkStatus();
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SESSION_TESTING_H_
