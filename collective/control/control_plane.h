// A rank's side of what the ranks of a job tell each other beside their data,
// so that none of them waits in silence. It sits on the star of
// rendezvous/star.h. Rank 0 collects and decides (hub.h), and tells all ranks
// what it decides.
//
//   a rank's operation waits too long      -> it says so, "late", to rank 0
//   rank 0 asks the others of that lane    -> where are you?
//   rank 0 compares                        -> they differ, have left, are
//                                             missing, are in each other's way:
//                                             a verdict; otherwise they are
//                                             slow
//   a connection ends without a goodbye    -> that rank is lost: all are told,
//                                             also when others then leave
//   a rank aborts, or can't go on          -> to rank 0, which tells all
//   a rank's transport can't go on         -> the same, if no rank knows a
//                                             better cause, which may come
//                                             later
//   a device does what ranks differ in     -> they tell rank 0 at every
//                                             heartbeat what they have issued
//
// Nothing else is sent per operation. Rank 0 fails a group once, so all ranks
// have the same words. If rank 0 is lost or silent, a rank decides by itself,
// and says so.
//
// Which thread calls what:
//
//   any thread of the rank  Attach, Fail, Leave, ...  -> Star::Send
//   the star's thread (*)   OnMessage, OnGone         -> GroupMember, and the
//                                                        Hub at rank 0
//                           OnTick                    -> GroupMember, then Hub
//                           Beat, each second         -> GroupMember::Where
//                                                        and TakeMarks
//
// (*) If the ranks are threads of one process, it is any thread that calls
// Flush or Hurry, one at a time. Comments that speak of the star's thread mean
// this one, too.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/last_words.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/rendezvous/peer_clock.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

class Hub;

// A group at this rank, as the control plane needs it. Ranks are those of the
// group.
// Thread-safety: implementations are thread-safe. The star's thread makes all
// calls but those of Done and Lives, and must not be held up. A thread that
// closes the control plane or aborts the job calls OnFailure, too.
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  // Is called when the group fails. Collectives up to number `after` may still
  // end well. It may be called again with a lower number.
  virtual void OnFailure(const absl::Status& why, uint64_t after) = 0;
  virtual void OnLeft(int rank, const LaneCounts& counts) = 0;
  virtual void OnSlow(const std::string& what) = 0;
  virtual void OnTick() = 0;
  virtual Position Where(const LaneId& lane, uint64_t number) = 0;
  // Returns how many operations are done in each lane, or nothing before the
  // group is made. It is not called on the star's thread.
  virtual LaneCounts Done() = 0;
  // Returns the number of the thread that has issued all operations of the
  // group at this rank, or 0 if there are several such threads.
  virtual uint64_t OnlyThread() = 0;
  // Returns whether thread number `thread` waits for an operation of the group,
  // and which.
  virtual bool Waits(uint64_t thread, TurnId& waits, std::string& what) = 0;
  // Returns whether it takes operations: it has neither failed nor been closed.
  virtual bool Lives() = 0;
  // If nothing else compares what the ranks do, returns marks of what was
  // issued since the last call. If many operations were issued, only some of
  // them have marks. Sets `key` to the group's key.
  virtual std::vector<Mark> TakeMarks(std::string& key) = 0;
};

// A rank's side of the control protocol. At rank 0 it has the hub, too.
//
// Requires: the star is not started yet.
// Guarantees: a group that is attached fails at most once for good. A failure
// that one rank tells reaches all ranks, or rank 0 is lost, and each rank fails
// by itself.
// Thread-safety: thread-safe, apart from the functions that say that they are
// for the star's thread. Attach, AwaitValue and Close wait, and must not be
// called on that thread.
class ControlPlane : public StarListener {
 public:
  explicit ControlPlane(std::unique_ptr<Star> star,
                        const FailureTiming& timing = {});
  ~ControlPlane() override;

  int rank() const { return star_->rank(); }
  int size() const { return star_->size(); }
  const FailureTiming& timing() const { return timing_; }
  absl::Span<const Peer> peers() const { return star_->peers(); }
  // Returns this rank as a blame names it.
  Blame::Rank self() const;
  // The address by which this rank is connected to the others.
  std::string local_address() const { return star_->local_address(); }

  // Returns how far this rank's steady clock is ahead of rank 0's.
  std::optional<ClockAhead> Ahead() const { return star_->AheadOf(0); }

  // Joins a group, without waiting for its other members: returns when rank 0
  // has compared `info` with that of the members that came before. It is an
  // error, too, if the group has failed by then.
  absl::Status Attach(const GroupInfo& info,
                      const std::shared_ptr<GroupMember>& member,
                      absl::Duration deadline);
  // Returns whether this rank has joined the group, and it lives.
  bool Lives(const std::string& key);
  // Forgets the group at this rank, which should have left it.
  void Detach(const std::string& key);

  // The following functions do not wait.

  // Fails the group: OnFailure comes on all ranks, this one included, unless
  // the group has failed already and lets no more end. A failure with the code
  // UNAVAILABLE gives way to rank 0's verdict on an operation that has expired.
  void Fail(const std::string& key, const absl::Status& why,
            uint64_t after = 0);
  // Fails all groups of the job, also those that are made later.
  void Abort(const absl::Status& why);
  // Reports a symptom: rank 0 waits for another rank to tell the cause, before
  // it fails the group with this.
  void FailByHearsay(const std::string& key, const absl::Status& why);
  void Leave(const std::string& key, const LaneCounts& counts);
  void SendMarks(const std::string& key, const std::vector<Mark>& marks);
  void ReportLate(const Late& late);

  // Returns the store of the group's ranks, which must not outlive this.
  std::unique_ptr<Store> StoreOf(const std::string& key);

  // These two are for GroupStore. SetValue leaves a value at rank 0, and
  // AwaitValue waits for one. Only a group that is attached has values.
  void SetValue(const std::string& key, const std::string& name,
                const std::string& value);
  absl::StatusOr<std::string> AwaitValue(const std::string& key,
                                         const std::string& name,
                                         SteadyTime deadline);

  // These two are for ranks that are threads of this process, whose star may
  // have no thread. Flush delivers all that was sent. Hurry first looks which
  // operations of this rank are late. The caller holds no lock of a group.
  void Flush() { star_->Flush(); }
  void Hurry() { star_->Hurry(); }

  // Returns whether this is rank 0, and has still to decide on the operation.
  // For the star's thread.
  bool Judges(const TurnId& turn) const;

  // Returns what this rank knows of rank 0, which does not answer. For the
  // star's thread.
  verdicts::Missing SilentHub() const;

  // Returns how long the star's thread has run, by its ticks. The time for
  // which it was held up, and heard nothing, hardly counts. For that thread.
  absl::Duration ran() const { return ran_; }

  // Ends the control plane. Groups that are still there fail, and rank 0 waits
  // for the others. It waits for no longer than 2 s if a group has failed
  // because ranks did not come in time, and no group was made since. Ends the
  // process if it has no memory to tell the others.
  absl::Status Close(absl::Duration patience);

 private:
  // A group at this rank.
  struct Attached {
    std::weak_ptr<GroupMember> member;
    bool opened = false;
    absl::Status failure;
    uint64_t failed_after = 0;
    // The values of the group's store that were asked for. One that is not
    // there yet is awaited.
    std::map<std::string, std::optional<std::string>> values;
  };

  // These override StarListener.
  void OnMessage(int from, absl::string_view message) override;
  void OnGone(int rank, const absl::Status& how) override;
  void OnTick() override;
  std::string Beat() override;
  void OnBeat(int from, absl::string_view beat) override;

  // These take messages from rank 0, on the star's thread.
  template <typename M>
  void Deliver(absl::string_view message);
  void Handle(const OpenedMessage& opened);
  void Handle(const FailedMessage& failed);
  void Handle(const LostMessage& lost);
  void Handle(const EchoMessage& echo);
  void Handle(const LeftMessage& left);
  void Handle(const AskMessage& ask);
  void Handle(const SlowMessage& slow);
  void Handle(const ValueMessage& value);

  absl::Status Add(const GroupInfo& info,
                   const std::shared_ptr<GroupMember>& member);
  void FailHere(const std::string& key, const absl::Status& why,
                uint64_t after = 0);
  void LeaveGroups();
  std::vector<std::string> Keys();
  std::vector<std::shared_ptr<GroupMember>> Members();
  std::shared_ptr<GroupMember> Member(const std::string& key);

  std::unique_ptr<Star> star_;
  const FailureTiming timing_;

  // These are for the star's thread alone.
  RunningTime running_;
  absl::Duration ran_;
  LastWords last_words_;
  absl::Status first_loss_;  // the first rank that was lost, as rank 0 saw it
  const std::unique_ptr<Hub> hub_;  // at rank 0

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Attached> groups_ ABSL_GUARDED_BY(mutex_);
  // hub_gone_ says how rank 0 is gone, at the other ranks. aborted_ says why
  // this rank has aborted the job.
  absl::Status hub_gone_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // True if the last failure was that ranks did not come in time.
  bool ranks_hang_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_
