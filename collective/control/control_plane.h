// Who is where: what the ranks of a job tell each other beside their data, so
// that none of them waits in silence. It sits on the star of rendezvous/star.h:
// rank 0 collects and decides, and what it decides all ranks are told.
//
//   a rank's operation waits too long      -> it says so, "late", to rank 0
//   rank 0 asks the others of that lane    -> where are you?
//   rank 0 compares                        -> they differ, have left, are
//                                             missing, are in each other's way:
//                                             a verdict; otherwise they are
//                                             slow
//   a connection ends without a goodbye    -> that rank is lost: all are told,
//                                             also when others then leave
//   Abort, and whatever a rank can't go on with -> to rank 0, which tells all
//   a rank's transport can't go on      -> the same, if no rank knows better:
//                                             what caused it may come later
//
// Rank 0 fails a group once; so all ranks have the same words. Where it is lost
// or silent, a rank decides by itself and says that.
//
//   a device does what ranks differ in   -> they tell rank 0 at every heartbeat
//                                             what they have issued; in a
//                                             strict group at once, and wait
//                                             until rank 0 says that it is the
//                                             same
//
// Nothing else is sent per operation.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {

// One order of operations in a group: of its collectives, or of what one of its
// ranks sends to another.
struct LaneId {
  int from = -1;
  int to = -1;

  bool collective() const { return from < 0; }
  friend bool operator<(const LaneId& a, const LaneId& b) {
    return std::make_pair(a.from, a.to) < std::make_pair(b.from, b.to);
  }
  friend bool operator==(const LaneId& a, const LaneId& b) {
    return a.from == b.from && a.to == b.to;
  }
};

// An operation of a lane, by its number there, from 1.
struct PlaceId {
  std::string group;  // its key
  LaneId lane;
  uint64_t number = 0;

  friend bool operator<(const PlaceId& a, const PlaceId& b) {
    return std::tie(a.group, a.lane, a.number) <
           std::tie(b.group, b.lane, b.number);
  }
  friend bool operator==(const PlaceId& a, const PlaceId& b) {
    return a.group == b.group && a.lane == b.lane && a.number == b.number;
  }
};

// Where a rank is, seen from one operation.
struct Position {
  // Whether it has issued it, and what it was, if it is still known.
  bool here = false;
  // Otherwise: whether it still waits in an earlier one of the lane.
  bool behind = false;
  uint64_t fingerprint = 0;
  std::string what;  // "all_reduce(4 x f32, sum)"
  // Of an all-to-all: what it gives and takes, by rank.
  std::vector<int64_t> send_counts, recv_counts;

  std::string last;  // what it issued last in this group; "" for nothing

  // The operation for which the thread waits that alone has ever used the
  // group, if there is one and it does wait; "" otherwise.
  PlaceId waits;
  std::string waits_what;
};

// An operation that waits for others: too long, or beyond its deadline, or for
// something that can't come.
struct Late {
  PlaceId place;
  std::string what;  // "all_reduce(4 x f32, sum) #17 of group 'world'"
  Position position;
  // Past its deadline, or that of one behind it, which `what` then is.
  bool expired = false;
  absl::Duration deadline;
};

// A group that has been joined, as all its ranks must know it alike.
struct GroupInfo {
  std::string key;   // unique in the job
  std::string name;  // in messages
  std::string backend;
  std::string parent;          // the key of the group it was split off, or ""
  bool strict = false;         // OnAgreed is called
  std::vector<int> members;    // ranks of the parent, by rank
  std::vector<int> job_ranks;  // ranks of the job, by rank
};

// What a rank has issued of a group's collectives up to one of them.
struct Mark {
  uint64_t number = 0;
  uint64_t digest = 0;  // of it and of all before it
  std::string what;     // "" if it is not known any more
};

// How many operations of each lane a rank has issued, when it leaves.
using LaneCounts = std::map<LaneId, uint64_t>;

// A group at this rank, as the control plane needs it. Called on the star's
// thread, unless it says otherwise; ranks are those of the group.
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  // Collectives up to number `after` may still end well. It may come again,
  // with fewer of them.
  virtual void OnFailure(const absl::Status& why, uint64_t after) = 0;
  virtual void OnLeft(int rank, const LaneCounts& counts) = 0;
  virtual void OnSlow(const std::string& what) = 0;
  // Collectives up to number `agreed` are the same on all ranks.
  virtual void OnAgreed(uint64_t agreed) = 0;
  virtual void OnTick() = 0;
  virtual Position Where(const LaneId& lane, uint64_t number) = 0;
  // How many operations are done; nothing, before the group is made. Not on the
  // star's thread.
  virtual LaneCounts Done() = 0;
  // The number of the one thread that has ever used the group, 0 if there are
  // more; and whether thread number `thread` waits for an operation of it.
  virtual uint64_t OnlyThread() = 0;
  virtual bool Waits(uint64_t thread, PlaceId& place, std::string& what) = 0;
  // Returns whether it takes operations: it has neither failed nor been closed.
  virtual bool Lives() = 0;
  // Where nothing else compares what the ranks do: what was issued since this
  // was called last, of many operations only some; and the group's key.
  virtual std::vector<Mark> TakeMarks(std::string& key) = 0;
};

// How long one waits to hear of others before it decides without them.
struct Patience {
  // Rank 0, for answers.
  absl::Duration answers = absl::Milliseconds(400);
  // A rank whose operation has expired, for rank 0's verdict.
  absl::Duration verdict = absl::Milliseconds(700);
  // Rank 0, for who may know why a transport fails.
  absl::Duration echoes = absl::Seconds(2);
};

class ControlPlane : public StarListener {
 public:
  // `star` is not started yet.
  explicit ControlPlane(std::unique_ptr<Star> star,
                        const Patience& patience = {});
  ~ControlPlane() override;

  int rank() const { return star_->rank(); }
  int size() const { return star_->size(); }
  const Patience& patience() const { return patience_; }
  absl::Span<const Peer> peers() const { return star_->peers(); }
  // By which this rank is connected to the others.
  std::string local_address() const { return star_->local_address(); }

  // Joins a group, without waiting for its other members: returns when rank 0
  // has compared `info` with what those said that came before. A group that has
  // failed by then is an error, too.
  absl::Status Attach(const GroupInfo& info,
                      const std::shared_ptr<GroupMember>& member,
                      absl::Duration deadline);
  // Returns whether this rank has joined the group, and it lives.
  bool Lives(const std::string& key);
  // Forgets the group at this rank. It should have left.
  void Detach(const std::string& key);

  // What follows does not wait. Fail: OnFailure comes on all ranks, this one
  // included, unless the group has failed already and lets no more end. What is
  // UNAVAILABLE gives way to rank 0's verdict on what has expired.
  void Fail(const std::string& key, const absl::Status& why,
            uint64_t after = 0);
  // Fails the group for what may have its reason on another rank, unless that
  // one tells it.
  void FailByHearsay(const std::string& key, const absl::Status& why);
  void Leave(const std::string& key, const LaneCounts& counts);
  void SendMarks(const std::string& key, const std::vector<Mark>& marks);
  void ReportLate(const Late& late);

  // What the group's ranks leave for each other. It lives as long as this.
  std::unique_ptr<Store> StoreOf(const std::string& key);

  // Whether this is rank 0, and has still to decide on the operation. On the
  // star's thread.
  bool Judges(const PlaceId& place) const {
    return inquiries_.count(place) > 0;
  }

  // What this rank knows of rank 0, which does not answer. On the star's
  // thread.
  std::string DescribeHubSilence() const;

  // How long the star's thread has run, by its ticks: the time for which it was
  // held up, and heard nothing, hardly counts. On that thread.
  absl::Duration ran() const { return ran_; }

  // Ends: groups that are still there fail, rank 0 waits for the others.
  absl::Status Close(absl::Duration patience);

 private:
  class GroupStore;

  // What rank 0 knows of a group.
  struct GroupAtHub {
    GroupInfo info;
    int first = 0;         // the member whose word `info` is
    std::set<int> joined;  // ranks of the group
    std::map<int, LaneCounts> left;
    std::set<int> detached;
    absl::Status failure;
    uint64_t failed_after = 0;
    absl::Status hearsay;  // the first
    absl::Duration heard_at;
    int echoes = 0;            // how often they were asked for
    std::set<int> echoes_due;  // of ranks of the group
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<int>> wanted;  // keys, by job ranks
    // By number, with the rank whose mark came first; and up to where each one
    // had the same as another.
    std::map<uint64_t, std::pair<int, Mark>> marks;
    std::map<int, uint64_t> agreed;
    uint64_t told_agreed = 0;

    // Whether a rank that has dropped the group, and knows nothing of it any
    // more, had done the operation before. One that has closed it alone has yet
    // to do what it has issued.
    bool DidItsPart(int rank, const PlaceId& place) const;
  };

  // What rank 0 knows of an operation that waits.
  struct Inquiry {
    std::string what;
    std::map<int, Position> positions;  // by rank of the group
    std::set<int> asked;                // of whom an answer is due
    bool expired = false;
    absl::Duration deadline;
    absl::Duration asked_at;  // by ran()
    bool told_slow = false;
  };

  // A group at this rank.
  struct Attached {
    GroupInfo info;
    std::weak_ptr<GroupMember> member;
    bool opened = false;
    absl::Status failure;
    uint64_t failed_after = 0;
    // These are the values of the group's store that were asked for. One that
    // is not there yet is awaited.
    std::map<std::string, std::optional<std::string>> values;
  };

  // StarListener.
  void OnMessage(int from, absl::string_view message) override;
  void OnGone(int rank, const absl::Status& why) override;
  void OnTick() override;
  void OnBroken(const absl::Status& why) override;
  std::string Beat() override;
  void OnBeat(int from, absl::string_view beat) override;

  // At rank 0, on the star's thread.
  void HubOpen(int from, const GroupInfo& info);
  void HubFail(const std::string& key, const absl::Status& why,
               uint64_t after = 0);
  void HubHearsay(const std::string& key, const absl::Status& why);
  void HubAskForEchoes(GroupAtHub& group);
  void HubEchoed(int from, const std::string& key, int echoes);
  void HubJudgeHearsay(const std::string& key);
  bool HubHasExpired(const std::string& key) const;
  void HubLeave(int from, const std::string& key, const LaneCounts& counts);
  void HubMarks(int from, const std::string& key,
                const std::vector<Mark>& marks);
  uint64_t HubNextOf(const GroupAtHub& group, int rank, int other) const;
  std::string HubSuspects(const GroupAtHub& group, int rank, int other) const;
  void HubDropMarks(GroupAtHub& group);
  void HubLate(int from, const Late& late);
  void HubAskAgain(int job_rank, const PlaceId& place);
  void HubAnswer(int from, const PlaceId& place, const Position& position);
  void HubSet(const std::string& key, const std::string& name,
              const std::string& value);
  void HubGet(int from, const std::string& key, const std::string& name);
  void HubDetach(int from, const std::string& key);
  void HubAsk(const GroupAtHub& group, const PlaceId& place, Inquiry& inquiry,
              int except);
  // A verdict fails the group, and so ends its inquiries.
  // Of `newest` there is news; -1: time has passed.
  void HubJudge(const PlaceId& place, int newest);
  bool HubAllToAllDiffers(const PlaceId& place, int rank);
  bool HubDeadlock(const PlaceId& start);
  void HubForgetInquiries(const std::string& key, uint64_t after);
  void HubTell(const GroupAtHub& group, const std::string& message);
  std::string LastWordsOf(int job_rank) const;
  std::string DescribeSilence(int job_rank) const;
  std::string HubDescribe(const GroupAtHub& group, int rank) const;
  std::string HubSays(const GroupAtHub& group, const Inquiry& inquiry,
                      int rank);

  // At every rank, on the star's thread.
  void Answer(const PlaceId& place);
  void FailHere(const std::string& key, const absl::Status& why,
                uint64_t after = 0);
  void LeaveGroups();
  void EndGroups(const absl::Status& why);
  absl::Status AfterFirstLoss(const absl::Status& why) const;
  std::vector<std::shared_ptr<GroupMember>> Members();
  std::shared_ptr<GroupMember> Member(const std::string& key);

  std::unique_ptr<Star> star_;
  const Patience patience_;

  // Of the star's thread alone: its time, and how the first rank was lost, as
  // rank 0 saw it.
  RunningTime running_;
  absl::Duration ran_;
  absl::Status first_loss_;

  // Of the star's thread alone, at rank 0.
  int first_lost_ = -1;  // the job rank that this was
  std::map<std::string, GroupAtHub> hub_groups_;
  std::map<PlaceId, Inquiry> inquiries_;
  struct Words {
    std::string issued;  // by its last heartbeat
    SteadyTime heard;
  };
  std::map<int, Words> last_words_;  // by job rank
  // By job rank: the last failure of a group of its, but for those that others
  // brought about by leaving.
  std::map<int, absl::Status> told_;

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Attached> groups_ ABSL_GUARDED_BY(mutex_);
  // Job ranks that are gone, and how.
  std::map<int, absl::Status> gone_ ABSL_GUARDED_BY(mutex_);
  // Why this rank can't be in touch with the others any more.
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_PLANE_H_
