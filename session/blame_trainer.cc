// A trainer one of whose ranks fails, for blame_test.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/session/main.h"

namespace lockstep {
namespace {

struct FailingOptions {
  std::string fails = "nowhere";
  int64_t rank = 0;
  bool wraps = false;
};

void BindOptions(FailingOptions& options, OptionTable& table) {
  table.Add("fails", &options.fails, "Where the rank fails.");
  table.Add("rank", &options.rank, "The rank that fails.");
  table.Add("wraps", &options.wraps, "Whether the trainer rewords failures.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakeOnes(const PluginContext&,
                                                  const NoOptions&) {
  return TensorDataset::Create(
      {NamedTensor::Own<float>("x", {12}, std::vector<float>(12, 1.0F))});
}

struct PickyOptions {
  int64_t rank = -1;
  int64_t slow_rank = -1;
};

void BindOptions(PickyOptions& options, OptionTable& table) {
  table.Add("rank", &options.rank, "The rank that gets no group.");
  table.Add("slow_rank", &options.slow_rank, "A rank with a bad option.");
}

absl::StatusOr<std::unique_ptr<Communicator>> MakePicky(
    const PluginContext& context, const PickyOptions& options) {
  if (context.world->rank() == options.rank) {
    return absl::NotFoundError("the mistake: no device");
  }
  GroupOptions group;
  if (context.world->rank() == options.slow_rank) {
    group.slow = -absl::Seconds(1);
  }
  return context.world->MakeGroup(group);
}

absl::Status RegisterParts(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(
      registry.Add<Dataset>("ones", "Twelve ones.", MakeOnes));
  return registry.Add<Communicator>("picky", "A group that a rank can't make.",
                                    MakePicky);
}

absl::Status FailAt(const std::string& place) {
  if (place == "throw") throw std::runtime_error("the mistake: thrown");
  if (place == "exit") _exit(7);
  return absl::InvalidArgumentError(absl::StrCat("the mistake: ", place));
}

absl::Status TrainHere(Session& session, const FailingOptions& options) {
  if (options.fails == "nowhere") {
    // The process is about to end when the signal comes.
    std::atexit([] { ::raise(SIGTERM); });
  }
  const auto here = [&](const char* place) {
    return options.fails == place && session.rank() == options.rank;
  };
  if (here("before") || here("throw") || here("exit")) {
    return FailAt(options.fails);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto train, session.MakeLoader(here("loader") ? "trian" : "train"));
  std::vector<float> weights = {0}, gradient = {0};
  std::vector<Parameter> parameters = {
      {"weights", BufferOf(weights), BufferOf(gradient)}};
  LOCKSTEP_ASSIGN_OR_RETURN(const auto gradients,
                            session.MakeGradients(std::move(parameters)));
  // The other ranks are in their first step.
  if (here("late")) return FailAt("late");
  for (const int64_t epoch : session.Epochs(*train, 2)) {
    for (Step& step : session.Steps(*train, epoch)) {
      for (const Batch& batch : step) {
        gradient[0] += static_cast<float>(batch.valid());
        if (here("step")) return FailAt("step");
      }
      if (here("differ")) step.Add("accuracy", 1);
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
    }
  }
  return absl::OkStatus();
}

absl::Status Train(Session& session, const FailingOptions& options) {
  absl::Status status = TrainHere(session, options);
  if (status.ok() || !options.wraps) return status;
  return absl::InternalError(absl::StrCat("my model: ", status.message()));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, lockstep::Train, lockstep::RegisterParts);
}
