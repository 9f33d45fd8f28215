// A Checkpoint saves the state of a job and restores it. The state consists of
// sections that the trainer adds once. All ranks of a group save them together,
// and restore them on any number of ranks. Only rank 0 reads and writes the
// files.
//
//   CheckpointOptions options;
//   options.path = "/data/model";
//   Checkpoint checkpoint(*group, options);
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(weights)));
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
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_store.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

namespace internal_checkpoint {
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

// A section of arbitrary bytes.
struct CheckpointState {
  // Save calls this on rank 0.
  std::function<absl::StatusOr<std::optional<std::string>>()> save;

  // Restore calls this on each rank, with the saved bytes.
  std::function<absl::Status(absl::string_view bytes)> load;

  // True if `save` may return nullopt. Then the section is left out, and
  // Restore accepts a checkpoint without it.
  bool may_be_missing = false;
};

// A section of elements in memory that only the trainer can access, such as
// memory of a device. The functions copy a piece of the section's bytes, and
// return when the copy is complete. Offsets are in bytes.
struct CheckpointMemory {
  DType dtype = DType::kF32;
  int64_t count = 0;  // elements
  std::function<absl::Status(int64_t offset, absl::Span<char> to)> read;
  std::function<absl::Status(int64_t offset, absl::string_view from)> write;
};

// Requires: all ranks call Restore, Save and Wait, in the same order relative
// to the group's other collectives. After an error on one rank only, that rank
// must end the group with Abort, as after any other error, because the other
// ranks wait for it.
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

  // Adds a section. All ranks must add the same sections before Restore. Names
  // are unique, and "step" and "job" are reserved. The memory must stay where
  // it is.
  //   ALREADY_EXISTS    there is a section with this name
  //   INVALID_ARGUMENT  the name is empty or too long, or the memory is on a
  //                     device, which needs CheckpointMemory
  //
  // The memory must be the same on all ranks. Rank 0's content is saved, and
  // all ranks restore it.
  absl::Status Add(absl::string_view name, Buffer values);
  absl::Status Add(absl::string_view name, CheckpointMemory values);
  absl::Status Add(absl::string_view name, CheckpointState state);

  // Adds memory of which each rank has a part. The section consists of the
  // parts of all ranks, in the order of ranks. Another number of ranks may
  // restore it with other sizes of parts. Parts are sent in pieces of 1 MiB.
  absl::Status AddPart(absl::string_view name, Buffer part);

  // Restores all sections from the newest undamaged checkpoint, and returns the
  // step after which it was saved, or nullopt if there is none. Call it once.
  //   FAILED_PRECONDITION  it is another job's: a section is missing, was not
  //                        added, or has another size or type; or the path is
  //                        in use
  //   DATA_LOSS            there are checkpoints, but all are damaged
  //   UNIMPLEMENTED        a newer release has saved it
  //   and the errors of `load`.
  absl::StatusOr<std::optional<int64_t>> Restore();

  bool has_restored() const { return has_restored_; }

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

  // Waits until the saved checkpoint is on the disk. All ranks must call it.
  absl::Status Wait();

  // The same on this rank only. Ranks other than rank 0 know nothing of the
  // disk.
  absl::Status WaitHere();

  // Returns an error on rank 0 if the last checkpoint could not be written, and
  // OK otherwise. Does not wait.
  absl::Status status();

 private:
  struct Section {
    std::string name;
    CheckpointMemory memory;     // for a section of elements
    const void* data = nullptr;  // the elements, if directly accessible
    CheckpointState state;       // for a section of bytes
    bool is_part = false;
    std::vector<int64_t> counts;  // the sizes of all ranks' parts

    bool is_state() const { return state.load != nullptr; }
    int64_t all_bytes() const;
  };

  bool forked() const { return fork_guard_.forked(); }
  std::string Shown(absl::string_view name) const;
  absl::Status AddSection(absl::string_view name, Section section);
  Fingerprint Layout() const;
  absl::Status DealParts();

  absl::Status OpenStore(std::unique_ptr<CheckpointReader>& newest);
  absl::StatusOr<std::string> OpenNewest(
      std::unique_ptr<CheckpointReader>& newest);
  absl::StatusOr<std::optional<int64_t>> RestoreAll();
  absl::Status CheckSections(
      absl::Span<const CheckpointSection> sections) const;
  absl::Status CheckSection(const CheckpointSection& saved) const;
  // Calls `take` on each rank with the pieces of a section, in order.
  absl::Status ReadPieces(
      const CheckpointReader* reader, const CheckpointSection& saved,
      const std::function<absl::Status(int64_t offset, absl::string_view)>&
          take);
  absl::StatusOr<std::string> ReadBytes(const CheckpointReader* reader,
                                        const CheckpointSection& saved);
  absl::Status Load(const CheckpointReader* reader,
                    const CheckpointSection& saved, const Section& section);
  absl::Status Share(absl::string_view what, absl::Span<char> bytes);
  absl::StatusOr<std::string> ShareText(absl::string_view what,
                                        const std::string& text);
  absl::Status ShareStatus(absl::string_view what, const absl::Status& status);
  const Section* Find(absl::string_view name) const;

  absl::Status SaveAll(int64_t step);
  absl::Status SaveOwn(int64_t step);
  absl::Status SaveSection(const Section& section);
  absl::Status ReceiveParts(const Section& section, int64_t step);
  absl::Status SendPart(const Section& section, int64_t step);
  absl::Status ReserveCopy();
  void Write(int64_t step);
  void Log(absl::string_view text) const;

  Communicator& group_;
  const CheckpointOptions options_;
  const std::function<void(absl::string_view)> log_;
  const ForkGuard fork_guard_;

  Fingerprint job_;
  std::vector<Section> sections_;
  bool has_restored_ = false;
  std::string restored_from_;             // a path of rank 0
  std::vector<std::string> differences_;  // settings that have changed since
  int64_t last_step_ = 0;

  // These are used on rank 0.
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<internal_checkpoint::SectionSink> sink_;
  std::thread thread_;  // it runs Write

  Mutex mutex_;
  absl::Status written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
