// A Keeper is a second process of the launcher. It kills the process groups of
// ranks if the launcher is killed and can't do so itself.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(Keeper keeper, Keeper::Start());
//   if (fork() == 0) {
//     setpgid(0, 0);
//     keeper.Remember(getpid());
//     execv(...);
//   }
//   ...
//   keeper.Forget();  // the group is gone
#ifndef LOCKSTEP_TOOLS_CLI_KEEPER_H_
#define LOCKSTEP_TOOLS_CLI_KEEPER_H_

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "lockstep/base/descriptor.h"

namespace lockstep {

// Thread-safety: Remember and Forget may be called by several threads and
// processes at once.
class Keeper {
 public:
  // Starts the process. Requires: the caller is the only thread.
  static absl::StatusOr<Keeper> Start();

  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&&) = delete;

  // Ends the process, which first kills the groups that it remembers.
  ~Keeper();

  // Tells the keeper to kill group `group` when the launcher is gone. A child
  // calls this before it becomes the program, so that there is no moment in
  // which the keeper doesn't know the group. Async-signal-safe.
  void Remember(pid_t group) const { Tell(group); }

  // Tells the keeper to forget all groups. The launcher calls this when the
  // groups are gone, since other processes may get their numbers soon.
  void Forget() const { Tell(0); }

 private:
  Keeper(pid_t pid, Descriptor teller);
  void Tell(pid_t group) const;

  pid_t pid_;  // -1 after a move.
  Descriptor teller_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_KEEPER_H_
