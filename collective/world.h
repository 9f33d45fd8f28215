// The ranks of a job, who find each other and stay in touch:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
//                             World::FromEnvironment());
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> group,
//                             world->MakeGroup());
//   LOCKSTEP_RETURN_IF_ERROR(Wait(group->Barrier()));
//
// Started by torchrun, srun, mpirun, a Kubernetes indexed job or `lockstep
// launch`, each process learns from its variables which rank it is
// (docs/launchers.md). Started by hand it is a world of one.
//
// Ranks keep one connection to rank 0, over which they learn who is missing,
// dead, or does something else. Whoever has the job's token (LOCKSTEP_TOKEN)
// can join it; without one, rank 0 listens on loopback alone. Data takes other
// ways: Gloo's and NCCL's connections know no token, and belong in a network of
// the job's hosts.
//
// A process that is forked from a rank is no rank: MakeGroup and its parent's
// groups are FAILED_PRECONDITION there, and destructors touch nothing
// (docs/errors.md, "Forks").
#ifndef LOCKSTEP_COLLECTIVE_WORLD_H_
#define LOCKSTEP_COLLECTIVE_WORLD_H_

#include <functional>
#include <map>
#include <memory>
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

namespace internal_collective {
class ControlPlane;
}  // namespace internal_collective

struct WorldOptions {
  // Where the ranks meet: "env://" (where the launcher says),
  // "tcp://host:port" (rank 0 listens there), or "file:///folder" (rank 0
  // listens at any port, and leaves its address in a folder that all can see).
  std::string init = "env://";

  // In place of `init`: the same by a store of the job's own. It outlives Join.
  Store* store = nullptr;

  // -1: as the launcher says.
  int rank = -1;
  int size = -1;

  // The same on all ranks of one attempt, another in each. "": as the launcher
  // says.
  std::string job;

  // The job's secret. "": FromEnvironment takes LOCKSTEP_TOKEN, or the first
  // line of the file that LOCKSTEP_TOKEN_FILE names.
  std::string token;

  // The network interface ("eth0") or the address of this host that data, and
  // with file:// or a store rank 0, are to use. "": the one by which this rank
  // reaches rank 0; loopback where rank 0 has no other.
  std::string interface;

  // How long ranks wait for each other to come.
  absl::Duration join_deadline = absl::Minutes(5);

  // Told what takes long, so that a log says it long before a deadline does.
  // Without it, nothing is said before the deadline:
  //
  //   options.on_slow = [](absl::string_view what) {
  //     std::fprintf(stderr, "%s\n", std::string(what).c_str());
  //   };
  //
  // A join that takes longer than `slow_join` is told on the thread that joins:
  // which ranks are missing, or why rank 0 is not reached; and again whenever
  // the time that it has taken has doubled. Slow operations of all groups that
  // have no `on_slow` of their own are told as GroupOptions says.
  std::function<void(absl::string_view)> on_slow;
  absl::Duration slow_join = absl::Seconds(5);

  // How often a rank says that it is alive, and what it did last.
  absl::Duration beat = absl::Seconds(1);

  // A rank that is not heard of for so long counts as lost, whether it is dead,
  // cut off or stopped.
  absl::Duration silence = absl::Minutes(1);

  // How long rank 0 stays for the others at the end.
  absl::Duration leave_patience = absl::Seconds(30);
};

struct GroupOptions {
  // In messages. A name can be used again once its group has failed, was closed
  // or is gone, and all ranks then make it again; before, ALREADY_EXISTS.
  std::string name = "world";

  // "shm": processes of one host, by shared memory; "gloo": any hosts, by TCP;
  // "auto": the first of these that the ranks can use. "nccl": any hosts, for
  // memory of CUDA devices, one device a rank.
  std::string backend = "auto";

  // A backend of your own: makes the transport that moves the bytes of this
  // group and of those that are split off it (transport.h). Messages then call
  // the backend by the name in `backend`.
  TransportFactory transport;

  // How long an operation may take, its data included, unless its call says
  // otherwise; and making the group.
  absl::Duration deadline = absl::Minutes(10);

  // An operation that takes longer is slow: from then on ranks find out whom it
  // waits for, and whether they do the same.
  absl::Duration slow = absl::Seconds(1);

  // Told what is slow, and who has not come: once for each such operation, on
  // every rank, by the thread that keeps this rank in touch. It may call Abort,
  // and must neither wait for an operation nor destroy the group. Without it,
  // WorldOptions::on_slow is told.
  std::function<void(absl::string_view)> on_slow;

  // Of "nccl", which can't compare what the ranks do: whether they first agree
  // on each collective, by way of rank 0, before any of them launches it. What
  // differs then never runs, and each collective takes a round trip longer.
  // Otherwise what differs and ends all the same is told at the next heartbeat.
  // The same on all ranks.
  bool strict = false;

  // Of "nccl": the CUDA device of this rank; -1: by its local rank, or the only
  // one that there is.
  int device = -1;
  // Where NCCL and the CUDA driver are, which are loaded when they are needed;
  // "": libnccl.so.2 and libcuda.so.1, as the dynamic loader finds them.
  std::string nccl_library;
  std::string cuda_library;
};

// Thread-safety: thread-safe.
class World {
 public:
  // What a launcher told this process by its variables, read once, here; what
  // `options` say counts more. All that is wrong with the variables is told in
  // one INVALID_ARGUMENT. Not while another thread sets a variable.
  static absl::StatusOr<std::unique_ptr<World>> FromEnvironment(
      const WorldOptions& options = {});

  // Reads no variable: rank, size and where to meet must be given. Returns when
  // all ranks are there; otherwise its error names the missing ones:
  //
  //   DEADLINE_EXCEEDED    ranks did not come, or rank 0 is not to be reached
  //   ALREADY_EXISTS       another process is this rank; the port is taken
  //   FAILED_PRECONDITION  rank 0 has another job, size or version
  //   UNAUTHENTICATED      it has another token
  static absl::StatusOr<std::unique_ptr<World>> Join(
      const WorldOptions& options);

  // Leaves: groups that still live here fail, and rank 0 stays until the others
  // have left, `leave_patience` at most.
  ~World();

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  // Among the ranks of this host.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  // "rank 2 of 4, local rank 0 of 2 (torchrun); rank 0 at 10.0.0.7:29500"
  const std::string& description() const { return description_; }

  // A group of all ranks, which all call this; they have their ranks in it. It
  // is connected when this returns. Groups of some ranks: Communicator::Split.
  //
  // A failed group is made again in the same way, as long as all processes
  // live. A rank that is dead, or was silent, is lost to this World for good:
  // this then returns UNAVAILABLE, naming it, and the launcher has to start all
  // ranks again.
  //
  // A rank whose options are refused (INVALID_ARGUMENT, NOT_FOUND,
  // UNIMPLEMENTED) has made the group all the same, and it has failed: the
  // others are told, and all can make it again. A rank whose name for the group
  // is refused has made none, though, and the others wait for it.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      const GroupOptions& options = {});

  // The backend that "auto" stands for.
  std::string AutoBackend() const;

 private:
  World(std::shared_ptr<internal_collective::ControlPlane> control,
        const WorldOptions& options, std::string address,
        std::string description);

  static absl::StatusOr<std::unique_ptr<World>> JoinAsLaunched(
      const WorldOptions& options);
  static absl::StatusOr<std::unique_ptr<World>> JoinAsTold(
      const WorldOptions& options);
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const GroupOptions& options);
  absl::StatusOr<std::string> TakeKey(const std::string& name);
  absl::Status CheckGroup(const GroupOptions& options,
                          const std::string& backend) const;

  const ForkGuard fork_guard_;
  const std::shared_ptr<internal_collective::ControlPlane> control_;
  const absl::Duration leave_patience_;
  const std::function<void(absl::string_view)> on_slow_;
  const std::string address_;  // of this host, for data
  const std::string description_;
  int local_rank_ = 0;
  int local_size_ = 1;

  Mutex mutex_;
  // How often a name was used.
  std::map<std::string, int> generations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_WORLD_H_
