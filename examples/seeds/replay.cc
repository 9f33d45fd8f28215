// Runs the programs of the notes that notes.toml lists, and shows each note's
// output next to Lockstep's output, with a mark for each claim. Ends with code
// 1 if a line is not as expected. tools/seeds builds and runs it.
//
//   replay [--backend=auto|shm|tcp] [--format=text|markdown]
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/examples/execute.h"

ABSL_FLAG(std::string, backend, "auto", "of all ranks: auto, shm or tcp");
ABSL_FLAG(std::string, format, "text", "text, or markdown: docs/seeds.md");
ABSL_FLAG(std::string, notes, "examples/seeds/notes.toml", "the claims");

namespace {

using lockstep::Config;
using lockstep::OptionTable;

constexpr char kFolder[] = "examples/seeds/";
constexpr absl::string_view kDifferent = "DIFFERENT";

// ---- The notes, as in notes.toml.

struct Claim {
  std::string says;
  std::string lockstep;
  bool differs = false;
  std::string at;
  std::string run;
  int code = 0;
  std::string note;
  std::string chance;
  std::string ours;
};

void BindOptions(Claim& claim, OptionTable& table) {
  table.Add("says", &claim.says, "The note's statement, or what it prints.");
  table.Add("lockstep", &claim.lockstep, "What Lockstep does, if more.");
  table.Add("differs", &claim.differs, "Whether Lockstep does another thing.");
  table.Add("at", &claim.at, "FILE: TEXT, the line of a program.");
  table.Add("run", &claim.run, "The command that shows it.");
  table.Add("code", &claim.code, "The command's code.");
  table.Add("note", &claim.note, "The lines that the note prints.");
  table.Add("chance", &claim.chance,
            "Behind this text, the rest of a line is random in the note.");
  table.Add("ours", &claim.ours,
            "The lines that Lockstep prints, where they are not the note's; "
            "'...' stands for any text, or for any lines.");
}

struct Note {
  std::string number;
  std::string title;
  std::string about;
  std::vector<Config> claims;
};

void BindOptions(Note& note, OptionTable& table) {
  table.Add("number", &note.number, "The note's number.");
  table.Add("title", &note.title, "Its heading.");
  table.Add("about", &note.about, "What it is.");
  table.Add("claim", &note.claims, "The claims, in the note's order.");
}

struct Document {
  std::string introduction;
  std::vector<Config> notes;
};

void BindOptions(Document& document, OptionTable& table) {
  table.Add("introduction", &document.introduction, "The beginning.");
  table.Add("note", &document.notes, "The notes.");
}

// ---- Lines.

std::vector<std::string> LinesOf(absl::string_view text) {
  absl::ConsumePrefix(&text, "\n");
  absl::ConsumeSuffix(&text, "\n");
  if (text.empty()) return {};
  return absl::StrSplit(text, '\n');
}

// Returns the rank that printed a line, or a large number.
int RankOf(absl::string_view line) {
  int rank = 1 << 20;
  if (absl::ConsumePrefix(&line, "[rank ")) {
    rank = std::atoi(std::string(line).c_str());
  }
  return rank;
}

// Groups the lines by rank, since the order between ranks is random.
std::vector<std::string> ByRank(std::vector<std::string> lines) {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const std::string& a, const std::string& b) {
                     return RankOf(a) < RankOf(b);
                   });
  return lines;
}

// Returns a note's line in the format of Lockstep's launcher. In the notes, the
// device shows the rank: "tensor([1], device='cuda:0')".
std::string AsOfRank(absl::string_view line) {
  constexpr absl::string_view kDevice = ", device='cuda:";
  const size_t begin = line.find(kDevice);
  const size_t digits = begin + kDevice.size();
  const size_t end = line.find('\'', digits);
  if (begin == line.npos || end == line.npos) return std::string(line);
  return absl::StrCat("[rank ", line.substr(digits, end - digits), "] ",
                      line.substr(0, begin), line.substr(end + 1));
}

// Returns a line without its random end.
std::string WithoutChance(absl::string_view line, absl::string_view chance) {
  const size_t at = chance.empty() ? line.npos : line.find(chance);
  if (at == line.npos) return std::string(line);
  return absl::StrCat(line.substr(0, at + chance.size()), "...");
}

bool MatchesLine(absl::string_view pattern, absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(pattern, "...");
  if (!absl::ConsumePrefix(&line, parts.front())) return false;
  if (parts.size() == 1) return line.empty();
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    const size_t at = line.find(parts[i]);
    if (at == line.npos) return false;
    line.remove_prefix(at + parts[i].size());
  }
  return absl::EndsWith(line, parts.back());
}

bool MatchesLines(const std::vector<std::string>& pattern,
                  const std::vector<std::string>& lines) {
  size_t at = 0;
  bool skips = false;
  for (const std::string& wanted : pattern) {
    if (wanted == "...") {
      skips = true;
      continue;
    }
    while (skips && at < lines.size() && !MatchesLine(wanted, lines[at])) ++at;
    if (at == lines.size() || !MatchesLine(wanted, lines[at])) return false;
    ++at;
    skips = false;
  }
  return skips || at == lines.size();
}

// ---- Running.

// Converts a command of notes.toml into one for the shell, with the paths of
// the programs and, for a launch, with the backend.
std::string CommandOf(const std::string& run) {
  const bool is_launch = absl::StrContains(run, "lockstep launch ");
  std::vector<std::string> words = absl::StrSplit(run, ' ');
  for (std::string& word : words) {
    const std::string name = word;
    if (name == "lockstep") word = "tools/cli/lockstep";
    if (name == "launch") word += " --grace=1h";
    if (name == "--config=002_gradients.toml") {
      word = absl::StrCat("--config=", kFolder, "002_gradients.toml");
    }
    if (!absl::StartsWith(name, "00")) continue;
    word = absl::StrCat(kFolder, name);
    if (!is_launch) continue;
    absl::StrAppend(
        &word, name == "002_gradients" ? " --set group.name=" : " --backend=",
        absl::GetFlag(FLAGS_backend));
  }
  return absl::StrCat("{ ", absl::StrJoin(words, " "), "\n}");
}

absl::Status Validate(const Claim& claim) {
  if (claim.run.empty() &&
      !(claim.note.empty() && claim.ours.empty() && claim.code == 0)) {
    return absl::InvalidArgumentError(
        "note, ours and code are for a claim with a run");
  }
  if (claim.run.empty() && claim.at.empty() && !claim.differs) {
    return absl::InvalidArgumentError(
        "a claim that does not differ needs a run, or a line of a program");
  }
  if (claim.differs && !claim.note.empty()) {
    return absl::InvalidArgumentError(
        "a claim that differs has no lines that should be equal");
  }
  if (!claim.chance.empty() && !absl::StrContains(claim.note, claim.chance)) {
    return absl::InvalidArgumentError("chance should be a part of the note");
  }
  if (claim.code < 0 || claim.code > 125) {
    return absl::InvalidArgumentError(
        "code should be from 0 to 125: others are a signal's or the shell's");
  }
  return absl::OkStatus();
}

struct Outcome {
  std::string mark;
  std::vector<std::string> note;     // by rank
  std::vector<std::string> pattern;  // the expected lines
  std::vector<std::string> printed;  // by rank
  int code = 0;
};

// Runs the commands of claims, and compares the output with the note's.
// Thread-safety: thread-compatible.
class Runner {
 public:
  Outcome Judge(const Claim& claim) {
    Outcome outcome;
    outcome.mark = claim.differs ? "explained" : "same";
    for (const std::string& line : LinesOf(claim.note)) {
      outcome.note.push_back(line);
    }
    std::stable_sort(outcome.note.begin(), outcome.note.end(),
                     [](const std::string& a, const std::string& b) {
                       return RankOf(AsOfRank(a)) < RankOf(AsOfRank(b));
                     });
    if (claim.run.empty()) return outcome;
    const examples::Ended& ended = Run(claim.run);
    outcome.printed = ByRank(LinesOf(ended.printed));
    outcome.pattern = LinesOf(claim.ours);
    outcome.code = ended.code;

    bool as_expected = ended.code == claim.code;
    if (claim.note.empty() || !claim.ours.empty()) {
      as_expected &= MatchesLines(outcome.pattern, outcome.printed);
    }
    if (!claim.note.empty()) {
      if (!claim.chance.empty()) outcome.mark = "same but for chance";
      std::vector<std::string> note, printed;
      for (const std::string& line : outcome.note) {
        note.push_back(WithoutChance(AsOfRank(line), claim.chance));
      }
      for (const std::string& line : outcome.printed) {
        printed.push_back(WithoutChance(line, claim.chance));
      }
      as_expected &= note == printed;
    }
    if (!as_expected) outcome.mark = std::string(kDifferent);
    return outcome;
  }

 private:
  const examples::Ended& Run(const std::string& run) {
    const auto [at, is_new] = ended_.insert({run, {}});
    if (is_new) at->second = examples::Execute(CommandOf(run));
    return at->second;
  }

  std::map<std::string, examples::Ended> ended_;
};

// ---- Showing.

// Parses "FILE: TEXT", and returns FILE and the number of its only line with
// TEXT.
absl::StatusOr<std::pair<std::string, int>> Find(const std::string& at) {
  const std::pair<std::string, std::string> place =
      absl::StrSplit(at, absl::MaxSplits(": ", 1));
  std::ifstream file(absl::StrCat(kFolder, place.first));
  if (!file || place.second.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("at should be FILE: TEXT, with a file of ", kFolder,
                     ", but is '", at, "'"));
  }
  int found = 0;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!absl::StrContains(line, place.second)) continue;
    if (found != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": lines ", found, " and ", number,
                       " have that text, and only one should"));
    }
    found = number;
  }
  if (found == 0) {
    return absl::NotFoundError(absl::StrCat(at, ": no line has that text"));
  }
  return std::pair(place.first, found);
}

// Returns the note's lines next to Lockstep's, or only Lockstep's if the note
// has none.
std::string ShowLines(const Outcome& outcome, bool as_recorded) {
  std::vector<std::string> ours = outcome.printed;
  if (as_recorded && !outcome.pattern.empty() && outcome.mark != kDifferent) {
    ours = outcome.pattern;
  }
  if (outcome.note.empty()) {
    return ours.empty() ? "(nothing)\n" : absl::StrJoin(ours, "\n") + "\n";
  }
  size_t width = 16;
  for (const std::string& line : outcome.note) {
    width = std::max(width, line.size());
  }
  std::string text =
      absl::StrFormat("%-*s | %s\n", width, "the note", "Lockstep");
  for (size_t i = 0; i < std::max(outcome.note.size(), ours.size()); ++i) {
    text += absl::StrFormat("%-*s | %s\n", width,
                            i < outcome.note.size() ? outcome.note[i] : "",
                            i < ours.size() ? ours[i] : "");
  }
  return text;
}

std::string InCell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"|", "\\|"}});
}

// Prints the notes with their claims, as text or as Markdown.
// Thread-safety: thread-compatible.
class Report {
 public:
  explicit Report(bool is_markdown) : is_markdown_(is_markdown) {}

  absl::Status Show(const Note& note) {
    if (is_markdown_) {
      std::printf(
          "\n## Note %s: %s\n\n%s\n\n"
          "| claim | the note | Lockstep | mark | shown by |\n"
          "|---|---|---|---|---|\n",
          note.number.c_str(), note.title.c_str(), note.about.c_str());
    } else {
      std::printf("==== Note %s: %s\n", note.number.c_str(),
                  note.title.c_str());
    }
    std::string printed;
    for (size_t i = 0; i < note.claims.size(); ++i) {
      const std::string number = absl::StrFormat("%s.%02d", note.number, i + 1);
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Claim claim,
          lockstep::ReadOptions<Claim>(absl::StrCat("claim ", number),
                                       note.claims[i]));
      absl::StatusOr<std::string> shown = Show(number, claim);
      if (!shown.ok()) {
        return lockstep::Annotate(shown.status(),
                                  absl::StrCat("claim ", number));
      }
      if (is_markdown_ && !printed.empty() && !shown->empty()) printed += "\n";
      printed += *shown;
    }
    if (is_markdown_) {
      std::printf("\n```console seeds\n%s```\n", printed.c_str());
    } else {
      std::printf("%s", printed.c_str());
    }
    return absl::OkStatus();
  }

  void ShowMarks() const {
    std::string text;
    for (const auto& [mark, count] : marks_) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", count, " ", mark);
    }
    std::printf("%s%s\n",
                is_markdown_ ? "\nAll notes: " : "==== ", text.c_str());
  }

  bool is_as_expected() const {
    return marks_.count(std::string(kDifferent)) == 0;
  }

 private:
  // Prints a row of the table, if there is one, and returns the lines that
  // follow the table, if any.
  absl::StatusOr<std::string> Show(const std::string& number,
                                   const Claim& claim) {
    LOCKSTEP_RETURN_IF_ERROR(Validate(claim));
    const Outcome outcome = runner_.Judge(claim);
    ++marks_[outcome.mark];
    std::string place;
    if (!claim.at.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto found, Find(claim.at));
      place = is_markdown_ ? absl::StrFormat("[%s:%d](../%s%s#L%d)",
                                             found.first, found.second, kFolder,
                                             found.first, found.second)
                           : absl::StrCat(found.first, ":", found.second);
    }
    const std::string lockstep =
        claim.lockstep.empty() ? "The same." : claim.lockstep;
    if (is_markdown_) {
      if (!claim.run.empty()) {
        absl::StrAppend(&place, place.empty() ? "" : ", ", "the run below");
      }
      std::printf("| %s | %s | %s | %s | %s |\n", number.c_str(),
                  InCell(claim.says).c_str(), InCell(lockstep).c_str(),
                  outcome.mark.c_str(), place.c_str());
      if (claim.run.empty()) return std::string();
      return absl::StrCat(number, "  $ ", claim.run, "\n",
                          ShowLines(outcome, true));
    }
    std::string text = absl::StrCat("\n---- ", number, " ", outcome.mark,
                                    "\nnote:     ", claim.says,
                                    "\nLockstep: ", lockstep, "\n");
    if (!place.empty()) absl::StrAppend(&text, "at:       ", place, "\n");
    if (!claim.run.empty()) {
      absl::StrAppend(&text, "$ ", claim.run, "\n", ShowLines(outcome, false));
    }
    if (outcome.mark == kDifferent) {
      absl::StrAppend(&text, "The code was ", outcome.code, ", and should be ",
                      claim.code, "; the lines should be ",
                      outcome.pattern.empty()
                          ? "those of the note\n"
                          : absl::StrCat(":\n", claim.ours));
    }
    return text;
  }

  const bool is_markdown_;
  Runner runner_;
  std::map<std::string, int> marks_;
};

absl::Status Run() {
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend != "auto" && backend != "shm" && backend != "tcp") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backend should be auto, shm or tcp, but is '", backend, "'"));
  }
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "text" && format != "markdown") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--format should be text or markdown, but is '", format, "'"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Config config,
      lockstep::ReadConfigFile(absl::GetFlag(FLAGS_notes)));
  LOCKSTEP_ASSIGN_OR_RETURN(const Document document,
                            lockstep::ReadOptions<Document>("notes", config));
  Report report(format == "markdown");
  if (format == "markdown") std::printf("%s", document.introduction.c_str());
  if (document.notes.empty()) {
    return absl::InvalidArgumentError("there is no note");
  }
  for (const Config& each : document.notes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Note note,
                              lockstep::ReadOptions<Note>("note", each));
    if (note.claims.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("note ", note.number, " has no claim"));
    }
    LOCKSTEP_RETURN_IF_ERROR(report.Show(note));
  }
  report.ShowMarks();
  if (report.is_as_expected()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the claims marked DIFFERENT are not as examples/seeds/notes.toml says");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const absl::Status status = words.size() == 1
                                  ? Run()
                                  : absl::InvalidArgumentError(absl::StrCat(
                                        "unknown argument '", words[1], "'"));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
