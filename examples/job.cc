// A trainer whose job is described by a text: its data, their order, the
// backend, and the number of epochs. The command line names the text and can
// change values:
//
//   lockstep launch -n 2 -- job --config=examples/job.toml
//   lockstep launch -n 3 -- job --config=examples/job.toml
//       --set trainer.epochs=12 --set checkpoint.path=/tmp/model
#include "lockstep/plugin/job.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/rendezvous/failure_report.h"
#include "lockstep/collective/world.h"
#include "lockstep/examples/small_model.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

using examples::Model;
using examples::Sums;
using lockstep::Communicator;
using lockstep::Dataset;
using lockstep::Job;
using lockstep::Loader;
using lockstep::MetricsSink;
using lockstep::OptionTable;
using lockstep::PluginContext;
using lockstep::PluginRegistry;

// ---- The trainer's own settings.

struct TrainerOptions {
  int64_t epochs = 6;
  float learning_rate = 0.1;
};

void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
}

struct PointsOptions {
  int64_t size = 1003;
};

void BindOptions(PointsOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many points there are.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakePoints(
    const PluginContext&, const PointsOptions& options) {
  return std::make_shared<examples::Points>(options.size);
}

absl::Status RegisterParts(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  return registry.Add<Dataset>("points", "Points and a function of them.",
                               MakePoints);
}

// ---- The training.

absl::Status AddUp(Communicator& group, std::vector<float>& values,
                   const char* name) {
  const lockstep::Buffer buffer = lockstep::BufferOf(values);
  lockstep::CallOptions call;
  call.name = name;
  return lockstep::Wait(
      group.AllReduce(buffer, buffer, lockstep::ReduceOp::kSum, call));
}

// Adds up a batch's sums over all ranks, and returns the errors of its own
// rows.
absl::StatusOr<std::vector<float>> Errors(Communicator& group,
                                          const lockstep::Batch& batch,
                                          const Model& model, Sums& sums) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
  std::vector<float> errors =
      examples::SumSecondLayer(model, x, y, batch.valid(), sums);
  LOCKSTEP_RETURN_IF_ERROR(AddUp(group, sums.second, "second layer"));
  return errors;
}

// Returns the mean loss over all samples of the loader; each sample counts
// once.
absl::StatusOr<double> Test(Communicator& group, Loader& loader,
                            const Model& model, Sums& sums) {
  double loss = 0;
  double samples = 0;
  for (auto& batch : loader.Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_RETURN_IF_ERROR(Errors(group, *batch, model, sums).status());
    loss += sums.second[examples::kLoss];
    samples += sums.second[examples::kSamples];
  }
  return loss / samples;
}

absl::Status AddTo(lockstep::Checkpoint& checkpoint, Loader& loader,
                   Model& model) {
  static_assert(sizeof(Model) % sizeof(float) == 0, "a model is of floats");
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add(
      "model", lockstep::BufferOf(reinterpret_cast<float*>(&model),
                                  sizeof(Model) / sizeof(float))));
  lockstep::CheckpointState place;
  place.save = [&loader] { return loader.SaveState(); };
  place.load = [&loader](absl::string_view bytes) {
    return loader.RestoreState(bytes);
  };
  return checkpoint.Add("place", place);
}

absl::Status Train(const Job& job, const TrainerOptions& trainer,
                   PluginRegistry& registry, const PluginContext& context,
                   Sums& sums) {
  Communicator& group = *context.group;
  const bool is_first = group.rank() == 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            job.MakeLoader(registry, "train", context));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test,
                            job.MakeLoader(registry, "test", context));
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  if (is_first) {
    LOCKSTEP_ASSIGN_OR_RETURN(sinks, job.MakeMetricsSinks(registry, context));
  }
  Model model;
  lockstep::Checkpoint checkpoint(group, job.checkpoint);
  checkpoint.set_job(job.fingerprint);
  LOCKSTEP_RETURN_IF_ERROR(AddTo(checkpoint, *loader, model));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                            checkpoint.Restore());
  int64_t step = restored.value_or(0);
  for (int64_t epoch = loader->progress().epoch; epoch < trainer.epochs;
       ++epoch) {
    for (auto& batch : loader->Epoch(epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<float> errors,
                                Errors(group, *batch, model, sums));
      LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch->Values<float>("x"));
      examples::SumFirstLayer(model, x, errors, sums);
      LOCKSTEP_RETURN_IF_ERROR(AddUp(group, sums.first, "first layer"));
      examples::Update(sums, trainer.learning_rate, model);
      if (checkpoint.IsDue(++step)) {
        LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double loss,
                              Test(group, *test, model, sums));
    for (const auto& sink : sinks) {
      LOCKSTEP_RETURN_IF_ERROR(
          sink->Write(epoch, {{"loss", model.loss}, {"test loss", loss}}));
      LOCKSTEP_RETURN_IF_ERROR(sink->Flush());
    }
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());
  return group.Close();
}

absl::Status Run(int argc, char** argv) {
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(RegisterParts(registry));
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Config config,
                            lockstep::ConfigOfCommandLine(argc, argv));
  TrainerOptions trainer;
  LOCKSTEP_ASSIGN_OR_RETURN(
      Job job, lockstep::ReadJob(config, &trainer, {"train", "test"}));
  Sums sums;  // outlives the group, which may still read it after a failure
  job.world.on_slow = [](absl::string_view what) {
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(job.world));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, job.MakeGroup(registry, *world));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame(*group, "the job", job.fingerprint));
  PluginContext context;
  context.world = world.get();
  context.group = group.get();
  absl::Status trained = Train(job, trainer, registry, context, sums);
  // With Abort, the other ranks report this rank's own failure, too.
  if (!trained.ok()) group->Abort(trained);
  return trained;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // by line, also to a pipe
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", lockstep::ToLines(status).c_str());
  lockstep::ReportFailure(status);
  return 1;
}
