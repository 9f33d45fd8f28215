// VerifyRestart checks that a training continues from a checkpoint exactly. It
// is for a trainer's tests:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::unique_ptr<Session> session,
//       Session::Create(job, registry, SessionOptions()));
//   return VerifyRestart(*session, Train);
#ifndef LOCKSTEP_SESSION_VERIFY_H_
#define LOCKSTEP_SESSION_VERIFY_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/job.h"
#include "lockstep/session/session.h"

namespace lockstep {

// The settings of VerifyRestart.
struct VerifyOptions {
  // The number of steps before the restart, and also of those after it.
  int64_t steps = 5;

  // The number of ranks after the restart, which are the first ones. The others
  // wait. 0: all ranks of the session. With fewer ranks, a training ends with
  // the same bits if its gradients are exact (ExactOptions). Session::world is
  // nullptr on these ranks.
  int64_t ranks = 0;

  // Changes the job for the part after the restart. It must change nothing that
  // affects the result; the number of workers is an example of what it may
  // change. It must do the same on all ranks.
  std::function<void(Job& job)> change;
};

// Calls the trainer three times, in new sessions with the job and the ranks of
// this one: for 2 * steps steps; for `steps` steps; and then for `steps` more,
// from the checkpoint, on `ranks` ranks. Rank 0 keeps the checkpoints in a
// temporary folder. All ranks must call it, in place of session.Run.
//   FAILED_PRECONDITION  the results differ; names the first section of the
//                        checkpoint that differs
//   INVALID_ARGUMENT     the training has fewer steps
//   CANCELLED            RequestStop was called for this session on any rank;
//                        a rank that waits for others passes it on when they
//                        have ended
//   and the errors of Session::Run
absl::Status VerifyRestart(Session& session,
                           const std::function<absl::Status(Session&)>& train,
                           const VerifyOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_VERIFY_H_
