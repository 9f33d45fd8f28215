// A World is the ranks of a job. They find each other and stay in touch through
// it:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
//                             World::FromEnvironment());
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> group,
//                             world->MakeGroup());
//   LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
//
// If a launcher starts the processes (torchrun, srun, mpirun, a Kubernetes
// indexed job or `lockstep launch`), each learns its rank from environment
// variables (docs/launchers.md). A process that is started by hand is a world
// of one.
//
// Each rank keeps one connection to rank 0, through which it learns which ranks
// are missing or dead, or issue something else. A process that has the job's
// token (LOCKSTEP_TOKEN) can join the job. Without a token, rank 0 listens on
// loopback only. Data uses other connections: those of TCP and NCCL check no
// token, so use a network that only the job's hosts can reach.
//
// A process that was forked from a rank is no rank: there, MakeGroup and the
// parent's groups return FAILED_PRECONDITION, and destructors touch nothing
// (docs/errors.md, "Forks").
#ifndef LOCKSTEP_COLLECTIVE_WORLD_H_
#define LOCKSTEP_COLLECTIVE_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

namespace internal_base {
class Notifier;
}  // namespace internal_base

namespace internal_collective {
class ControlPlane;
class Exchanges;
}  // namespace internal_collective

// The options of a World.
struct WorldOptions {
  // The place where the ranks meet: "env://" (the address that the launcher
  // gives), "tcp://host:port" (rank 0 listens there), or "file:///folder" (rank
  // 0 listens on any port, and writes its address to a folder that all ranks
  // can read).
  std::string init = "env://";

  // A store of the job, in place of `init`: rank 0 writes its address there. It
  // must outlive Join.
  Store* store = nullptr;

  // The rank and the number of ranks. -1 means the value that the launcher
  // gives.
  int rank = -1;
  int size = -1;

  // The name of the job, which is the same on all ranks of one attempt, and
  // another one in each attempt. If it is empty, the launcher's is used.
  std::string job;

  // The job's secret. If it is empty, FromEnvironment takes LOCKSTEP_TOKEN, or
  // the first line of the file that LOCKSTEP_TOKEN_FILE names.
  std::string token;

  // The network interface ("eth0") or the address of this host that data uses.
  // With file:// or a store, rank 0 also listens there. If it is empty, this
  // rank uses the address from which it reaches rank 0.
  std::string interface;

  // The longest time that ranks wait for each other.
  absl::Duration join_deadline = absl::Minutes(5);

  // Called with a message when something takes long, so that a log has it long
  // before a deadline passes. Without it, there is no message before the
  // deadline:
  //
  //   options.on_slow = [](absl::string_view what) {
  //     std::cerr << what << std::endl;
  //   };
  //
  // It is called in three cases:
  //
  //   * The join takes longer than `slow_join`. The message says which ranks
  //     are missing, or why this rank does not reach rank 0. It comes again
  //     whenever the join's time has doubled.
  //   * A group without an `on_slow` of its own has a slow operation.
  //   * This is rank 0, and it has refused a client after all ranks had joined,
  //     such as a rank of another job. The message comes again whenever the
  //     number of such clients has doubled.
  //
  // GroupOptions::on_slow says on which thread it runs, and what it may do.
  std::function<void(absl::string_view)> on_slow;
  absl::Duration slow_join = absl::Seconds(5);

  // The time between two messages in which a rank says that it is alive, and
  // what it issued last in each of its groups.
  absl::Duration beat = absl::Seconds(1);

  // A rank that was not heard of for this time is lost to the job: it may be
  // dead, cut off or stopped. The cause in the blame is `silent`.
  absl::Duration silence = absl::Minutes(1);

  // The longest time that rank 0 waits for the other ranks at the end.
  absl::Duration leave_patience = absl::Seconds(30);
};

// The options of a group. Groups that are split off it have the same.
struct GroupOptions {
  // The name of the group in messages. A name can be used again when its group
  // has failed, was closed or is gone, and all ranks then make the group again.
  // Before that, MakeGroup returns ALREADY_EXISTS.
  std::string name = "world";

  // The backend. "shm" is shared memory, for processes of one host. "tcp" is
  // for any hosts. "auto" is the first of these two that the ranks can use.
  // "nccl" is for memory of CUDA devices, one device a rank, on any hosts. In a
  // LocalWorld there is also "local", for threads of one process, and "auto"
  // stands for it. "gloo", the name that PyTorch's users know, is "tcp".
  std::string backend = "auto";

  // A backend of the caller's: a function that makes the transport
  // (transport.h) of this group, and of groups that are split off it. Then
  // `backend` is its name in messages: any but "local", the same on all ranks.
  TransportFactory transport;

  // The longest time for an operation, its data included, unless its call sets
  // another. It also limits the time for making the group.
  absl::Duration deadline = absl::Minutes(10);

  // An operation is slow if it has been the next one to be done for longer than
  // this, and so is the making of the group. The ranks then find out which
  // ranks it waits for, and whether all have issued the same.
  absl::Duration slow = absl::Seconds(1);

  // Called on every rank of the group with a message that says which operation
  // is slow, and which ranks have not come. It comes once for each slow
  // operation, and also for the making of the group, before MakeGroup returns.
  // Without it, WorldOptions::on_slow is called.
  //
  // It runs on a thread of its own. This group and those that are split off it
  // share that thread. All groups that use WorldOptions::on_slow share another
  // one. So it may block, as a log on a slow disk does: up to 1,000 messages
  // wait meanwhile. If more come, the oldest are dropped, and a later message
  // says how many. A slow operation is no failure: for example, the ranks wait
  // while rank 0 writes a checkpoint to a slow disk. So a callback rarely calls
  // Abort. It may do so, and may ask for values such as rank() and
  // RecentOperations(), but must call nothing else of a group, a Work or the
  // World. What it throws is ignored.
  //
  // Calls may also come after Close or a failure. The destructor of the group
  // waits for a call that is running, for at most 1 s, and none begins for this
  // group afterwards. Groups that are split off it may still call the same
  // function.
  std::function<void(absl::string_view)> on_slow;

  // These options are for "nccl" alone.
  NcclOptions nccl;
};

// Returns INVALID_ARGUMENT for options that no group can have.
absl::Status Validate(const GroupOptions& options);

// A SteadyOffset says how far the steady clock (std::chrono::steady_clock) of
// this process is ahead of that of rank 0, which may run on another machine.
struct SteadyOffset {
  absl::Duration ahead;
  // The largest error of `ahead`, if the clocks drift apart by no more than 1
  // ms in 50 s.
  absl::Duration error;
};

// One process's membership in the job.
// Thread-safety: thread-safe.
class World {
 public:
  // Joins the job that the launcher describes in environment variables. They
  // are read once, here, and `options` take precedence over them. One
  // INVALID_ARGUMENT lists all that is wrong with the variables.
  // Requires: no other thread sets a variable at the same time.
  static absl::StatusOr<std::unique_ptr<World>> FromEnvironment(
      const WorldOptions& options = {});

  // Joins a job without reading any variable: `options` must have the rank, the
  // size and the place to meet. Returns when all ranks have come. Otherwise,
  // the error names the missing ranks:
  //
  //   DEADLINE_EXCEEDED    ranks did not come, or rank 0 can't be reached
  //   ALREADY_EXISTS       another process is this rank, or the port is taken
  //   FAILED_PRECONDITION  rank 0 has another job, size or version
  //   UNAUTHENTICATED      rank 0 has another token
  static absl::StatusOr<std::unique_ptr<World>> Join(
      const WorldOptions& options);

  // Leaves the job. Groups that still exist here fail. Rank 0 waits until the
  // other ranks have left, for at most `leave_patience`, or 2 s if a group has
  // failed because ranks did not come in time.
  ~World();

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  // The rank and the number of ranks, both among the ranks of this host.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  // Returns, for example, "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at
  // 10.0.0.7:29500".
  const std::string& description() const { return description_; }

  // Makes a group of all ranks, which must all call this. Each has the same
  // rank in it as in the World. The group is connected when this returns.
  // Communicator::Split makes groups of some ranks.
  //
  // A failed group is made again in the same way, as long as all processes
  // live. If a rank is dead or was silent, it is lost to this World for good:
  // then this returns UNAVAILABLE with its name, and the launcher must start
  // all ranks again.
  //
  // If this rank's options are refused (INVALID_ARGUMENT, NOT_FOUND,
  // UNIMPLEMENTED), the group is made all the same, and has failed: the other
  // ranks are told, and all can make it again. But if the name is refused, no
  // group is made, and the other ranks wait for this one.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      const GroupOptions& options = {});

  // Ends all groups of the job on all ranks, also those that are made later,
  // because this rank can't go on. Communicator::Abort ends one group. Does not
  // wait. Any thread may call it.
  //
  //   const absl::StatusOr<Model> model = ReadModel();  // on each rank
  //   if (!model.ok()) {
  //     world->Abort(model.status());
  //     return model.status();
  //   }
  void Abort(const absl::Status& why);

  // Returns how far the clocks differ now, as the heartbeats show: the best of
  // the last 60 round trips counts. Nothing is known in the first two seconds.
  // Any thread may call it. Times of both ranks fit together so:
  //
  //   const std::optional<SteadyOffset> offset = world->steady_offset();
  //   if (offset.has_value() && offset->error < absl::Milliseconds(1)) {
  //     Show(mine - absl::ToChronoNanoseconds(offset->ahead));
  //   }
  std::optional<SteadyOffset> steady_offset() const;

  // Returns the backend that "auto" stands for.
  std::string AutoBackend() const;

 private:
  friend class LocalWorld;

  World(std::shared_ptr<internal_collective::ControlPlane> control,
        std::shared_ptr<internal_base::Notifier> on_slow,
        const WorldOptions& options, std::string address,
        std::string description,
        std::shared_ptr<internal_collective::Exchanges> exchanges = nullptr);

  static absl::StatusOr<std::unique_ptr<World>> JoinAsLaunched(
      const WorldOptions& options);
  static absl::StatusOr<std::unique_ptr<World>> JoinAsTold(
      const WorldOptions& options);
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const GroupOptions& options);
  absl::StatusOr<std::string> TakeKey(const std::string& name);
  std::string BackendOf(const GroupOptions& options) const;
  absl::Status CheckGroup(const GroupOptions& options,
                          const std::string& backend) const;

  const ForkGuard fork_guard_;
  const std::shared_ptr<internal_collective::ControlPlane> control_;
  // The places where ranks meet that are threads of one process; or null.
  const std::shared_ptr<internal_collective::Exchanges> exchanges_;
  const absl::Duration leave_patience_;
  const std::shared_ptr<internal_base::Notifier> on_slow_;  // or null
  const std::string address_;  // the address of this host, for data
  const std::string description_;
  int local_rank_ = 0;
  int local_size_ = 1;

  Mutex mutex_;
  // The number of times that each name was used.
  std::map<std::string, int> generations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_WORLD_H_
