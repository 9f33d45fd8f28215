// A PluginRegistry maps names to the parts of a training job: orders, samplers,
// datasets, collates, loaders, communicators and metrics sinks. A trainer
// registers Lockstep's parts and its own parts once. Then it makes parts by
// name, with the settings of its configuration:
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
//   context.world_size = 4;  // ranks
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
// A registry is an ordinary object, and nothing registers itself. A plugin is a
// function that takes a registry and calls Add for its parts, as
// RegisterLockstep does.
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
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/in_part.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/collate.h"

namespace lockstep {

class BatchMemory;
class Communicator;
class Dataset;
struct FieldSpec;
class Loader;
struct LoaderProgress;
class MetricsSink;
class Order;
class PluginRegistry;
class Sampler;
struct WorkerInfo;
class World;

// LoaderHooks are what a loader takes from a program, and not from settings:
//
//   context.loader_hooks.collate = PadToLongest;
//
// The fields are those of LoaderOptions. If the loader's settings name
// collates, too, `collate` is called after them. Whatever the functions use
// must live as long as the loader.
struct LoaderHooks {
  std::function<absl::Status(WorkerInfo&)> worker_init;
  Collate collate;
  std::function<void(const LoaderProgress&)> progress;
  absl::Duration progress_interval = absl::Seconds(10);
  std::shared_ptr<BatchMemory> memory;
};

// The facts about the job that a factory gets, as far as they are known.
struct PluginContext {
  // The rank and the number of ranks. -1 means those of `world` or, without
  // one, rank 0 of 1. A factory never gets -1.
  int64_t rank = -1;
  int64_t world_size = -1;
  int64_t replicas = 1;  // the ranks that share each part of the data

  // The rows of a global batch, or 0 if unknown. Orders that arrange several
  // batches at once use it.
  int64_t global_batch_size = 0;
  // If true, steps may have another number of samples than that: with other
  // ranks, or since an order around this one makes the batches.
  bool global_batch_varies = false;

  std::shared_ptr<Dataset> dataset;
  World* world = nullptr;
  Communicator* group = nullptr;

  LoaderHooks loader_hooks;

  // Called with a sentence for people, which a session logs. While parts are
  // made, the thread that makes them says about every two seconds how far it
  // has come, if one takes long: a dataset that looks through its files. Later,
  // any thread that reads samples may tell what it finds: a dataset of images
  // does, if their decoder warns. So the function must be thread-safe, and work
  // for as long as the parts live.
  std::function<void(absl::string_view)> tell;

  // The fields of the batches, for factories of collates. They are those of the
  // dataset, or those of packed rows (sampler/packed.h); empty: not known.
  absl::Span<const FieldSpec> batch_fields;

  // The registry that calls the factory, with which a factory can make inner
  // parts by name. Create sets it.
  PluginRegistry* registry = nullptr;

  // The number of shards into which a sampler cuts each step, or 0 for as many
  // as there are ranks with different data (CutOptions::shards). A job whose
  // gradients are exact sets it for its loaders, and a sampler with shards of
  // its own for its order.
  int64_t shards = 0;

  // Returns the number of shards of a step. An order that plans batches for
  // ranks plans them for these, since its stream must not depend on the number
  // of ranks if `shards` is set.
  int64_t CountShards() const {
    return shards > 0 ? shards : world_size / replicas;
  }
};

// The properties of a kind of part. To add another kind, specialize this for
// its class.
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
struct PluginKind<Collate> {
  static constexpr char kName[] = "collate";
  using Pointer = Collate;  // a function, which is null if it is empty
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

// The source location of a registration. The default is the location of the
// call.
struct SourceLocation {
  const char* file = "";
  int line = 0;

  static SourceLocation Here(const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    return {file, line};
  }
  std::string ToString() const { return absl::StrCat(file, ":", line); }
};

// The description of a registered part.
struct PluginPart {
  std::string kind;
  std::string name;
  std::string meaning;  // one sentence
  std::vector<OptionInfo> options;
};

// The settings of a factory that has none.
struct NoOptions {};
inline void BindOptions(NoOptions& /*options*/, OptionTable& /*table*/) {}

namespace internal_plugin {
template <typename Options, typename = void>
struct HasValidate : std::false_type {};
template <typename Options>
struct HasValidate<
    Options,
    std::enable_if_t<std::is_same_v<
        decltype(Validate(std::declval<const Options&>())), absl::Status>>>
    : std::true_type {};

// Returns what the function Validate of the options says, if there is one.
template <typename Options>
absl::Status ValidateOptions(const Options& options) {
  if constexpr (HasValidate<Options>::value) {
    return Validate(options);
  } else {
    return absl::OkStatus();
  }
}
}  // namespace internal_plugin

// Binds a setting that is the table of a part, or a list of such tables, so
// that a job's text can be checked as a whole (Check):
//
//   struct Cached {
//     Config dataset;
//   };
//   void BindOptions(Cached& options, OptionTable& table) {
//     AddPart<Dataset>(table, "dataset", &options.dataset, "What is kept.");
//   }
template <typename Part, typename T>
void AddPart(OptionTable& table, absl::string_view key, T* field,
             absl::string_view meaning) {
  table.AddPartOfKind(PluginKind<Part>::kName, key, field, meaning);
}

// Guarantees: Create returns a part, or an error that names the part; it does
// not throw.
// Thread-safety: thread-safe. Factories are called without a lock.
class PluginRegistry {
 public:
  template <typename Part>
  using Pointer = typename PluginKind<Part>::Pointer;

  PluginRegistry() = default;
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Registers a part. The name consists of lower-case letters, digits and '_'.
  // The factory takes the context and an options struct that has BindOptions,
  // and must return exactly an absl::StatusOr of the part's pointer. It may be
  // a lambda without captures if the options type is given:
  //
  //   registry.Add<Dataset, RingOptions>(
  //       "ring", "Points on a ring.",
  //       [](const PluginContext& context, const RingOptions& options)
  //           -> absl::StatusOr<std::shared_ptr<Dataset>> { ... });
  //
  // If there is a function `absl::Status Validate(const RingOptions&)` beside
  // BindOptions, it is called before the factory, and by Check. It can refuse
  // values that no table of settings could, and needs no files or ranks.
  //
  // The same line may register the same factory again. Another factory of that
  // name is ALREADY_EXISTS, and the message has both locations.
  template <typename Part, typename Options>
  absl::Status Add(absl::string_view name, absl::string_view meaning,
                   absl::StatusOr<Pointer<Part>> (*factory)(
                       const PluginContext&, const Options&),
                   SourceLocation location = SourceLocation::Here());

  // Makes a part. The errors are:
  //   NOT_FOUND         there is no such name; the message lists the names
  //   INVALID_ARGUMENT  a setting is wrong; the message says what is accepted
  //   UNKNOWN           the factory threw an exception
  //   INTERNAL          the factory returned null
  //   and those of the factory, with the name of the part added
  template <typename Part>
  absl::StatusOr<Pointer<Part>> Create(absl::string_view name,
                                       const PluginContext& context,
                                       const Config& options = {});

  // The same, with the name in the table of settings, such as {name = "ring",
  // size = 2003}. If the table has no name, `default_name` is used, unless it
  // is empty.
  template <typename Part>
  absl::StatusOr<Pointer<Part>> CreateFrom(
      const Config& table, const PluginContext& context,
      absl::string_view default_name = "") {
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto named, TakeName(PluginKind<Part>::kName, table, default_name));
    return Create<Part>(named.first, context, named.second);
  }

  // Returns everything that is wrong in the table of a part, as far as it can
  // be seen without making the part: names of parts, keys and types of settings
  // that do not exist, and what Validate refuses. It also looks into the tables
  // of inner parts, which were bound by AddPart.
  template <typename Part>
  std::vector<ConfigError> Check(const Config& table,
                                 absl::string_view default_name = "") {
    return CheckKind(PluginKind<Part>::kName, table, default_name);
  }

  // Returns all parts of a kind in the order of their names, or all parts in
  // the order of their kinds and names.
  template <typename Part>
  std::vector<PluginPart> Parts() const {
    return PartsOf(PluginKind<Part>::kName);
  }
  std::vector<PluginPart> Parts() const { return PartsOf(""); }

 private:
  struct Item {
    PluginPart part;
    SourceLocation location;
    void (*factory)() = nullptr;  // for comparison
    std::any make;                // a Maker
    std::function<std::vector<ConfigError>(const Config& settings)> check;
  };
  template <typename Part>
  using Maker = std::function<absl::StatusOr<Pointer<Part>>(
      const PluginContext&, const Config&)>;
  using Key = std::pair<std::string, std::string>;  // kind, name

  absl::Status AddItem(Item item);
  // Finds the factory of a part. The pointer stays valid, since items are
  // neither changed nor removed.
  absl::StatusOr<const Item*> Find(absl::string_view kind,
                                   absl::string_view name);
  // Returns the name in the table, after checking that it is registered, and
  // the table without it.
  absl::StatusOr<std::pair<std::string, Config>> TakeName(
      absl::string_view kind, const Config& table,
      absl::string_view default_name);
  std::vector<ConfigError> CheckKind(absl::string_view kind,
                                     const Config& table,
                                     absl::string_view default_name);
  std::vector<PluginPart> PartsOf(absl::string_view kind) const;
  static PluginContext WithRanks(const PluginContext& context);
  absl::Status Unknown(const std::string& kind, absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<Key, Item> items_ ABSL_GUARDED_BY(mutex_);
};

// A function that registers a program's own parts, after Lockstep's parts.
using RegisterFunction = absl::Status (*)(PluginRegistry& registry);

// ---- Implementation details.

template <typename Part, typename Options>
absl::Status PluginRegistry::Add(absl::string_view name,
                                 absl::string_view meaning,
                                 absl::StatusOr<Pointer<Part>> (*factory)(
                                     const PluginContext&, const Options&),
                                 SourceLocation location) {
  std::string what = absl::StrCat(PluginKind<Part>::kName, " '", name, "'");
  Item item;
  item.location = location;
  item.part.kind = PluginKind<Part>::kName;
  item.part.name = std::string(name);
  item.part.meaning = std::string(meaning);
  item.factory = reinterpret_cast<void (*)()>(factory);
  LOCKSTEP_RETURN_IF_ERROR(CatchAll("BindOptions", [&] {
    Options options;
    const OptionTable table = TableOf(options);
    item.part.options = table.Describe();
    return internal_base::InPart(table.status(), what, Config());
  }));
  item.check = [what](const Config& settings) {
    std::vector<ConfigError> errors;
    const absl::Status status = CatchAll("BindOptions", [&] {
      Options options;
      errors = TableOf(options).ReadAll(what, settings);
      return errors.empty() ? internal_base::InPart(
                                  internal_plugin::ValidateOptions(options),
                                  what, Config())
                            : absl::OkStatus();
    });
    if (!status.ok()) {
      errors.push_back(
          {settings.location(), std::string(status.message()), status.code()});
    }
    return errors;
  };
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
              LOCKSTEP_RETURN_IF_ERROR(
                  internal_plugin::ValidateOptions(options));
              return factory(context, options);
            });
        if (made.ok() && *made != nullptr) return made;
        if (made.ok()) made = absl::InternalError("the factory returned null");
        if (!is_factorys) return made;
        return internal_base::InPart(made.status(), what, config);
      });
  return AddItem(std::move(item));
}

template <typename Part>
auto PluginRegistry::Create(absl::string_view name,
                            const PluginContext& context, const Config& options)
    -> absl::StatusOr<Pointer<Part>> {
  LOCKSTEP_ASSIGN_OR_RETURN(const Item* const item,
                            Find(PluginKind<Part>::kName, name));
  const auto* const maker = std::any_cast<Maker<Part>>(&item->make);
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
