#include "lockstep/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_store.h"
#include "lockstep/checkpoint/checkpoint_text.h"
#include "lockstep/checkpoint/section_sink.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/rendezvous/quiet_thread.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

using internal_checkpoint::Differences;
using internal_checkpoint::InALine;
using internal_checkpoint::kPiece;
using internal_checkpoint::kVersion;
using internal_checkpoint::SectionSink;
using internal_checkpoint::SectionsOf;
using internal_checkpoint::TextOf;

constexpr char kStep[] = "step";
constexpr char kJob[] = "job";
constexpr size_t kMostDifferences = 5;
constexpr int64_t kLargeCopy = int64_t{1} << 24;  // larger ones are logged
constexpr char kAnew[] =
    "; to begin anew instead, give the job another path for checkpoints";

// The maximum number of bytes of a section's name in the name of an operation.
constexpr size_t kMostInOperation = 100;

std::string InOperation(absl::string_view what, absl::string_view section) {
  return absl::StrCat(what, " ", section.substr(0, kMostInOperation));
}

int64_t BytesOf(const CheckpointMemory& memory) {
  return memory.count * SizeOf(memory.dtype);
}

// Returns a text such as "100 elements of f32" or "100 bytes".
std::string SizeInWords(int64_t bytes, std::optional<DType> dtype) {
  if (!dtype.has_value()) return absl::StrCat(bytes, " bytes");
  return absl::StrCat(bytes / SizeOf(*dtype), " elements of ", Name(*dtype));
}

absl::Status NotInAFork() {
  return absl::FailedPreconditionError(
      "a checkpoint is saved by a rank, and not by a process that was forked "
      "from it");
}

CheckpointMemory MemoryOf(const Buffer& buffer) {
  char* const data = static_cast<char*>(buffer.data);
  CheckpointMemory memory;
  memory.dtype = buffer.dtype;
  memory.count = buffer.count;
  memory.read = [data](int64_t offset, absl::Span<char> to) {
    std::memcpy(to.data(), data + offset, to.size());
    return absl::OkStatus();
  };
  memory.write = [data](int64_t offset, absl::string_view from) {
    std::memcpy(data + offset, from.data(), from.size());
    return absl::OkStatus();
  };
  return memory;
}

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

void Checkpoint::Log(absl::string_view text) const {
  if (log_ && group_.rank() == 0) log_(text);
}

int64_t Checkpoint::Section::all_bytes() const {
  if (!is_part) return BytesOf(memory);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}) *
         SizeOf(memory.dtype);
}

const Checkpoint::Section* Checkpoint::Find(absl::string_view name) const {
  const auto found =
      std::find_if(sections_.begin(), sections_.end(),
                   [name](const Section& each) { return each.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

absl::Status Checkpoint::AddSection(absl::string_view name, Section section) {
  const std::string shown = absl::CHexEscape(name.substr(0, 64));
  if (has_restored_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the section '", shown,
        "' comes after Restore, which fills all sections: add it before"));
  }
  if (name.empty() || static_cast<int64_t>(name.size()) > kMostSectionName) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of a section has ", name.size(), " bytes; accepted are 1 to ",
        kMostSectionName, ": '", shown, "'"));
  }
  if (name == kStep || name == kJob || Find(name) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("the checkpoint has a section '", shown,
                     "' already: each needs a name "
                     "of its own, and 'step' and 'job' are taken"));
  }
  section.name = std::string(name);
  sections_.push_back(std::move(section));
  return absl::OkStatus();
}

absl::Status Checkpoint::Add(absl::string_view name, CheckpointMemory values) {
  if (values.count < 0 || SizeOf(values.dtype) == 0 || !values.read ||
      !values.write) {
    return absl::InvalidArgumentError(
        absl::StrCat("the section '", absl::CHexEscape(name), "' has ",
                     values.count, " elements of ", Name(values.dtype),
                     "; accepted are 0 or more of a known type, with both "
                     "functions set"));
  }
  Section section;
  section.memory = std::move(values);
  return AddSection(name, std::move(section));
}

absl::Status Checkpoint::Add(absl::string_view name, Buffer values) {
  if (values.device.kind != Device::Kind::kHost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memory of section '", absl::CHexEscape(name),
        "' is on a device: give a CheckpointMemory, which copies it"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Add(name, MemoryOf(values)));
  sections_.back().data = values.data;
  return absl::OkStatus();
}

absl::Status Checkpoint::AddPart(absl::string_view name, Buffer part) {
  LOCKSTEP_RETURN_IF_ERROR(Add(name, part));
  sections_.back().is_part = true;
  return absl::OkStatus();
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

// Returns the facts that ranks compare.
Fingerprint Checkpoint::Layout() const {
  Fingerprint layout;
  layout.Add("path", options_.path.empty() ? "unset" : "set");
  layout.Add("every_steps", absl::StrCat(options_.every_steps));
  layout.Add("background", options_.background ? "true" : "false");
  for (const Section& section : sections_) {
    layout.Add(section.name,
               section.is_state()
                   ? "bytes"
                   : absl::StrCat(
                         section.is_part
                             ? "a part"
                             : absl::StrCat(section.memory.count, " elements"),
                         " of ", Name(section.memory.dtype)));
  }
  return layout;
}

// Gets the sizes of all ranks' parts.
absl::Status Checkpoint::DealParts() {
  for (Section& section : sections_) {
    if (!section.is_part) continue;
    section.counts.assign(group_.size(), 0);
    CallOptions options;
    options.name = InOperation("the parts of", section.name);
    LOCKSTEP_RETURN_IF_ERROR(
        lockstep::Wait(group_.AllGather(ConstBufferOf(&section.memory.count, 1),
                                        BufferOf(section.counts), options)));
  }
  return absl::OkStatus();
}

// ---- Restoring.

absl::StatusOr<std::optional<int64_t>> Checkpoint::Restore() {
  if (has_restored_) {
    return absl::FailedPreconditionError(
        "a checkpoint is restored once, and has been: make another one");
  }
  absl::StatusOr<std::optional<int64_t>> restored =
      CatchAll("restoring", [&] { return RestoreAll(); });
  has_restored_ = restored.ok();
  if (!restored.ok()) store_ = nullptr;  // so that the path is free again
  return restored;
}

absl::Status Checkpoint::OpenStore(std::unique_ptr<CheckpointReader>& newest) {
  if (options_.every_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("every_steps of checkpoints should be 0 or more, but is ",
                     options_.every_steps));
  }
  CheckpointStoreOptions options;
  options.path = options_.path;
  options.keep = options_.keep;
  options.log = log_;
  LOCKSTEP_ASSIGN_OR_RETURN(store_, CheckpointStore::Open(options));
  LOCKSTEP_ASSIGN_OR_RETURN(newest, store_->OpenNewest());
  return ReserveCopy();
}

// Opens the newest checkpoint on rank 0. Returns its path and its sections as a
// text on all ranks, or "" if there is none.
absl::StatusOr<std::string> Checkpoint::OpenNewest(
    std::unique_ptr<CheckpointReader>& newest) {
  absl::Status opened;
  if (group_.rank() == 0) {
    opened =
        CatchAll("opening a checkpoint", [&] { return OpenStore(newest); });
  }
  LOCKSTEP_RETURN_IF_ERROR(ShareStatus("checkpoint open", opened));
  std::string contents;
  if (newest != nullptr) {
    contents =
        absl::StrCat(InALine(newest->path()), "\n", TextOf(newest->sections()));
  }
  return ShareText("checkpoint list", contents);
}

absl::StatusOr<std::optional<int64_t>> Checkpoint::RestoreAll() {
  // Ranks also compare the options, since these decide which collectives
  // follow.
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSame(group_, "the sections of the checkpoint", Layout()));
  if (options_.path.empty()) return std::nullopt;
  LOCKSTEP_RETURN_IF_ERROR(DealParts());
  std::unique_ptr<CheckpointReader> reader;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string contents, OpenNewest(reader));
  if (contents.empty()) {
    Log(absl::StrCat("there is no checkpoint at ", options_.path,
                     " yet: the job begins"));
    return std::nullopt;
  }
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(contents, absl::MaxSplits('\n', 1));
  restored_from_ = parts.first;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<CheckpointSection> sections,
                            SectionsOf(parts.second));
  int64_t step = -1;
  for (const CheckpointSection& saved : sections) {
    if (saved.name != kStep && saved.name != kJob) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                              ReadBytes(reader.get(), saved));
    if (saved.name == kJob) {
      differences_ = Differences(bytes, TextOf(job_));
    } else if (saved.version == kVersion && bytes.size() == sizeof(step)) {
      std::memcpy(&step, bytes.data(), sizeof(step));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSections(sections));
  if (step < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(restored_from_,
                     " has no section 'step' as Checkpoint::Save writes "
                     "it: another program has written it"));
  }
  for (const CheckpointSection& saved : sections) {
    const Section* const section = Find(saved.name);
    if (section == nullptr) continue;
    const absl::Status loaded = Load(reader.get(), saved, *section);
    if (!loaded.ok()) {
      return absl::Status(loaded.code(), absl::StrCat(Shown(saved.name), ": ",
                                                      loaded.message(), kAnew));
    }
  }
  last_step_ = step;
  Log(absl::StrCat("goes on from ", restored_from_, ", after step ", step));
  for (const std::string& difference : differences_) {
    Log(absl::StrCat("the job's text is another one: ", difference));
  }
  return step;
}

// Describes a section, with the changed settings of the job.
std::string Checkpoint::Shown(absl::string_view name) const {
  std::string text = absl::StrCat("section '", absl::CHexEscape(name),
                                  "' of the checkpoint ", restored_from_);
  if (differences_.empty()) return text;
  const size_t shown = std::min(differences_.size(), kMostDifferences);
  absl::StrAppend(
      &text, ", whose job was another one (",
      absl::StrJoin(differences_.begin(), differences_.begin() + shown, "; "),
      shown < differences_.size() ? "; ..." : "", ")");
  return text;
}

absl::Status Checkpoint::CheckSections(
    absl::Span<const CheckpointSection> sections) const {
  for (const CheckpointSection& saved : sections) {
    LOCKSTEP_RETURN_IF_ERROR(CheckSection(saved));
  }
  for (const Section& section : sections_) {
    if (section.state.may_be_missing ||
        std::any_of(sections.begin(), sections.end(),
                    [&](const CheckpointSection& saved) {
                      return saved.name == section.name;
                    })) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(Shown(section.name),
                     " is missing: what saved it did not add it", kAnew));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckSection(const CheckpointSection& saved) const {
  if (saved.version > kVersion) {
    return absl::UnimplementedError(absl::StrCat(
        Shown(saved.name), " has version ", saved.version,
        ", and this release reads ", kVersion, ": take a newer one"));
  }
  if (saved.name == kStep || saved.name == kJob) return absl::OkStatus();
  const Section* const section = Find(saved.name);
  if (section == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        Shown(saved.name),
        " is not one of this program's: add it before Restore", kAnew));
  }
  std::optional<DType> dtype;
  if (!section->is_state()) dtype = section->memory.dtype;
  const int64_t bytes =
      section->is_state() ? saved.bytes : section->all_bytes();
  if (saved.dtype == dtype && saved.bytes == bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Shown(saved.name), " has ", SizeInWords(saved.bytes, saved.dtype),
      ", and this program's has ",
      section->is_state() ? "bytes of no type" : SizeInWords(bytes, dtype),
      section->is_part ? " in all ranks' parts" : "", kAnew));
}

absl::Status Checkpoint::Share(absl::string_view what, absl::Span<char> bytes) {
  CallOptions options;
  options.name = std::string(what);
  // Rank 0 may wait for its disk for any time, so there is no deadline. A loss
  // of rank 0 is detected by other means, and on_slow reports a slow operation.
  options.deadline = absl::InfiniteDuration();
  const Buffer buffer = BufferOf(reinterpret_cast<uint8_t*>(bytes.data()),
                                 static_cast<int64_t>(bytes.size()));
  return lockstep::Wait(group_.Broadcast(buffer, buffer, /*root=*/0, options));
}

absl::StatusOr<std::string> Checkpoint::ShareText(absl::string_view what,
                                                  const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  LOCKSTEP_RETURN_IF_ERROR(Share(
      what, absl::MakeSpan(reinterpret_cast<char*>(&size), sizeof(size))));
  std::string shared = text;
  shared.resize(size);
  for (int64_t at = 0; at < size; at += kPiece) {
    LOCKSTEP_RETURN_IF_ERROR(
        Share(what, absl::MakeSpan(&shared[at], std::min(kPiece, size - at))));
  }
  return shared;
}

// Returns rank 0's status on all ranks.
absl::Status Checkpoint::ShareStatus(absl::string_view what,
                                     const absl::Status& status) {
  std::string text;
  if (!status.ok()) {
    text =
        absl::StrCat(static_cast<int>(status.code()), "\n", status.message());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(text, ShareText(what, text));
  if (text.empty() || group_.rank() == 0) return status;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code)) code = 0;
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

absl::Status Checkpoint::ReadPieces(
    const CheckpointReader* reader, const CheckpointSection& saved,
    const std::function<absl::Status(int64_t offset, absl::string_view)>&
        take) {
  std::vector<char> piece(std::min(kPiece, saved.bytes));
  for (int64_t at = 0; at < saved.bytes;) {
    const auto bytes =
        absl::MakeSpan(piece.data(), std::min(kPiece, saved.bytes - at));
    if (reader != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(reader->Read(saved, at, bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Share(InOperation("restoring", saved.name), bytes));
    LOCKSTEP_RETURN_IF_ERROR(
        take(at, absl::string_view(bytes.data(), bytes.size())));
    at += static_cast<int64_t>(bytes.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Checkpoint::ReadBytes(
    const CheckpointReader* reader, const CheckpointSection& saved) {
  std::string all;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadPieces(reader, saved, [&](int64_t, absl::string_view bytes) {
        absl::StrAppend(&all, bytes);
        return absl::OkStatus();
      }));
  return all;
}

absl::Status Checkpoint::Load(const CheckpointReader* reader,
                              const CheckpointSection& saved,
                              const Section& section) {
  if (section.is_state()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                              ReadBytes(reader, saved));
    return section.state.load(bytes);
  }
  // This rank's part is [begin, end) of the section's bytes.
  int64_t begin = 0;
  if (section.is_part) {
    begin =
        std::accumulate(section.counts.begin(),
                        section.counts.begin() + group_.rank(), int64_t{0}) *
        SizeOf(section.memory.dtype);
  }
  const int64_t end = begin + BytesOf(section.memory);
  return ReadPieces(
      reader, saved,
      [&](int64_t offset, absl::string_view bytes) -> absl::Status {
        const auto size = static_cast<int64_t>(bytes.size());
        const int64_t first = std::max(begin, offset);
        const int64_t last = std::min(end, offset + size);
        if (first >= last) return absl::OkStatus();
        return section.memory.write(first - begin,
                                    bytes.substr(first - offset, last - first));
      });
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
        sink_->Reserve(static_cast<int64_t>(sections_.size()) + 2,
                       bytes + job + kPiece);
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

absl::Status Checkpoint::Save(int64_t step) {
  if (!has_restored_) {
    return absl::FailedPreconditionError(
        "a checkpoint is restored before it is saved: call Restore first, "
        "which finds out whether there is one");
  }
  if (options_.path.empty()) return absl::OkStatus();
  if (forked()) return NotInAFork();
  if (step < last_step_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a checkpoint after step ", step,
        " is before the last one, which was after step ", last_step_));
  }
  absl::Status saved = CatchAll("saving", [&] { return SaveAll(step); });
  if (saved.ok()) last_step_ = step;
  return saved;
}

absl::Status Checkpoint::SaveAll(int64_t step) {
  const bool is_rank_0 = group_.rank() == 0;
  absl::Status own;
  if (is_rank_0) own = CatchAll("saving", [&] { return SaveOwn(step); });
  // If rank 0 has failed, the other ranks must not send their parts.
  LOCKSTEP_RETURN_IF_ERROR(ShareStatus("checkpoint save", own));
  for (const Section& section : sections_) {
    if (!section.is_part) continue;
    LOCKSTEP_RETURN_IF_ERROR(is_rank_0 ? ReceiveParts(section, step)
                                       : SendPart(section, step));
  }
  if (!options_.background) {
    if (is_rank_0) own = store_->Finish(*sink_->writer());
    return ShareStatus("checkpoint write", own);
  }
  if (!is_rank_0) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      thread_, internal_collective::StartQuietThread(
                   "lockstep-save", [this, step] { Write(step); }));
  return absl::OkStatus();
}

// Saves everything that rank 0 has itself.
absl::Status Checkpoint::SaveOwn(int64_t step) {
  LOCKSTEP_RETURN_IF_ERROR(WaitHere());
  sink_->Start(nullptr);  // discards a file that was not finished
  if (!options_.background) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto writer, store_->Create(step));
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
      return absl::Status(saved.code(),
                          absl::StrCat("section '", section.name,
                                       "' of a checkpoint after step ", step,
                                       ": ", saved.message()));
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
      sink_->Begin(section.name, section.memory.dtype, section.data));
  const int64_t own = BytesOf(section.memory);
  for (int64_t at = 0; at < own;) {
    const absl::Span<char> room = sink_->Room(own - at);
    LOCKSTEP_RETURN_IF_ERROR(section.memory.read(at, room));
    LOCKSTEP_RETURN_IF_ERROR(sink_->Take(static_cast<int64_t>(room.size())));
    at += static_cast<int64_t>(room.size());
  }
  return absl::OkStatus();
}

// The operation's name contains the step, so that ranks compare the step, too.
absl::Status Checkpoint::ReceiveParts(const Section& section, int64_t step) {
  const DType dtype = section.memory.dtype;
  LOCKSTEP_RETURN_IF_ERROR(SaveSection(section));  // the part of rank 0
  CallOptions options;
  options.name =
      InOperation(absl::StrCat("saving step ", step, ":"), section.name);
  for (int rank = 1; rank < group_.size(); ++rank) {
    const int64_t all = section.counts[rank] * SizeOf(dtype);
    for (int64_t at = 0; at < all; at += kPiece) {
      const absl::Span<char> room = sink_->Room(std::min(kPiece, all - at));
      LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(
          group_.Recv(BufferOf(reinterpret_cast<uint8_t*>(room.data()),
                               static_cast<int64_t>(room.size())),
                      rank, options)));
      LOCKSTEP_RETURN_IF_ERROR(sink_->Take(static_cast<int64_t>(room.size())));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::SendPart(const Section& section, int64_t step) {
  CallOptions options;
  options.name =
      InOperation(absl::StrCat("saving step ", step, ":"), section.name);
  const int64_t all = BytesOf(section.memory);
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
void Checkpoint::Write(int64_t step) {
  absl::Status written = CatchAll("saving", [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                              store_->Create(step));
    LOCKSTEP_RETURN_IF_ERROR(sink_->WriteTo(*writer));
    return store_->Finish(*writer);
  });
  MutexLock lock(mutex_);
  written_ = std::move(written);
}

absl::Status Checkpoint::WaitHere() {
  if (forked()) return NotInAFork();
  if (thread_.joinable()) thread_.join();
  return status();
}

absl::Status Checkpoint::Wait() {
  if (options_.path.empty()) return absl::OkStatus();
  return ShareStatus("checkpoint wait", WaitHere());
}

absl::Status Checkpoint::status() {
  if (forked()) return absl::OkStatus();
  MutexLock lock(mutex_);
  return written_;
}

}  // namespace lockstep
