// Collectives on their way through a device, in their order:
//
//   LaunchQueue queue;
//   queue.Add(*transport.Prepare(op));  // number 1
//   queue.AllowUpTo(1);
//   while (queue.Look().done < 1) {
//   }
//
// One thread at a time asks the device's library, without a lock: where it
// hangs there, the others learn at once what was known before.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_LAUNCH_QUEUE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_LAUNCH_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// Thread-safety: thread-safe.
class LaunchQueue {
 public:
  // Numbers of collectives, from 1: up to and with that one.
  struct Progress {
    uint64_t done = 0;    // the device is done with them
    uint64_t ended = 0;   // the same, or it lets go of them after Cancel
    uint64_t queued = 0;  // they are on the device, or were
    // Whether there is one that may be launched and is not queued.
    bool launches = false;
    // What the library said, other than OK. No further one is launched.
    absl::Status failure;
    SteadyTime as_of;  // what is done was looked at then, or later
  };

  void Add(std::shared_ptr<Launch> launch);

  // They may be launched.
  void AllowUpTo(uint64_t number);

  // Launches what may be and has room on the device.
  Progress LaunchMore();
  // That, and looks for what is done.
  Progress Look();

  // Makes what is queued on `stream` from now on wait for that collective,
  // which is queued.
  absl::Status WaitOnStream(uint64_t number, Stream stream);

  // No further one is launched. Before the transport is cancelled, which the
  // others end by.
  void Cancel();

  // Waits until no thread asks the library, and drops all. The last call.
  void Close();

 private:
  // These three release mutex_ while the device's library is called. Only the
  // thread that has set asking_ calls them.
  absl::StatusOr<Launch::State> AskUnlocking(
      const std::shared_ptr<Launch>& launch,
      absl::StatusOr<Launch::State> (Launch::*question)())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LaunchAllUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropDoneUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayLaunch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  // Those that have not ended, of which the first ones have begun; the last of
  // these may not be queued yet, or could not be.
  std::deque<std::shared_ptr<Launch>> launches_ ABSL_GUARDED_BY(mutex_);
  size_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool unqueued_ ABSL_GUARDED_BY(mutex_) = false;

  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  SteadyTime as_of_ ABSL_GUARDED_BY(mutex_);

  bool asking_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is
  int users_ ABSL_GUARDED_BY(mutex_) = 0;        // threads without the mutex
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LAUNCH_QUEUE_H_
