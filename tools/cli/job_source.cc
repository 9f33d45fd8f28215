#include "lockstep/tools/cli/job_source.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/in_part.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"

namespace lockstep {
namespace {

constexpr char kDefaultLoader[] = "default";
constexpr char kLeaveOutSize[] =
    "leave out --size, so that the dataset is opened";

// A dataset that has a number of samples, and nothing in them.
// Thread-safety: thread-safe.
class StandIn : public Dataset {
 public:
  explicit StandIn(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
    return absl::UnimplementedError("a stand-in has no samples to read");
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    return absl::FailedPreconditionError(
        absl::StrCat("the order needs the column '", name,
                     "' of the dataset: ", kLeaveOutSize));
  }

 private:
  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"nothing", DType::kU8, {}}};
};

// Returns the table without one of its keys.
Config Without(const Config& table, absl::string_view key) {
  Config::Table entries = *table.As<Config::Table>();
  entries.remove_if(
      [key](const Config::Entry& entry) { return entry.key == key; });
  Config rest(std::move(entries));
  rest.set_location(table.location());
  return rest;
}

// Returns the name of a part in its table, or the default.
std::string PartName(const Config& table, absl::string_view default_name) {
  const Config* const name = table.Find("name");
  const auto* const text = name == nullptr ? nullptr : name->As<std::string>();
  return text == nullptr ? std::string(default_name) : *text;
}

// Changes the values of --set.
absl::StatusOr<Config> Overridden(const JobFlags& flags, Config config) {
  for (const std::string& value : flags.values) {
    LOCKSTEP_RETURN_IF_ERROR(OverrideConfig(value, config));
  }
  return config;
}

}  // namespace

void AddFlags(CommandLine& line, JobFlags& flags) {
  line.Add("config", &flags.config, "the job's text");
  line.AddRepeated("set", &flags.values,
                   "a value of the job's text, as in\n"
                   "--set loader.train.num_workers=4; may be repeated");
}

void AddFileAndFlags(CommandLine& line, JobFlags& flags) {
  line.AddOptionalWord("FILE", &flags.file,
                       "the job's text, the same as --config=FILE");
  AddFlags(line, flags);
}

absl::Status CheckFlags(const JobFlags& flags, bool needs_file) {
  if (!flags.file.empty() && !flags.config.empty()) {
    return absl::InvalidArgumentError(
        "the job's text is given twice, as a word and by --config; give it "
        "once");
  }
  if (needs_file && flags.empty() && !flags.values.empty()) {
    return absl::InvalidArgumentError(
        "--set changes values of a job: give --config=FILE, the job's text, "
        "too");
  }
  return absl::OkStatus();
}

absl::Status CheckNoneGiven(
    absl::Span<const std::pair<std::string, bool>> flags) {
  for (const auto& [flag, is_given] : flags) {
    if (!is_given) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag,
        " and --config contradict each other, since the job's text has the "
        "settings of its loaders; change them by --set, as in --set "
        "loader.train.sampler.seed=7"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> ReadJobConfig(const JobFlags& flags) {
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, ReadConfigFile(flags.path()));
  return Overridden(flags, std::move(config));
}

absl::StatusOr<Config> ReadRightConfig(const JobFlags& flags) {
  if (flags.empty()) return Overridden(flags, Config());
  // The file may be a pipe, which can be read once.
  absl::StatusOr<Config> config = ReadConfigFile(flags.path());
  if (!config.ok()) return OfInput(config.status());
  return Overridden(flags, *std::move(config));
}

bool IsDefaultLoader(const Config& table) {
  return PartName(table, kDefaultLoader) == kDefaultLoader;
}

absl::StatusOr<Job> ReadJobOf(const CommandHost& host, const Config& config) {
  absl::StatusOr<Job> job =
      host.trainer != nullptr
          ? ReadJob(config, *host.trainer)
          : ReadJob(Without(config, "trainer"), OptionTable());
  if (!job.ok()) return OfInput(job.status());
  return job;
}

absl::StatusOr<std::string> ChooseLoader(const Job& job,
                                         const std::string& given) {
  std::vector<std::string> names;
  for (const auto& [name, table] : job.loaders) names.push_back(name);
  if (!given.empty()) {
    if (job.loaders.count(given) > 0) return given;
    return absl::InvalidArgumentError(
        absl::StrCat("the job has no --loader ", SayUnknown(given, names)));
  }
  if (names.size() == 1) return names[0];
  if (job.loaders.count("train") > 0) return std::string("train");
  if (names.empty()) {
    return absl::FailedPreconditionError("the job has no table [loader.NAME]");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("give --loader, since the job has several: ",
                   absl::StrJoin(names, ", ")));
}

JobSource::JobSource(const CommandHost& host, const Job& job,
                     const std::string& loader, int64_t replicas)
    : host_(host),
      name_(loader),
      table_(job.loaders.at(loader)),
      replicas_(replicas),
      shards_(job.gradients.CountShards()) {}

absl::StatusOr<std::unique_ptr<JobSource>> JobSource::Open(
    const CommandHost& host, const Job& job, const std::string& loader,
    std::optional<int64_t> size, int64_t replicas) {
  std::unique_ptr<JobSource> source(new JobSource(host, job, loader, replicas));
  Config& table = source->table_;
  if (size.has_value()) {
    if (*size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--size should be 0 or more, but it is ", *size));
    }
    source->dataset_ = std::make_shared<StandIn>(*size);
    source->has_stand_in_ = true;
    // The fields are those of the stand-in, which no collate knows.
    table = Without(Without(table, "dataset"), "collate");
    return source;
  }
  const Config* const dataset = table.Find("dataset");
  if (!IsDefaultLoader(table)) return source;
  if (dataset == nullptr || dataset->IsEmptyTable()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the loader '", loader,
        "' reads a dataset of the program's, which the "
        "text does not name; --size says how many samples it has"));
  }
  PluginContext context;
  context.tell = host.tell;
  auto made = host.registry->CreateFrom<Dataset>(*dataset, context);
  if (!made.ok()) return OfInput(made.status());
  source->dataset_ = *std::move(made);
  table = Without(table, "dataset");
  return source;
}

absl::StatusOr<std::unique_ptr<Loader>> JobSource::MakeLoader(
    int64_t world, const Config& changes) const {
  PluginContext context;
  context.rank = 0;
  context.world_size = world;
  context.replicas = replicas_;
  context.dataset = dataset_;
  context.shards = shards_;
  context.tell = host_.tell;
  Config table = table_;
  if (IsDefaultLoader(table)) {
    for (const auto& [key, value] : *changes.As<Config::Table>()) {
      table.Set(key, value);
    }
  }
  absl::StatusOr<std::unique_ptr<Loader>> made =
      host_.registry->CreateFrom<Loader>(table, context, kDefaultLoader);
  if (made.ok()) return made;
  return OfInput(internal_base::InPart(
      made.status(), absl::StrCat("loader.", name_), Config()));
}

absl::StatusOr<Dealing> JobSource::For(int64_t world) const {
  Config changes;
  changes.Set("num_workers", 0);
  changes.Set("prefetch_batches", 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<Loader> loader,
                            MakeLoader(world, changes));
  Dealing dealing;
  dealing.options = loader->sampler_options();
  dealing.micro_batch_size = loader->options().micro_batch_size;
  dealing.seed = loader->options().seed;
  // The loader keeps its order alive.
  const Order* const order = &loader->order();
  dealing.order = std::shared_ptr<const Order>(loader, order);
  return dealing;
}

bool JobSource::IsOfStandIn(const absl::Status& status) const {
  return has_stand_in_ &&
         (absl::StrContains(status.message(), kLeaveOutSize) ||
          absl::StrContains(status.message(), "The dataset has 1 part"));
}

std::string JobSource::LengthsColumn() const {
  const Config* sampler = table_.Find("sampler");
  if (sampler == nullptr) return "";
  const Config* const order = sampler->Find("order");
  if (PartName(*sampler, "") == "order" && order != nullptr) sampler = order;
  const std::string name = PartName(*sampler, "");
  for (const PluginPart& part : host_.registry->Parts<Order>()) {
    if (part.name != name) continue;
    for (const OptionInfo& option : part.options) {
      if (option.key != "lengths") continue;
      const Config* const given = sampler->Find("lengths");
      const auto* const text =
          given == nullptr ? nullptr : given->As<std::string>();
      return text == nullptr ? "length" : *text;
    }
  }
  return "";
}

}  // namespace lockstep
