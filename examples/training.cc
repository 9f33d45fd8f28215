// A small model that is trained by several ranks. Each rank has its own
// samples, and the ranks add up their gradients. A job that was ended continues
// later, also on another number of ranks. recovery.cc shows how to handle
// failures.
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
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/rendezvous/failure_report.h"
#include "lockstep/collective/world.h"
#include "lockstep/examples/small_model.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"

ABSL_FLAG(std::string, backend, "auto", "auto, shm or gloo");
ABSL_FLAG(int64_t, epochs, 6, "how often all samples are read");
ABSL_FLAG(int64_t, batch, 16, "samples of a rank in a step");
ABSL_FLAG(float, learning_rate, 0.1, "of gradient descent");
ABSL_FLAG(std::string, checkpoint, "",
          "where the files begin to go on from, if any");
ABSL_FLAG(bool, show, false, "prints which samples this rank gets");
ABSL_FLAG(int64_t, kill, -1,
          "the last rank ends itself by SIGKILL in this step of epoch 0");

namespace {

using examples::Model;
using examples::Sums;
using lockstep::Communicator;
using lockstep::Work;

constexpr int64_t kStepsToSave = 10;

// Trains one step. The sums of all ranks are divided by the number of samples
// of all ranks. So the mean is exact, even if the last batch is smaller or
// empty on some ranks.
absl::Status Step(Communicator& group, const lockstep::Batch& batch, Sums& sums,
                  Model& model) {
  const auto add_up = [&group](std::vector<float>& values, const char* name) {
    const lockstep::Buffer buffer = lockstep::BufferOf(values);
    lockstep::CallOptions call;
    call.name = name;
    return group.AllReduce(buffer, buffer, lockstep::ReduceOp::kSum, call);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
  const std::vector<float> errors =
      examples::SumSecondLayer(model, x, y, batch.valid(), sums);
  LOCKSTEP_ASSIGN_OR_RETURN(const Work second,
                            add_up(sums.second, "second layer"));
  // This runs during the reduction of the second layer.
  examples::SumFirstLayer(model, x, errors, sums);
  LOCKSTEP_ASSIGN_OR_RETURN(const Work first,
                            add_up(sums.first, "first layer"));
  LOCKSTEP_RETURN_IF_ERROR(second.Wait());
  LOCKSTEP_RETURN_IF_ERROR(first.Wait());
  examples::Update(sums, absl::GetFlag(FLAGS_learning_rate), model);
  return absl::OkStatus();
}

// Makes the loader. All ranks share one order, which has no sample twice and no
// padding.
absl::StatusOr<std::unique_ptr<lockstep::Loader>> MakeLoader(
    Communicator& group) {
  auto points = std::make_shared<examples::Points>();
  lockstep::NativeShuffleOptions shuffle;
  shuffle.size = points->size();
  shuffle.seed = 7;
  LOCKSTEP_ASSIGN_OR_RETURN(auto order,
                            lockstep::NativeShuffle::Create(shuffle));
  lockstep::SamplerOptions dealt;
  dealt.cut.batch_size = absl::GetFlag(FLAGS_batch);
  dealt.cut.world = group.size();
  dealt.cut.tail = lockstep::Tail::kUneven;
  dealt.rank = group.rank();
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::Sampler::Create(std::move(order), dealt));

  // These settings must be the same on all ranks, too.
  lockstep::Fingerprint job = sampler->JobFingerprint();
  job.Add("epochs", absl::StrCat(absl::GetFlag(FLAGS_epochs)));
  job.Add("learning_rate", absl::StrCat(absl::GetFlag(FLAGS_learning_rate)));
  LOCKSTEP_RETURN_IF_ERROR(lockstep::CheckSame(group, "the job", job));

  lockstep::LoaderOptions options;
  options.num_workers = 2;
  return lockstep::Loader::Create(std::move(points), std::move(sampler),
                                  options);
}

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

absl::Status Train(Communicator& group, Sums& sums) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, MakeLoader(group));
  Model model;
  lockstep::CheckpointOptions options;
  options.path = absl::GetFlag(FLAGS_checkpoint);
  options.every_steps = kStepsToSave;
  lockstep::Checkpoint checkpoint(group, options, [](absl::string_view text) {
    std::printf("%s\n", std::string(text).c_str());
  });
  LOCKSTEP_RETURN_IF_ERROR(AddTo(checkpoint, *loader, model));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                            checkpoint.Restore());
  int64_t step = restored.value_or(0);  // without a checkpoint: 0
  const int64_t epochs = absl::GetFlag(FLAGS_epochs);
  for (int64_t epoch = loader->progress().epoch; epoch < epochs; ++epoch) {
    for (auto& batch : loader->Epoch(epoch)) {  // after Restore: the rest
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      if (absl::GetFlag(FLAGS_show)) {
        std::printf(
            "epoch %d step %d: %s\n", static_cast<int>(epoch),
            static_cast<int>(batch->step()),
            absl::StrJoin(batch->indices().first(batch->valid()), " ").c_str());
      }
      if (epoch == 0 && batch->step() == absl::GetFlag(FLAGS_kill) &&
          group.rank() == group.size() - 1) {
        raise(SIGKILL);
      }
      LOCKSTEP_RETURN_IF_ERROR(Step(group, *batch, sums, model));
      if (checkpoint.IsDue(++step)) {
        LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
      }
    }
    if (group.rank() == 0) {
      std::printf("epoch %d: loss %g\n", static_cast<int>(epoch), model.loss);
    }
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());  // the last one is on the disk
  return group.Close();
}

absl::Status Run() {
  Sums sums;  // outlives the group, which may still read it after a failure
  lockstep::WorldOptions told;
  told.on_slow = [](absl::string_view what) {  // such as a missing rank
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(told));
  lockstep::GroupOptions options;
  options.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
  absl::Status trained = Train(*group, sums);
  // With Abort, the other ranks report this rank's own failure, too.
  if (!trained.ok()) group->Abort(trained);
  return trained;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("trains a small model by several ranks");
  absl::ParseCommandLine(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // by line, also to a pipe
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", lockstep::ToLines(status).c_str());
  lockstep::ReportFailure(status);
  return 1;
}
