#include "trainer/trainer.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "loader/loader.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "sampler/sampler.h"

namespace acme {
namespace {

// Acme's own loader, which gives the samples in order.
// Thread-safety: thread-compatible.
class InOrder : public Loader {
 public:
  explicit InOrder(const LoaderSettings& settings) : settings_(settings) {}

  absl::Status StartEpoch(int64_t /*epoch*/) override {
    step_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Next(Points& batch) override {
    batch = Points();
    if (step_ * settings_.ranks * settings_.batch_size >= settings_.samples) {
      return false;
    }
    for (const int64_t number : SamplesOfStep(settings_, step_++)) {
      const float x = static_cast<float>(number) / 100;
      batch.numbers.push_back(number);
      batch.x.push_back(x);
      batch.y.push_back(2 * x + 1);
    }
    return true;
  }

 private:
  const LoaderSettings settings_;
  int64_t step_ = 0;
};

}  // namespace

void AddOwnLoader(Plugins& plugins) {
  plugins.AddLoader("acme.in_order", [](const LoaderSettings& settings) {
    return absl::StatusOr<std::unique_ptr<Loader>>(
        std::make_unique<InOrder>(settings));
  });
}

absl::StatusOr<Line> Train(const Plugins& plugins, const std::string& loader,
                           int64_t epochs, lockstep::Communicator& group) {
  LoaderSettings settings;
  settings.samples = 103;
  settings.batch_size = 8;
  settings.rank = group.rank();
  settings.ranks = group.size();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Loader> points,
                            plugins.MakeLoader(loader, settings));
  Line line;
  Points batch;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(points->StartEpoch(epoch));
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, points->Next(batch));
      if (!more) break;
      // These are the gradients of the slope and the offset, and the number of
      // points.
      std::vector<float> sums(3);
      for (size_t i = 0; i < batch.x.size(); ++i) {
        const float error = line.slope * batch.x[i] + line.offset - batch.y[i];
        sums[0] += error * batch.x[i];
        sums[1] += error;
        sums[2] += 1;
      }
      const lockstep::Buffer buffer = lockstep::BufferOf(absl::MakeSpan(sums));
      LOCKSTEP_ASSIGN_OR_RETURN(
          const lockstep::Work work,
          group.AllReduce(buffer, buffer, lockstep::ReduceOp::kSum));
      LOCKSTEP_RETURN_IF_ERROR(work.Wait());
      line.slope -= 0.5F * sums[0] / sums[2];
      line.offset -= 0.5F * sums[1] / sums[2];
    }
  }
  return line;
}

}  // namespace acme
