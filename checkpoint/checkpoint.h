// A Checkpoint saves the state of a job and restores it. The state consists of
// sections that the trainer adds once. All ranks of a group save them together,
// and restore them on any number of ranks. Only rank 0 reads and writes the
// files.
//
//   CheckpointOptions options;
//   options.path = "/data/model";
//   Checkpoint checkpoint(*group, options);
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", &weights));
//   CheckpointState place;
//   place.save = [&] { return loader->SaveState(); };
//   place.load = [&](absl::string_view bytes) {
//     return loader->RestoreState(bytes);
//   };
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("place", place));
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
//                             checkpoint.Restore());
//   int64_t step = restored.value_or(0);  // none: this is the first start
//   ...
//   ++step;
//   if (checkpoint.IsDue(step)) {
//     LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
//   }
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());  // all is on the disk
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: a library's own thread
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/checkpoint/best_value.h"  // IWYU pragma: export
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/section.h"     // IWYU pragma: export
#include "lockstep/checkpoint/warm_start.h"  // IWYU pragma: export
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

class CheckpointStore;

namespace internal_checkpoint {
class SavedSections;
class SectionSink;
}  // namespace internal_checkpoint

// The settings of a Checkpoint.
struct CheckpointOptions {
  // The folder, which must exist, and the beginning of the files' names:
  // "/data/model" for "/data/model.000000000120". If it is empty, nothing is
  // restored or saved.
  std::string path;

  // IsDue is true after all multiples of this number of steps. With 0 it is
  // never true.
  int64_t every_steps = 0;

  // The number of checkpoints that are kept, at least 1.
  int64_t keep = 3;

  // True if Save only copies the sections, and rank 0 writes the copy during
  // the next steps. The copy takes as much memory on rank 0 as the checkpoint
  // has bytes. If it is false, Save itself writes the sections, in pieces of 1
  // MiB.
  bool background = true;
};

// Returns INVALID_ARGUMENT for options with which Restore would fail.
absl::Status Validate(const CheckpointOptions& options);

// One file of Checkpoint::SaveTo.
struct CheckpointTarget {
  // The name of SaveAs. If it is empty, the file is named after the number of
  // steps.
  std::string name;

  // The value that is stored in the file, for SaveIfBest.
  std::optional<BestValue> best;
};

// Requires: all ranks call RestoreFrom, Restore, Wait, NoteValue and the
// functions that save (Save, SaveAs, SaveIfBest and SaveTo), in the same order
// relative to the group's other collectives. After an error on one rank only,
// that rank must end the group with Abort, as after any other error, because
// the other ranks wait for it.
// Guarantees: an error of rank 0's disk or sections is returned on all ranks,
// with the same message.
// Thread-safety: thread-compatible.
class Checkpoint {
 public:
  // The group must move the host's memory, and outlive this object. On rank 0,
  // `log` receives lines about what is restored and which files are skipped.
  Checkpoint(Communicator& group, const CheckpointOptions& options,
             std::function<void(absl::string_view)> log = nullptr);

  // Waits until the saved checkpoint is on the disk.
  ~Checkpoint();

  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // Sets the job's settings, which are stored in each checkpoint. Restore logs
  // the settings that have changed, and adds them to the error if it refuses a
  // checkpoint.
  void set_job(const Fingerprint& job) { job_ = job; }

  // Returns the error that Add would return for this name.
  absl::Status CheckAdd(absl::string_view name) const;

  // Returns the error that SaveAs and SaveIfBest would return for this name.
  static absl::Status CheckName(absl::string_view name);

  // Adds a section. All ranks must add the same sections before Restore. Names
  // are unique, and "step", "job", "best value" and "noted values" are
  // reserved.
  //   ALREADY_EXISTS    there is a section with this name
  //   INVALID_ARGUMENT  the name is empty or too long, or the memory is on a
  //                     device, which needs CheckpointMemory
  //
  // The content must be the same on all ranks. Rank 0's content is saved, and
  // all ranks restore it. If there is no checkpoint, all ranks get rank 0's
  // content, too, except for bytes of a CheckpointState.
  //
  // Elements have a type that base/dtype.h knows: float, double, Float16,
  // BFloat16, bool, or an integer of 8 to 64 bits (but not std::vector<bool>).
  // A vector may be assigned to later, and its elements may move to other
  // memory. Whenever it is saved or restored, it must have the size that it had
  // when it was added. It must live as long as the checkpoint is used. The
  // memory of a Buffer must stay where it is.
  template <typename T>
  absl::Status Add(absl::string_view name, std::vector<T>* values) {
    return AddFound(
        name, [values] { return BufferOf(*values); }, /*is_part=*/false);
  }
  absl::Status Add(absl::string_view name, Buffer values);
  absl::Status Add(absl::string_view name, CheckpointMemory values);
  absl::Status Add(absl::string_view name, CheckpointState state);

  // Adds memory of which each rank has a part. The section consists of the
  // parts of all ranks, in the order of ranks. Another number of ranks may
  // restore it with other sizes of parts. If there is no checkpoint, each rank
  // keeps its own part. Parts are sent in pieces of 1 MiB.
  template <typename T>
  absl::Status AddPart(absl::string_view name, std::vector<T>* part) {
    return AddFound(
        name, [part] { return BufferOf(*part); }, /*is_part=*/true);
  }
  absl::Status AddPart(absl::string_view name, Buffer part);

  // Takes sections from any checkpoint file, such as one of another job, of
  // another number of ranks, or of ImportSafetensors (exchange.h). Call it
  // before Restore, and after the sections that it shall fill were added. If
  // there is a checkpoint from which Restore continues, it takes nothing. The
  // log says whether the file is used. The file's number of steps and its best
  // value are never taken. It may be called for several files. Rank 0 reads the
  // file, so only its path counts.
  //
  //   WarmStartOptions options;
  //   options.except = {"parameters/head.*"};
  //   options.may_be_missing = true;  // this model has other layers, too
  //   checkpoint.RestoreFrom("/data/pretrained", options)
  //
  //   NOT_FOUND            there is no such file
  //   DATA_LOSS            it is damaged
  //   INVALID_ARGUMENT     it is not a checkpoint, or no pattern was given
  //   FAILED_PRECONDITION  sections are missing or differ, or none matches; the
  //                        message names them. Nothing was taken.
  //   and the errors of `load`, after which some sections may have been taken
  //   and the errors of Restore
  //
  // Sections that match a pattern in `never` are not taken. A Session gives the
  // sections of its loaders there.
  absl::StatusOr<WarmStart> RestoreFrom(
      const std::string& path, const WarmStartOptions& options = {},
      const std::vector<std::string>& never = {});

  // Restores all sections from the newest undamaged checkpoint, and returns the
  // step after which it was saved, or nullopt if there is none. Call it once.
  //   FAILED_PRECONDITION  it is another job's: a section is missing, was not
  //                        added, or has another size or type; or a file of
  //                        SaveIfBest is another model's; or the path is in use
  //   DATA_LOSS            there are checkpoints, but all are damaged, or are
  //                        links to files that can't be read
  //   UNIMPLEMENTED        a newer release has saved it
  //   and the errors of `load`.
  absl::StatusOr<std::optional<int64_t>> Restore();

  bool has_restored() const { return has_restored_; }

  // Returns the number of steps after which this job has finished, or nullopt
  // if it has not. It has finished if MarkFinished was called, the job's
  // settings (set_job) are the same now, and the checkpoint of that step is the
  // newest one. The log says so. All ranks must call it, after set_job and
  // before Restore and RestoreFrom. Without a path it returns nullopt.
  //
  //   LOCKSTEP_ASSIGN_OR_RETURN(const auto finished,
  //                             checkpoint.FindFinished());
  //   if (finished.has_value()) return absl::OkStatus();  // nothing is left
  //
  // Returns the errors of opening the newest checkpoint, as Restore does.
  absl::StatusOr<std::optional<int64_t>> FindFinished();

  // Writes the file PATH.finished, which marks the job as finished after the
  // step of the last checkpoint. All ranks may call it, and rank 0 writes, when
  // that checkpoint is on the disk. Call it when no rank can fail any more,
  // such as after a barrier at the end. A checkpoint that is saved after a
  // later step removes the file. If there is no checkpoint, it does nothing.
  absl::Status MarkFinished();

  // Returns true if a checkpoint should be saved after this step.
  bool IsDue(int64_t step) const {
    return !options_.path.empty() && options_.every_steps > 0 &&
           step % options_.every_steps == 0;
  }

  // Saves the current content of all sections, after `step` steps. First waits
  // until the previous checkpoint is on the disk. Requires that Restore was
  // called, and that `step` is not less than in the last call. If it fails, the
  // older checkpoints are kept. After an error in the background, every call
  // returns that error.
  absl::Status Save(int64_t step);

  // Saves the same to the file PATH.NAME, such as /data/model.final, which
  // replaces an earlier one when it is complete. Restore never continues from
  // this file, and `keep` never removes it. A name has 1 to 64 letters, digits,
  // '_' and '-', and begins with a letter. `step` may be smaller than that of
  // an earlier call. A value of SaveIfBest under this name is forgotten. A link
  // of this name is replaced, and not followed.
  //   INVALID_ARGUMENT     the name is not accepted; the message says which
  //                        names are
  //   FAILED_PRECONDITION  a file of that name is not a checkpoint
  absl::Status SaveAs(absl::string_view name, int64_t step);

  // Saves to the file PATH.NAME, as SaveAs does, if `value` is better than that
  // of the earlier file, or if there is none. The file contains the value,
  // which Restore reads, so a restart does not lose the best one. Of equal
  // values, the earlier file is kept.
  //
  // Returns true if `value` is better than all earlier values of this job.
  // Checkpoints contain these, so steps that are repeated after a restart get
  // the same answer again, even if the file is that of a later step.
  //   INVALID_ARGUMENT     the value is NaN, or as SaveAs
  //   FAILED_PRECONDITION  ranks have different values, which the message
  //                        shows; or the file has the other kind of best
  absl::StatusOr<bool> SaveIfBest(absl::string_view name, int64_t step,
                                  double value, Best best);

  // Returns what SaveIfBest would return, and remembers the value for later
  // calls, but saves nothing. SaveTo can save the checkpoint later.
  absl::StatusOr<bool> NoteValue(absl::string_view name, double value,
                                 Best best);

  // Returns false if SaveTo would skip this target.
  bool WouldSave(const CheckpointTarget& target) const;

  // Saves to several files, in this order. A target with a value is skipped if
  // the earlier file of this name has a value that is at least as good. With
  // background = true, the sections are copied once for all files. Save, SaveAs
  // and SaveIfBest call it. All ranks must give the same targets.
  absl::Status SaveTo(int64_t step, absl::Span<const CheckpointTarget> targets);

  // Waits until the saved checkpoint is on the disk. All ranks must call it.
  absl::Status Wait();

  // The same on this rank only. Ranks other than rank 0 know nothing of the
  // disk.
  absl::Status WaitHere();

  // Returns an error on rank 0 if the last checkpoint could not be written, and
  // OK otherwise. Does not wait.
  absl::Status status();

 private:
  using Section = internal_checkpoint::Section;

  bool forked() const { return fork_guard_.forked(); }
  static absl::Status NotInAFork();
  absl::Status AddFound(absl::string_view name, std::function<Buffer()> find,
                        bool is_part);
  absl::Status AddSection(absl::string_view name, Section section);
  Fingerprint Layout() const;
  void Log(absl::string_view text) const;

  absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewest();
  absl::Status FindNewest();
  absl::StatusOr<std::optional<int64_t>> FindMarkedStep();
  absl::StatusOr<std::optional<int64_t>> StepOfNewest() const;
  void RemoveMark();
  absl::Status RestoreNewest();
  absl::Status CheckBest(absl::string_view name,
                         const std::vector<CheckpointSection>& saved) const;
  absl::Status PrepareToSave();
  absl::Status BeginAnew();
  std::string Shown(absl::string_view name) const;
  absl::Status CheckSections() const;
  absl::StatusOr<WarmStart> Take(
      const std::string& path,
      const internal_checkpoint::WarmStartRequest& request);

  absl::Status CheckSave() const;
  absl::Status CheckValue(absl::string_view name, const BestValue& value) const;
  absl::Status SaveAll(int64_t step,
                       absl::Span<const CheckpointTarget> targets);
  absl::Status SaveSections(int64_t step, const std::string& name,
                            absl::Span<const CheckpointTarget> targets);
  absl::Status SaveOwn(int64_t step,
                       absl::Span<const CheckpointTarget> targets);
  absl::Status SaveSection(const Section& section);
  absl::Status ReceiveParts(const Section& section, int64_t step,
                            absl::Status& own);
  absl::Status SendPart(const Section& section, int64_t step);
  absl::Status ReserveCopy();
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(
      int64_t step, const CheckpointTarget& target);
  void LogTrouble();
  void Write(int64_t step, absl::Span<const CheckpointTarget> targets);

  Communicator& group_;
  const CheckpointOptions options_;
  const std::function<void(absl::string_view)> log_;
  const ForkGuard fork_guard_;

  Fingerprint job_;
  internal_checkpoint::Sections sections_;
  std::vector<internal_checkpoint::WarmStartRequest> warm_starts_;
  bool has_restored_ = false;
  // The newest checkpoint, between RestoreFrom and the end of Restore.
  std::unique_ptr<internal_checkpoint::SavedSections> newest_;
  std::vector<std::string> differences_;   // settings that have changed since
  int64_t last_step_ = -1;                 // -1: there is no checkpoint
  internal_checkpoint::BestValues best_;   // of the files
  internal_checkpoint::BestValues noted_;  // of the job

  // These are used on rank 0.
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<internal_checkpoint::SectionSink> sink_;
  std::thread thread_;      // it runs Write
  std::string noted_text_;  // of noted_, for Write
  bool may_have_mark_ = true;

  Mutex mutex_;
  absl::Status written_ ABSL_GUARDED_BY(mutex_);
};

// Opens the newest undamaged checkpoint at a path, such as "/data/model", for
// reading. It changes nothing there, and a job may save meanwhile. `log`
// receives a line for each damaged file that is skipped. NOT_FOUND if there is
// no checkpoint; DATA_LOSS as for Checkpoint::Restore.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewestCheckpoint(
    const std::string& path,
    std::function<void(absl::string_view)> log = nullptr);

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
