// The checkpoints of a job: files that are called PATH and the step after which
// they were made, "/data/model.000000000120", of which the last few are kept.
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
// One process of a job uses it, rank 0.
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {

struct CheckpointStoreOptions {
  // The folder, which must be there, and the beginning of the files' names.
  std::string path;

  // The number of checkpoints that are kept, from 1 on. The one before the
  // newest is used where that is torn.
  int64_t keep = 3;

  // Told of checkpoints that are passed over.
  std::function<void(absl::string_view)> log;
};

// Thread-safety: thread-compatible.
class CheckpointStore {
 public:
  // FAILED_PRECONDITION where another process has the path open, here or, if
  // the file system has locks for all its hosts, elsewhere. INVALID_ARGUMENT
  // for a path or a number that can't be. Files that a job has not finished are
  // removed.
  static absl::StatusOr<std::unique_ptr<CheckpointStore>> Open(
      const CheckpointStoreOptions& options);

  ~CheckpointStore();

  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Opens the newest checkpoint that is whole, and returns nullptr where there
  // is none at all. DATA_LOSS where there are some, and all are damaged.
  absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewest();

  // Begins the checkpoint after `step` steps. FAILED_PRECONDITION before
  // OpenNewest: a job that begins anew beside the checkpoints of another one
  // would go on from theirs the next time.
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(int64_t step);

  // Finishes a checkpoint, and removes those that are too old, or damaged.
  absl::Status Finish(CheckpointWriter& writer);

 private:
  CheckpointStore(const CheckpointStoreOptions& options, Descriptor lock)
      : options_(options),
        lock_(std::move(lock)),
        unlocked_in_forks_(lock_.fd()) {}

  std::string PathOf(int64_t step) const;
  // Returns the steps of the files whose names end in `ending`.
  absl::StatusOr<std::set<int64_t>> Steps(absl::string_view ending = "") const;

  const CheckpointStoreOptions options_;
  const Descriptor lock_;
  // A fork that outlives this process would hold the lock.
  const ClosedInForks unlocked_in_forks_;
  bool has_looked_ = false;
  std::set<int64_t> damaged_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_STORE_H_
