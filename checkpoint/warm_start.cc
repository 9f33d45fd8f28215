#include "lockstep/checkpoint/warm_start.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/section.h"

namespace lockstep::internal_checkpoint {
namespace {

constexpr char kNotInFile[] = "the file does not have it";
constexpr char kNotInProgram[] = "this program has no such section";
constexpr size_t kMostShown = 5;

// Returns true if the pattern, in which * stands for any characters, matches
// the whole text.
bool Matches(absl::string_view pattern, absl::string_view text) {
  size_t at = 0, in_pattern = 0;
  // Where to go on if the last * has to stand for one more character.
  size_t star = absl::string_view::npos, after_star = 0;
  while (at < text.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      star = in_pattern++;
      after_star = at;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == text[at]) {
      ++in_pattern;
      ++at;
    } else if (star != absl::string_view::npos) {
      in_pattern = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + in_pattern, pattern.end(),
                     [](char c) { return c == '*'; });
}

bool MatchesAny(const std::vector<std::string>& patterns,
                absl::string_view name) {
  return std::any_of(
      patterns.begin(), patterns.end(),
      [&](const std::string& pattern) { return Matches(pattern, name); });
}

// Returns why a section is not taken, or nullptr if it is.
const char* WhyLeft(const WarmStartRequest& request, absl::string_view name) {
  if (IsOwnSection(name) || MatchesAny(request.never, name)) {
    return "it belongs to the job that saved it";
  }
  if (!MatchesAny(request.options.sections, name)) {
    return "no pattern in `sections` selects it";
  }
  return MatchesAny(request.options.except, name)
             ? "a pattern in `except` excludes it"
             : nullptr;
}

// Returns a list of some sections, for a message.
std::string Shown(const std::vector<WarmStart::Left>& all) {
  std::vector<std::string> some;
  for (size_t i = 0; i < std::min(all.size(), kMostShown); ++i) {
    some.push_back(absl::StrCat("section '", absl::CHexEscape(all[i].name),
                                "': ", all[i].why));
  }
  if (all.size() > kMostShown) {
    some.push_back(absl::StrCat("and ", all.size() - kMostShown, " more"));
  }
  return absl::StrJoin(some, "; ");
}

}  // namespace

bool IsTaken(const WarmStartRequest& request, absl::string_view name) {
  return WhyLeft(request, name) == nullptr;
}

absl::StatusOr<WarmStart> PlanWarmStart(
    absl::string_view path, absl::Span<const CheckpointSection> saved,
    const Sections& sections, const WarmStartRequest& request) {
  const WarmStartOptions& options = request.options;
  WarmStart plan;
  plan.is_used = true;
  std::vector<WarmStart::Left> missing, unfit;
  for (const CheckpointSection& each : saved) {
    if (IsOwnSection(each.name)) continue;
    const Section* const section = sections.Find(each.name);
    if (const char* const why = WhyLeft(request, each.name)) {
      plan.left.push_back({each.name, why});
    } else if (section == nullptr) {
      missing.push_back({each.name, kNotInProgram});
    } else if (each.version > kSectionVersion) {
      unfit.push_back({each.name, absl::StrCat("it has version ", each.version,
                                               ", and this release reads ",
                                               kSectionVersion)});
    } else {
      const absl::Status fits = section->CheckFits(each);
      if (!fits.ok()) {
        unfit.push_back(
            {each.name, absl::StrCat("the file's ", fits.message())});
      }
      plan.taken.push_back(each.name);
    }
  }
  for (const Section& section : sections) {
    if (!IsTaken(request, section.name) ||
        std::any_of(saved.begin(), saved.end(),
                    [&](const CheckpointSection& each) {
                      return each.name == section.name;
                    })) {
      continue;
    }
    missing.push_back({section.name, kNotInFile});
  }
  for (const auto& [field, patterns] :
       {std::pair("sections", &options.sections),
        std::pair("except", &options.except)}) {
    for (const std::string& pattern : *patterns) {
      const auto matches = [&pattern](const auto& each) {
        return !IsOwnSection(each.name) && Matches(pattern, each.name);
      };
      if (std::any_of(saved.begin(), saved.end(), matches) ||
          std::any_of(sections.begin(), sections.end(), matches)) {
        continue;
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "the pattern '", absl::CHexEscape(pattern), "' in `", field,
          "` of a warm start from ", path,
          " matches no section, neither of the file nor of this program",
          plan.left.empty() ? "" : "; the file has ", Shown(plan.left)));
    }
  }
  if (!unfit.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a warm start from ", path, " does not fit: ", Shown(unfit),
        "; to leave such a section as it is, add it to `except`"));
  }
  if (!missing.empty() && !options.may_be_missing) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a warm start from ", path, " can't take all selected sections: ",
        Shown(missing), "; set may_be_missing = true to take only the others"));
  }
  plan.left.insert(plan.left.begin(), missing.begin(), missing.end());
  if (plan.taken.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a warm start from ", path, " takes nothing with the patterns ",
        absl::StrJoin(options.sections, ", "), ": ",
        saved.empty() ? "the file has no sections" : Shown(plan.left)));
  }
  return plan;
}

}  // namespace lockstep::internal_checkpoint
