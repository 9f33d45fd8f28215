// A Keeper is a second process of the launcher. It kills the groups of ranks
// when the launcher has been killed and can't do so itself.
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

class Keeper {
 public:
  // Starts the process. No thread but the caller's may run.
  static absl::StatusOr<Keeper> Start();

  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&&) = delete;

  // Ends the process, which kills what it remembers.
  ~Keeper();

  // Has group `group` killed when the launcher is gone. A child calls this
  // before it becomes the program, so that no moment is left in which the
  // keeper doesn't know it. Async-signal-safe.
  void Remember(pid_t group) const { Tell(group); }

  // Has the keeper forget all groups. The launcher calls this when they are
  // gone, since their numbers may be other processes' soon.
  void Forget() const { Tell(0); }

 private:
  Keeper(pid_t pid, Descriptor teller);
  void Tell(pid_t group) const;

  pid_t pid_;
  Descriptor teller_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_KEEPER_H_
