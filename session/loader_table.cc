#include "lockstep/session/loader_table.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/in_part.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"

namespace lockstep::internal_session {
namespace {

// Returns a digest of what tells the loader's data from others, or 0 if nothing
// does.
int64_t DataOf(const Loader& loader) {
  Fingerprint data;
  loader.dataset().AddTo(data);
  if (data.fields().empty()) return 0;
  return static_cast<int64_t>(data.summary().low >> 2);
}

}  // namespace

Loader& LoaderTable::Add(const std::string& name,
                         std::unique_ptr<Loader> loader) {
  Loader& added = *(own_[name] = std::move(loader));
  Record& record = records_[&added];
  record.name = name;
  See(record, added);
  return added;
}

LoaderTable::Record* LoaderTable::Find(const Loader& loader) {
  const auto found = records_.find(&loader);
  return found == records_.end() ? nullptr : &found->second;
}

const LoaderTable::Record* LoaderTable::Find(const Loader& loader) const {
  return const_cast<LoaderTable*>(this)->Find(loader);
}

const std::string* LoaderTable::FindName(const Loader& loader) const {
  const Record* const record = Find(loader);
  return record == nullptr ? nullptr : &record->name;
}

std::string LoaderTable::NameOf(const Loader& loader) const {
  const std::string* const name = FindName(loader);
  return name != nullptr ? *name : "loader";
}

std::string LoaderTable::Describe(const Loader& loader) const {
  const std::string* const name = FindName(loader);
  return name != nullptr ? absl::StrCat("the loader '", *name, "'")
                         : "this loader";
}

bool LoaderTable::IsMoved(const Record& record, const Loader& loader) {
  const SamplerProgress& now = loader.progress();
  return now.epoch != record.seen.epoch ||
         now.position != record.seen.position ||
         now.steps_in_total != record.seen.steps_in_total ||
         loader.in_step() != record.seen_in_step;
}

void LoaderTable::See(Record& record, const Loader& loader) {
  record.seen = loader.progress();
  record.seen_in_step = loader.in_step();
}

bool LoaderTable::Holds(const Record& record, const Loader& loader,
                        const std::optional<int64_t>& fact) {
  return fact == loader.progress().epoch && !IsMoved(record, loader);
}

// ---- Checkpoints.

absl::Status LoaderTable::AddTo(Checkpoint& checkpoint, Loader& loader) {
  Record& record = *Find(loader);
  record.is_saved = true;
  CheckpointState state;
  state.may_be_missing = true;
  state.save = [&loader,
                &record]() -> absl::StatusOr<std::optional<std::string>> {
    if (!record.trains && !IsMoved(record, loader)) return std::nullopt;
    // Such batches have no place to continue from. Steps refuses them.
    if (loader.options().delivery == Delivery::kAsReady) return std::nullopt;
    // A training that continues would read the parts again.
    if (loader.in_step() && !record.seen_in_step) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the trainer has read only some parts of a step of the loader '",
          record.name,
          "', whose place is saved between steps: read each step to its last "
          "part, or leave micro_batch_size",
          loader.sampler_options().cut.shards > 0 ? " and the sampler's shards"
                                                  : "",
          " out of [loader.", record.name, "]"));
    }
    return loader.SaveState();
  };
  state.load = [&loader, &record](absl::string_view bytes) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(loader.RestoreState(bytes));
    record.trains = true;
    See(record, loader);
    record.restored = record.seen.epoch;
    return absl::OkStatus();
  };
  return checkpoint.Add(absl::StrCat(kLoaderPrefix, record.name),
                        std::move(state));
}

absl::Status LoaderTable::AddTo(Checkpoint& checkpoint) {
  CheckpointState state;
  state.may_be_missing = true;
  state.save = [this]() -> absl::StatusOr<std::optional<std::string>> {
    std::string lines = SaveFacts();
    if (lines.empty()) return std::nullopt;
    return lines;
  };
  state.load = [this](absl::string_view bytes) { return LoadFacts(bytes); };
  return checkpoint.Add(kEpochs, std::move(state));
}

Fingerprint LoaderTable::Data() const {
  Fingerprint all;
  for (const auto& [name, loader] : own_) {
    Fingerprint data;
    loader->dataset().AddTo(data);
    for (const Fingerprint::Field& field : data.fields()) {
      all.Add(absl::StrCat(name, ": ", field.name),
              field.shown.empty() ? absl::StrCat(absl::Hex(field.digest))
                                  : field.shown);
    }
  }
  return all;
}

// Returns lines such as "done 3 train": a fact, an epoch or a number of steps,
// and the loader.
std::string LoaderTable::SaveFacts() const {
  std::string lines;
  for (const auto& [name, loader] : own_) {
    const Record& record = records_.at(loader.get());
    const std::string end = absl::StrCat(" ", loader->progress().epoch, " ",
                                         absl::CEscape(name), "\n");
    if (!record.trains && !IsMoved(record, *loader)) continue;
    if (const int64_t data = DataOf(*loader); data != 0) {
      absl::StrAppend(&lines, "data ", data, " ", absl::CEscape(name), "\n");
    }
    if (!record.trains) {
      absl::StrAppend(&lines, loader->over() ? "over" : "read", end);
      continue;
    }
    absl::StrAppend(&lines, "steps ", record.steps.value_or(0), " ",
                    absl::CEscape(name), "\n");
    if (Holds(record, *loader, record.left)) {
      absl::StrAppend(&lines, "left", end);
    }
    if (Holds(record, *loader, record.hooked)) {
      absl::StrAppend(&lines, "told", end);
    }
    if (Holds(record, *loader, record.done)) {
      absl::StrAppend(&lines, "done", end);
    }
  }
  return lines;
}

absl::Status LoaderTable::LoadFacts(absl::string_view bytes) {
  for (const absl::string_view line :
       absl::StrSplit(bytes, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 2));
    int64_t number = 0;  // of an epoch, or of steps
    std::string name;
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &number) ||
        number < 0 || number > kMostCounted ||
        !absl::CUnescape(words[2], &name)) {
      return absl::DataLossError(absl::StrCat(
          "it should have lines such as 'done 3 train', with numbers from 0 to "
          "2^62, but has '",
          absl::CHexEscape(line), "'"));
    }
    const auto found = own_.find(name);
    if (found == own_.end()) continue;
    Record& record = *Find(*found->second);
    if (words[0] == "read" || words[0] == "over") {
      read_by_trainer_[found->second.get()] = words[0] == "over";
    }
    if (words[0] == "left") record.left = number;
    if (words[0] == "told") record.hooked = number;
    if (words[0] == "done") record.done = number;
    if (words[0] == "steps") record.steps = number;
    if (words[0] == "data") {
      record.has_other_data = number != DataOf(*found->second);
    }
  }
  return absl::OkStatus();
}

absl::Status LoaderTable::EndRestore(const Log& log) {
  for (const auto& [name, loader] : own_) {
    Record& record = *Find(*loader);
    if (!record.restored.has_value()) continue;
    if (record.has_other_data) {
      log(absl::StrCat("the files of the loader '", name,
                       "' are not those that the training has read before: the "
                       "samples that follow may be others"));
    }
    // Earlier releases did not save this number, so the batches count.
    if (!record.steps.has_value()) record.steps = record.seen.steps_in_total;
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, loader->StepsLeft());
    const auto read = read_by_trainer_.find(loader.get());
    if (read != read_by_trainer_.end()) {
      log(absl::StrCat("the trainer itself reads the loader '", name,
                       "', which continues in epoch ", *record.restored,
                       ", counted from 0, with ", left, " steps left"));
      // If the trainer was told of the end of the epoch, the first call of
      // Loader::Epoch must read the epoch from its start.
      Batch none;
      if (read->second) LOCKSTEP_RETURN_IF_ERROR(loader->Next(none).status());
      record.trains = false;
      record.steps.reset();
      record.restored.reset();
      record.seen = SamplerProgress();
      record.seen_in_step = false;
    } else if (left > 0 && !Holds(record, *loader, record.left)) {
      // The epoch was over after max_steps, which is larger now.
      record.hooked.reset();
      record.done.reset();
    }
  }
  return absl::OkStatus();
}

absl::Status LoaderTable::CheckAllAreSaved() const {
  for (const auto& [name, loader] : own_) {
    const Record& record = records_.at(loader.get());
    if (record.is_saved || !IsMoved(record, *loader)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the trainer has read the loader '", name,
        "', whose place is not in checkpoints, since it was made after "
        "Restore: make it before Restore, or read it only by Evaluate"));
  }
  return absl::OkStatus();
}

// ---- Loops over epochs.

int64_t LoaderTable::FirstEpoch(const Loader& loader) const {
  const SamplerProgress& progress = loader.progress();
  const Record* const record = Find(loader);
  bool is_over = false;
  if (record != nullptr) {
    is_over = Holds(*record, loader, record->over) ||
              Holds(*record, loader, record->done);
  } else if (loader.options().advance_epochs) {
    is_over = loader.over();
  } else {
    is_over = loader.over() ||
              (progress.steps_taken > 0 && loader.StepsLeft().value_or(1) == 0);
  }
  return progress.epoch + (is_over ? 1 : 0);
}

bool LoaderTable::IsRestored(const Loader& loader) const {
  const Record* const record = Find(loader);
  return record != nullptr && record->restored.has_value();
}

bool LoaderTable::RepeatsEpoch(const Loader& loader) const {
  const Record* const record = Find(loader);
  return record != nullptr && record->restored.has_value() &&
         !Holds(*record, loader, record->done);
}

void LoaderTable::BeginBody(const Loader& loader) {
  Record* const record = Find(loader);
  if (record == nullptr) return;
  record->in_body = true;
  record->is_body_done = false;
}

void LoaderTable::EndBody(const Loader& loader) {
  Record* const record = Find(loader);
  if (record == nullptr) return;
  record->in_body = false;
  if (Holds(*record, loader, record->over)) record->done = record->over;
}

void LoaderTable::LeaveBody(const Loader& loader) {
  Record* const record = Find(loader);
  if (record != nullptr) record->in_body = false;
}

bool LoaderTable::IsInBody(const Loader& loader) const {
  const Record* const record = Find(loader);
  return record != nullptr && record->in_body;
}

bool LoaderTable::IsInOpenEpoch() const {
  return std::any_of(records_.begin(), records_.end(), [](const auto& each) {
    const auto& [loader, record] = each;
    return record.in_body && !Holds(record, *loader, record.over);
  });
}

void LoaderTable::MarkDone() {
  for (auto& [loader, record] : records_) {
    if (!Holds(record, *loader, record.over)) continue;
    if (record.in_body && record.done != record.over) {
      record.is_body_done = true;
    }
    record.done = record.over;
  }
}

absl::Status LoaderTable::CheckBodies(absl::string_view what) const {
  for (const auto& [loader, record] : records_) {
    if (!record.in_body || !record.is_body_done) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "Save was called after the steps of epoch ", *record.done, " of ",
        Describe(*loader), ", which means that nothing else belongs to this ",
        "epoch, and now ", what, " in it: call Save last in the body of the ",
        "loop over epochs (the session itself saves at the end of each loop ",
        "over steps)"));
  }
  return absl::OkStatus();
}

// ---- Loops over steps.

absl::Status LoaderTable::CheckSteps(const Loader& loader,
                                     int64_t epoch) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckIsSaved(loader));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckBodies(absl::StrCat("steps of ", Describe(loader), " follow")));
  const Record* const record = Find(loader);
  return record == nullptr ? absl::OkStatus()
                           : CheckContinues(*record, loader, epoch);
}

// Returns OK if checkpoints contain everything that is needed to continue with
// the loader.
absl::Status LoaderTable::CheckIsSaved(const Loader& loader) const {
  if (path_.empty()) return absl::OkStatus();
  const Record* const record = Find(loader);
  if (record == nullptr || !record->is_saved) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job keeps checkpoints at ", path_,
        ", and the place of this loader is not in them: make it by "
        "session.MakeLoader, before session.Restore()"));
  }
  if (loader.options().delivery == Delivery::kAsReady) {
    return internal_base::InPart(
        absl::InvalidArgumentError(absl::StrCat(
            "the job keeps checkpoints at ", path_,
            ", and batches that come as they are ready have no place to "
            "continue from: set delivery = \"in_order\"")),
        absl::StrCat("loader.", record->name), Config());
  }
  return absl::OkStatus();
}

absl::Status LoaderTable::CheckContinues(const Record& record,
                                         const Loader& loader,
                                         int64_t epoch) const {
  if (IsMoved(record, loader)) {
    if (!record.restored.has_value()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the trainer itself has read ", Describe(loader),
        " since Restore, and its place in the checkpoint is lost: read it by "
        "Steps alone, and make another loader to look at batches"));
  }
  if (record.restored.has_value()) {
    if (epoch < *record.restored) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint is in epoch ", *record.restored,
          " of this loader, and Steps was asked for epoch ", epoch,
          ", whose samples it has had: take epochs from session.Epochs of the "
          "same loader"));
    }
    if (epoch == *record.restored || Holds(record, loader, record.left)) {
      return absl::OkStatus();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, loader.StepsLeft());
    if (left == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint is in epoch ", *record.restored,
                     " of this loader, of which ", left,
                     " steps are left, and Steps was asked for epoch ", epoch,
                     ": take epochs from session.Epochs of the same loader"));
  }
  if (record.paused == epoch) return absl::OkStatus();
  if (!record.begun.has_value() || epoch > *record.begun) {
    return CheckNothingIsLeft(record, loader, epoch);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "Steps was asked for epoch ", epoch, " of ", Describe(loader),
      record.left.has_value()
          ? absl::StrCat(", and the trainer has left a step of epoch ",
                         *record.left,
                         ": what is left of that epoch can't be read by "
                         "another loop; continue with a later epoch")
          : absl::StrCat(", and has read epoch ", *record.begun,
                         " before, so its samples would come twice: take "
                         "epochs from session.Epochs of the same loader")));
}

// Returns an error if the loop would leave steps out: the rest of an epoch in
// which an earlier loop has ended, or whole epochs. A trainer leaves out whole
// epochs by mistake if it passes a number of steps as the epoch.
absl::Status LoaderTable::CheckNothingIsLeft(const Record& record,
                                             const Loader& loader,
                                             int64_t epoch) const {
  if (record.paused.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the last loop over steps has ended in the middle of epoch ",
        *record.paused, ", and Steps was asked for epoch ", epoch,
        ", so the samples in between would be lost: take epochs from "
        "session.Epochs of the same loader"));
  }
  // In the body of a loop over epochs, a trainer may leave epochs out.
  const bool is_in_body =
      std::any_of(records_.begin(), records_.end(),
                  [](const auto& each) { return each.second.in_body; });
  const int64_t next = FirstEpoch(loader);
  const int64_t most = loader.options().max_steps;
  const bool is_at_end = most > 0 && loader.progress().steps_in_total >= most;
  if (is_in_body || is_at_end || epoch <= next) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "Steps was asked for epoch ", epoch, " of ", Describe(loader),
      ", whose next epoch is ", next,
      ": take epochs from session.Epochs of the same loader; to train for a "
      "number of steps, set StepsOptions::max_steps; to leave epochs out, call "
      "the loader's StartEpoch before"));
}

void LoaderTable::MarkOthersDone(const Loader& loader) {
  for (auto& [other, record] : records_) {
    if (other == &loader || record.in_body) continue;
    if (Holds(record, *other, record.over)) record.done = record.over;
  }
}

bool LoaderTable::WasLeft(const Loader& loader, int64_t epoch) const {
  const Record* const record = Find(loader);
  return record != nullptr && record->restored.has_value() &&
         record->left == epoch;
}

void LoaderTable::BeginSteps(const Loader& loader, int64_t epoch) {
  Record* const record = Find(loader);
  if (record == nullptr) return;
  record->trains = true;
  record->restored.reset();
  record->begun = epoch;
  record->over.reset();
  record->left.reset();
  record->paused.reset();
  record->done.reset();
}

void LoaderTable::CountStep(const Loader& loader) {
  Record* const record = Find(loader);
  if (record != nullptr) record->steps = record->steps.value_or(0) + 1;
}

int64_t LoaderTable::StepsOf(const Loader& loader) const {
  const Record* const record = Find(loader);
  if (record == nullptr) return loader.progress().steps_in_total;
  return record->steps.value_or(0);
}

void LoaderTable::EndSteps(const Loader& loader, bool is_over, bool left_step) {
  Record* const record = Find(loader);
  if (record == nullptr) return;
  See(*record, loader);
  // A loader with advance_epochs goes through several epochs.
  record->begun = std::max(*record->begun, record->seen.epoch);
  if (is_over || left_step) record->over = record->seen.epoch;
  if (left_step) record->left = record->seen.epoch;
}

void LoaderTable::MarkPaused(const Loader& loader) {
  Record* const record = Find(loader);
  if (record != nullptr) record->paused = record->seen.epoch;
}

void LoaderTable::MarkHooked(const Loader& loader) {
  Record* const record = Find(loader);
  if (record != nullptr) record->hooked = record->over;
}

bool LoaderTable::IsHooked(const Loader& loader) const {
  const Record* const record = Find(loader);
  return record != nullptr && Holds(*record, loader, record->hooked);
}

// ---- Evaluations.

absl::Status LoaderTable::CheckEvaluate(const Loader& loader) const {
  const Record* const record = Find(loader);
  if (record == nullptr || (!record->trains && !IsMoved(*record, loader))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "an evaluation would destroy the place of ", Describe(loader), ", which ",
      record->trains ? "is read for the training" : "the trainer itself reads",
      ": evaluate another loader, from a table [loader.NAME] of its own, which "
      "may have the same dataset"));
}

void LoaderTable::EndEvaluation(const Loader& loader) {
  Record* const record = Find(loader);
  if (record != nullptr) See(*record, loader);
}

}  // namespace lockstep::internal_session
