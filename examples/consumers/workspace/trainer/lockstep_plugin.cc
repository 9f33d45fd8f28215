#include "trainer/lockstep_plugin.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "loader/loader.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/sampler.h"

namespace acme {
namespace {

using lockstep::Config;
using lockstep::PluginContext;
using lockstep::PluginRegistry;

// A dataset with the points of the training.
// Thread-safety: thread-safe.
class PointDataset : public lockstep::Dataset {
 public:
  explicit PointDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
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
  const int64_t size_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"x", lockstep::DType::kF32, {}, 0}, {"y", lockstep::DType::kF32, {}, 0}};
};

// One of Lockstep's loaders, with Acme's interface.
// Thread-safety: thread-compatible.
class LockstepLoader : public Loader {
 public:
  explicit LockstepLoader(std::unique_ptr<lockstep::Loader> loader)
      : loader_(std::move(loader)) {}

  absl::Status StartEpoch(int64_t epoch) override {
    return loader_->StartEpoch(epoch);
  }
  absl::StatusOr<bool> Next(Points& points) override {
    lockstep::Batch batch;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader_->Next(batch));
    points = Points();
    if (!more) return false;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto y, batch.Values<float>("y"));
    for (size_t row = 0; row < static_cast<size_t>(batch.valid()); ++row) {
      points.numbers.push_back(batch.indices()[row]);
      points.x.push_back(x[row]);
      points.y.push_back(y[row]);
    }
    return true;
  }

 private:
  const std::unique_ptr<lockstep::Loader> loader_;
};

absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
    PluginRegistry& registry, const std::string& sampler,
    const LoaderSettings& settings) {
  PluginContext context;
  context.rank = settings.rank;
  context.world_size = settings.ranks;
  context.dataset = std::make_shared<PointDataset>(settings.samples);
  Config config;
  config.Set("num_workers", 2);
  Config& cut = config.Set("sampler", Config());
  cut.Set("name", sampler);
  cut.Set("global_batch_size", settings.batch_size * settings.ranks);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<lockstep::Loader> loader,
      registry.Create<lockstep::Loader>("default", context, config));
  return std::make_unique<LockstepLoader>(std::move(loader));
}

}  // namespace

absl::Status RegisterLockstep(Plugins& plugins) {
  return plugins.Register("lockstep", lockstep::kVersion, [](Plugins& acme) {
    // The factories share the registry.
    const auto registry = std::make_shared<PluginRegistry>();
    LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(*registry));
    for (const auto& part : registry->Parts<lockstep::Sampler>()) {
      acme.AddLoader(
          "lockstep." + part.name,
          [registry, name = part.name](const LoaderSettings& settings) {
            return MakeLoader(*registry, name, settings);
          });
    }
    return absl::OkStatus();
  });
}

}  // namespace acme
