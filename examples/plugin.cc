// A trainer that makes its parts by name: Lockstep's parts, and its own dataset
// and order. docs/plugin.md is the guide.
//
//   plugin              makes loaders of the dataset "ring", and reads them
//   plugin --list       prints all parts with their settings
#include "lockstep/plugin/plugin.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace {

using lockstep::Config;
using lockstep::Dataset;
using lockstep::Loader;
using lockstep::PluginContext;
using lockstep::PluginRegistry;

// ---- The trainer's own dataset, with its settings.

struct RingOptions {
  int64_t size = 100;
  double radius = 1;
};

void BindOptions(RingOptions& options, lockstep::OptionTable& table) {
  table.Add("size", &options.size, "How many points there are.");
  table.Add("radius", &options.radius, "How far they are from the middle.");
}

// Thread-safety: thread-safe.
class Ring : public Dataset {
 public:
  explicit Ring(const RingOptions& options) : options_(options) {}
  int64_t size() const override { return options_.size; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext&,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<double> x,
                              row.Mutable<double>(0));
    const double angle = 6.283185307179586 * static_cast<double>(index) /
                         static_cast<double>(options_.size);
    x[0] = options_.radius * std::cos(angle);
    x[1] = options_.radius * std::sin(angle);
    return absl::OkStatus();
  }
  // Returns the half of the ring that each point is in, for samplers with
  // classes.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "half") return Dataset::ReadColumn(name);
    std::vector<int64_t> halves(options_.size);
    for (int64_t i = 0; i < options_.size; ++i) {
      halves[i] = 2 * i / options_.size;
    }
    return Column(std::move(halves));
  }

 private:
  const RingOptions options_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"x", lockstep::DType::kF64, {2}, 0}};
};

absl::StatusOr<std::shared_ptr<Dataset>> MakeRing(const PluginContext&,
                                                  const RingOptions& options) {
  if (options.size < 1) {
    return absl::InvalidArgumentError("a ring should have a size of 1 or more");
  }
  return std::make_shared<Ring>(options);
}

// ---- The trainer's own order.

struct BackwardOptions {
  int64_t step = 1;
};

void BindOptions(BackwardOptions& options, lockstep::OptionTable& table) {
  table.Add("step", &options.step, "The distance from one to the next.");
}

absl::StatusOr<std::shared_ptr<const lockstep::Order>> MakeBackward(
    const PluginContext& context, const BackwardOptions& options) {
  if (context.dataset == nullptr || options.step < 1) {
    return absl::InvalidArgumentError(
        "backward needs a dataset, and a step of 1 or more");
  }
  const int64_t size = context.dataset->size();
  return lockstep::CustomOrder::Create(
      {"backward", size}, [=](int64_t /*epoch*/) {
        std::vector<int64_t> indices;
        for (int64_t i = size - 1; i >= 0; i -= options.step) {
          indices.push_back(i);
        }
        return indices;
      });
}

// ---- Registration, which is done once.

absl::Status RegisterParts(PluginRegistry& registry) {
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<lockstep::Order>(
      "backward", "The last sample first.", MakeBackward));
  return registry.Add<Dataset>("ring", "Points on a ring.", MakeRing);
}

// ---- Making the parts by name.

absl::Status ReadRing(PluginRegistry& registry, const Config& sampler) {
  Config settings;
  settings.Set("num_workers", 2);
  Config& dataset = settings.Set("dataset", Config());
  dataset.Set("name", "ring");
  dataset.Set("size", 10);
  settings.Set("sampler", sampler);

  PluginContext context;  // one rank of one
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader, registry.Create<Loader>("default", context, settings));
  for (auto& batch : loader->Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    std::printf("step %d:", static_cast<int>(batch->step()));
    for (const int64_t index : batch->indices().first(batch->valid())) {
      std::printf(" %d", static_cast<int>(index));
    }
    std::printf("\n");
  }
  return absl::OkStatus();
}

absl::Status Read(PluginRegistry& registry) {
  Config sampler;
  sampler.Set("name", "stratified");
  sampler.Set("labels", "half");
  sampler.Set("global_batch_size", 4);
  LOCKSTEP_RETURN_IF_ERROR(ReadRing(registry, sampler));

  Config backward;
  backward.Set("name", "order");
  backward.Set("global_batch_size", 5);
  backward.Set("order", Config()).Set("name", "backward");
  return ReadRing(registry, backward);
}

}  // namespace

int main(int argc, char** argv) {
  PluginRegistry registry;
  absl::Status status = RegisterParts(registry);
  if (status.ok() && argc > 1 && absl::string_view(argv[1]) == "--list") {
    std::fputs(lockstep::ListParts(registry.Parts()).c_str(), stdout);
  } else {
    status.Update(Read(registry));
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
