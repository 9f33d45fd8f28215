#include "lockstep/tools/cli/check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/tools/cli/epoch_facts.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/sample_source.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

// Returns the length of a location such as "job.toml:12:5", or "job.toml:12",
// with which `text` begins, or 0.
size_t LocationLength(absl::string_view text, absl::string_view file) {
  if (file.empty() || !absl::StartsWith(text, file)) return 0;
  size_t length = 0, at = file.size();
  for (int number = 0; number < 2; ++number) {
    if (at >= text.size() || text[at] != ':') break;
    const size_t digits = ++at;
    while (at < text.size() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) {
      ++at;
    }
    if (at == digits) break;
    length = at;
  }
  return length;
}

// The mistakes that were found in one text.
// Thread-safety: thread-compatible.
class Findings {
 public:
  explicit Findings(std::string file) : file_(std::move(file)) {}

  void Add(ConfigError error) { errors_.push_back(std::move(error)); }

  // Adds the error of making a part, at the first place that its message
  // names, which is the innermost one, or else at that of `table`.
  void AddOf(const absl::Status& status, const Config& table) {
    absl::string_view message = status.message();
    std::string location = table.location();
    if (const size_t length = LocationLength(message, file_); length > 0) {
      location = std::string(message.substr(0, length));
      message.remove_prefix(length);
      absl::ConsumePrefix(&message, ": ");
    } else {
      const std::string at = absl::StrCat(" at ", file_);
      const size_t found = message.find(at);
      const absl::string_view place =
          found == message.npos ? "" : message.substr(found + 4);
      const size_t size = LocationLength(place, file_);
      if (size > 0) location = std::string(place.substr(0, size));
    }
    // The places of outer parts would say little more.
    std::string text(message);
    const std::string at = absl::StrCat(" at ", file_);
    for (size_t found; (found = text.find(at)) != text.npos;) {
      const absl::string_view place = absl::string_view(text).substr(found + 4);
      const size_t length = LocationLength(place, file_);
      if (length == 0) break;
      text.erase(found, 4 + length);
    }
    Add({location, text, status.code()});
  }

  // Adds what a registry or a table has found.
  void AddAll(std::vector<ConfigError> errors) {
    for (ConfigError& error : errors) Add(std::move(error));
  }

  void Sort() { SortByLocation(errors_); }

  bool empty() const { return errors_.empty(); }

  // Returns true if a name is not known, which may be one of the user's own.
  bool HasUnknownName() const {
    return std::any_of(errors_.begin(), errors_.end(),
                       [](const ConfigError& error) {
                         return error.code == absl::StatusCode::kNotFound &&
                                absl::StartsWith(error.message, "there is no ");
                       });
  }

  // Prints a line for each, in the order of the text.
  void Print(OutputFormat format, std::ostream& out) const {
    if (format == OutputFormat::kText) {
      for (const ConfigError& error : errors_) {
        out << error.location << (error.location.empty() ? "" : ": ")
            << error.message << "\n";
      }
      return;
    }
    RecordTable table({"file", "line", "column", "message"});
    for (const ConfigError& error : errors_) {
      Cell file = error.location, line, column;
      if (LocationLength(error.location, file_) > 0) {
        const std::vector<std::string> words =
            absl::StrSplit(error.location.substr(file_.size() + 1), ':');
        int64_t numbers[2] = {0, 0};
        static_cast<void>(absl::SimpleAtoi(words[0], &numbers[0]));
        file = file_;
        line = numbers[0];
        if (words.size() > 1 && absl::SimpleAtoi(words[1], &numbers[1])) {
          column = numbers[1];
        }
      }
      table.AddRow({file, line, column, error.message});
    }
    if (format == OutputFormat::kCsv) {
      table.PrintCsv(out);
    } else {
      table.PrintJson(out, "  ");
    }
  }

  size_t size() const { return errors_.size(); }

 private:
  const std::string file_;
  std::vector<ConfigError> errors_;
};

// Returns the path of the job's checkpoints, or "" if it has none.
std::string CheckpointPath(const Config& config) {
  const Config* const table = config.Find("checkpoint");
  const Config* const path = table == nullptr ? nullptr : table->Find("path");
  const auto* const text = path == nullptr ? nullptr : path->As<std::string>();
  return text == nullptr ? "" : *text;
}

// Adds an error if there is no folder for checkpoints.
void CheckFolder(const Config& config, Findings& findings) {
  const std::string path = CheckpointPath(config);
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
  findings.Add({config.Find("checkpoint")->Find("path")->location(),
                absl::StrCat("checkpoint: there is no folder ", folder.string(),
                             " for path = \"", path, "\"; make it first")});
}

// Returns "17", or "16 to 17" where ranks have different numbers of rows.
std::string LastRows(const EpochFacts& facts) {
  if (facts.last.empty()) return "";
  int64_t least = facts.last[0].first, most = least;
  for (const auto& [rows, valid] : facts.last) {
    least = std::min(least, rows);
    most = std::max(most, rows);
  }
  return least == most
             ? WithCommas(most)
             : absl::StrCat(WithCommas(least), " to ", WithCommas(most));
}

// Returns a job with this loader alone, and whether its steps have shards, as
// far as the text is right.
Job JobOf(const Config& config, const std::string& loader,
          const Config& table) {
  Job job;
  job.loaders.emplace(loader, table);
  if (const Config* const found = config.Find("gradients")) {
    ExactOptions exact;
    if (TableOf(exact).ReadAll("gradients", *found).empty() &&
        Validate(exact).ok()) {
      job.gradients = exact;
    }
  }
  return job;
}

// Adds a row for each number of ranks on which a loader works, and what is
// wrong with the others.
void CheckLoader(const CommandHost& host, const CheckCommand& command,
                 const Config& config, const std::string& name,
                 const std::vector<int64_t>& worlds, Findings& findings,
                 std::vector<std::string>& unchecked, RecordTable& batches) {
  const Config& table = *config.Find("loader")->Find(name);
  const std::string checkpoint_path = CheckpointPath(config);
  const auto source = JobSource::Open(host, JobOf(config, name, table), name,
                                      command.size, command.replicas);
  if (!source.ok()) {
    const Config* const dataset = table.Find("dataset");
    findings.AddOf(source.status(), dataset == nullptr ? table : *dataset);
    return;
  }
  // A loader whose settings are wrong can't be made. What stands in for the
  // dataset has no settings.
  if (!host.registry->Check<Loader>((*source)->table(), "default").empty()) {
    return;
  }
  std::string last;
  const auto add = [&](const absl::Status& status, int64_t world) {
    if (status.message() == last) return;
    last = std::string(status.message());
    findings.AddOf(
        Annotate(status, "",
                 absl::StrCat("; on ", Counted(world, "rank", "ranks"))),
        table);
  };
  for (const int64_t world : worlds) {
    const auto loader = (*source)->MakeLoader(world, Config());
    if ((*source)->IsOfStandIn(loader.status())) {
      return unchecked.push_back(
          absl::StrCat("the loader '", name,
                       "', whose order needs more of the dataset than "
                       "its size: ",
                       loader.status().message()));
    }
    if (!loader.ok()) {
      add(loader.status(), world);
      continue;
    }
    if ((*loader)->options().delivery == Delivery::kAsReady &&
        !checkpoint_path.empty()) {
      add(absl::FailedPreconditionError(absl::StrCat(
              "delivery = \"as_ready\" and the checkpoints at ",
              checkpoint_path,
              " contradict each other, since batches that come as they are "
              "ready have no place to go on from; set delivery = "
              "\"in_order\"")),
          world);
      continue;
    }
    const auto dealing = (*source)->For(world);
    if (!dealing.ok()) {
      add(dealing.status(), world);
      continue;
    }
    const auto facts = FactsOf(RankSamplers(*dealing), 0);
    if (!facts.ok()) {
      add(facts.status(), world);
      continue;
    }
    const CutOptions& cut = dealing->options.cut;
    batches.AddRow({name, (*loader)->dataset().size(), world,
                    cut.batch_size * dealing->most_shards(), facts->steps,
                    dealing->parts(), LastRows(*facts), facts->stats.dropped,
                    facts->stats.padded});
  }
}

bool IsDatasetRight(PluginRegistry& registry, const Config& table) {
  const Config* const dataset = table.Find("dataset");
  return dataset == nullptr || dataset->IsEmptyTable() ||
         registry.Check<Dataset>(*dataset).empty();
}

// Returns why a loader's data is not opened, or "".
std::string WhyNotOpened(const CheckCommand& command, const std::string& name,
                         const Config& table) {
  const Config* const dataset = table.Find("dataset");
  if (command.size.has_value() || !IsDefaultLoader(table) ||
      (dataset != nullptr && !dataset->IsEmptyTable())) {
    return "";
  }
  return absl::StrCat("the loader '", name,
                      "' reads a dataset of the program's; --size=N shows its "
                      "batches");
}

void PrintAll(OutputFormat format, const std::string& file,
              const Findings& findings, const RecordTable& batches,
              const std::vector<std::string>& unchecked, std::ostream& out) {
  if (format == OutputFormat::kCsv) return findings.Print(format, out);
  if (format == OutputFormat::kJson) {
    out << "{\n  \"file\": " << JsonText(file)
        << ",\n  \"ok\": " << (findings.empty() ? "true" : "false")
        << ",\n  \"findings\": ";
    findings.Print(format, out);
    out << ",\n  \"unchecked\": [";
    for (size_t i = 0; i < unchecked.size(); ++i) {
      out << (i == 0 ? "" : ", ") << JsonText(unchecked[i]);
    }
    out << "],\n  \"batches\": ";
    batches.PrintJson(out, "  ");
    out << "\n}\n";
    return;
  }
  findings.Print(format, out);
  if (findings.empty()) {
    out << file << " is right\n";
  } else {
    out << file << " has "
        << Counted(static_cast<int64_t>(findings.size()), "thing", "things")
        << " that " << (findings.size() == 1 ? "is" : "are") << " wrong\n";
  }
  for (const std::string& each : unchecked) {
    out << Wrapped(absl::StrCat("not checked: ", each), "");
  }
  if (!batches.empty()) {
    out << "\n";
    batches.PrintText(out);
  }
}

}  // namespace

absl::StatusOr<int> RunCheck(const CommandHost& host,
                             const CheckCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> worlds,
                            NumbersOfRanks("world", command.world));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command.job));
  if (command.job.empty()) {
    return absl::InvalidArgumentError(
        "give the job's text, as in lockstep check job.toml");
  }
  const std::string& file = command.job.path();
  Findings findings(file);
  RecordTable batches({"loader", "samples", "ranks", "rows", "steps", "parts",
                       "last_rows", "dropped", "padded"});
  std::vector<std::string> unchecked;
  const absl::StatusOr<Config> config = ReadJobConfig(command.job);
  if (!config.ok()) {
    if (LocationLength(config.status().message(), file) == 0) {
      return config.status();
    }
    findings.AddOf(config.status(), Config());
  } else {
    findings.AddAll(CheckJob(*config, host.trainer, *host.registry));
    CheckFolder(*config, findings);
    if (host.trainer == nullptr && config->Find("trainer") != nullptr) {
      unchecked.push_back(
          "[trainer], whose settings only a program of yours knows");
    }
    const Config* const loaders = config->Find("loader");
    const Config::Table none;
    const auto* const tables =
        loaders == nullptr ? nullptr : loaders->As<Config::Table>();
    if (tables == nullptr) {
      unchecked.push_back("batches, since there is no [loader.NAME]");
    }
    for (const auto& [name, table] : tables == nullptr ? none : *tables) {
      // A dataset whose settings are wrong can't be opened.
      if (table.As<Config::Table>() == nullptr ||
          (!command.size.has_value() &&
           !IsDatasetRight(*host.registry, table))) {
        continue;
      }
      if (IsDefaultLoader(table) && table.Find("sampler") == nullptr) {
        findings.Add({table.location(),
                      absl::StrCat("loader.", name,
                                   ": there is no sampler: set `sampler` to a "
                                   "table with its name; or is `",
                                   name, "` misspelt?")});
        continue;
      }
      const std::string why = WhyNotOpened(command, name, table);
      if (!why.empty()) {
        unchecked.push_back(why);
        continue;
      }
      CheckLoader(host, command, *config, name, worlds, findings, unchecked,
                  batches);
    }
  }
  if (findings.HasUnknownName() && host.trainer == nullptr) {
    unchecked.push_back(
        "names of your own parts, which only a program of yours knows");
  }
  findings.Sort();
  PrintAll(format, file, findings, batches, unchecked, out);
  return findings.empty() ? 0 : 1;
}

}  // namespace lockstep
