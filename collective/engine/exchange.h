// An exchange is the place where the ranks of a group meet if they are threads
// of one process. The rank that comes last to an operation does it for all:
//
//   rank 0                          rank 1
//
//   Meet(0, its all-reduce)         Meet(1, its all-reduce): does it for both,
//                                   and calls OnDone of both seats
//   OnDone of its seat is called
//
// An exchange has no thread. No call waits until another rank comes, but a
// call may wait while another thread does an operation.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_EXCHANGE_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// The meeting place of a group's ranks.
// Thread-safety: thread-safe. One thread at a time calls Meet for one rank and
// Send or Recv for one pair of ranks.
class Exchange {
 public:
  // One rank's seat in one lane: that of the collectives, or that of the
  // messages to or from one rank. It is told when the lane's operations are
  // done or can't be done. Thread-safety: implementations are thread-safe.
  // Calls come from the threads of all ranks, and hold no lock of the
  // exchange.
  class Seat {
   public:
    virtual ~Seat() = default;
    // All ranks have joined.
    virtual void OnJoined() = 0;
    // The operations up to `number` are done. Calls may come in another order
    // than that of their numbers.
    virtual void OnDone(uint64_t number) = 0;
    // Rank `left` has left the group, and takes part only in the first `counts`
    // operations of each lane. Only ranks that need more are told.
    virtual void OnLeft(int left, const LaneCounts& counts) = 0;
    // Called for one of the ranks when operation `number`, the first one of
    // the lane that is not done, can't be done, since the ranks differ in it.
    // The exchange does no further operation.
    virtual void OnError(uint64_t number, const absl::Status& why) = 0;
  };

  // One rank's part in an operation.
  struct Part {
    Seat* seat = nullptr;
    // Owns the seat and the operation. The exchange keeps it until the
    // operation is done or dropped.
    std::shared_ptr<const void> owner;
    const Operation* op = nullptr;
    uint64_t number = 0;       // among the operations of its kind, from 1
    uint64_t fingerprint = 0;  // the same on all ranks
  };

  explicit Exchange(int size);

  // Returns an error if the operation's memory is not that of the host.
  static absl::Status CheckSupported(const Operation& op);

  // Takes in that a rank has joined the group. Once all have, OnJoined of each
  // one's `seat` is called. The exchange keeps `owner`, which owns the seat,
  // until then. A rank may bring operations before.
  void Join(int rank, Seat& seat, std::shared_ptr<const void> owner);

  // Brings the next collective of a rank.
  void Meet(int rank, Part part);
  // Bring the next message of rank `from` to rank `to`, from either side. A
  // rank may also send to itself.
  void Send(int from, int to, Part part);
  void Recv(int from, int to, Part part);

  // Takes in that a rank has left, and takes part only in the first `counts`
  // operations of each lane. It may be called again with lower counts.
  void Leave(int rank, const LaneCounts& counts);
  // Waits until no thread uses the rank's memory, and forgets all parts that
  // the rank has brought. The exchange takes no part from the rank afterwards.
  void Drop(int rank);

  // Return the number of collectives, or of messages of a pair of ranks, that
  // are done.
  uint64_t done();
  uint64_t done(int from, int to);

 private:
  // A collective. Parts are by rank, and have no seat if the rank is missing.
  struct Meeting {
    std::vector<Part> parts;
    size_t come = 0;   // the number of ranks that have come
    int first = -1;    // the one of them that came first
    int differs = -1;  // a rank whose fingerprint differs from that of `first`
  };
  // The messages from one rank to another for which the other side is missing,
  // and the number of those that are done.
  struct Pair {
    std::deque<Part> sends, recvs;
    uint64_t done = 0;
  };
  // The news of one call. The call tells them to the seats at its end, without
  // the mutex.
  struct News {
    std::vector<Part> done;
    Part failed;
    absl::Status why;
    // The parts that need a rank that has left, and that rank.
    std::vector<Part> in_vain;
    int left = -1;
    LaneCounts counts;
  };

  void Add(int rank, Part part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(News& news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(Pair& pair, News& news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const Part& part, const absl::Status& why, News& news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes in `news` that `part` can't be done, if `rank` has left and does not
  // take part in that operation of the lane.
  void CheckLeft(int rank, const LaneId& lane, const Part& part, News& news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Tell(const News& news);

  Mutex mutex_;
  // The seats and owners of the ranks that have joined, by rank, while others
  // have not.
  std::vector<Part> joined_ ABSL_GUARDED_BY(mutex_);
  size_t missing_ ABSL_GUARDED_BY(mutex_);  // ranks that have not joined
  std::vector<bool> dropped_ ABSL_GUARDED_BY(mutex_);  // by rank
  // The ranks that have left, and the one of them that takes part in the fewest
  // collectives.
  std::map<int, LaneCounts> left_ ABSL_GUARDED_BY(mutex_);
  int left_first_ ABSL_GUARDED_BY(mutex_) = -1;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is done any more
  // The first meeting is of collective number done_ + 1.
  std::deque<Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<int, int>, Pair> pairs_ ABSL_GUARDED_BY(mutex_);
};

// The exchanges of a job's groups.
// Thread-safety: thread-safe.
class Exchanges {
 public:
  // Returns the exchange of a group of `size` ranks. All ranks that pass the
  // same key get the same one.
  std::shared_ptr<Exchange> Of(const std::string& key, int size);

 private:
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<Exchange>> exchanges_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_EXCHANGE_H_
