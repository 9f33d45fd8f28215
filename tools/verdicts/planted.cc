// A trainer for tools/ci/verdicts. Its ranks sleep instead of reading and
// computing, so it is known where their time goes, also on a busy machine:
//
//   lockstep launch -n 3 -- planted --config=tools/verdicts/planted.toml
//       --set trainer.slow_rank=1 --set trainer.slow_compute=20ms
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/session/main.h"

namespace {

using lockstep::Batch;
using lockstep::BufferOf;
using lockstep::Dataset;
using lockstep::DType;
using lockstep::FieldSpec;
using lockstep::OptionTable;
using lockstep::PluginContext;
using lockstep::PluginRegistry;
using lockstep::SampleContext;
using lockstep::SampleRow;
using lockstep::Session;
using lockstep::Step;
using lockstep::StepsOptions;

constexpr int64_t kNoRank = -1;

absl::Status CheckRank(absl::string_view name, int64_t rank, int64_t size) {
  if (rank >= kNoRank && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is ", rank, "; accepted are -1 for no rank, and 0 to ", size - 1,
      ", since the job has ", size, " ranks"));
}

// ---- The data.

struct SleepyOptions {
  int64_t size = 100'000;
  absl::Duration read = absl::Milliseconds(1);
  int64_t slow_rank = kNoRank;
  absl::Duration slow_read = absl::ZeroDuration();
};

void BindOptions(SleepyOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many samples there are.");
  table.Add("read", &options.read, "How long reading a sample takes.");
  table.Add("slow_rank", &options.slow_rank,
            "The rank that reads more slowly; -1 for none.");
  table.Add("slow_read", &options.slow_read,
            "How much longer a sample takes on the slow rank.");
}

// A dataset in which reading a sample takes as long as the options say.
// Thread-safety: thread-safe.
class Sleepy : public Dataset {
 public:
  Sleepy(int64_t size, absl::Duration read) : size_(size), read_(read) {}
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    absl::SleepFor(read_);
    return row.Set<float>(0, static_cast<float>(index));
  }

 private:
  const int64_t size_;
  const absl::Duration read_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {}, 0}};
};

absl::StatusOr<std::shared_ptr<Dataset>> MakeSleepy(
    const PluginContext& context, const SleepyOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRank("slow_rank", options.slow_rank, context.world_size));
  const bool is_slow = context.rank == options.slow_rank;
  return std::make_shared<Sleepy>(
      options.size, is_slow ? options.read + options.slow_read : options.read);
}

absl::Status RegisterParts(PluginRegistry& registry) {
  return registry.Add<Dataset>(
      "sleepy", "Numbers, each of which takes a while.", MakeSleepy);
}

// ---- The training.

struct TrainerOptions {
  int64_t steps = 200;
  int64_t parameters = 1000;
  absl::Duration compute = absl::Milliseconds(20);
  int64_t slow_rank = kNoRank;
  bool rotating = false;
  absl::Duration slow_compute = absl::ZeroDuration();
};

void BindOptions(TrainerOptions& options, OptionTable& table) {
  table.Add("steps", &options.steps, "How many steps the training has.");
  table.Add("parameters", &options.parameters,
            "How many numbers the gradients of a step have.");
  table.Add("compute", &options.compute, "How long a rank computes in a step.");
  table.Add("slow_rank", &options.slow_rank,
            "The rank that computes longer; -1 for none.");
  table.Add("rotating", &options.rotating,
            "Whether in each step another rank computes longer.");
  table.Add("slow_compute", &options.slow_compute,
            "How much longer a slow rank computes.");
}

// Returns how long this rank computes in a step.
absl::Duration ComputeTime(const Session& session, const Step& step,
                           const TrainerOptions& options) {
  const int64_t slow = options.rotating ? step.global_number() % session.size()
                                        : options.slow_rank;
  return session.rank() == slow ? options.compute + options.slow_compute
                                : options.compute;
}

absl::Status Train(Session& session, const TrainerOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRank("slow_rank", options.slow_rank, session.size()));
  if (options.parameters < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters is ", options.parameters, "; accepted are 1 and more"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
  std::vector<float> weights(options.parameters);
  std::vector<float> gradient(options.parameters);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto gradients,
      session.MakeGradients(
          {{"weights", BufferOf(weights), BufferOf(gradient)}}));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  StepsOptions steps;
  steps.max_steps = options.steps;
  for (Step& step : session.Steps(*train, steps)) {
    for (const Batch& batch : step) {
      step.Add("rows", static_cast<double>(batch.valid()));
    }
    absl::SleepFor(ComputeTime(session, step, options));
    LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, Train, RegisterParts);
}
