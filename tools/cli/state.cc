#include "lockstep/tools/cli/state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/best_value.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_text.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/plugin/job.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/saved_places.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = internal_checkpoint::kPiece;

// Returns the bytes of a section that is not large, or "" if there is none.
absl::StatusOr<std::string> ReadSection(const CheckpointReader& reader,
                                        absl::string_view name) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const CheckpointSection* const section = reader.Find(name);
  if (section == nullptr || section->bytes > kMost) return std::string();
  std::string bytes(static_cast<size_t>(section->bytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR(reader.Read(*section, 0, absl::MakeSpan(bytes)));
  return bytes;
}

absl::StatusOr<std::string> DigestOfSection(const CheckpointReader& reader,
                                            const CheckpointSection& section) {
  internal_checkpoint::PieceDigest digest;
  std::string piece;
  for (int64_t at = 0; at < section.bytes; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, section.bytes - at)));
    LOCKSTEP_RETURN_IF_ERROR(reader.Read(section, at, absl::MakeSpan(piece)));
    digest.Add(piece);
  }
  return digest.Finish().ToString();
}

// The contents of a checkpoint.
struct Contents {
  std::unique_ptr<CheckpointReader> reader;
  std::optional<int64_t> step;
  std::optional<BestValue> best;
  std::vector<SavedPlace> places;
  std::string job;  // the settings, as checkpoint_text.h writes them
  std::map<std::string, std::string> digests;  // of the sections
};

absl::StatusOr<Contents> ReadContents(const std::string& path) {
  Contents contents;
  auto opened = CheckpointReader::Open(path);
  if (!opened.ok()) return OfInput(opened.status());
  contents.reader = *std::move(opened);
  const CheckpointReader& reader = *contents.reader;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string step,
                            ReadSection(reader, internal_checkpoint::kStep));
  if (int64_t saved = 0; step.size() == sizeof(saved)) {
    std::memcpy(&saved, step.data(), sizeof(saved));
    contents.step = saved;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string best,
                            ReadSection(reader, internal_checkpoint::kBest));
  contents.best = internal_checkpoint::BestValueOf(best);
  LOCKSTEP_ASSIGN_OR_RETURN(contents.job,
                            ReadSection(reader, internal_checkpoint::kJob));
  LOCKSTEP_ASSIGN_OR_RETURN(contents.places, PlacesIn(reader));
  for (const CheckpointSection& section : reader.sections()) {
    LOCKSTEP_ASSIGN_OR_RETURN(contents.digests[section.name],
                              DigestOfSection(reader, section));
  }
  return contents;
}

// Returns the settings of a job with their values, and "..." for long ones.
std::vector<std::pair<std::string, std::string>> SettingsOf(
    const std::string& job) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const absl::string_view line :
       absl::StrSplit(job, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    if (words.size() != 3) continue;
    settings.emplace_back(words[0], words[2].empty() ? "..." : words[2]);
  }
  return settings;
}

RecordTable SectionTable(const Contents& contents, bool escape) {
  RecordTable table({"section", "type", "elements", "bytes", "digest"});
  for (const CheckpointSection& section : contents.reader->sections()) {
    Cell type = "bytes", elements;
    if (section.dtype.has_value()) {
      type = std::string(Name(*section.dtype));
      elements = section.bytes / SizeOf(*section.dtype);
    }
    table.AddRow({escape ? absl::CHexEscape(section.name) : section.name, type,
                  elements, section.bytes, contents.digests.at(section.name)});
  }
  return table;
}

std::string BestText(const BestValue& best) {
  return absl::StrCat(best.value, ", the ",
                      internal_checkpoint::NameOf(best.best), " one");
}

void PrintText(const std::string& path, const Contents& contents,
               std::ostream& out) {
  out << path << "\n";
  if (contents.step.has_value()) {
    out << "  step " << *contents.step << "\n";
  } else {
    out << "  no step: it is no checkpoint of a training\n";
  }
  if (contents.best.has_value()) {
    out << "  the best value is " << BestText(*contents.best) << "\n";
  }
  for (const SavedPlace& place : contents.places) {
    out << "  " << absl::CHexEscape(place.section) << ": " << place.ToString()
        << "\n";
  }
  const auto settings = SettingsOf(contents.job);
  if (!settings.empty()) out << "\nthe job that has saved it\n";
  for (const auto& [name, value] : settings) {
    // The values are TOML, without control characters.
    out << "  " << absl::CHexEscape(name) << " = " << value << "\n";
  }
  out << "\n";
  SectionTable(contents, /*escape=*/true).PrintText(out);
}

void PrintJson(const std::string& path, const Contents& contents,
               std::ostream& out) {
  out << "{\n  \"path\": " << JsonText(path) << ",\n  \"step\": "
      << (contents.step.has_value() ? Cell(*contents.step) : Cell()).ToJson()
      << ",\n  \"best\": "
      << (contents.best.has_value() ? Cell(contents.best->value) : Cell())
             .ToJson();
  out << ",\n  \"places\": ";
  RecordTable places({"section", "loader", "epoch", "step", "position",
                      "steps_in_total", "shards"});
  for (const SavedPlace& place : contents.places) {
    const SamplerProgress& at = place.state.progress;
    places.AddRow({place.section, place.loader, at.epoch, at.steps_taken,
                   at.position, at.steps_in_total, place.state.shards});
  }
  places.PrintJson(out, "  ");
  out << ",\n  \"job\": {";
  bool first = true;
  for (const auto& [name, value] : SettingsOf(contents.job)) {
    out << (first ? "" : ", ") << JsonText(name) << ": " << JsonText(value);
    first = false;
  }
  out << "},\n  \"sections\": ";
  SectionTable(contents, /*escape=*/false).PrintJson(out, "  ");
  out << "\n}\n";
}

// ---- Comparison of two checkpoints.

// The differences of two checkpoints, and of a checkpoint and a job.
// Thread-safety: thread-compatible.
class Differences {
 public:
  void Add(absl::string_view kind, absl::string_view name,
           absl::string_view what) {
    table_.AddRow(
        {std::string(kind), absl::CHexEscape(name), std::string(what)});
    lines_.push_back(absl::StrCat(kind, name.empty() ? "" : " ",
                                  absl::CHexEscape(name), ": ", what));
  }

  bool empty() const { return lines_.empty(); }

  void Print(OutputFormat format, absl::string_view if_none,
             std::ostream& out) const {
    if (format == OutputFormat::kCsv) return table_.PrintCsv(out);
    if (format == OutputFormat::kJson) {
      table_.PrintJson(out);
      out << "\n";
      return;
    }
    PrintLines("", out);
    if (lines_.empty()) out << if_none << "\n";
  }

  void PrintLines(absl::string_view indent, std::ostream& out) const {
    for (const std::string& line : lines_) out << indent << line << "\n";
  }

  void PrintJson(std::ostream& out) const { table_.PrintJson(out, "  "); }

  // Adds those of another one.
  Differences& Join(const Differences& other) {
    table_.Append(other.table_);
    lines_.insert(lines_.end(), other.lines_.begin(), other.lines_.end());
    return *this;
  }

 private:
  RecordTable table_ = RecordTable({"kind", "name", "difference"});
  std::vector<std::string> lines_;
};

// Returns element `i` of some bytes as a number, or nothing for types that
// have no numbers to subtract.
std::optional<double> NumberAt(DType dtype, const char* bytes, int64_t i) {
  const auto read = [bytes, i](auto value) {
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(value)),
                sizeof(value));
    if constexpr (std::is_same_v<decltype(value), double>) {
      return value;
    } else {
      return static_cast<double>(static_cast<float>(value));
    }
  };
  switch (dtype) {
    case DType::kF64:
      return read(double{});
    case DType::kF32:
      return read(float{});
    case DType::kF16:
      return read(Float16{});
    case DType::kBF16:
      return read(BFloat16{});
    default:
      return std::nullopt;
  }
}

// Returns how the elements of two sections of the same type and size differ.
absl::StatusOr<std::string> CompareElements(const CheckpointReader& a,
                                            const CheckpointSection& in_a,
                                            const CheckpointReader& b,
                                            const CheckpointSection& in_b) {
  const DType dtype = in_a.dtype.value_or(DType::kU8);
  const int64_t size = SizeOf(dtype);
  int64_t differing = 0, first = -1, not_finite = 0;
  double most = 0;
  bool has_numbers = false;
  std::string of_a, of_b;
  for (int64_t at = 0; at < in_a.bytes; at += kPiece) {
    const auto bytes = static_cast<size_t>(std::min(kPiece, in_a.bytes - at));
    of_a.resize(bytes);
    of_b.resize(bytes);
    LOCKSTEP_RETURN_IF_ERROR(a.Read(in_a, at, absl::MakeSpan(of_a)));
    LOCKSTEP_RETURN_IF_ERROR(b.Read(in_b, at, absl::MakeSpan(of_b)));
    for (int64_t i = 0; i < static_cast<int64_t>(bytes) / size; ++i) {
      if (std::memcmp(&of_a[i * size], &of_b[i * size], size) == 0) continue;
      if (differing++ == 0) first = at / size + i;
      const auto x = NumberAt(dtype, of_a.data(), i);
      const auto y = NumberAt(dtype, of_b.data(), i);
      if (!x.has_value()) continue;
      if (!std::isfinite(*x) || !std::isfinite(*y)) {
        ++not_finite;
        continue;
      }
      has_numbers = true;
      most = std::max(most, std::fabs(*x - *y));
    }
  }
  return absl::StrCat(
      WithCommas(differing), " of ",
      Counted(in_a.bytes / size, in_a.dtype.has_value() ? "element" : "byte",
              in_a.dtype.has_value() ? "elements" : "bytes"),
      differing == 1 ? " differs, at " : " differ, the first at ", first,
      has_numbers ? absl::StrFormat(", by %.6g at most", most) : "",
      not_finite == 0 ? ""
                      : absl::StrCat(", and ", WithCommas(not_finite),
                                     " of them are not finite in one or both"));
}

std::string SizeText(const CheckpointSection& section) {
  if (!section.dtype.has_value()) {
    return Counted(section.bytes, "byte", "bytes");
  }
  return absl::StrCat(
      Counted(section.bytes / SizeOf(*section.dtype), "element", "elements"),
      " of ", Name(*section.dtype));
}

// `told` are the sections whose difference was told in words.
absl::Status CompareSections(const Contents& a, const Contents& b,
                             const std::set<std::string>& told,
                             Differences& differences) {
  for (const CheckpointSection& section : a.reader->sections()) {
    if (told.count(section.name) > 0) continue;
    const CheckpointSection* const other = b.reader->Find(section.name);
    if (other == nullptr) {
      differences.Add("section", section.name, "only the first has it");
    } else if (section.dtype != other->dtype || section.bytes != other->bytes) {
      differences.Add("section", section.name,
                      absl::StrCat("has ", SizeText(section), ", and ",
                                   SizeText(*other), " in the second"));
    } else if (a.digests.at(section.name) != b.digests.at(section.name)) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const std::string how,
          CompareElements(*a.reader, section, *b.reader, *other));
      differences.Add("section", section.name, how);
    }
  }
  for (const CheckpointSection& section : b.reader->sections()) {
    if (a.reader->Find(section.name) == nullptr) {
      differences.Add("section", section.name, "only the second has it");
    }
  }
  return absl::OkStatus();
}

// Returns true if a setting differs.
bool CompareSettings(const std::string& before, const std::string& now,
                     bool with_trainer, Differences& differences) {
  bool has_settings = false;
  for (const std::string& text :
       internal_checkpoint::Differences(before, now)) {
    const std::pair<std::string, std::string> name_and_rest =
        absl::StrSplit(text, absl::MaxSplits(' ', 1));
    if (!with_trainer && absl::StartsWith(text, "trainer")) continue;
    differences.Add("setting", name_and_rest.first, name_and_rest.second);
    has_settings = true;
  }
  return has_settings;
}

absl::StatusOr<int> Compare(const Contents& a, const StateCommand& command,
                            OutputFormat format, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Contents b, ReadContents(command.other));
  Differences differences;
  std::set<std::string> told;
  if (a.step != b.step && a.step.has_value() && b.step.has_value()) {
    differences.Add("step", "", absl::StrCat(*a.step, ", and ", *b.step));
    told.insert(internal_checkpoint::kStep);
  }
  for (const SavedPlace& place : a.places) {
    for (const SavedPlace& other : b.places) {
      if (place.section == other.section &&
          place.ToString() != other.ToString()) {
        differences.Add(
            "place", place.section,
            absl::StrCat(place.ToString(), ", and ", other.ToString()));
        told.insert(place.section);
      }
    }
  }
  if (CompareSettings(a.job, b.job, /*with_trainer=*/true, differences)) {
    told.insert(internal_checkpoint::kJob);
  }
  LOCKSTEP_RETURN_IF_ERROR(CompareSections(a, b, told, differences));
  differences.Print(format, "both are the same", out);
  return differences.empty() ? 0 : 1;
}

// ---- Whether a job can go on.

// Checks that a loader of the job can go on from its place.
absl::Status CheckPlace(const CommandHost& host, const Job& job,
                        const StateCommand& command, const SavedPlace& place) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto source,
      JobSource::Open(host, job, place.loader, command.size));
  LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing,
                            source->For(command.world.value_or(1)));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeed(place, dealing.seed));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                            Sampler::Create(dealing.order, dealing.options));
  return sampler->RestoreState(place.state);
}

absl::StatusOr<int> CheckFits(const CommandHost& host, const Contents& contents,
                              const StateCommand& command, OutputFormat format,
                              std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ReadRightConfig(command.job));
  LOCKSTEP_ASSIGN_OR_RETURN(const Job job, ReadJobOf(host, config));
  Differences changed, refused;
  if (!contents.step.has_value()) {
    refused.Add("section", internal_checkpoint::kStep,
                "the checkpoint has none, so that no training goes on from it; "
                "Session::RestoreFrom can begin with its sections");
  }
  std::set<std::string> anew;
  for (const auto& [name, table] : job.loaders) anew.insert(name);
  CompareSettings(contents.job, internal_checkpoint::TextOf(job.fingerprint),
                  host.trainer != nullptr, changed);
  for (const SavedPlace& place : contents.places) {
    if (place.loader.empty()) continue;
    anew.erase(place.loader);
    if (job.loaders.count(place.loader) == 0) {
      refused.Add("loader", place.loader,
                  "the checkpoint has its place, and the job has no such "
                  "loader");
      continue;
    }
    const absl::Status status = CheckPlace(host, job, command, place);
    if (!status.ok()) refused.Add("loader", place.loader, status.message());
  }
  const int code = refused.empty() ? 0 : 1;
  if (format == OutputFormat::kCsv) {
    changed.Join(refused).Print(format, "", out);
    return code;
  }
  const std::string not_compared =
      host.trainer == nullptr
          ? "[trainer], whose settings only a program of yours knows"
          : "";
  if (format == OutputFormat::kJson) {
    out << "{\n  \"ok\": " << (refused.empty() ? "true" : "false")
        << ",\n  \"refused\": ";
    refused.PrintJson(out);
    out << ",\n  \"changed\": ";
    changed.PrintJson(out);
    out << ",\n  \"begin_anew\": [";
    bool first = true;
    for (const std::string& name : anew) {
      out << (first ? "" : ", ") << JsonText(name);
      first = false;
    }
    out << "],\n  \"not_compared\": [";
    if (!not_compared.empty()) out << JsonText(not_compared);
    out << "]\n}\n";
    return code;
  }
  const std::string ranks = Counted(command.world.value_or(1), "rank", "ranks");
  out << (refused.empty() ? "the job can go on from it on "
                          : "the job can't go on from it on ")
      << ranks << "\n";
  refused.PrintLines("  ", out);
  for (const std::string& name : anew) {
    out << "the loader '" << name
        << "' begins anew, since the checkpoint has no place of it\n";
  }
  if (!changed.empty()) {
    out << "settings that the job has changed since:\n";
    changed.PrintLines("  ", out);
  }
  if (!not_compared.empty()) out << "not compared: " << not_compared << "\n";
  return code;
}

}  // namespace

absl::StatusOr<int> RunState(const CommandHost& host,
                             const StateCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command.job));
  const bool has_job = !command.job.empty();
  if (!has_job && (command.world.has_value() || command.size.has_value())) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.world.has_value() ? "--world" : "--size",
                     " is of a job: give --config=FILE, the job's text, too"));
  }
  if (has_job && !command.other.empty()) {
    return absl::InvalidArgumentError(
        "--config and a second checkpoint contradict each other; give one of "
        "them");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Contents contents,
                            ReadContents(command.path));
  if (!command.other.empty()) return Compare(contents, command, format, out);
  if (has_job) return CheckFits(host, contents, command, format, out);
  switch (format) {
    case OutputFormat::kJson:
      PrintJson(command.path, contents, out);
      break;
    case OutputFormat::kCsv:
      SectionTable(contents, /*escape=*/false).PrintCsv(out);
      break;
    default:
      PrintText(command.path, contents, out);
  }
  return 0;
}

}  // namespace lockstep
