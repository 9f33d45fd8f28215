// A trainer that has a registry of its own, and takes Lockstep's parts into it:
// its users go on writing names and parameters as they are used to.
//
//   own_registry
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/examples/small_model.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

// ---- What the trainer has already: sources of batches by name, made of
// parameters that are texts.

namespace trainer {

using Parameters = std::map<std::string, std::string>;

class Source {
 public:
  virtual ~Source() = default;
  // Returns the rows of the next batch; 0: there is no more.
  virtual absl::StatusOr<int64_t> NextRows() = 0;
};

using SourceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Source>>(const Parameters&)>;

std::map<std::string, SourceFactory>& Sources() {
  static auto& sources = *new std::map<std::string, SourceFactory>();
  return sources;
}

}  // namespace trainer

// ---- The adapter.

namespace {

using lockstep::Config;
using lockstep::PluginContext;
using lockstep::PluginRegistry;

// Numbers and truth values are such to Lockstep, too.
Config ValueOf(const std::string& text) {
  int64_t integer = 0;
  double number = 0;
  if (text == "true" || text == "false") return text == "true";
  if (absl::SimpleAtoi(text, &integer)) return integer;
  if (absl::SimpleAtod(text, &number)) return number;
  return text;
}

class LockstepSource : public trainer::Source {
 public:
  explicit LockstepSource(std::unique_ptr<lockstep::Loader> loader)
      : loader_(std::move(loader)) {}

  absl::StatusOr<int64_t> NextRows() override {
    lockstep::Batch batch;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader_->Next(batch));
    return more ? batch.valid() : 0;
  }

 private:
  const std::unique_ptr<lockstep::Loader> loader_;
};

// One source for each of Lockstep's samplers: "lockstep.distributed", ... The
// registry outlives the trainer's.
void AddSources(PluginRegistry& registry, const PluginContext& context) {
  for (const auto& part : registry.Parts<lockstep::Sampler>()) {
    trainer::Sources()["lockstep." + part.name] =
        [&registry, context,
         name = part.name](const trainer::Parameters& parameters)
        -> absl::StatusOr<std::unique_ptr<trainer::Source>> {
      Config settings;
      Config& sampler = settings.Set("sampler", Config());
      sampler.Set("name", name);
      for (const auto& [key, value] : parameters) {
        sampler.Set(key, ValueOf(value));
      }
      LOCKSTEP_ASSIGN_OR_RETURN(auto loader, registry.Create<lockstep::Loader>(
                                                 "default", context, settings));
      LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(0));
      return std::make_unique<LockstepSource>(std::move(loader));
    };
  }
}

absl::Status Run() {
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  PluginContext context;
  context.dataset = std::make_shared<examples::Points>(100);
  AddSources(registry, context);

  // And now as the trainer makes anything else.
  LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
                            trainer::Sources()["lockstep.distributed"](
                                {{"global_batch_size", "32"}, {"seed", "7"}}));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t rows, source->NextRows());
    if (rows == 0) return absl::OkStatus();
    std::printf("a batch of %d\n", static_cast<int>(rows));
  }
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
