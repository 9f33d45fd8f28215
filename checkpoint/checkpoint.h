// A Checkpoint is what a job goes on from: sections that the trainer adds once,
// which all ranks of a group restore, on any number of them, and save together.
// Rank 0 reads and writes the files; the others need not reach them.
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

struct CheckpointOptions {
  // The folder, which must be there, and the beginning of the files' names:
  // "/data/model" for "/data/model.000000000120". "": nothing is restored or
  // saved.
  std::string path;

  // The steps after which IsDue is true: all multiples of it. 0: none.
  int64_t every_steps = 0;

  // The number of checkpoints that are kept, from 1 on.
  int64_t keep = 3;

  // Save copies the sections, and rank 0 writes them beside the next steps,
  // which takes as much memory there as the checkpoint has bytes. Without it,
  // Save writes them itself, in pieces of 1 MiB.
  bool background = true;
};

// A section of any bytes.
struct CheckpointState {
  // Called by Save on rank 0.
  std::function<absl::StatusOr<std::optional<std::string>>()> save;

  // Called by Restore on each rank with the bytes that were saved.
  std::function<absl::Status(absl::string_view bytes)> load;

  // `save` may return no bytes, which leaves the section out, and Restore does
  // not mind where it is missing.
  bool may_be_missing = false;
};

// A section of elements in memory that the trainer alone can reach, such as
// that of a device. The functions copy a piece of its bytes, and return when
// that is done.
struct CheckpointMemory {
  DType dtype = DType::kF32;
  int64_t count = 0;  // elements
  std::function<absl::Status(int64_t offset, absl::Span<char> to)> read;
  std::function<absl::Status(int64_t offset, absl::string_view from)> write;
};

// Restore, Save and Wait are for all ranks to call, in the same order with the
// other collectives of the group. What rank 0 finds wrong with its disk or with
// its sections is returned on all ranks, with the same words. Where a rank
// returns an error alone, it ends the group by Abort, as after any other error:
// the others wait for it.
// Thread-safety: thread-compatible.
class Checkpoint {
 public:
  // The group moves memory of the host, and outlives this. `log` is told on
  // rank 0 what is restored, and which files are passed over.
  Checkpoint(Communicator& group, const CheckpointOptions& options,
             std::function<void(absl::string_view)> log = nullptr);

  // Waits until what was saved is on the disk.
  ~Checkpoint();

  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // Keeps the job's settings with each checkpoint. Restore tells the log which
  // are others now, and also the error where it refuses a checkpoint.
  void set_job(const Fingerprint& job) { job_ = job; }

  // Adds a section, on all ranks alike and before Restore. Names are unique;
  // "step" and "job" are taken. The memory stays where it is.
  //   ALREADY_EXISTS    there is a section of this name
  //   INVALID_ARGUMENT  the name is empty or too long, or the memory is on a
  //                     device, for which there is CheckpointMemory
  //
  // Memory that is the same on all ranks: rank 0's is saved, and all restore
  // it.
  absl::Status Add(absl::string_view name, Buffer values);
  absl::Status Add(absl::string_view name, CheckpointMemory values);
  absl::Status Add(absl::string_view name, CheckpointState state);

  // Memory of which each rank has a part: the parts of all ranks, one after the
  // other, are the section, and another number of ranks may restore it in other
  // parts. They travel in pieces of 1 MiB.
  absl::Status AddPart(absl::string_view name, Buffer part);

  // Fills all sections from the newest checkpoint that is whole, and returns
  // the step after which it was saved; nullopt where there is none. Call it
  // once.
  //   FAILED_PRECONDITION  it is another job's: a section is missing, was not
  //                        added, or has another size or type; or the path is
  //                        in use
  //   DATA_LOSS            there are checkpoints, and all are damaged
  //   UNIMPLEMENTED        a newer release has saved it
  // and what `load` returns.
  absl::StatusOr<std::optional<int64_t>> Restore();

  bool has_restored() const { return has_restored_; }

  // Returns whether a checkpoint should be saved after this step.
  bool IsDue(int64_t step) const {
    return !options_.path.empty() && options_.every_steps > 0 &&
           step % options_.every_steps == 0;
  }

  // Saves all sections as they are now, after `step` steps, once the disk has
  // what was saved before. Requires Restore, and a step that is not before the
  // last one. All checkpoints that were there are still there where it fails.
  // An error in the background is returned by every call from then on.
  absl::Status Save(int64_t step);

  // Waits, on all ranks, until the disk has what was saved.
  absl::Status Wait();

  // The same on this rank alone: all but rank 0 know nothing of the disk.
  absl::Status WaitHere();

  // OK, or why the disk does not have what was saved, on rank 0. Does not wait.
  absl::Status status();

 private:
  struct Section {
    std::string name;
    CheckpointMemory memory;     // where it is elements
    const void* data = nullptr;  // their place, where it is known
    CheckpointState state;       // where it is bytes
    bool is_part = false;
    std::vector<int64_t> counts;  // elements of all ranks' parts

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
  std::string restored_from_;             // the file of rank 0
  std::vector<std::string> differences_;  // of the job from the one that saved
  int64_t last_step_ = 0;

  // On rank 0.
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<internal_checkpoint::SectionSink> sink_;
  std::thread thread_;  // writes

  Mutex mutex_;
  absl::Status written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
