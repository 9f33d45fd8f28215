// A CheckpointStore keeps the last few checkpoints of a job. Their files have
// the name PATH and the step after which they were saved, such as
// "/data/model.000000000120". A file that is saved by name, such as
// "/data/model.best", is none of these: it stays until it is replaced.
//
//   CheckpointStoreOptions options;
//   options.path = "/data/model";
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto store,
//                             CheckpointStore::Open(options));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto newest, store->OpenNewest());
//   if (newest == nullptr) ...  // this is the job's first start
//   ...
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, store->Create(step));
//   ...  // Begin and Append
//   LOCKSTEP_RETURN_IF_ERROR(store->Finish(*writer));
//
// Only one process of a job uses it, rank 0.
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {

// Returns INVALID_ARGUMENT, with what is accepted, unless a checkpoint may be
// saved by this name.
absl::Status CheckCheckpointName(absl::string_view name);

// The settings of a CheckpointStore.
struct CheckpointStoreOptions {
  // The folder, which must exist, and the beginning of the files' names.
  std::string path;

  // The number of checkpoints that are kept, at least 1. An older one is used
  // if the newest is damaged.
  int64_t keep = 3;

  // Receives a message for each checkpoint that is skipped. It is called by
  // OpenNewest and ReadNamed.
  std::function<void(absl::string_view)> log;
};

// Guarantees: no other store uses the path while it lives.
// Thread-safety: thread-compatible.
class CheckpointStore {
 public:
  // Returns the INVALID_ARGUMENT of Open, without touching files.
  static absl::Status CheckOptions(const CheckpointStoreOptions& options);

  // Opens the store, and removes unfinished files. Returns FAILED_PRECONDITION
  // if the path is already open, in this process, in another one, or on another
  // host if the file system's locks reach that far. Returns INVALID_ARGUMENT if
  // an option is wrong.
  static absl::StatusOr<std::unique_ptr<CheckpointStore>> Open(
      const CheckpointStoreOptions& options);

  ~CheckpointStore();

  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Opens the newest undamaged checkpoint of a path for reading, and changes
  // nothing there. A job may use the path at the same time. Returns what
  // OpenNewest returns.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Read(
      const CheckpointStoreOptions& options);

  // Opens the newest undamaged checkpoint. Returns nullptr if there are none,
  // and DATA_LOSS if all of them are damaged, or are no files, such as links to
  // a disk that is not mounted.
  absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewest();

  // Begins the checkpoint after `step` steps. Returns FAILED_PRECONDITION
  // before OpenNewest. Otherwise a new job could write beside another job's
  // checkpoints, and would continue from those at its next start.
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(int64_t step);

  // A file that was saved by name: the bytes of one of its sections, and the
  // list of all sections.
  struct NamedFile {
    std::string bytes;
    std::vector<CheckpointSection> sections;
  };

  // Looks for a section in each file that was saved by name, and returns the
  // files that have it, by their names. Skips damaged files, and sections of
  // more than 1 KiB. Returns FAILED_PRECONDITION for a link to a file that
  // can't be read.
  absl::StatusOr<std::map<std::string, NamedFile>> ReadNamed(
      absl::string_view section) const;

  // Returns OK if a file may be saved by this name: INVALID_ARGUMENT if the
  // name is not accepted, and FAILED_PRECONDITION if there is a file of that
  // name that is no checkpoint.
  absl::Status CheckNamed(absl::string_view name) const;

  // Begins a file that is saved by name, and that replaces an earlier one.
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> CreateNamed(
      absl::string_view name);

  // Finishes a checkpoint, and removes those that are too old or damaged. A
  // file that was saved by name removes none.
  absl::Status Finish(CheckpointWriter& writer);

  // Returns a message if a file could not be removed, and otherwise "". A store
  // has one such message at most; Open and Finish return OK in this case.
  std::string TakeTrouble();

 private:
  CheckpointStore(const CheckpointStoreOptions& options, Descriptor lock)
      : options_(options),
        lock_(std::move(lock)),
        unlocked_in_forks_(lock_.fd()) {}

  std::string PathOf(int64_t step) const;
  // Returns what follows "PATH." in the names of the folder.
  absl::StatusOr<std::vector<std::string>> Endings() const;
  // Returns the steps of the names that end in `ending`.
  absl::StatusOr<std::set<int64_t>> Steps(absl::string_view ending = "") const;
  absl::Status RemoveUnfinished();
  // Returns true if the file was removed, or was not there.
  bool Remove(const std::string& path);

  const CheckpointStoreOptions options_;
  const Descriptor lock_;
  // Without this, a forked process that outlives this one would keep the lock.
  const ClosedInForks unlocked_in_forks_;
  bool has_looked_ = false;
  std::set<int64_t> damaged_;
  bool had_trouble_ = false;
  std::string trouble_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_
