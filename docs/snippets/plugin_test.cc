// Compiles the examples of docs/plugin.md and docs/performance.md, which are
// read from the documents, and runs some of them. The code around them declares
// the names that the documents leave out.
#include "lockstep/plugin/plugin.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/wrapped_orders.h"
#include "lockstep/session/main.h"

namespace {

using namespace lockstep;  // NOLINT: as docs/plugin.md says

using ::testing::ElementsAre;

// ---- Registering.

absl::Status Register() {
#include "lockstep/docs/snippets/plugin/register.inc"
  return absl::OkStatus();
}

struct HostTrainer {
  std::vector<std::string> plugins;
  absl::Status status;
  void AddPlugin(absl::string_view name, absl::string_view version,
                 const std::function<absl::Status()>& add) {
    plugins.push_back(absl::StrCat(name, " ", version));
    status = add();
  }
};

TEST(PluginDocument, Registers) {
  LOCKSTEP_EXPECT_OK(Register());
  PluginRegistry registry;
  HostTrainer trainer;
#include "lockstep/docs/snippets/plugin/host_plugins.inc"
  LOCKSTEP_EXPECT_OK(trainer.status);
  EXPECT_EQ(trainer.plugins.size(), 1U);
}

// ---- The trainer's own parts.

struct RingOptions;
class Ring : public Dataset {
 public:
  explicit Ring(const RingOptions& options);
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    return row.Set<double>(0, static_cast<double>(index));
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view /*name*/) override {
    std::vector<int64_t> halves;
    for (int64_t i = 0; i < size_; ++i) halves.push_back(2 * i / size_);
    return Column(std::move(halves));
  }

 private:
  int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF64, {}, 0}};
};

#include "lockstep/docs/snippets/plugin/backward.inc"
#include "lockstep/docs/snippets/plugin/mixup.inc"
#include "lockstep/docs/snippets/plugin/ring.inc"

Ring::Ring(const RingOptions& options) : size_(options.size) {}

std::vector<std::string> posted;
void Post(int64_t step, const std::string& name, double value) {
  posted.push_back(absl::StrCat(step, " ", name, " ", value));
}

#include "lockstep/docs/snippets/plugin/dashboard.inc"

absl::Status RegisterParts(PluginRegistry& registry) {
#include "lockstep/docs/snippets/plugin/register_backward.inc"
#include "lockstep/docs/snippets/plugin/register_dashboard.inc"
#include "lockstep/docs/snippets/plugin/register_mixup.inc"
#include "lockstep/docs/snippets/plugin/register_ring.inc"
  return absl::OkStatus();
}

PluginRegistry& RegistryOfAll() {
  static auto* const registry = [] {
    auto* const made = new PluginRegistry;
    EXPECT_TRUE(RegisterLockstep(*made).ok());
    EXPECT_TRUE(RegisterParts(*made).ok());
    return made;
  }();
  return *registry;
}

TEST(PluginDocument, DashboardIsTold) {
  const auto sink = RegistryOfAll().Create<MetricsSink>(
      "dashboard", PluginContext(), Config());
  LOCKSTEP_ASSERT_OK(sink);
  LOCKSTEP_EXPECT_OK((*sink)->Write(3, {{"loss", 0.5}}));
  EXPECT_THAT(posted, ElementsAre("3 loss 0.5"));
}

TEST(PluginDocument, TheBackwardOrderIsASampler) {
  const auto settings = ParseConfig(
      "dataset = {name = 'ring'}\n"
      "sampler = {name = 'order', order = {name = 'backward'}, "
      "global_batch_size = 48, tail = 'mask'}",
      "text");
  LOCKSTEP_ASSERT_OK(settings);
  const auto loader =
      RegistryOfAll().Create<Loader>("default", PluginContext(), *settings);
  LOCKSTEP_ASSERT_OK(loader);
  for (auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    EXPECT_EQ(batch->indices()[0], 99);
    return;
  }
}

TEST(PluginDocument, MixupMixesRows) {
  const auto settings = ParseConfig(
      "dataset = {name = 'ring', size = 2}\n"
      "sampler = {name = 'sequential', global_batch_size = 2}\n"
      "collate = {name = 'mixup', most = 0.2}",
      "text");
  LOCKSTEP_ASSERT_OK(settings);
  const auto loader =
      RegistryOfAll().Create<Loader>("default", PluginContext(), *settings);
  LOCKSTEP_ASSERT_OK(loader);
  for (auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    const absl::Span<const double> x = *batch->Values<double>("x");
    EXPECT_GT(x[0], 0);
    EXPECT_LT(x[0], 0.2);
    EXPECT_DOUBLE_EQ(x[0] + x[1], 1);
  }
}

absl::Status Mirror(BatchView& /*batch*/) { return absl::OkStatus(); }

absl::Status Settings(PluginRegistry& registry) {
#include "lockstep/docs/snippets/plugin/settings.inc"
  return loader->StartEpoch(0);
}

TEST(PluginDocument, SettingsMakeALoader) {
  LOCKSTEP_EXPECT_OK(Settings(RegistryOfAll()));
}

// ---- A job as text.

namespace job {

#include "lockstep/docs/snippets/plugin/trainer_options.inc"

absl::Status Run(int argc, char** argv, PluginRegistry& registry) {
#include "lockstep/docs/snippets/plugin/job.inc"
  EXPECT_EQ(trainer.learning_rate, 0.05F);
  return absl::OkStatus();
}

}  // namespace job

TEST(PluginDocument, AJobAsText) {
  char arguments[][64] = {"train", "--config=docs/snippets/plugin/job.toml",
                          "--set", "trainer.learning_rate=0.05"};
  char* argv[] = {arguments[0], arguments[1], arguments[2], arguments[3],
                  nullptr};
  LOCKSTEP_EXPECT_OK(job::Run(4, argv, RegistryOfAll()));
}

TEST(PluginDocument, TablesOfAJob) {
  for (const std::string path :
       {"docs/snippets/plugin/checkpoint.toml",
        "docs/snippets/plugin/metrics.toml", "docs/snippets/plugin/shards.toml",
        "docs/snippets/determinism/exact.toml"}) {
    const auto config = ReadConfigFile(path);
    LOCKSTEP_ASSERT_OK(config);
    job::TrainerOptions options;
    LOCKSTEP_EXPECT_OK(ReadJob(*config, &options, {}));
  }
}

// ---- A session.

namespace session {

using job::TrainerOptions;

struct Model {
  std::vector<float> weights = {0};
  std::vector<float> gradient = {0};

  absl::StatusOr<double> AddGradients(const Batch& batch) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<double>("x"));
    for (int64_t i = 0; i < batch.valid(); ++i) gradient[0] += 1;
    return static_cast<double>(x.size());
  }
  void Update(float learning_rate) {
    weights[0] += learning_rate * gradient[0];
  }
  absl::Status AddLoss(const Batch& batch, Sums& sums) const {
    sums.Add("loss", static_cast<double>(batch.valid()));
    return absl::OkStatus();
  }
};

#define main \
  MainOfDocument  // NOLINT: GoogleTest brings the main of this program
#include "lockstep/docs/snippets/plugin/session.inc"
#undef main

}  // namespace session

TEST(PluginDocument, ASession) {
  const std::string test =
      "loader.test={num_workers=0, dataset={name=\"ring\"}, "
      "sampler={name=\"sequential\", global_batch_size=16, tail=\"mask\"}}";
  std::vector<std::string> arguments = {
      "train", "--config=docs/snippets/plugin/job.toml", "--set", test};
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  EXPECT_EQ(session::MainOfDocument(4, argv.data()), kTrained);
}

// ---- Parts of sessions, which are only compiled.

[[maybe_unused]] void Optimizer(Gradients* gradients,
                                std::vector<float>& velocities,
                                float learning_rate) {
#include "lockstep/docs/snippets/plugin/optimizer.inc"
}

[[maybe_unused]] absl::Status Steps(Session& session, Loader* train,
                                    Loader* test, Gradients* gradients,
                                    session::Model& model, int64_t epoch,
                                    const job::TrainerOptions& options) {
  const auto evaluate = [&](const Batch& batch, Sums& sums) {
    return model.AddLoss(batch, sums);
  };
#include "lockstep/docs/snippets/plugin/evaluation.inc"
  return absl::OkStatus();
}

[[maybe_unused]] absl::Status BySteps(Session& session, Loader* train,
                                      Gradients* gradients,
                                      session::Model& model,
                                      const job::TrainerOptions& options) {
#include "lockstep/docs/snippets/plugin/by_steps.inc"
  return absl::OkStatus();
}

[[maybe_unused]] absl::Status KeepBest(Session& session, Loader* test,
                                       session::Model& model,
                                       std::vector<int64_t>& patience) {
  const auto evaluate = [&](const Batch& batch, Sums& sums) {
    return model.AddLoss(batch, sums);
  };
#include "lockstep/docs/snippets/plugin/best.inc"
  return absl::OkStatus();
}

[[maybe_unused]] absl::Status BeginWarm(Session& session) {
#include "lockstep/docs/snippets/plugin/warm_start.inc"
  return absl::OkStatus();
}

struct Loss {
  double sum = 0;
  double tokens = 0;
};

[[maybe_unused]] void SumsWithWeights(Step& step, const Loss& loss) {
#include "lockstep/docs/snippets/plugin/sums.inc"
}

struct TokenLoss {
  double sum = 0;
  int64_t tokens = 0;
};

[[maybe_unused]] void TokensAsWeights(Step& step, Sums& sums,
                                      const TokenLoss& loss) {
#include "lockstep/docs/snippets/plugin/tokens.inc"
}

struct Momentum {
  std::vector<float> momentum;
};

struct Frozen {
  std::vector<float> embedding;
};

[[maybe_unused]] absl::Status AddFrozen(Session& session, Frozen& model) {
#include "lockstep/docs/snippets/plugin/frozen.inc"
  return absl::OkStatus();
}

struct Dropout {
  uint64_t seed() const { return value; }
  absl::Status SetSeed(absl::string_view bytes) {
    return absl::SimpleAtoi(bytes, &value) ? absl::OkStatus()
                                           : absl::DataLossError("no seed");
  }
  uint64_t value = 0;
};

[[maybe_unused]] absl::Status State(Session& session, Momentum& optimizer,
                                    Dropout& dropout) {
#include "lockstep/docs/snippets/plugin/state.inc"
  return absl::OkStatus();
}

[[maybe_unused]] void Measure(const Session& session, const Loader* train) {
#include "lockstep/docs/snippets/performance/metrics.inc"
#include "lockstep/docs/snippets/performance/trace.inc"
}

}  // namespace
