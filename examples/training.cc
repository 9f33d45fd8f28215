// A small model that is trained by several ranks, in a loop of its own. (A
// Session would do most of this, see session.cc.) Each rank has its own
// samples, and the ranks add up their gradients. They evaluate after each
// epoch, and compare their weights from time to time. SIGTERM makes all ranks
// stop and save after the same step. A job that was ended continues later, also
// on another number of ranks. A job that has finished does nothing when it is
// started again, unless its settings have changed. The number of samples in a
// step is such a setting: with the same --batch, it grows with the ranks.
// recovery.cc shows how to handle failures.
//
//   lockstep launch -n 2 -- training --checkpoint=/tmp/model
//   lockstep launch -n 3 -- training --checkpoint=/tmp/model --epochs=12
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/stop_signals.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/rendezvous/failure_report.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/examples/small_model.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

ABSL_FLAG(std::string, backend, "auto", "auto, shm or tcp");
ABSL_FLAG(int64_t, epochs, 6, "how often all samples are read");
ABSL_FLAG(int64_t, batch, 16, "samples of a rank in a step");
ABSL_FLAG(float, learning_rate, 0.1, "of gradient descent");
ABSL_FLAG(std::string, checkpoint, "",
          "where the files begin to go on from, if any");
ABSL_FLAG(bool, show, false, "prints which samples this rank gets");
ABSL_FLAG(int64_t, kill, -1,
          "the last rank sends itself a signal in this step of epoch 0");
ABSL_FLAG(int, signal, SIGKILL, "the signal of --kill");

namespace {

using examples::Model;
using examples::Points;
using examples::Sums;
using lockstep::Communicator;
using lockstep::Work;

constexpr int64_t kStepsToSave = 10;
constexpr int64_t kStepsToCompare = 25;
constexpr int64_t kTraining = 1003;  // samples
constexpr int64_t kHeldOut = 101;    // those that follow

absl::StatusOr<Work> AddUp(Communicator& group, std::vector<float>& values,
                           const char* name) {
  const lockstep::Buffer buffer = lockstep::BufferOf(values);
  lockstep::CallOptions call;
  call.name = name;
  return group.AllReduce(buffer, buffer, lockstep::ReduceOp::kSum, call);
}

// ---- The data.

// Deals an order to the ranks, without padding.
absl::StatusOr<std::unique_ptr<lockstep::Sampler>> MakeSampler(
    Communicator& group, std::shared_ptr<const lockstep::Order> order) {
  lockstep::SamplerOptions dealt;
  dealt.cut.batch_size = absl::GetFlag(FLAGS_batch);
  dealt.cut.world = group.size();
  dealt.cut.tail = lockstep::Tail::kUneven;
  dealt.rank = group.rank();
  return lockstep::Sampler::Create(std::move(order), dealt);
}

// The loader of the training, and the settings that its checkpoints store.
struct Data {
  std::unique_ptr<lockstep::Loader> loader;
  lockstep::Fingerprint settings;
};

void AddFlags(lockstep::Fingerprint& settings) {
  settings.Add("epochs", absl::StrCat(absl::GetFlag(FLAGS_epochs)));
  settings.Add("learning_rate",
               absl::StrCat(absl::GetFlag(FLAGS_learning_rate)));
}

// Makes the loader. All ranks share one order, which has no sample twice.
absl::StatusOr<Data> MakeData(Communicator& group) {
  lockstep::NativeShuffleOptions shuffle;
  shuffle.size = kTraining;
  shuffle.seed = 7;
  LOCKSTEP_ASSIGN_OR_RETURN(auto order,
                            lockstep::NativeShuffle::Create(shuffle));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler(group, std::move(order)));

  // These settings must be the same on all ranks.
  lockstep::Fingerprint job = sampler->JobFingerprint();
  AddFlags(job);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::CheckSame(group, "the job", job));

  // These should be the same after a restart, whose number of ranks may be
  // another one. The log shows those that have changed.
  Data data;
  data.settings = sampler->DataFingerprint();
  AddFlags(data.settings);

  lockstep::LoaderOptions options;
  options.num_workers = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(
      data.loader, lockstep::Loader::Create(std::make_shared<Points>(kTraining),
                                            std::move(sampler), options));
  return data;
}

// Makes a loader of the samples that are held out, each of which comes once.
absl::StatusOr<std::unique_ptr<lockstep::Loader>> MakeTest(
    Communicator& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto order,
                            lockstep::SequentialOrder::Create(kHeldOut));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler(group, std::move(order)));
  return lockstep::Loader::Create(std::make_shared<Points>(kHeldOut, kTraining),
                                  std::move(sampler));
}

// ---- Checkpoints.

// Adds the model and the position in the samples. They must be saved together,
// or samples would be lost or repeated. The position is the same on all ranks.
absl::Status AddTo(lockstep::Checkpoint& checkpoint, lockstep::Loader& loader,
                   Model& model) {
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add(
      "weights", lockstep::BufferOf(model.weights.data(), examples::kInputs)));
  for (const auto& [name, value] :
       {std::pair("scale", &model.scale), std::pair("bias", &model.bias),
        std::pair("loss", &model.loss)}) {
    LOCKSTEP_RETURN_IF_ERROR(
        checkpoint.Add(name, lockstep::BufferOf(value, 1)));
  }
  lockstep::CheckpointState place;
  place.save = [&loader] { return loader.SaveState(); };
  place.load = [&loader](absl::string_view bytes) {
    return loader.RestoreState(bytes);
  };
  return checkpoint.Add("place", place);
}

// Compares the weights of all ranks. If they differ, something has changed them
// on one rank alone, and the training would be worth nothing.
absl::Status CompareWeights(Communicator& group, const Model& model) {
  return lockstep::CheckSame(
      group, "the weights",
      {{"weights",
        lockstep::ConstBufferOf(model.weights.data(), examples::kInputs)},
       {"scale", lockstep::ConstBufferOf(&model.scale, 1)},
       {"bias", lockstep::ConstBufferOf(&model.bias, 1)}});
}

// ---- Training.

// Trains one step. The sums of all ranks are divided by the number of samples
// of all ranks. So the mean is exact, even if the last batch is smaller or
// empty on some ranks. The sums also contain the requests to stop, so all ranks
// know of them after the same step.
absl::Status Step(Communicator& group, const lockstep::Batch& batch,
                  bool stop_requested, Sums& sums, Model& model) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
  const std::vector<float> errors =
      examples::SumSecondLayer(model, x, y, batch.valid(), sums);
  sums.second[examples::kStops] = stop_requested ? 1 : 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const Work second,
                            AddUp(group, sums.second, "second layer"));
  // This runs during the reduction of the second layer.
  examples::SumFirstLayer(model, x, errors, sums);
  LOCKSTEP_ASSIGN_OR_RETURN(const Work first,
                            AddUp(group, sums.first, "first layer"));
  LOCKSTEP_RETURN_IF_ERROR(second.Wait());
  LOCKSTEP_RETURN_IF_ERROR(first.Wait());
  examples::Update(sums, absl::GetFlag(FLAGS_learning_rate), model);
  return absl::OkStatus();
}

// Returns the mean loss of the samples that are held out.
absl::StatusOr<float> Evaluate(Communicator& group, lockstep::Loader& test,
                               const Model& model, Sums& sums) {
  std::vector<float>& total = sums.evaluated;
  total.assign(2, 0);  // the loss, and the number of samples
  for (auto& batch : test.Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch->Values<float>("x"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch->Values<float>("y"));
    Sums own;
    examples::SumSecondLayer(model, x, y, batch->valid(), own);
    total[0] += own.second[examples::kLoss];
    total[1] += own.second[examples::kSamples];
  }
  LOCKSTEP_RETURN_IF_ERROR(
      lockstep::Wait(AddUp(group, total, "an evaluation")));
  return total[0] / total[1];
}

// Trains, and returns true if the ranks have stopped on request.
absl::StatusOr<bool> Train(Communicator& group,
                           const lockstep::StopSignals& signals, Sums& sums) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Data data, MakeData(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test, MakeTest(group));
  lockstep::Loader& loader = *data.loader;
  // After a signal, a rank gives up if it has waited for data for 20 s.
  const auto is_enough = [&signals](absl::Duration waited) {
    return signals.requested() && waited >= absl::Seconds(20);
  };
  loader.GiveUpWhen(is_enough);
  test->GiveUpWhen(is_enough);
  Model model;
  lockstep::CheckpointOptions options;
  options.path = absl::GetFlag(FLAGS_checkpoint);
  options.every_steps = kStepsToSave;
  lockstep::Checkpoint checkpoint(group, options, [](absl::string_view text) {
    std::printf("%s\n", std::string(text).c_str());
  });
  checkpoint.set_job(data.settings);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> finished,
                            checkpoint.FindFinished());
  if (finished.has_value()) return false;
  LOCKSTEP_RETURN_IF_ERROR(AddTo(checkpoint, loader, model));
  // At the first start, all ranks get the weights of rank 0 here.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                            checkpoint.Restore());
  LOCKSTEP_RETURN_IF_ERROR(CompareWeights(group, model));
  int64_t step = restored.value_or(0);  // without a checkpoint: 0
  const int64_t epochs = absl::GetFlag(FLAGS_epochs);
  for (int64_t epoch = loader.progress().epoch; epoch < epochs; ++epoch) {
    for (auto& batch : loader.Epoch(epoch)) {  // after Restore: the rest
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      if (absl::GetFlag(FLAGS_show)) {
        std::printf(
            "epoch %d step %d: %s\n", static_cast<int>(epoch),
            static_cast<int>(batch->step()),
            absl::StrJoin(batch->indices().first(batch->valid()), " ").c_str());
      }
      if (epoch == 0 && batch->step() == absl::GetFlag(FLAGS_kill) &&
          group.rank() == group.size() - 1) {
        raise(absl::GetFlag(FLAGS_signal));
      }
      LOCKSTEP_RETURN_IF_ERROR(
          Step(group, *batch, signals.requested(), sums, model));
      const bool stops = sums.second[examples::kStops] > 0;
      if (++step % kStepsToCompare == 0) {
        LOCKSTEP_RETURN_IF_ERROR(CompareWeights(group, model));
      }
      if (checkpoint.IsDue(step) || stops) {
        LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
      }
      if (!stops) continue;
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());
      return true;
    }
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
    LOCKSTEP_ASSIGN_OR_RETURN(const float tested,
                              Evaluate(group, *test, model, sums));
    if (group.rank() == 0) {
      std::printf("epoch %d: loss %g, held out %g\n", static_cast<int>(epoch),
                  model.loss, tested);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());  // the last one is on the disk
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(group.Barrier()));
  const absl::Status marked = checkpoint.MarkFinished();
  if (!marked.ok()) {  // the training is complete all the same
    std::fprintf(stderr, "%s\n", lockstep::ToLines(marked).c_str());
  }
  return false;
}

absl::StatusOr<bool> Run() {
  Sums sums;  // outlives the group, which may still read it after a failure
  lockstep::WorldOptions world_options;
  world_options.on_slow =
      [](absl::string_view what) {  // such as a missing rank
        std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
      };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(world_options));
  lockstep::GroupOptions options;
  options.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
  // Before this line, a signal ends the process, which has nothing to save.
  const lockstep::StopSignals signals;
  absl::StatusOr<bool> stopped = Train(*group, signals, sums);
  // With Abort, the other ranks report this rank's own failure, too.
  if (!stopped.ok()) {
    group->Abort(stopped.status());
    return stopped;
  }
  LOCKSTEP_RETURN_IF_ERROR(group->Close());
  return stopped;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("trains a small model by several ranks");
  absl::ParseCommandLine(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // by line, also to a pipe
  const absl::StatusOr<bool> stopped = Run();
  // The code kExitForStop tells a scheduler to start the job again.
  if (stopped.ok()) return *stopped ? lockstep::kExitForStop : 0;
  std::fprintf(stderr, "%s\n", lockstep::ToLines(stopped.status()).c_str());
  lockstep::ReportFailure(stopped.status());
  return 1;
}
