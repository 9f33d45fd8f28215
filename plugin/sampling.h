// Factories of orders, and of samplers, which cut the stream of an order and
// deal it to ranks. Internal.
//
//   OrderResult MakeReversed(const PluginContext& context,
//                            const ReversedOptions& options);
//   status.Update(AddOrder<ReversedOptions, MakeReversed>(
//       registry, "reversed", "All samples, the last one first."));
#ifndef LOCKSTEP_PLUGIN_SAMPLING_H_
#define LOCKSTEP_PLUGIN_SAMPLING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/presets.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep::internal_plugin {

using OrderResult = absl::StatusOr<OrderPtr>;
using SamplerResult = absl::StatusOr<std::unique_ptr<Sampler>>;

// Returns the dataset of a context, or an error that asks for one.
absl::StatusOr<Dataset*> DatasetOf(const PluginContext& context);

// Returns the number of ranks that get different data.
absl::StatusOr<int64_t> RanksWithData(const PluginContext& context);

void BindSeed(uint64_t& seed, OptionTable& table);
void BindProfile(TorchProfile& profile, OptionTable& table);

// The settings of an inner order.
struct Inner {
  Inner() { table.Set("name", "native_shuffle"); }
  Config table;
};
void BindInner(Inner& inner, OptionTable& table);
OrderResult MakeInner(const PluginContext& context, const Inner& inner);

enum class LayoutChoice { kAuto, kStrided, kBlocked };

// The settings of the cut of a sampler.
struct CutSettings {
  SamplerOptions options;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> rank_batch_size;
  LayoutChoice layout = LayoutChoice::kAuto;
};
void BindCut(CutSettings& settings, OptionTable& table);

// Returns the options with what only the context knows.
absl::StatusOr<SamplerOptions> SamplerOptionsOf(const PluginContext& context,
                                                const CutSettings& settings);

// Returns the context for the order of a sampler with these options.
PluginContext WithBatch(const PluginContext& context,
                        const CutSettings& settings,
                        const SamplerOptions& options);

Layout LayoutOf(LayoutChoice choice, const Order& order);

// The settings of an order and those of the cut, in one table.
template <typename Settings>
struct Sampled {
  Settings order;
  CutSettings cut;
};

template <typename Settings>
void BindOptions(Sampled<Settings>& settings, OptionTable& table) {
  BindOptions(settings.order, table);
  BindCut(settings.cut, table);
}

template <typename Settings,
          OrderResult (*kMake)(const PluginContext&, const Settings&)>
SamplerResult MakeSampler(const PluginContext& context,
                          const Sampled<Settings>& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerOptions options,
                            SamplerOptionsOf(context, settings.cut));
  LOCKSTEP_ASSIGN_OR_RETURN(
      OrderPtr order,
      kMake(WithBatch(context, settings.cut, options), settings.order));
  options.cut.layout = LayoutOf(settings.cut.layout, *order);
  return Sampler::Create(std::move(order), options);
}

// Registers an order, and a sampler with the same name.
template <typename Settings,
          OrderResult (*kMake)(const PluginContext&, const Settings&)>
absl::Status AddOrder(PluginRegistry& registry, absl::string_view name,
                      absl::string_view meaning) {
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<Order>(name, meaning, kMake));
  return registry.Add<Sampler>(name, meaning, MakeSampler<Settings, kMake>);
}

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_SAMPLING_H_
