#include "lockstep/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/best_value.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_store.h"
#include "lockstep/checkpoint/checkpoint_text.h"
#include "lockstep/checkpoint/saved_sections.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/checkpoint/section_sink.h"
#include "lockstep/checkpoint/share.h"
#include "lockstep/checkpoint/warm_start.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

using internal_checkpoint::BestValues;
using internal_checkpoint::BytesOf;
using internal_checkpoint::CallFor;
using internal_checkpoint::InOperation;
using internal_checkpoint::IsTaken;
using internal_checkpoint::kBest;
using internal_checkpoint::kJob;
using internal_checkpoint::kNoted;
using internal_checkpoint::kPiece;
using internal_checkpoint::kSectionVersion;
using internal_checkpoint::kStep;
using internal_checkpoint::MemoryOf;
using internal_checkpoint::NameOf;
using internal_checkpoint::SectionSink;
using internal_checkpoint::ShareStatus;
using internal_checkpoint::TextOf;

constexpr int64_t kLargeCopy = int64_t{1} << 24;  // larger ones are logged

}  // namespace

// ---- Sections.

Checkpoint::Checkpoint(Communicator& group, const CheckpointOptions& options,
                       std::function<void(absl::string_view)> log)
    : group_(group),
      options_(options),
      log_(std::move(log)),
      sink_(std::make_unique<SectionSink>()) {}

Checkpoint::~Checkpoint() {
  if (!forked()) {
    WaitHere().IgnoreError();
    return;
  }
  KeepForEver(std::make_shared<std::thread>(std::move(thread_)));
  KeepForEver(std::move(store_));
  KeepForEver(std::move(sink_));
}

absl::Status Checkpoint::CheckName(absl::string_view name) {
  return CheckCheckpointName(name);
}

absl::Status Checkpoint::NotInAFork() {
  return absl::FailedPreconditionError(
      "a checkpoint is saved by a rank, and not by a process that was forked "
      "from it");
}

void Checkpoint::Log(absl::string_view text) const {
  if (log_ && group_.rank() == 0) log_(text);
}

absl::Status Checkpoint::CheckAdd(absl::string_view name) const {
  const std::string shown = absl::CHexEscape(name.substr(0, 64));
  if (has_restored_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the section '", shown,
        "' comes after Restore, which fills all sections: add it before"));
  }
  for (const internal_checkpoint::WarmStartRequest& request : warm_starts_) {
    if (!IsTaken(request, name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the section '", shown,
        "' comes after RestoreFrom, which takes it: add it before"));
  }
  return sections_.CheckName(name);
}

absl::Status Checkpoint::AddSection(absl::string_view name, Section section) {
  LOCKSTEP_RETURN_IF_ERROR(CheckAdd(name));
  return sections_.Add(name, std::move(section));
}

absl::Status Checkpoint::AddFound(absl::string_view name,
                                  std::function<Buffer()> find, bool is_part) {
  if (find().device.kind != Device::Kind::kHost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memory of section '", absl::CHexEscape(name),
        "' is on a device: give a CheckpointMemory, which copies it"));
  }
  Section section;
  section.memory = MemoryOf(find);
  section.find = std::move(find);
  section.is_part = is_part;
  return AddSection(name, std::move(section));
}

absl::Status Checkpoint::Add(absl::string_view name, Buffer values) {
  return AddFound(
      name, [values] { return values; }, /*is_part=*/false);
}

absl::Status Checkpoint::AddPart(absl::string_view name, Buffer part) {
  return AddFound(
      name, [part] { return part; }, /*is_part=*/true);
}

absl::Status Checkpoint::Add(absl::string_view name, CheckpointMemory values) {
  Section section;
  section.memory = std::move(values);
  return AddSection(name, std::move(section));
}

absl::Status Checkpoint::Add(absl::string_view name, CheckpointState state) {
  if (!state.save || !state.load) {
    return absl::InvalidArgumentError(
        absl::StrCat("the section '", absl::CHexEscape(name),
                     "' needs both functions, save and load"));
  }
  Section section;
  section.state = std::move(state);
  return AddSection(name, std::move(section));
}

// Returns the facts that ranks compare. The options decide which collectives
// follow.
Fingerprint Checkpoint::Layout() const {
  Fingerprint layout;
  layout.Add("path", options_.path.empty() ? "unset" : "set");
  layout.Add("every_steps", absl::StrCat(options_.every_steps));
  layout.Add("background", options_.background ? "true" : "false");
  sections_.Describe(layout);
  return layout;
}

// ---- Saving.

// Allocates the memory of the copy now, so that no step has to wait for it.
absl::Status Checkpoint::ReserveCopy() {
  if (!options_.background) return absl::OkStatus();
  int64_t bytes = 0;
  for (const Section& section : sections_) {
    if (!section.is_state()) bytes += section.all_bytes();
  }
  LOCKSTEP_RETURN_IF_ERROR(CatchAll(
      "the copy of a checkpoint, which background = false does without,", [&] {
        // The copy also contains the step, the job, and short states.
        const auto job = static_cast<int64_t>(TextOf(job_).size());
        sink_->Reserve(sections_.size() + 3, bytes + job + kPiece);
        return absl::OkStatus();
      }));
  if (bytes >= kLargeCopy) {
    Log(
        absl::StrCat("checkpoints are copied before they are written, which "
                     "takes ",
                     bytes,
                     " bytes of memory on rank 0; background = false does "
                     "without"));
  }
  return absl::OkStatus();
}

// Returns an error if nothing can be saved now.
absl::Status Checkpoint::CheckSave() const {
  if (!has_restored_) {
    return absl::FailedPreconditionError(
        "a checkpoint is restored before it is saved: call Restore first, "
        "which finds out whether there is one");
  }
  return forked() ? NotInAFork() : absl::OkStatus();
}

absl::Status Checkpoint::Save(int64_t step) {
  return SaveTo(step, {CheckpointTarget()});
}

absl::Status Checkpoint::SaveAs(absl::string_view name, int64_t step) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(name));
  return SaveTo(step, {{std::string(name), std::nullopt}});
}

absl::StatusOr<bool> Checkpoint::SaveIfBest(absl::string_view name,
                                            int64_t step, double value,
                                            Best best) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool is_best, NoteValue(name, value, best));
  LOCKSTEP_RETURN_IF_ERROR(
      SaveTo(step, {{std::string(name), BestValue{value, best}}}));
  return is_best;
}

// Returns an error if a value can't be compared with those of this name.
absl::Status Checkpoint::CheckValue(absl::string_view name,
                                    const BestValue& value) const {
  if (std::isnan(value.value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of SaveIfBest(", name,
                     ") is NaN, which can't be compared: check the value "
                     "first. A mean is NaN "
                     "if nothing was added under its name, or no weight"));
  }
  for (const BestValues* const values : {&best_, &noted_}) {
    const auto before = values->find(name);
    if (before == values->end() || before->second.best == value.best) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "SaveIfBest(", name, ") asks for the ", NameOf(value.best),
        " value, and until now, the best value of that name is the ",
        NameOf(before->second.best), " one, ", before->second.value,
        ": take another name, or call SaveAs with this name first, which "
        "forgets the value"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Checkpoint::NoteValue(absl::string_view name, double value,
                                           Best best) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSave());
  LOCKSTEP_RETURN_IF_ERROR(CheckName(name));
  Fingerprint same;
  same.Add("name", name);
  // 17 digits tell all numbers apart. The sum makes one zero of both.
  same.Add("value", absl::StrFormat("%.17g", value + 0.0));
  same.Add("best", NameOf(best));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame(
      group_, absl::StrCat("the value of SaveIfBest(", name, ")"), same));
  LOCKSTEP_RETURN_IF_ERROR(CheckValue(name, {value, best}));
  const auto [noted, is_first] =
      noted_.try_emplace(std::string(name), BestValue{value, best});
  const bool is_best = is_first || IsBetter({value, best}, noted->second);
  if (is_best) noted->second.value = value;
  return is_best;
}

bool Checkpoint::WouldSave(const CheckpointTarget& target) const {
  if (!target.best.has_value()) return true;
  const auto before = best_.find(target.name);
  return before == best_.end() || IsBetter(*target.best, before->second);
}

absl::Status Checkpoint::SaveTo(int64_t step,
                                absl::Span<const CheckpointTarget> targets) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSave());
  std::vector<CheckpointTarget> saved;
  for (const CheckpointTarget& target : targets) {
    if (!target.name.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckName(target.name));
    } else if (step < last_step_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a checkpoint after step ", step,
          " is before the last one, which was after step ", last_step_));
    }
    if (target.best.has_value()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckValue(target.name, *target.best));
    }
    if (WouldSave(target)) saved.push_back(target);
  }
  if (!options_.path.empty() && !saved.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        CatchAll("saving", [&] { return SaveAll(step, saved); }));
  }
  for (const CheckpointTarget& target : saved) {
    if (target.name.empty()) {
      if (step > last_step_) RemoveMark();
      last_step_ = step;
    } else if (target.best.has_value()) {
      best_[target.name] = *target.best;
    } else {
      best_.erase(target.name);
      noted_.erase(target.name);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::SaveAll(int64_t step,
                                 absl::Span<const CheckpointTarget> targets) {
  const bool is_rank_0 = group_.rank() == 0;
  // Ranks compare the names of operations, and so the step and the targets.
  std::string name = absl::StrCat("checkpoint save ", step);
  for (const CheckpointTarget& target : targets) {
    if (!target.name.empty()) absl::StrAppend(&name, ", ", target.name);
  }
  if (options_.background) {
    LOCKSTEP_RETURN_IF_ERROR(SaveSections(step, name, targets));
    if (!is_rank_0) return absl::OkStatus();
    auto thread = internal_base::StartQuietThread(
        "lockstep-save",
        [this, step,
         all = std::vector<CheckpointTarget>(targets.begin(), targets.end())] {
          Write(step, all);
        });
    if (thread.ok()) {
      thread_ = *std::move(thread);
    } else {
      Write(step, targets);  // the system refuses a thread
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(SaveSections(step, name, targets.subspan(i, 1)));
    absl::Status own;
    if (is_rank_0) own = store_->Finish(*sink_->writer());
    LOCKSTEP_RETURN_IF_ERROR(ShareStatus(group_, "checkpoint write", own));
    LogTrouble();
  }
  return absl::OkStatus();
}

// Saves the sections of all ranks to a copy for the targets or, if there is no
// copy, to the file of the only target. Returns an error of rank 0 on all
// ranks.
absl::Status Checkpoint::SaveSections(
    int64_t step, const std::string& name,
    absl::Span<const CheckpointTarget> targets) {
  const bool is_rank_0 = group_.rank() == 0;
  absl::Status own;
  if (is_rank_0) {
    own = CatchAll("saving", [&] { return SaveOwn(step, targets); });
  }
  // If rank 0 has failed, the other ranks must not send their parts.
  LOCKSTEP_RETURN_IF_ERROR(ShareStatus(group_, name, own));
  bool has_parts = false;
  for (const Section& section : sections_) {
    if (!section.is_part) continue;
    has_parts = true;
    LOCKSTEP_RETURN_IF_ERROR(is_rank_0 ? ReceiveParts(section, step, own)
                                       : SendPart(section, step));
  }
  return has_parts ? ShareStatus(group_, name, own) : absl::OkStatus();
}

// Opens the file of a target, with the section that only this file has.
absl::StatusOr<std::unique_ptr<CheckpointWriter>> Checkpoint::Create(
    int64_t step, const CheckpointTarget& target) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto writer, target.name.empty() ? store_->Create(step)
                                       : store_->CreateNamed(target.name));
  if (target.best.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Begin(kBest, kSectionVersion));
    LOCKSTEP_RETURN_IF_ERROR(writer->Append(BytesOf(*target.best)));
  }
  if (target.name.empty() && !noted_text_.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Begin(kNoted, kSectionVersion));
    LOCKSTEP_RETURN_IF_ERROR(writer->Append(noted_text_));
  }
  return writer;
}

// Saves everything that rank 0 has itself.
absl::Status Checkpoint::SaveOwn(int64_t step,
                                 absl::Span<const CheckpointTarget> targets) {
  LOCKSTEP_RETURN_IF_ERROR(WaitHere());
  noted_text_ = TextOf(noted_);
  for (const CheckpointTarget& target : targets) {
    if (target.name.empty()) continue;
    LOCKSTEP_RETURN_IF_ERROR(store_->CheckNamed(target.name));
  }
  sink_->Start(nullptr);  // discards a file that was not finished
  if (!options_.background) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto writer, Create(step, targets[0]));
    sink_->Start(std::move(writer));
  }
  LOCKSTEP_RETURN_IF_ERROR(sink_->Begin(kStep));
  LOCKSTEP_RETURN_IF_ERROR(sink_->Put(
      absl::string_view(reinterpret_cast<const char*>(&step), sizeof(step))));
  LOCKSTEP_RETURN_IF_ERROR(sink_->Begin(kJob));
  LOCKSTEP_RETURN_IF_ERROR(sink_->Put(TextOf(job_)));
  for (const Section& section : sections_) {
    if (section.is_part) continue;
    const absl::Status saved = SaveSection(section);
    if (!saved.ok()) {
      return Annotate(saved,
                      absl::StrCat("section '", section.name,
                                   "' of a checkpoint after step ", step));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::SaveSection(const Section& section) {
  if (section.is_state()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                              section.state.save());
    if (!bytes.has_value()) {
      if (section.state.may_be_missing) return absl::OkStatus();
      return absl::FailedPreconditionError(
          "its save returned no bytes, which may_be_missing would allow");
    }
    LOCKSTEP_RETURN_IF_ERROR(sink_->Begin(section.name));
    return sink_->Put(*bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(
      sink_->Begin(section.name, section.memory.dtype,
                   section.find ? section.find().data : nullptr));
  const int64_t own = section.bytes();
  for (int64_t at = 0; at < own;) {
    const absl::Span<char> room = sink_->Room(own - at);
    LOCKSTEP_RETURN_IF_ERROR(section.memory.read(at, room));
    LOCKSTEP_RETURN_IF_ERROR(sink_->Take(static_cast<int64_t>(room.size())));
    at += static_cast<int64_t>(room.size());
  }
  return absl::OkStatus();
}

// The operation's name contains the step, so that ranks compare the step, too.
// Returns an error of the group. After an error of its own, which it adds to
// `own`, rank 0 goes on receiving, because the others go on sending.
absl::Status Checkpoint::ReceiveParts(const Section& section, int64_t step,
                                      absl::Status& own) {
  const DType dtype = section.memory.dtype;
  if (own.ok()) own = SaveSection(section);  // the part of rank 0
  const CallOptions options = CallFor(
      InOperation(absl::StrCat("saving step ", step, ":"), section.name));
  std::vector<char> unused;
  for (int rank = 1; rank < group_.size(); ++rank) {
    const int64_t all = section.counts[rank] * SizeOf(dtype);
    for (int64_t at = 0; at < all; at += kPiece) {
      const int64_t size = std::min(kPiece, all - at);
      unused.resize(own.ok() ? 0 : size);
      const absl::Span<char> room =
          own.ok() ? sink_->Room(size) : absl::MakeSpan(unused);
      LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(
          group_.Recv(BufferOf(reinterpret_cast<uint8_t*>(room.data()), size),
                      rank, options)));
      if (own.ok()) own = sink_->Take(size);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::SendPart(const Section& section, int64_t step) {
  const CallOptions options = CallFor(
      InOperation(absl::StrCat("saving step ", step, ":"), section.name));
  const int64_t all = section.bytes();
  std::vector<char> piece(std::min(kPiece, all));
  for (int64_t at = 0; at < all; at += kPiece) {
    const auto bytes = absl::MakeSpan(piece.data(), std::min(kPiece, all - at));
    LOCKSTEP_RETURN_IF_ERROR(section.memory.read(at, bytes));
    LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(
        group_.Send(ConstBufferOf(reinterpret_cast<uint8_t*>(bytes.data()),
                                  static_cast<int64_t>(bytes.size())),
                    /*to=*/0, options)));
  }
  return absl::OkStatus();
}

// Runs on its own thread. The sink and the store belong to that thread until
// WaitHere has joined it.
void Checkpoint::Write(int64_t step,
                       absl::Span<const CheckpointTarget> targets) {
  absl::Status written = CatchAll("saving", [&]() -> absl::Status {
    for (const CheckpointTarget& target : targets) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                                Create(step, target));
      LOCKSTEP_RETURN_IF_ERROR(sink_->WriteTo(*writer));
      LOCKSTEP_RETURN_IF_ERROR(store_->Finish(*writer));
    }
    return absl::OkStatus();
  });
  MutexLock lock(mutex_);
  written_ = std::move(written);
}

absl::Status Checkpoint::WaitHere() {
  if (forked()) return NotInAFork();
  if (thread_.joinable()) thread_.join();
  LogTrouble();
  return status();
}

// Logs what the store could not do, while no thread uses the store.
void Checkpoint::LogTrouble() {
  if (store_ == nullptr) return;
  const std::string trouble = store_->TakeTrouble();
  if (!trouble.empty()) Log(trouble);
}

absl::Status Checkpoint::Wait() {
  if (options_.path.empty()) return absl::OkStatus();
  return ShareStatus(group_, "checkpoint wait", WaitHere());
}

absl::Status Checkpoint::status() {
  if (forked()) return absl::OkStatus();
  MutexLock lock(mutex_);
  return written_;
}

}  // namespace lockstep
