// A Communicator is one rank's membership in a group of ranks. The ranks
// exchange and reduce data through it.
//
//   std::vector<float> gradient = ...;
//   const Buffer buffer = BufferOf(gradient);
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const Work work, group->AllReduce(buffer, buffer, ReduceOp::kAvg));
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
//
// Every rank must issue the same operations in the same order. Lockstep
// compares them, and if a rank differs, all ranks are told. Operations end in
// the order in which they were issued. Send, Recv and SendRecv are outside this
// order: each pair of ranks and direction has its own.
//
// If a call refuses its arguments (INVALID_ARGUMENT, UNIMPLEMENTED,
// ALREADY_EXISTS), or comes after the rank's own Close, its error concerns that
// call alone, and nothing was issued. Any other failure is a failure of the
// group: it ends all pending operations, every later call on every rank returns
// it, and the group must be made again. (A rank that already had all its data
// learns of the failure from its next operation.)
//
//   FAILED_PRECONDITION  ranks issued different operations, or wait for each
//                        other in several groups; they are named
//   DEADLINE_EXCEEDED    ranks did not come in time; they are named, unless all
//                        came, or rank 0 does not answer
//   UNAVAILABLE          a rank has left or died; it is named
//   ABORTED              a rank called Abort; the message has its reason
//   RESOURCE_EXHAUSTED   a rank ran out of memory, threads or descriptors for
//                        its data
//
// A rank without memory for even a small object ends its process; the others
// are told that it is lost (docs/errors.md).
//
// A process that was forked from a rank has no part in the rank's groups:
// there, every call returns FAILED_PRECONDITION, and the destructor touches
// nothing.
#ifndef LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_
#define LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/group_memory.h"  // IWYU pragma: export
#include "lockstep/collective/operation.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/work.h"

namespace lockstep {

namespace internal_collective {
class ControlPlane;
class Group;
}  // namespace internal_collective

// The options of one call.
struct CallOptions {
  // The name of the operation, such as "bucket 3". The ranks compare it, and
  // messages contain it. At most 256 bytes.
  std::string name;

  // The factor by which every input is multiplied first. Only reductions of
  // floats accept a factor other than 1.
  double scale = 1;

  // The longest time from the call until the operation is done, its data
  // included (but see waits_within). 0 means the group's default. Ranks may set
  // different deadlines: the first one that passes fails the group.
  // Work::WaitUntil limits a single wait instead.
  absl::Duration deadline = absl::ZeroDuration();

  // The time for which the caller goes on computing before it waits for the
  // operation. Until it waits for this one or a later one, or the time is over,
  // the operation is not slow, and its deadline does not begin. (Work::Done is
  // no wait.) Meanwhile, the group's own thread does the operation, if it has
  // one.
  absl::Duration waits_within = absl::ZeroDuration();

  // A stream of the buffers' device. The operation begins after the work that
  // is queued on the stream at the time of the call, such as the kernel that
  // makes its input. Without a stream, the buffers must be ready. A call
  // returns UNIMPLEMENTED if the backend has no streams, if the stream is being
  // captured into a graph, and for Send, Recv and SendRecv.
  std::optional<Stream> stream;
};

// One rank's membership in a group.
// Thread-safety: thread-safe. Calls of several threads are serialized, in an
// order that other ranks will not match. So issue operations from one thread;
// any thread may call Abort.
class Communicator final {
 public:
  // Leaves the group, as Close does, and ends this rank's pending operations.
  // Waits until none of the caller's memory is in use, and until on_slow has
  // returned.
  ~Communicator();

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;

  // Returns where Allocate makes memory: on this rank's device over nccl, and
  // otherwise on the host.
  Device device() const;

  // Allocates memory that collectives of this group reach without a copy. All
  // ranks call it, with the same number of bytes, and all get memory or none.
  // Over shm, the ranks read each other's memory. Over nccl, it is memory of
  // the rank's device. Where the ranks can't reach each other's memory, also
  // because there is not enough that can be shared, all get memory of their
  // own, and GroupMemory::sharing says why. It takes up to two collectives, of
  // which messages show the name.
  //   INVALID_ARGUMENT    `bytes` is below 1
  //   RESOURCE_EXHAUSTED  there is no memory on one of the ranks, which the
  //                       message names; the group goes on
  //   UNIMPLEMENTED       the group moves memory of a device, by a transport
  //                       that has no AllocateOnDevice
  absl::StatusOr<GroupMemory> Allocate(int64_t bytes,
                                       const CallOptions& options = {});

  // ---- Reductions. `in` and `out` may be the same memory.

  // Sets out[i] on every rank to the reduction of all in[i].
  absl::StatusOr<Work> AllReduce(ConstBuffer in, Buffer out, ReduceOp op,
                                 const CallOptions& options = {});
  // Does the same, but only rank `root` gets the result. The other ranks' `out`
  // is ignored.
  absl::StatusOr<Work> Reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                              const CallOptions& options = {});
  // Reduces as AllReduce does, and gives part r of size() equal parts to rank
  // r. In place, `out` is that part of `in`.
  absl::StatusOr<Work> ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op,
                                     const CallOptions& options = {});

  // Adds up the shards of a step, each of which has a value for every out[i],
  // along their tree (shard_tree.h). So the sums have the same bits on any
  // number of ranks, whoever has which shards; AllReduce adds in the order of
  // ranks instead. shards[r] is the number of shards of rank r, at least 1, and
  // they are numbered by rank; all ranks must pass the same. `in` has what this
  // rank can add up by itself, along the same tree: the sums that ShardSumsOf
  // returns for its shards, one after another, each of out.count elements. In
  // place, `out` is the first of them. Only f32 and f64 are accepted, and no
  // scale. It is UNIMPLEMENTED over nccl, and over shm where hundreds of ranks
  // bring more sums than it has room for.
  absl::StatusOr<Work> AllReduceShards(ConstBuffer in, Buffer out,
                                       absl::Span<const int64_t> shards,
                                       const CallOptions& options = {});

  // ---- Moving. The parts of all ranks are stored one after another, by rank.

  // Copies `in` of rank `root` to `out` of every rank. The other ranks' `in` is
  // ignored.
  absl::StatusOr<Work> Broadcast(ConstBuffer in, Buffer out, int root,
                                 const CallOptions& options = {});
  // Gives the `in` of all ranks, which have equal sizes, to every rank. In
  // place, `in` is this rank's part of `out`.
  absl::StatusOr<Work> AllGather(ConstBuffer in, Buffer out,
                                 const CallOptions& options = {});
  // Does the same for parts of different sizes: the part of rank r has
  // counts[r] elements. All ranks must pass the same counts.
  absl::StatusOr<Work> AllGatherV(ConstBuffer in, Buffer out,
                                  absl::Span<const int64_t> counts,
                                  const CallOptions& options = {});
  // Gather and GatherV do the same, but only rank `root` gets the parts. The
  // other ranks' `out` is ignored.
  absl::StatusOr<Work> Gather(ConstBuffer in, Buffer out, int root,
                              const CallOptions& options = {});
  absl::StatusOr<Work> GatherV(ConstBuffer in, Buffer out,
                               absl::Span<const int64_t> counts, int root,
                               const CallOptions& options = {});
  // Gives part r of `in` of rank `root` to rank r. The other ranks' `in` is
  // ignored.
  absl::StatusOr<Work> Scatter(ConstBuffer in, Buffer out, int root,
                               const CallOptions& options = {});
  absl::StatusOr<Work> ScatterV(ConstBuffer in, Buffer out,
                                absl::Span<const int64_t> counts, int root,
                                const CallOptions& options = {});
  // Gives part r of this rank's `in` to rank r, which stores it as part
  // `rank()` of its `out`.
  absl::StatusOr<Work> AllToAll(ConstBuffer in, Buffer out,
                                const CallOptions& options = {});
  // Does the same for parts of different sizes. The number of elements that a
  // rank sends to another must be the number that the other receives from it.
  absl::StatusOr<Work> AllToAllV(ConstBuffer in,
                                 absl::Span<const int64_t> send_counts,
                                 Buffer out,
                                 absl::Span<const int64_t> recv_counts,
                                 const CallOptions& options = {});

  // Ends when all ranks have issued it.
  absl::StatusOr<Work> Barrier(const CallOptions& options = {});

  // ---- Between two ranks.

  // Sends `in`. The operation is done when `in` may be changed, which can be
  // before the other rank has received it.
  absl::StatusOr<Work> Send(ConstBuffer in, int to,
                            const CallOptions& options = {});
  absl::StatusOr<Work> Recv(Buffer out, int from,
                            const CallOptions& options = {});
  // Sends and receives at once. `to` and `from` may be any two ranks, and also
  // this one.
  absl::StatusOr<Work> SendRecv(ConstBuffer in, int to, Buffer out, int from,
                                const CallOptions& options = {});

  // ---- The group.

  // Returns the last operations that this rank issued, the oldest first, and at
  // most `most` of them. A group keeps 1,024, or as many as KeepOperations asks
  // for. A forked process has none.
  std::vector<OperationRecord> RecentOperations(
      int64_t most = std::numeric_limits<int64_t>::max()) const;

  // Keeps at least so many operations from now on. Each takes about 100 bytes.
  void KeepOperations(int64_t least);

  // Returns the number of operations that this rank has issued, those between
  // two ranks included.
  int64_t issued_operations() const;

  // Makes a group of some of the ranks. Exactly these ranks call it, all with
  // the same arguments. The rank of each in the new group is its index in
  // `members`. A name can be used only once.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(
      absl::string_view name, absl::Span<const int> members);

  // Fails the group: ends every pending operation on every rank. Does not wait.
  // Any thread may call it, also in on_slow.
  void Abort(absl::Status why);

  // Leaves the group. Operations that this rank has issued go on. The first
  // operation that still needs this rank fails on all ranks, with a message
  // that it has left. Does not wait, except after Abort: then it waits, for at
  // most 1 s, until rank 0 has said whether another rank failed first. The
  // destructor ends operations that are pending then, so Wait for the last Work
  // first. Returns the group's failure, if there was one.
  absl::Status Close();

  // Only Lockstep itself calls this. Returns this rank's membership in a group
  // that it has joined. Leaves the group if there is no memory for that.
  static absl::StatusOr<std::unique_ptr<Communicator>> Of(
      std::shared_ptr<internal_collective::ControlPlane> control,
      std::shared_ptr<internal_collective::Group> group);

 private:
  Communicator(std::shared_ptr<internal_collective::ControlPlane> control,
               std::shared_ptr<internal_collective::Group> group);

  // Returns the result of `call`. If the process was forked, returns an error
  // instead. If `call` throws, the process ends.
  template <typename Call>
  auto Guarded(const Call& call) -> decltype(call());

  // Does Allocate, of which `call` has the name (allocate.cc).
  absl::StatusOr<GroupMemory> AllocateOnAll(int64_t bytes,
                                            const CallOptions& call);
  absl::Status CheckSplit(absl::string_view name,
                          absl::Span<const int> members) const;
  Operation MakeOperation(OpKind kind, DType dtype,
                          const CallOptions& options) const;
  absl::StatusOr<Work> Issue(Operation op);
  absl::StatusOr<Work> IssueGather(OpKind kind, ConstBuffer in, Buffer out,
                                   absl::Span<const int64_t> counts, int root,
                                   const CallOptions& options);
  absl::Status CheckRank(absl::string_view what, int rank) const;

  const std::shared_ptr<internal_collective::ControlPlane> control_;
  const std::shared_ptr<internal_collective::Group> group_;
  const ForkGuard fork_guard_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_COMMUNICATOR_H_
