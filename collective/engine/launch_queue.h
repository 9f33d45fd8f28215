// A LaunchQueue holds the collectives that a device is to do, in their order:
//
//   LaunchQueue queue;
//   queue.Add(*transport.Prepare(op));  // number 1
//   queue.Open();
//   while (queue.Look().done < 1) {
//   }
//
// One thread at a time asks the device's library, and holds no lock of the
// queue or its group meanwhile. If the library hangs, the other threads still
// learn at once what was known before.
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
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_collective {

// The collectives that a device is to do, in their order.
// Thread-safety: thread-safe.
class LaunchQueue {
 public:
  // The progress of the collectives. The first three fields are numbers of
  // collectives, counted from 1. Each is about that collective and all before
  // it.
  struct Snapshot {
    uint64_t done = 0;    // the device is done with it
    uint64_t ended = 0;   // the same, or the device let go of it after Cancel
    uint64_t queued = 0;  // it is on the device, or was
    // True if a collective may be launched and is not queued.
    bool launches = false;
    // The library's first error, or OK. After an error nothing is launched.
    absl::Status failure;
    // The time as of which `done` is known: the library was asked then or
    // later.
    SteadyTime as_of;
  };

  void Add(std::shared_ptr<Launch> launch);

  // Lets collectives be launched: the transport is connected.
  void Open();

  // Launches the collectives that may be launched and that have room on the
  // device.
  Snapshot LaunchMore();
  // Does the same, and asks the device's library which collectives are done.
  Snapshot Look();

  // Makes all work that is queued on `stream` from now on wait for the
  // collective.
  // Requires: the collective is queued.
  absl::Status WaitOnStream(uint64_t number, Stream stream);

  // Stops launching. Call it before Transport::Cancel, which ends the
  // collectives that were launched.
  void Cancel();

  // Waits until no thread asks the library, and drops all collectives. It is
  // the last call.
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
  Snapshot State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  // The collectives that have not ended. The first begun_ of them have begun.
  // If unqueued_, the last of these is not queued yet, or could not be queued.
  std::deque<std::shared_ptr<Launch>> launches_ ABSL_GUARDED_BY(mutex_);
  size_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool unqueued_ ABSL_GUARDED_BY(mutex_) = false;

  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  SteadyTime as_of_ ABSL_GUARDED_BY(mutex_);

  bool asking_ ABSL_GUARDED_BY(mutex_) = false;  // a thread asks the library
  // The number of threads that call the library without the mutex.
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_LAUNCH_QUEUE_H_
