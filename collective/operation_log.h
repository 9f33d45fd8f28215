// The log has the last operations that a rank issued in a group, with their
// times and results.
//
//   for (const OperationRecord& record : group->RecentOperations()) {
//     std::cerr << record.Describe() << '\n';
//   }
//   // #41 all_reduce(1000 x f32, sum, name 'bucket 3'): OK after 1.2ms
//   // #42 barrier(): for 12.5s now
#ifndef LOCKSTEP_COLLECTIVE_OPERATION_LOG_H_
#define LOCKSTEP_COLLECTIVE_OPERATION_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"

namespace lockstep {

// One operation that a rank issued.
struct OperationRecord {
  // The number of the operation in the group's order, from 1. 0 for Send, Recv
  // and SendRecv.
  uint64_t sequence = 0;
  int64_t in_count = 0;   // elements of its input
  int64_t out_count = 0;  // elements of its output
  absl::Time issued;
  absl::Time ended = absl::InfiniteFuture();  // infinite while pending
  // The system's time minus that of the steady clock when the record was
  // returned. The times above less this are those of the steady clock, which
  // nobody sets.
  absl::Duration ahead_of_steady;

  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  absl::StatusCode code = absl::StatusCode::kOk;  // the result
  int root = -1;                                  // -1: the kind has no root
  int to = -1;         // the receiver of Send and SendRecv
  int from = -1;       // the sender of Recv and SendRecv
  char name[16] = {};  // the first 16 bytes; no terminator after 16

  SteadyTime steady_issued() const { return Steady(issued); }
  SteadyTime steady_ended() const { return Steady(ended); }

  bool pending() const { return ended == absl::InfiniteFuture(); }
  std::string Describe() const;

 private:
  SteadyTime Steady(absl::Time time) const {
    return SteadyTime(
        absl::ToChronoNanoseconds(time - ahead_of_steady - absl::UnixEpoch()));
  }
};

// Returns for how long at least one of these operations ran, from its issue to
// its end. Those that run at the same time count once, and those that are
// pending do not count.
absl::Duration TimeIn(std::vector<OperationRecord> operations);

namespace internal_collective {

// The last operations of one rank in one group.
// Thread-safety: thread-safe.
class OperationLog {
 public:
  // The operations that it keeps, unless Keep has asked for more.
  static constexpr uint64_t kCapacity = 1024;

  // Keeps at least so many operations from now on.
  void Keep(uint64_t least);

  // Adds an operation, and returns a ticket for End.
  uint64_t Begin(const Operation& op, SteadyTime now = SteadyNow());
  void End(uint64_t ticket, absl::StatusCode code,
           SteadyTime now = SteadyNow());

  // Returns the number of operations that have begun.
  uint64_t begun() const {
    MutexLock lock(mutex_);
    return begun_;
  }

  // Returns the last operations, at most `most`, the oldest first.
  std::vector<OperationRecord> Recent(uint64_t most = kCapacity) const;

 private:
  mutable Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t oldest_ ABSL_GUARDED_BY(mutex_) =
      0;  // the first ticket that is kept
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_) = kCapacity;
  // Grows up to the capacity, and is a ring buffer from then on. Its times are
  // of the steady clock, which the callers of Begin and End have read anyway.
  std::vector<OperationRecord> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_OPERATION_LOG_H_
