// A group whose ranks are threads of one process, behind the communicators of
// local_group.h.
//
//   rank 0                          rank 1
//
//   Start(0, op), not yet done      Start(1, op): the last rank to come does
//   the WaitUntil(work) sleeps            work for both, and wakes rank 0
//   WaitUntil returns
//
// The group has no thread of its own: the ranks that call look for deadlines
// that have passed, and for ranks that wait for each other.
#ifndef LOCKSTEP_COLLECTIVE_LOCAL_GROUP_H_
#define LOCKSTEP_COLLECTIVE_LOCAL_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT: ranks are told apart by their threads
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/verdicts.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_local {

namespace verdicts = internal_collective::verdicts;
using internal_collective::OperationLog;
using internal_collective::WorkState;

class Group;
class LocalWork;

// The state that a group shares with all groups that were split off it. A
// rank's place is its rank in the first group.
struct Family {
  // The thread that has used a rank. `several` is true if there are more.
  struct User {
    std::thread::id thread;
    bool several = false;
  };
  explicit Family(size_t size) : users(size) {}

  Mutex mutex;
  // The mutex guards these, both by place.
  std::vector<User> users;
  // The operations for which a rank's one user has waited for long. One that is
  // done stays until that thread has woken up.
  std::multimap<int, LocalWork*> slow;
};

// One rank's part in an operation.
// Thread-safety: the functions are thread-safe. The family's mutex guards the
// fields.
class LocalWork : public WorkState {
 public:
  LocalWork(std::shared_ptr<Group> group, int rank, Operation op,
            std::shared_ptr<OperationLog> log);

  bool WaitUntil(absl::Time until) override;
  absl::Status WaitOnStream(Stream) override {
    return absl::UnimplementedError(
        "the local backend has no streams: call Wait");
  }
  bool done() const override;
  absl::Status status() const override;

  const std::shared_ptr<Group> group;
  const int rank;
  const Operation op;
  const SteadyTime expires;
  const std::shared_ptr<OperationLog> log;
  uint64_t ticket = 0;  // in the log
  // The number of halves that have not ended. A SendRecv has two.
  int open = 1;
  absl::Status result;
};

using WorkPtr = std::shared_ptr<LocalWork>;

// The ranks that have come to one operation.
struct Meeting {
  std::vector<WorkPtr> works;  // by rank; nullptr for one that has not come
  int arrived = 0;
  int first = 0;  // the rank that came first, whose word counts
  uint64_t fingerprint = 0;
};

// Sends and receives from one rank to another that wait for each other.
struct PairQueues {
  std::deque<WorkPtr> sends;
  std::deque<WorkPtr> recvs;
};

// One group of threads, and the groups that are split off it.
// Guarantees: each operation ends, since all its ranks come, its deadline
// passes or the group fails. A group fails once, with the same words on all
// ranks.
// Thread-safety: thread-safe.
class Group : public std::enable_shared_from_this<Group> {
 public:
  // `places` has the places of its ranks, by rank.
  Group(std::shared_ptr<Family> family, std::string name,
        std::vector<int> places, absl::Duration deadline)
      : family_(std::move(family)),
        name_(std::move(name)),
        places_(std::move(places)),
        size_(static_cast<int>(places_.size())),
        deadline_(deadline),
        mutex_(family_->mutex),
        last_(places_.size()),
        left_(places_.size(), false) {}

  const std::string& name() const { return name_; }
  int size() const { return size_; }
  absl::Duration deadline() const { return deadline_; }

  // Issues an operation of a rank.
  absl::StatusOr<Work> Start(int rank, Operation op,
                             std::shared_ptr<OperationLog> log);
  // Fails the group for a rank that calls Abort, and for an exception.
  void Abort(int rank, const absl::Status& why);
  void GiveUp(int rank, const absl::Status& why) noexcept;
  // Makes a rank leave after the operations that it has issued. Leave returns
  // the failure that came before. Drop also ends pending operations, since the
  // rank's memory may be freed now.
  absl::Status Leave(int rank);
  void Drop(int rank);
  // Returns the group that is split off this one, and has these members.
  absl::StatusOr<std::shared_ptr<Group>> Child(const std::string& name,
                                               const std::vector<int>& members,
                                               int rank);

  // Returns whether the operation is done, or has failed.
  bool WaitUntil(LocalWork& work, absl::Time until);
  bool Done(const LocalWork& work);
  absl::Status Result(const LocalWork& work);

 private:
  // A group that some members of this one have split off.
  struct Split {
    std::vector<int> members;
    int first = 0;             // the rank whose members these are
    std::vector<bool> joined;  // by rank of this group
    size_t missing = 0;
    std::shared_ptr<Group> group;  // while members are missing
  };

  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailSplits(const absl::Status& why, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(LocalWork& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Meet(const WorkPtr& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(int from, int to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HasLeft(const LocalWork& needs, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <typename Function>
  void ForEachPending(Function function) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkPtr Soonest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireOverdue(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(const LocalWork& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<int> Missing(const LocalWork& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool UsesAlone(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookForDeadlock(LocalWork& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WaitsForFirst(std::vector<LocalWork*>& path, std::set<LocalWork*>& seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // These are for other groups of the family, which have the same mutex. The
  // compiler's analysis of locks does not know that.
  static void FailOther(Group& group, const absl::Status& why)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    group.Fail(why);
  }
  static std::vector<int> MissingOf(const LocalWork& work)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return work.group->Missing(work);
  }
  verdicts::Subject SubjectOf(const LocalWork& work) const;
  verdicts::Party PartyOf(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Family> family_;
  const std::string name_;
  const std::vector<int> places_;
  const int size_;
  const absl::Duration deadline_;

  Mutex& mutex_;  // the family's
  CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // The first of the meetings is for collective number done_ + 1.
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, PairQueues> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> last_
      ABSL_GUARDED_BY(mutex_);  // what each issued last
  std::vector<bool> left_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Split> splits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::internal_local

#endif  // LOCKSTEP_COLLECTIVE_LOCAL_GROUP_H_
