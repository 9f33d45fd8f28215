// The engine of a group between processes, which works behind a communicator.
// It puts operations into lanes, where a transport does them one after the
// other. If one does not end, it lets the control plane find out why.
//
// A collective of the host is done by a caller that waits for it, or by the
// lane's thread if nobody waits. A device does its collectives by itself, and
// these threads look for their ends. Sends and receives are done by the threads
// of their lanes.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/engine_group.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/watchdog.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {

// One rank's part of a group between processes.
// Requires: a shared_ptr owns it, since its works share it. The communicator
// calls Connect first and Shutdown last, except that works may be asked later.
// The control plane may call before and after that, on its own threads.
// Thread-safety: thread-safe.
class Engine final : public GroupMember,
                     public std::enable_shared_from_this<Engine> {
 public:
  // `control` lives until Shutdown has returned, and is not called afterwards.
  Engine(ControlPlane* control, const EngineOptions& options, int rank,
         std::shared_ptr<OperationLog> log);

  // ---- For the communicator.

  // Makes the transport, and begins to connect it.
  absl::Status Connect();
  // Waits until the group is connected or has failed. OnTick watches the
  // deadline, so this wait needs no time limit.
  absl::Status AwaitConnected();
  // Leaves the group, ends all operations and threads, and frees the transport.
  // Works may still hold the engine afterwards.
  void Shutdown();

  const EngineOptions& options() const { return group_.options; }
  // Requires: Connect has returned OK.
  absl::Status CheckSupported(const Operation& op);
  absl::StatusOr<Work> Start(Operation&& op);
  void Abort(const absl::Status& why);
  void GiveUp(const absl::Status& why) noexcept { group_.GiveUp(why); }
  absl::Status Close();
  // Reserves the name of a group that is split off. Returns ALREADY_EXISTS if
  // the name was reserved before.
  absl::Status BeginSplit(const std::string& name);

  // ---- For works.

  bool WaitUntil(IssuedWork& work, absl::Time until);
  absl::Status WaitOnStream(IssuedWork& work, Stream stream);
  bool Done(const IssuedWork& work);
  absl::Status Result(const IssuedWork& work);

  // ---- For the control plane.

  void OnFailure(const absl::Status& why, uint64_t after) override;
  void OnLeft(int rank, const LaneCounts& counts) override;
  void OnSlow(const std::string& what) override;
  void OnAgreed(uint64_t agreed) override;
  void OnTick() override;
  Position Where(const LaneId& id, uint64_t number) override;
  LaneCounts Done() override;
  uint64_t OnlyThread() override;
  bool Waits(uint64_t thread, PlaceId& place, std::string& what) override;
  bool Lives() override;
  std::vector<Mark> TakeMarks(std::string& key) override;

 private:
  // Connects the transport, in the thread of the collectives.
  void ConnectTransport();
  // Tells the others that this rank leaves, before they notice that its
  // connections are closed. Releases the mutex while a device's library is
  // called.
  void SayFarewellUnlocking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  // Waits for the lanes' threads to end.
  // Requires: no thread can be started any more.
  void JoinThreads() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  absl::Status NotMade(const absl::Status& why) const;
  // Returns an error if the group takes no operation.
  absl::Status CheckOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  // Issues the send and the receive of `work`. Releases the mutex while the
  // transport moves what the rank sends to itself.
  void IssuePairUnlocking(const std::shared_ptr<IssuedWork>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  // Notes that this thread waits for `work`. Late operations in lanes of that
  // kind are then reported to rank 0 once more.
  void NoteWaiter(IssuedWork& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);

  // Tell the watchdog of a lane, or that of the making of the group, that time
  // has passed, and carry out its orders.
  void Watch(Lane& lane, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  void WatchConnecting(SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  // Asks the watchdog about `late`, whose position need not be set.
  Watchdog::Orders AskWatchdog(Watchdog& watchdog, const Late& late,
                               bool failure_is_coming, SteadyTime now) const;
  // Carries out the watchdog's orders, which may be to report `error` or
  // `late`.
  void Heed(const Watchdog::Orders& orders, const absl::Status& error,
            const Late& late) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);
  // Fails the group because rank 0 is silent. The failure does not say which
  // ranks are missing. When rank 0 goes on, it decides by the reports that it
  // got.
  void DecideAlone(const Late& late)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_.mutex);

  EngineGroup group_;
  const std::unique_ptr<Store> store_;
  const SteadyTime begun_ = SteadyNow();
  Watchdog connecting_ ABSL_GUARDED_BY(group_.mutex);
  // True if this rank has aborted the group, and rank 0 has not answered yet.
  bool awaits_verdict_ ABSL_GUARDED_BY(group_.mutex) = false;
  std::set<std::string> splits_ ABSL_GUARDED_BY(group_.mutex);
  std::shared_ptr<IssuedWork> last_ ABSL_GUARDED_BY(group_.mutex);
  // The number of the only thread that has made the group and issued its
  // operations, or 0 if there are more.
  uint64_t only_thread_ ABSL_GUARDED_BY(group_.mutex);

  Mutex slow_mutex_;
  bool muted_ ABSL_GUARDED_BY(slow_mutex_) = false;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_H_
