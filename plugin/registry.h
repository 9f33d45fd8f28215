// Names for the parts of a training job: orders, samplers, datasets, loaders,
// communicators and metrics sinks. A trainer registers Lockstep's parts and its
// own once, and makes them by name from then on, with the settings that its
// configuration has for them:
//
//   struct RingOptions {
//     int64_t size = 1000;
//   };
//   void BindOptions(RingOptions& options, OptionTable& table) {
//     table.Add("size", &options.size, "How many points there are.");
//   }
//   absl::StatusOr<std::shared_ptr<Dataset>> MakeRing(
//       const PluginContext& context, const RingOptions& options) {
//     return std::make_shared<Ring>(options.size);
//   }
//
//   PluginRegistry registry;
//   LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));  // plugin.h
//   LOCKSTEP_RETURN_IF_ERROR(registry.Add<Dataset>(
//       "ring", "Points on a ring.", MakeRing));
//
//   PluginContext context;
//   context.size = 4;  // ranks
//   Config ring;
//   ring.Set("size", 2003);
//   LOCKSTEP_ASSIGN_OR_RETURN(context.dataset,
//                             registry.Create<Dataset>("ring", context, ring));
//   Config sampling;
//   sampling.Set("global_batch_size", 256);
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::unique_ptr<Sampler> sampler,
//       registry.Create<Sampler>("distributed", context, sampling));
//
// A registry is an ordinary object. PluginRegistry::Global() is the one of the
// process, for plugins that register themselves (//plugin:static_register).
#ifndef LOCKSTEP_PLUGIN_REGISTRY_H_
#define LOCKSTEP_PLUGIN_REGISTRY_H_

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {

class Communicator;
class Dataset;
class Loader;
struct LoaderOptions;
class MetricsSink;
class Order;
class PluginRegistry;
class Sampler;
class World;

// The version of what this header and plugin.h declare. A plugin is accepted if
// its own is from kOldestPluginApi to kPluginApi.
inline constexpr int kPluginApi = 1;
inline constexpr int kOldestPluginApi = 1;

// A factory is told this of the job, each where it is known.
struct PluginContext {
  // This rank, of so many. -1: as `world` has it; without one, 0 of 1. A
  // factory finds the numbers themselves.
  int64_t rank = -1;
  int64_t size = -1;
  int64_t replicas = 1;  // ranks that share each part of the data

  // Rows of a global batch, 0 where it is not known: what orders that look at
  // some batches at once plan for.
  int64_t global_batch_size = 0;

  std::shared_ptr<Dataset> dataset;
  World* world = nullptr;
  Communicator* group = nullptr;

  // A loader takes its callbacks from here, and the memory of its batches,
  // which only a program can set. It takes nothing of the other fields.
  const LoaderOptions* loader = nullptr;

  // Create sets it, so that a factory can make parts of its own part by name.
  PluginRegistry* registry = nullptr;
};

// A plugin: what it is called, and a function that registers its parts.
struct PluginInfo {
  int api = kPluginApi;
  std::string name;     // "lockstep"
  std::string version;  // "0.1.0"
  absl::Status (*register_all)(PluginRegistry& registry) = nullptr;
};

// A kind of part that a registry can hold. To add a kind of your own,
// specialize this for its class.
template <typename Part>
struct PluginKind;

template <>
struct PluginKind<Order> {
  static constexpr char kName[] = "order";
  using Pointer = std::shared_ptr<const Order>;
};
template <>
struct PluginKind<Sampler> {
  static constexpr char kName[] = "sampler";
  using Pointer = std::unique_ptr<Sampler>;
};
template <>
struct PluginKind<Dataset> {
  static constexpr char kName[] = "dataset";
  using Pointer = std::shared_ptr<Dataset>;
};
template <>
struct PluginKind<Loader> {
  static constexpr char kName[] = "loader";
  using Pointer = std::unique_ptr<Loader>;
};
template <>
struct PluginKind<Communicator> {
  static constexpr char kName[] = "communicator";
  using Pointer = std::unique_ptr<Communicator>;
};
template <>
struct PluginKind<MetricsSink> {
  static constexpr char kName[] = "metrics sink";
  using Pointer = std::unique_ptr<MetricsSink>;
};

// The place where something was registered. The default is that of the call.
struct PluginPlace {
  const char* file = "";
  int line = 0;

  static PluginPlace Here(const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    return {file, line};
  }
  std::string ToString() const { return absl::StrCat(file, ":", line); }
};

// A part with a name, for lists.
struct PluginPart {
  std::string kind;
  std::string name;
  std::string meaning;  // one sentence
  std::string plugin;   // the name and version of the plugin; "" for the host's
  std::vector<OptionInfo> options;
};

// For factories that take no settings.
struct NoOptions {};
inline void BindOptions(NoOptions& /*options*/, OptionTable& /*table*/) {}

// Thread-safety: Create and Parts are thread-safe, and factories are called
// without a lock. One thread at a time registers.
class PluginRegistry {
 public:
  template <typename Part>
  using Pointer = typename PluginKind<Part>::Pointer;

  PluginRegistry() = default;
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // The registry of the process, or what a ScopedGlobalRegistry has put in its
  // place.
  static PluginRegistry& Global();

  // Calls plugin.register_all. FAILED_PRECONDITION where the plugin was built
  // for another version of this interface.
  absl::Status Register(const PluginInfo& plugin);

  // Registers a part under a name of lower-case letters, digits and '_'. The
  // factory is a function of the context and of an options struct that has
  // BindOptions, and returns absl::StatusOr of exactly the part's pointer. A
  // lambda without captures will do where the options are named:
  //
  //   registry.Add<Dataset, RingOptions>(
  //       "ring", "Points on a ring.",
  //       [](const PluginContext& context, const RingOptions& options)
  //           -> absl::StatusOr<std::shared_ptr<Dataset>> { ... });
  //
  // The same place may register the same factory again. Another one of the name
  // is ALREADY_EXISTS, with both places. FAILED_PRECONDITION after the first
  // Create.
  template <typename Part, typename Options>
  absl::Status Add(absl::string_view name, absl::string_view meaning,
                   absl::StatusOr<Pointer<Part>> (*factory)(
                       const PluginContext&, const Options&),
                   PluginPlace place = PluginPlace::Here());

  // Says of a name that this build lacks what would bring it in, such as
  // "--@lockstep//config:with_gloo=true".
  template <typename Part>
  void NoteAbsent(absl::string_view name, absl::string_view flag) {
    AddAbsent(PluginKind<Part>::kName, name, flag);
  }

  // Makes a part. NOT_FOUND lists the names that there are; INVALID_ARGUMENT
  // says which setting is wrong and what is accepted; any other error is the
  // factory's, with the part behind it. A factory that throws or returns null
  // is UNKNOWN or INTERNAL.
  template <typename Part>
  absl::StatusOr<Pointer<Part>> Create(absl::string_view name,
                                       const PluginContext& context,
                                       const Config& options = {});

  // Does the same for a table of settings that has the name among them, such as
  // {name = "ring", size = 2003}. Without one it takes `default_name`, if that
  // is not empty.
  template <typename Part>
  absl::StatusOr<Pointer<Part>> CreateFrom(
      const Config& table, const PluginContext& context,
      absl::string_view default_name = "") {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto named, TakeName(PluginKind<Part>::kName, table, default_name));
    return Create<Part>(named.first, context, named.second);
  }

  // All parts of a kind, or all, in the order of their names.
  template <typename Part>
  std::vector<PluginPart> Parts() const {
    return PartsOf(PluginKind<Part>::kName);
  }
  std::vector<PluginPart> Parts() const { return PartsOf(""); }

  // Keeps an error of a registration that could be told to nobody, before main.
  // Every Create returns the first one.
  void NoteError(const absl::Status& error);

 private:
  struct Item {
    PluginPart part;
    PluginPlace place;
    void (*factory)() = nullptr;  // to compare
    std::any make;                // a Maker
  };
  template <typename Part>
  using Maker = std::function<absl::StatusOr<Pointer<Part>>(
      const PluginContext&, const Config&)>;
  using Key = std::pair<std::string, std::string>;  // kind, name

  absl::Status AddItem(Item item);
  void AddAbsent(absl::string_view kind, absl::string_view name,
                 absl::string_view flag);
  // Finds what makes a part, and freezes this.
  absl::StatusOr<const std::any*> Find(absl::string_view kind,
                                       absl::string_view name);
  // The name in the table, which is known, and the table without it.
  absl::StatusOr<std::pair<std::string, Config>> TakeName(
      absl::string_view kind, const Config& table,
      absl::string_view default_name);
  std::vector<PluginPart> PartsOf(absl::string_view kind) const;
  static PluginContext WithRanks(const PluginContext& context);
  absl::Status Unknown(const std::string& kind, absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<Key, Item> items_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::string> absent_ ABSL_GUARDED_BY(mutex_);
  std::string plugin_ ABSL_GUARDED_BY(mutex_);  // whose parts are registered
  std::string frozen_by_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// Puts a registry in the place of the global one, for a test:
//
//   PluginRegistry registry;
//   ScopedGlobalRegistry scope(registry);
class ScopedGlobalRegistry {
 public:
  explicit ScopedGlobalRegistry(PluginRegistry& registry);
  ~ScopedGlobalRegistry();
  ScopedGlobalRegistry(const ScopedGlobalRegistry&) = delete;
  ScopedGlobalRegistry& operator=(const ScopedGlobalRegistry&) = delete;

 private:
  PluginRegistry* const before_;
};

// ---- Implementation details.

namespace internal_plugin {

// Says behind an error which part was to be made, and from where. OK stays OK.
absl::Status InPart(const absl::Status& error, absl::string_view what,
                    const Config& config);

}  // namespace internal_plugin

template <typename Part, typename Options>
absl::Status PluginRegistry::Add(absl::string_view name,
                                 absl::string_view meaning,
                                 absl::StatusOr<Pointer<Part>> (*factory)(
                                     const PluginContext&, const Options&),
                                 PluginPlace place) {
  std::string what = absl::StrCat(PluginKind<Part>::kName, " '", name, "'");
  Item item;
  item.place = place;
  item.part.kind = PluginKind<Part>::kName;
  item.part.name = std::string(name);
  item.part.meaning = std::string(meaning);
  item.factory = reinterpret_cast<void (*)()>(factory);
  LOCKSTEP_RETURN_IF_ERROR(CatchAll("BindOptions", [&] {
    Options options;
    const OptionTable table = TableOf(options);
    item.part.options = table.Describe();
    return internal_plugin::InPart(table.status(), what, Config());
  }));
  item.make =
      Maker<Part>([factory, what = std::move(what)](
                      const PluginContext& context,
                      const Config& config) -> absl::StatusOr<Pointer<Part>> {
        bool is_factorys = false;
        absl::StatusOr<Pointer<Part>> made =
            CatchAll(what.c_str(), [&]() -> absl::StatusOr<Pointer<Part>> {
              LOCKSTEP_ASSIGN_OR_RETURN(const Options options,
                                        ReadOptions<Options>(what, config));
              is_factorys = true;
              return factory(context, options);
            });
        if (made.ok() && *made != nullptr) return made;
        if (made.ok()) made = absl::InternalError("the factory returned null");
        if (!is_factorys) return made;
        return internal_plugin::InPart(made.status(), what, config);
      });
  return AddItem(std::move(item));
}

template <typename Part>
auto PluginRegistry::Create(absl::string_view name,
                            const PluginContext& context, const Config& options)
    -> absl::StatusOr<Pointer<Part>> {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::any* const make,
                            Find(PluginKind<Part>::kName, name));
  const auto* const maker = std::any_cast<Maker<Part>>(make);
  if (maker == nullptr) {
    return absl::InternalError(
        absl::StrCat("two kinds of parts are called '", PluginKind<Part>::kName,
                     "'; each PluginKind needs a kName of its own"));
  }
  PluginContext resolved = WithRanks(context);
  resolved.registry = this;
  return (*maker)(resolved, options);
}

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_REGISTRY_H_
