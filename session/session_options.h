// The settings of a Session.
//
//   SessionOptions options;
//   options.hooks = {&progress};
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
//                             Session::Create(job, registry, options));
#ifndef LOCKSTEP_SESSION_SESSION_OPTIONS_H_
#define LOCKSTEP_SESSION_SESSION_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/session/hooks.h"

namespace lockstep {

// The settings of a session.
struct SessionOptions {
  // A host that has joined its ranks itself gives them and their group here.
  // Without them, the session joins the ranks that the launcher started, and
  // makes the group that the job's text describes. Both must outlive the
  // session. A host that gives a group need not give the world.
  World* world = nullptr;
  Communicator* group = nullptr;

  // A group of the same ranks that moves the host's memory. It is needed where
  // `group` moves only the memory of devices, as nccl does.
  Communicator* host_group = nullptr;

  // The session calls the hooks in this order. They must outlive the session.
  std::vector<SessionHooks*> hooks;

  // If it is more than 0, all ranks stop when so many steps have ended, counted
  // over restarts, as if RequestStop had been called. It is for tests.
  int64_t stop_after = 0;

  // If it is true, Main calls the trainer also if the job has finished before.
  // It is for a program that does not train, but evaluates the trained model,
  // for instance, with the text of the job that has trained it.
  bool runs_finished_jobs = false;

  // Receives the lines of the log, one at a time, on a thread of the session's
  // own. It may block: lines then wait, and the oldest of more than 1,000 are
  // dropped, which a later line tells. The lines tell the progress of the
  // training (on rank 0), why the training stops, and, in a world that the
  // session has made, ranks that are late and operations that are slow. Without
  // it, the lines go to the standard error. Where that is a terminal, a bar
  // also shows the progress. Everything that the function uses must live until
  // its last call has returned, which may be after the session's end if it
  // blocks.
  std::function<void(absl::string_view)> log;

  // Run waits for at most this time, at its end, for lines that the log has not
  // taken.
  absl::Duration log_patience = absl::Seconds(1);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SESSION_OPTIONS_H_
