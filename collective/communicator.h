// A Communicator is one rank's place in a group of ranks, and what they do
// together.
//
//   std::vector<float> gradient = ...;
//   const Buffer buffer = BufferOf(gradient);
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const Work work, group->AllReduce(buffer, buffer, ReduceOp::kAvg));
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
//
// Every rank must issue the same operations in the same order; which one that
// is is compared, and a rank that differs is told to all. Operations end in the
// order in which they were issued. Send, Recv and SendRecv are apart: they have
// an order of their own for each pair of ranks and direction.
//
// What a call refuses (INVALID_ARGUMENT, UNIMPLEMENTED, ALREADY_EXISTS, and
// anything after its own Close) concerns that call alone: nothing was issued.
// Any other failure is the group's: all that is pending ends with it, every
// later call returns it, on every rank, and the group must be made again. (A
// rank that had all it needed learns of it by its next operation.)
//
//   FAILED_PRECONDITION  the ranks do not do the same; both are told
//   DEADLINE_EXCEEDED    ranks did not come in time; they are named
//   UNAVAILABLE          a rank has left or died; it is named
//   ABORTED              someone called Abort; the reason is told
//   RESOURCE_EXHAUSTED   a rank ran out of memory, threads or descriptors
//
// A process that is forked from a rank has no part in its groups: every call is
// FAILED_PRECONDITION there, and the destructor touches nothing.
#ifndef LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_
#define LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/work.h"

namespace lockstep {

struct CallOptions {
  // Part of what ranks compare, and of messages: "bucket 3". 256 bytes at most.
  std::string name;

  // Every input is multiplied by it first; reductions of floats alone.
  double scale = 1;

  // How long it may take from its issue until it is done, its data included; 0:
  // the group's default. Ranks may have different ones: the first that passes
  // fails the group. The patience of one wait alone is Work::WaitUntil's.
  absl::Duration deadline = absl::ZeroDuration();

  // On a device, the operation begins after what is queued on this stream now,
  // such as the kernel that makes its input. Without it, the buffers are ready.
  // UNIMPLEMENTED where the backend has no streams, for one that is being
  // captured into a graph, and for Send, Recv and SendRecv.
  std::optional<Stream> stream;
};

// Thread-safety: calls from several threads are put into an order, which is
// then hardly that of the other ranks; so one thread issues, and any may Abort.
class Communicator {
 public:
  // A communicator that is dropped without Close has left, too.
  virtual ~Communicator() = default;

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // ---- Reductions. `in` and `out` may be the same memory.

  // out[i] on every rank: the reduction of all in[i].
  absl::StatusOr<Work> AllReduce(ConstBuffer in, Buffer out, ReduceOp op,
                                 const CallOptions& options = {});
  // The same on rank `root` alone; elsewhere `out` is not looked at.
  absl::StatusOr<Work> Reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                              const CallOptions& options = {});
  // Rank r gets part r of size() equal parts of the reduction. In place, `out`
  // is that part of `in`.
  absl::StatusOr<Work> ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op,
                                     const CallOptions& options = {});

  // ---- Moving. The parts of all ranks stand one after the other, by rank.

  // `in` of `root` goes to every `out`; elsewhere `in` is not looked at.
  absl::StatusOr<Work> Broadcast(ConstBuffer in, Buffer out, int root,
                                 const CallOptions& options = {});
  // Equal parts of all ranks to all ranks. In place, `in` is this rank's part
  // of `out`.
  absl::StatusOr<Work> AllGather(ConstBuffer in, Buffer out,
                                 const CallOptions& options = {});
  // Parts of `counts` elements, which every rank must know alike.
  absl::StatusOr<Work> AllGatherV(ConstBuffer in, Buffer out,
                                  absl::Span<const int64_t> counts,
                                  const CallOptions& options = {});
  // The same on rank `root` alone; elsewhere `out` is not looked at.
  absl::StatusOr<Work> Gather(ConstBuffer in, Buffer out, int root,
                              const CallOptions& options = {});
  absl::StatusOr<Work> GatherV(ConstBuffer in, Buffer out,
                               absl::Span<const int64_t> counts, int root,
                               const CallOptions& options = {});
  // Part r of root's `in` goes to rank r; elsewhere `in` is not looked at.
  absl::StatusOr<Work> Scatter(ConstBuffer in, Buffer out, int root,
                               const CallOptions& options = {});
  absl::StatusOr<Work> ScatterV(ConstBuffer in, Buffer out,
                                absl::Span<const int64_t> counts, int root,
                                const CallOptions& options = {});
  // Part r of this rank's `in` goes to rank r, and becomes its part `rank()`.
  absl::StatusOr<Work> AllToAll(ConstBuffer in, Buffer out,
                                const CallOptions& options = {});
  // What a rank gives another must be what that one takes.
  absl::StatusOr<Work> AllToAllV(ConstBuffer in,
                                 absl::Span<const int64_t> send_counts,
                                 Buffer out,
                                 absl::Span<const int64_t> recv_counts,
                                 const CallOptions& options = {});

  absl::StatusOr<Work> Barrier(const CallOptions& options = {});

  // ---- Between two ranks.

  // Done when `in` may be changed, which can be before anyone has received it.
  absl::StatusOr<Work> Send(ConstBuffer in, int to,
                            const CallOptions& options = {});
  absl::StatusOr<Work> Recv(Buffer out, int from,
                            const CallOptions& options = {});
  // Both at once, to and from any two ranks, this one included.
  absl::StatusOr<Work> SendRecv(ConstBuffer in, int to, Buffer out, int from,
                                const CallOptions& options = {});

  // ---- The group.

  // Returns the operations that this rank issued last, oldest first: at most so
  // many, of which 1,024 are kept. A forked process has none.
  std::vector<OperationRecord> RecentOperations(int64_t most = 1024) const;

  // Returns how many operations this rank has issued, those between two ranks
  // included.
  int64_t issued_operations() const;

  // A group of some of the ranks, which they call with the same arguments, each
  // with its place in `members` as its rank. Names are used once. Others do not
  // call.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(
      absl::string_view name, absl::Span<const int> members);

  // Ends every pending operation on every rank. From any thread.
  void Abort(absl::Status why);

  // Leaves in order: what this rank has issued goes on; the first operation
  // that it is still needed for fails, on all ranks, saying that it has left.
  // Does not wait: the destructor ends what is still pending then, so Wait for
  // the last Work first. Returns the group's failure, if there was one.
  absl::Status Close();

 protected:
  Communicator(std::string name, int rank, int size, absl::Duration deadline)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        deadline_(deadline),
        log_(std::make_shared<internal_collective::OperationLog>()) {}

  // Whether this backend can do it; the operation has no number yet.
  virtual absl::Status CheckSupported(const Operation& op) const = 0;

  // Issues an operation that was checked, and begins and ends it in the log.
  // One call at a time.
  virtual absl::StatusOr<Work> Start(Operation op) = 0;

  // Split, Abort and Close, of a backend. The members of a split are ranks of
  // this group, each once, and this one is among them.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> SplitGroup(
      absl::string_view name, absl::Span<const int> members) = 0;
  virtual void AbortGroup(const absl::Status& why) = 0;
  virtual absl::Status CloseGroup() = 0;

  // Fails the group for what was thrown in a call of it: `why` is how the call
  // ends. Other ranks may wait for what it has not done.
  virtual void GiveUp(const absl::Status& why) noexcept;

  // Returns whether this process was forked from the rank. A backend's
  // destructor then keeps for ever what has threads, connections or locks.
  bool forked() const { return fork_guard_.forked(); }

  const std::shared_ptr<internal_collective::OperationLog>& log() const {
    return log_;
  }

 private:
  // Returns what `call` returns, unless the process was forked; what it throws
  // fails the group.
  template <typename Call>
  auto Guarded(const Call& call) -> decltype(call());

  absl::Status CheckSplit(absl::string_view name,
                          absl::Span<const int> members) const;
  Operation MakeOperation(OpKind kind, DType dtype,
                          const CallOptions& options) const;
  absl::StatusOr<Work> Issue(Operation op);
  absl::StatusOr<Work> IssueGather(OpKind kind, ConstBuffer in, Buffer out,
                                   absl::Span<const int64_t> counts, int root,
                                   const CallOptions& options);
  absl::Status CheckRank(absl::string_view what, int rank) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const absl::Duration deadline_;
  const std::shared_ptr<internal_collective::OperationLog> log_;
  const ForkGuard fork_guard_;

  // Numbers and issues are taken together.
  Mutex mutex_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_
