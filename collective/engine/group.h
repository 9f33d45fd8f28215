// A group at one rank. It gives operations their numbers and puts them into
// lanes, where a transport or the ranks of this process do them one after the
// other. If one does not end, it lets the control plane find out why.
//
//   AllReduce of a Communicator     communicator.cc makes an Operation
//     Group::Issue                  group.cc: its number, and its lane
//       HostLane::Begin             host_lane.cc: begun without waiting (Post),
//                                   or left to who waits
//   Wait of a Work                  communicator.cc
//     Group::WaitUntil              group.cc
//       HostLane::Await             host_lane.cc: the transport does it (Run)
//
// A caller that waits without a time limit does the collectives of the host.
// If there is no such caller, the lane's thread does them. A device does its
// collectives by itself. The callers and the lane's thread find out when they
// are done (device_lane.h). Sends and receives are done by the threads of
// their lanes (pair_lane.h). If the ranks are threads of one process, the last
// of them that issues an operation does it (local_lane.h).
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/engine/device_lane.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/exchange.h"
#include "lockstep/collective/engine/issued_work.h"
#include "lockstep/collective/engine/lane.h"
#include "lockstep/collective/engine/watchdog.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/verdicts.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_collective {

// One rank's part of a group.
//
// Requires: a shared_ptr owns it, since its works share it. The communicator
// calls Join first and Shutdown last, except that works may be asked later. The
// control plane may call before and after that, on its own threads.
// Thread-safety: thread-safe, except for the functions and fields that need
// `mutex`.
class Group final : public GroupMember,
                    public std::enable_shared_from_this<Group> {
 public:
  // The steps by which this rank leaves the group.
  //
  //   | from    | to        | when                                            |
  //   |---------|-----------|-------------------------------------------------|
  //   | kOpen   | kClosed   | it takes no further operation: by Close, or     |
  //   |         |           | because the communicator is dropped             |
  //   | kClosed | kStopping | a group that is dropped has failed: its threads |
  //   |         |           | end, and no others are started                  |
  enum class Phase { kOpen, kClosed, kStopping };

  // Use Join.
  Group(ControlPlane& control, const EngineOptions& options, int rank);

  // ---- For the communicator.

  // Joins a group, and begins to connect its ranks. Operations may be issued
  // meanwhile.
  // Requires: `control` lives until Shutdown has returned.
  static absl::StatusOr<std::shared_ptr<Group>> Join(
      ControlPlane& control, const EngineOptions& options);
  // Waits until the group is connected or has failed. OnTick watches the
  // deadline, so this wait needs no time limit.
  absl::Status AwaitConnected();
  // Leaves the group, ends all operations and threads, and frees the transport.
  // Works may still hold the group afterwards. Ends the process if it has no
  // memory to tell the others.
  void Shutdown();

  // Returns an error if the backend can't do the operation.
  absl::Status CheckSupported(const Operation& op);
  // These are for Communicator::Allocate. Allocate makes memory that other
  // ranks may reach. If `notices` has data, the group's operations take memory
  // of a device alone: AllocateOnDevice makes that, and the ranks tell each
  // other what they have in the notices, which Move writes and reads.
  absl::StatusOr<std::unique_ptr<RankMemory>> Allocate(int64_t bytes);
  absl::StatusOr<std::shared_ptr<void>> AllocateOnDevice(int64_t bytes);
  Buffer notices() const;
  absl::Status Move(const ConstBuffer& from, const Buffer& to);
  // Held by the thread that allocates, while it and the other ranks tell each
  // other what they have.
  Mutex allocating;

  // Issues an operation, and gives it its number.
  absl::StatusOr<std::shared_ptr<IssuedWork>> Issue(Operation op);
  // Joins a group of some of the ranks, of which this is one.
  absl::StatusOr<std::shared_ptr<Group>> Split(absl::string_view name,
                                               absl::Span<const int> members);
  void Abort(const absl::Status& why);
  absl::Status Close();

  // ---- For works.

  // Waits until the operation is done or has failed, and returns true. Returns
  // false if it is neither at the time `until`.
  bool WaitUntil(IssuedWork& work, absl::Time until);
  absl::Status WaitOnStream(IssuedWork& work, Stream stream);
  bool Done(const IssuedWork& work);
  // Returns the result of the operation, or OK while it is not done.
  absl::Status Result(const IssuedWork& work);

  // ---- For the control plane.

  void OnFailure(const absl::Status& why, uint64_t after) override;
  void OnLeft(int rank, const LaneCounts& counts) override;
  void OnSlow(const std::string& what) override;
  void OnTick() override;
  Position Where(const LaneId& id, uint64_t number) override;
  LaneCounts Done() override;
  uint64_t OnlyThread() override;
  bool Waits(uint64_t thread, TurnId& waits, std::string& what) override;
  bool Lives() override;
  std::vector<Mark> TakeMarks(std::string& key) override;

  // ---- For the lanes.

  // Returns "all_reduce(4 x f32, sum) #17 of group 'world'".
  std::string Describe(const Operation& op) const {
    return op.DescribeIn(options.name);
  }
  // Returns `why` and, unless it has blame already, blames this rank. Broke
  // also adds the name of the rank.
  absl::Status Blamed(const absl::Status& why) const;
  absl::Status Broke(const absl::Status& why) const;

  // Returns the lane to rank `peer` if `sends` is true, or else the lane from
  // that rank.
  Lane& PairWith(int peer, bool sends) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Ends `work` in one of its lanes.
  void End(IssuedWork& work, const absl::Status& result,
           SteadyTime now = SteadyNow()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Waits until something changes, or until the caller's time limit has
  // passed. May also return earlier. Returns true if the time limit has
  // passed. Releases the mutex meanwhile.
  bool AwaitChange(Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Finds out which operations of this rank are late, if the ranks are threads
  // of this process (ControlPlane::Hurry). Does nothing while the group is
  // stopping. Releases the mutex meanwhile.
  void Hurry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Fails the group for a reason that lies on this rank, and tells the others.
  void FailOfItself(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Fails the group if a failure is coming and all operations that may end
  // before it have ended.
  void FailIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Fails the group if a rank has left before its part in the lane's first
  // turn.
  void FailIfLeft(const Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  ControlPlane& control;
  const EngineOptions options;
  const FailureTiming timing;
  const int rank;
  const int size;
  OperationLog log;

  Mutex mutex;
  CondVar changed;
  Phase phase ABSL_GUARDED_BY(mutex) = Phase::kOpen;
  bool connected ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  SteadyTime failed_at ABSL_GUARDED_BY(mutex);

 private:
  // A failure that lets earlier collectives end first.
  struct Coming {
    absl::Status why;
    uint64_t after = 0;
    SteadyTime since;
  };

  // ---- Joining (group.cc), and leaving (group_failures.cc).

  static absl::StatusOr<std::shared_ptr<Group>> JoinAs(
      ControlPlane& control, const EngineOptions& options,
      const GroupInfo& info);
  // Makes the transport, and begins to connect it.
  absl::Status Connect();
  absl::Status ConnectLocally();
  // Connects the transport, in the thread of the collectives.
  void ConnectTransport();
  void ShutDownOrThrow();
  absl::Status NotMade(const absl::Status& why) const;
  // Makes the lane of collectives for the kind of transport.
  void Take(std::unique_ptr<Transport> transport)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Take(std::unique_ptr<DeviceTransport> transport)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Tells the others that this rank leaves, before they notice that its
  // connections are closed. Releases the mutex while a device's library is
  // called.
  void SayFarewell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // ---- Issuing and waiting (group.cc).

  // Returns an error if the group takes no operation.
  absl::Status CheckOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns UNIMPLEMENTED, with the advice to do `instead`, if the group has no
  // streams.
  absl::Status CheckStreams(absl::string_view instead) const;
  // Puts an operation into its lanes, and begins it there. BeginPair does so
  // for the send and the receive of one between two ranks.
  absl::Status Begin(const std::shared_ptr<IssuedWork>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(issuing_);
  void BeginPair(const std::shared_ptr<IssuedWork>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Notes that this thread uses the group.
  void NoteUser() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns the first time after `after` at which an operation, or the making
  // of the group, becomes late.
  SteadyTime NextLook(SteadyTime after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Takes in that the caller has computed, and waits for `work` now.
  void BeginToCount(const IssuedWork& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Notes that this thread waits for `work`. If `work` is a collective, a late
  // collective is then reported to rank 0 once more. Otherwise, late messages
  // between two ranks are.
  void NoteWaiter(IssuedWork& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // ---- Lanes (group.cc).

  // Calls `visit` with each lane, that of the collectives first. There are no
  // lanes before Connect.
  template <typename Visit>
  void ForEachLane(const Visit& visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (collectives_ != nullptr) visit(*collectives_);
    for (auto& [id, lane] : pairs_) visit(*lane);
  }

  // ---- Watching and failing (group_failures.cc).

  // Fails the group for good. An operation that is in the transport or on a
  // device ends only when it comes back, since its memory is in use until then.
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Makes the group fail with `why` once `after` collectives have ended well.
  void FailAfter(const absl::Status& why, uint64_t after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Fails the group now, with the failure that is coming.
  void FailAsComing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Tell the watchdog of a lane, or that of the making of the group, that time
  // has passed, and carry out its orders.
  void Watch(Lane& lane, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void WatchConnecting(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Asks the watchdog about `late`, whose position need not be set.
  Watchdog::Orders AskWatchdog(Watchdog& watchdog, const Late& late,
                               bool failure_is_coming, SteadyTime now) const;
  // Carries out the watchdog's orders, which may be to report `error` or
  // `late`.
  void Follow(const Watchdog::Orders& orders, const absl::Status& error,
              const Late& late) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Fails the group because rank 0 is silent. The failure does not say which
  // ranks are missing. When rank 0 goes on, it decides by the reports that it
  // got.
  void DecideAlone(const Late& late) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Returns rank `each` of the group for a verdict, with the name "rank 2".
  // Self returns this rank, with what it issued last.
  verdicts::Party PartyOf(int each) const;
  verdicts::Party Self() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns this rank's lane of that id, or nullptr.
  const Lane* Find(const LaneId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns how many operations of each lane are done, or, if `done_only` is
  // false, have been issued.
  LaneCounts Counts(bool done_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  uint64_t CollectivesDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return collectives_ == nullptr ? 0 : collectives_->done();
  }
  // Sends the marks of what a device was given to rank 0.
  void SendMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const std::unique_ptr<Store> store_;
  const SteadyTime begun_ = SteadyNow();

  // Held while an operation gets its number and is issued, so that operations
  // are issued in the order of their numbers.
  Mutex issuing_;
  uint64_t sequence_ ABSL_GUARDED_BY(issuing_) = 0;

  // Connect sets these before any operation is issued, and Shutdown frees the
  // transport. A group has a transport, or an exchange if its ranks are threads
  // of one process. `device_` is collectives_ if a device does them, or else
  // null.
  std::unique_ptr<TransportBase> transport_;
  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<Lane> collectives_;
  DeviceLane* device_ = nullptr;
  // The lanes between two ranks, by their id and whether this rank sends.
  std::map<std::pair<LaneId, bool>, std::unique_ptr<Lane>> pairs_
      ABSL_GUARDED_BY(mutex);

  Watchdog connecting_ ABSL_GUARDED_BY(mutex);
  Coming coming_ ABSL_GUARDED_BY(mutex);
  // True if this rank has aborted the group, and rank 0 has not answered yet.
  bool awaits_verdict_ ABSL_GUARDED_BY(mutex) = false;
  // The ranks that have left, and the operations in which they take part.
  std::map<int, LaneCounts> left_ ABSL_GUARDED_BY(mutex);
  std::set<std::string> splits_ ABSL_GUARDED_BY(mutex);
  std::shared_ptr<IssuedWork> last_ ABSL_GUARDED_BY(mutex);
  // True if the caller of an operation computes before it waits.
  bool computes_first_ ABSL_GUARDED_BY(mutex) = false;
  // The number of threads that use the control plane without the mutex, though
  // the communicator may be dropped meanwhile.
  int outside_ ABSL_GUARDED_BY(mutex) = 0;
  // The number of the only thread that has made the group and issued its
  // operations, or kSeveral, or 0 if there was none.
  static constexpr uint64_t kSeveral = UINT64_MAX;
  uint64_t only_thread_ ABSL_GUARDED_BY(mutex);

  Mutex slow_mutex_;
  bool muted_ ABSL_GUARDED_BY(slow_mutex_) = false;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_GROUP_H_
