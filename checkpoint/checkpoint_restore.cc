// The functions of Checkpoint that restore.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/best_value.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_store.h"
#include "lockstep/checkpoint/checkpoint_text.h"
#include "lockstep/checkpoint/saved_sections.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/checkpoint/share.h"
#include "lockstep/checkpoint/warm_start.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"

namespace lockstep {
namespace {

constexpr size_t kMostShown = 5;
// The most steps of a checkpoint. No job gets so far, and a session can count
// on from there.
constexpr int64_t kMostSteps = int64_t{1} << 62;
constexpr char kAnew[] =
    "; to begin anew instead, give the job another path for checkpoints";

}  // namespace

using internal_checkpoint::BestValueOf;
using internal_checkpoint::BestValues;
using internal_checkpoint::BestValuesOf;
using internal_checkpoint::Differences;
using internal_checkpoint::kBest;
using internal_checkpoint::kJob;
using internal_checkpoint::kNoted;
using internal_checkpoint::kSectionVersion;
using internal_checkpoint::kStep;
using internal_checkpoint::NameOf;
using internal_checkpoint::PlanWarmStart;
using internal_checkpoint::SavedSections;
using internal_checkpoint::ShareSection;
using internal_checkpoint::ShareStatus;
using internal_checkpoint::ShareText;
using internal_checkpoint::TextOf;
using internal_checkpoint::WarmStartRequest;

// ---- Restoring.

absl::StatusOr<std::optional<int64_t>> Checkpoint::Restore() {
  if (forked()) return NotInAFork();
  if (has_restored_) {
    return absl::FailedPreconditionError(
        "a checkpoint is restored once, and has been: make another one");
  }
  const absl::Status restored = CatchAll("restoring", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckSame(group_, "the sections of the checkpoint", Layout()));
    LOCKSTEP_RETURN_IF_ERROR(sections_.DealParts(group_));
    LOCKSTEP_RETURN_IF_ERROR(FindNewest());
    LOCKSTEP_RETURN_IF_ERROR(PrepareToSave());
    return newest_->exists() ? RestoreNewest() : BeginAnew();
  });
  newest_ = nullptr;
  has_restored_ = restored.ok();
  if (!restored.ok()) {
    store_ = nullptr;  // so that the path is free again
    return restored;
  }
  if (last_step_ < 0) return std::nullopt;
  return last_step_;
}

absl::Status Validate(const CheckpointOptions& options) {
  if (options.path.empty()) return absl::OkStatus();
  if (options.every_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("every_steps of checkpoints should be 0 or more, but is ",
                     options.every_steps));
  }
  CheckpointStoreOptions store;
  store.path = options.path;
  store.keep = options.keep;
  return CheckpointStore::CheckOptions(store);
}

// Opens the store and the newest checkpoint, on rank 0.
absl::StatusOr<std::unique_ptr<CheckpointReader>> Checkpoint::OpenNewest() {
  LOCKSTEP_RETURN_IF_ERROR(Validate(options_));
  CheckpointStoreOptions options;
  options.path = options_.path;
  options.keep = options_.keep;
  options.log = log_;
  store_ = nullptr;  // of an earlier call that has failed
  LOCKSTEP_ASSIGN_OR_RETURN(auto store, CheckpointStore::Open(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto newest, store->OpenNewest());
  store_ = std::move(store);
  return newest;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewestCheckpoint(
    const std::string& path, std::function<void(absl::string_view)> log) {
  CheckpointStoreOptions options;
  options.path = path;
  options.log = std::move(log);
  LOCKSTEP_ASSIGN_OR_RETURN(auto newest, CheckpointStore::Read(options));
  if (newest != nullptr) return newest;
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint at ", path,
                   "; the path should be the folder and the beginning of the "
                   "files' names, such as /data/model"));
}

// Looks for the newest checkpoint, once.
absl::Status Checkpoint::FindNewest() {
  if (newest_ != nullptr) return absl::OkStatus();
  if (options_.path.empty()) {
    newest_ = std::make_unique<SavedSections>(group_);
    return absl::OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      SavedSections newest,
      SavedSections::Open(group_, [&] { return OpenNewest(); }));
  newest_ = std::make_unique<SavedSections>(std::move(newest));
  return absl::OkStatus();
}

// Returns an error if the best file is that of another model, whose value says
// nothing about this one.
absl::Status Checkpoint::CheckBest(
    absl::string_view name, const std::vector<CheckpointSection>& saved) const {
  for (const Section& section : sections_) {
    if (section.is_state()) continue;
    const auto found = std::find_if(saved.begin(), saved.end(),
                                    [&](const CheckpointSection& each) {
                                      return each.name == section.name;
                                    });
    const absl::Status fits = found == saved.end()
                                  ? absl::NotFoundError("is missing")
                                  : section.CheckFits(*found);
    if (fits.ok()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the best checkpoint ", options_.path, ".", name,
        " is that of another model: section '", absl::CHexEscape(section.name),
        "' ", fits.message(), "; move it away, or give the job another path"));
  }
  return absl::OkStatus();
}

// Gets the values of SaveIfBest from the files, and allocates what saving
// needs.
absl::Status Checkpoint::PrepareToSave() {
  if (options_.path.empty()) return absl::OkStatus();
  BestValues best;
  absl::Status prepared;
  if (group_.rank() == 0) {
    prepared = CatchAll("opening a checkpoint", [&]() -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto files, store_->ReadNamed(kBest));
      for (const auto& [name, file] : files) {
        const std::optional<BestValue> value = BestValueOf(file.bytes);
        if (!value.has_value()) continue;
        LOCKSTEP_RETURN_IF_ERROR(CheckBest(name, file.sections));
        best[name] = *value;
      }
      return ReserveCopy();
    });
  }
  LOCKSTEP_RETURN_IF_ERROR(ShareStatus(group_, "checkpoint open", prepared));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string text,
      ShareText(group_, "the best values of checkpoints", TextOf(best)));
  best_ = BestValuesOf(text);
  for (const auto& [name, value] : best_) {
    Log(absl::StrCat(options_.path, ".", name, " has the ", NameOf(value.best),
                     " value so far, ", value.value,
                     newest_->exists()
                         ? ""
                         : "; it is kept until SaveIfBest gets a better one, "
                           "though there is no checkpoint to go on from: to "
                           "begin anew, remove it"));
  }
  return absl::OkStatus();
}

// At the first start, all ranks get what rank 0 has.
absl::Status Checkpoint::BeginAnew() {
  if (!options_.path.empty()) {
    Log(absl::StrCat("there is no checkpoint at ", options_.path,
                     " yet: the job begins"));
  }
  if (group_.size() == 1) return absl::OkStatus();
  for (const Section& section : sections_) {
    if (section.is_state() || section.is_part) continue;
    LOCKSTEP_RETURN_IF_ERROR(ShareSection(group_, section));
  }
  return absl::OkStatus();
}

// Returns the step after which the newest checkpoint was saved, or nullopt if
// there is none, or if it does not say so.
absl::StatusOr<std::optional<int64_t>> Checkpoint::StepOfNewest() const {
  const CheckpointSection* const saved = newest_->Find(kStep);
  int64_t step = 0;
  if (saved == nullptr || saved->version != kSectionVersion ||
      saved->bytes != sizeof(step)) {
    return std::nullopt;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                            newest_->ReadBytes(*saved));
  std::memcpy(&step, bytes.data(), sizeof(step));
  return step;
}

absl::Status Checkpoint::RestoreNewest() {
  for (const CheckpointSection& saved : newest_->sections()) {
    if (saved.name != kJob && saved.name != kNoted) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                              newest_->ReadBytes(saved));
    if (saved.name == kJob) {
      differences_ = Differences(bytes, TextOf(job_));
    } else {
      noted_ = BestValuesOf(bytes);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSections());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> step, StepOfNewest());
  if (!step.has_value() || *step < 0 || *step > kMostSteps) {
    return absl::FailedPreconditionError(
        absl::StrCat(newest_->path(),
                     " has no section 'step' as Checkpoint::Save writes "
                     "it: another program has written it"));
  }
  for (const CheckpointSection& saved : newest_->sections()) {
    const Section* const section = sections_.Find(saved.name);
    if (section == nullptr) continue;
    LOCKSTEP_RETURN_IF_ERROR(
        newest_->Load(saved, *section, [&](const absl::Status& error) {
          return Annotate(error, Shown(saved.name), kAnew);
        }));
  }
  last_step_ = *step;
  Log(absl::StrCat("goes on from ", newest_->path(), ", after step ", *step));
  for (const std::string& difference : differences_) {
    Log(absl::StrCat("a setting has changed since then: ", difference));
  }
  return absl::OkStatus();
}

// Describes a section, with the changed settings of the job.
std::string Checkpoint::Shown(absl::string_view name) const {
  std::string text = absl::StrCat("section '", absl::CHexEscape(name),
                                  "' of the checkpoint ", newest_->path());
  if (differences_.empty()) return text;
  const size_t shown = std::min(differences_.size(), kMostShown);
  absl::StrAppend(
      &text, ", whose job was another one (",
      absl::StrJoin(differences_.begin(), differences_.begin() + shown, "; "),
      shown < differences_.size() ? "; ..." : "", ")");
  return text;
}

absl::Status Checkpoint::CheckSections() const {
  for (const CheckpointSection& saved : newest_->sections()) {
    if (saved.version > kSectionVersion) {
      return absl::UnimplementedError(absl::StrCat(
          Shown(saved.name), " has version ", saved.version,
          ", and this release reads ", kSectionVersion, ": take a newer one"));
    }
    if (IsOwnSection(saved.name)) continue;
    const Section* const section = sections_.Find(saved.name);
    if (section == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          Shown(saved.name),
          " is not one of this program's: add it before Restore", kAnew));
    }
    const absl::Status fits = section->CheckFits(saved);
    if (!fits.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Shown(saved.name), " ", fits.message(), kAnew));
    }
  }
  for (const Section& section : sections_) {
    if (section.state.may_be_missing ||
        newest_->Find(section.name) != nullptr) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        Shown(section.name),
        " is missing: the program that saved the checkpoint did not add it",
        kAnew));
  }
  return absl::OkStatus();
}

// ---- Warm starts.

absl::StatusOr<WarmStart> Checkpoint::RestoreFrom(
    const std::string& path, const WarmStartOptions& options,
    const std::vector<std::string>& never) {
  if (forked()) return NotInAFork();
  if (has_restored_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "RestoreFrom(", path,
        ") comes after Restore, which decides whether the job begins or goes "
        "on: call it before"));
  }
  if (options.sections.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("RestoreFrom(", path,
                     ") has no patterns in `sections`, so it would take "
                     "nothing: {\"parameters*\"} takes all parameters"));
  }
  const WarmStartRequest request = {options, never};
  absl::StatusOr<WarmStart> start =
      CatchAll("restoring", [&] { return Take(path, request); });
  if (start.ok()) warm_starts_.push_back(request);
  return start;
}

absl::StatusOr<WarmStart> Checkpoint::Take(const std::string& path,
                                           const WarmStartRequest& request) {
  const WarmStartOptions& options = request.options;
  Fingerprint same = Layout();
  same.Add("sections of RestoreFrom", absl::StrJoin(options.sections, ", "));
  same.Add("except of RestoreFrom", absl::StrJoin(options.except, ", "));
  same.Add("may_be_missing of RestoreFrom",
           options.may_be_missing ? "true" : "false");
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSame(group_, "the sections of the checkpoint", same));
  LOCKSTEP_RETURN_IF_ERROR(sections_.DealParts(group_));
  LOCKSTEP_RETURN_IF_ERROR(FindNewest());
  if (newest_->exists()) {
    Log(absl::StrCat("the warm start from ", path,
                     " is not used, because the job goes on from ",
                     newest_->path()));
    return WarmStart();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const SavedSections file,
                            SavedSections::Open(group_, [&] {
                              return CheckpointReader::Open(path);
                            }));
  LOCKSTEP_ASSIGN_OR_RETURN(
      WarmStart start,
      PlanWarmStart(file.path(), file.sections(), sections_, request));
  for (const std::string& name : start.taken) {
    LOCKSTEP_RETURN_IF_ERROR(file.Load(
        *file.Find(name), *sections_.Find(name),
        [&](const absl::Status& error) {
          return Annotate(error,
                          absl::StrCat("section '", absl::CHexEscape(name),
                                       "' of a warm start from ", file.path()));
        }));
  }
  const size_t shown = std::min(start.taken.size(), kMostShown);
  Log(absl::StrCat(
      "begins with ", start.taken.size(),
      start.taken.size() == 1 ? " section of " : " sections of ", file.path(),
      " (",
      absl::StrJoin(start.taken.begin(), start.taken.begin() + shown, ", "),
      shown < start.taken.size() ? ", ..." : "", "); ", start.left.size(),
      " others were not taken"));
  return start;
}

}  // namespace lockstep
