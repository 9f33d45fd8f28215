// A trainer of the company Acme, which is a function with a session:
//
//   trainer --config=trainer/trainer.toml
//   lockstep launch -n 2 -- trainer --config=trainer/trainer.toml
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/session/main.h"
#include "trainer/line.h"

namespace {

// The points of the training: x = i / 100 and y = 2x + 1.
// Thread-safety: thread-safe.
class Points : public lockstep::Dataset {
 public:
  int64_t size() const override { return 103; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext& /*context*/,
                    lockstep::SampleRow& row) override {
    const float x = static_cast<float>(index) / 100;
    LOCKSTEP_RETURN_IF_ERROR(row.Set(0, x));
    return row.Set(1, 2 * x + 1);
  }

 private:
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"x", lockstep::DType::kF32, {}, 0}, {"y", lockstep::DType::kF32, {}, 0}};
};

struct TrainerOptions {
  int64_t epochs = 30;
  float learning_rate = 0.5;
};

void BindOptions(TrainerOptions& options, lockstep::OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("learning_rate", &options.learning_rate, "How far a step goes.");
}

absl::StatusOr<std::shared_ptr<lockstep::Dataset>> MakePoints(
    const lockstep::PluginContext& /*context*/,
    const lockstep::NoOptions& /*options*/) {
  return std::make_shared<Points>();
}

absl::Status RegisterParts(lockstep::PluginRegistry& registry) {
  return registry.Add<lockstep::Dataset>("points", "Points on a line.",
                                         MakePoints);
}

absl::Status Train(lockstep::Session& session, const TrainerOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
  acme::Line line;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto gradients,
      session.MakeGradients({{"line", lockstep::BufferOf(line.parameters),
                              lockstep::BufferOf(line.gradients)}}));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
    for (lockstep::Step& step : session.Steps(*train, epoch)) {
      for (const lockstep::Batch& batch : step) {
        LOCKSTEP_ASSIGN_OR_RETURN(const double loss, line.AddGradients(batch));
        step.Add("loss", loss);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      line.Update(options.learning_rate);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, Train, RegisterParts);
}
