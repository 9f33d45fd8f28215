// The last operations that a rank issued in a group: what, when, how long.
//
//   for (const OperationRecord& record : group->RecentOperations()) {
//     std::cerr << record.Describe() << '\n';
//   }
//   // #41 all_reduce(1000 x f32, sum, name 'bucket 3'): OK after 1.2ms
//   // #42 barrier(): for 12.5s now
//
// The last few stand in every failure of a group as well: the payload
// "lockstep/recent_operations", which ToString prints.
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

struct OperationRecord {
  // Its number in the order of the group, from 1; 0 for Send, Recv, SendRecv.
  uint64_t sequence = 0;
  int64_t in_count = 0;   // elements of its input
  int64_t out_count = 0;  // elements of its output
  absl::Time issued;
  absl::Time ended = absl::InfiniteFuture();  // while it is pending

  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  absl::StatusCode code = absl::StatusCode::kOk;  // how it ended
  int root = -1;                                  // where it has one
  int to = -1;                                    // of Send and SendRecv
  int from = -1;                                  // of Recv and SendRecv
  char name[16] = {};                             // as much of it as fits

  bool pending() const { return ended == absl::InfiniteFuture(); }
  std::string Describe() const;
};

namespace internal_collective {

// Thread-safety: thread-safe.
class OperationLog {
 public:
  static constexpr uint64_t kCapacity = 1024;

  // Returns what to end it by.
  uint64_t Begin(const Operation& op, SteadyTime now = SteadyNow());
  void End(uint64_t ticket, absl::StatusCode code,
           SteadyTime now = SteadyNow());

  // Returns how many have begun.
  uint64_t begun() const {
    MutexLock lock(mutex_);
    return begun_;
  }

  // At most `most` of the last ones, oldest first.
  std::vector<OperationRecord> Recent(uint64_t most = kCapacity) const;

 private:
  mutable Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  // Grows up to the capacity, and is a ring from then on. Its times are of the
  // steady clock, which whoever issues and ends operations has read anyway.
  std::vector<OperationRecord> records_ ABSL_GUARDED_BY(mutex_);
};

// `status`, if it is a failure, with the last operations as a payload: so they
// are printed with it, while its message stays that of all ranks.
absl::Status WithRecentOperations(absl::Status status, const OperationLog& log);

}  // namespace internal_collective
}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_OPERATION_LOG_H_
