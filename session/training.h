// A Training is what the parts of a session share: the ranks, the job, what was
// made for it, the phase, and the facts that hold beside the phase. Session,
// StepLoop and Evaluate work on it. Internal.
#ifndef LOCKSTEP_SESSION_TRAINING_H_
#define LOCKSTEP_SESSION_TRAINING_H_

#include <atomic>
#include <cstdint>
#include <functional>
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
#include "lockstep/base/language.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/loader_table.h"
#include "lockstep/session/phase.h"
#include "lockstep/session/ranks.h"
#include "lockstep/session/reports.h"
#include "lockstep/session/session_options.h"
#include "lockstep/session/shard_sums.h"
#include "lockstep/session/shard_watch.h"
#include "lockstep/session/sums.h"

namespace lockstep::internal_session {

// The means of sums, and the weights that they were divided by.
struct Means {
  std::vector<Metric> values;
  std::vector<double> weights;
};

// The sources of the weight of a step on a rank. If there are both on any
// ranks, the weight counts different things.
struct WeightSources {
  bool calls = false;  // the trainer has called AddWeight
  bool rows = false;   // there are rows for which it has not
};

// Thread-safety: RequestStop and Log may be called on any thread. All other
// functions must be called on one thread.
struct Training {
  Training(Session& session, Job job, PluginRegistry& registry,
           const SessionOptions& options);

  // Joins the ranks, and makes the checkpoint and the reports.
  absl::Status Join();

  // Returns the context in which the parts of the job are made.
  PluginContext InThisSession(PluginContext context) const;

  // ---- Calls of the user.

  // Returns OK if a call is allowed now. Otherwise returns the failure of the
  // training or FAILED_PRECONDITION (see Phases::Check).
  absl::Status Check(Call call, absl::string_view name) const;

  // The same for Epochs and Steps. If Restore is missing, returns an error for
  // a job with checkpoints, and otherwise calls it and ends the phase kMaking.
  absl::Status CheckLoop(absl::string_view name);

  // Compares the data of the ranks, and restores the checkpoint.
  absl::StatusOr<std::optional<int64_t>> Restore();

  // Calls a function of all hooks, in this phase. If one fails, the training
  // has failed.
  absl::Status CallHooks(
      Phase phase, const std::function<absl::Status(SessionHooks&)>& call);

  void Fail(const absl::Status& why) { failure.Update(why); }

  // Returns the error and, unless it has blame already, blames this rank.
  absl::Status Blamed(const absl::Status& error) const;

  void Log(absl::string_view text) const;

  // ---- The end.

  // Asks all ranks to stop after a step. Signal handlers may call it.
  void RequestStop();
  bool stop_requested() const { return stop_requested_at_ != kNever; }
  // Returns true if the patience after RequestStop is over for a wait that has
  // taken so long.
  bool IsStopOver(absl::Duration waited) const;

  // Returns true if no further step may begin.
  // Requires: no step is open. Then all ranks get the same answer.
  bool IsOver() const { return stopping || finishing || finish_requested; }

  // Returns "the last checkpoint is after N steps", or that there is none.
  std::string LastCheckpoint() const;

  // Returns CANCELLED.
  static absl::Status StopsError();

  // ---- Shared functions.

  // Adds the name of the loader to an error of its Next.
  absl::Status InLoader(const Loader& loader, NextKind kind,
                        const absl::Status& error) const;

  // Adds the samples of the batch that could not be read, and that the loader
  // has left out or replaced, to `unread`. Logs the first one.
  void AddUnread(const Loader& loader, const Batch& batch,
                 int64_t& unread) const;
  // Logs how many samples a loop could not read, if any, and sets `unread` to
  // 0.
  void TellUnread(const Loader& loader, int64_t& unread) const;

  // Returns the shards of this rank if gradients are exact, or else none.
  ShardRange shards() const;

  // Returns FAILED_PRECONDITION if gradients are exact and the steps of the
  // loader are not cut into the job's shards.
  absl::Status CheckShards(const Loader& loader) const;

  // Adds up the weight, the sums, and the requests to stop or to finish over
  // all ranks. Sets `weight` to the total. The ranks compare `what`. It
  // averages `averaged`, too, if this is not null.
  // Requires: EndPart was called for all parts of the sums.
  absl::Status AddUp(int64_t& weight, const WeightSources& sources,
                     const ShardSums& by_shard, absl::string_view what,
                     Gradients* averaged, Means& means);

  // Takes in gradients that were made, or whose step has ended: watches their
  // groups, and logs when they travel once the steps have decided it.
  void Follow(const Gradients& followed);

  // Ends all groups for all ranks, because this one has failed.
  void Abort(const absl::Status& why);

  // Saves what was asked for by SaveAs in this step and, if `is_numbered`, a
  // checkpoint from which the training can continue. Calls the hooks if there
  // is anything to save.
  absl::Status Save(bool is_numbered);

  // Logs, once, that the job has no path for checkpoints.
  void TellNoPath();

  // Returns OK if SaveAs and SaveIfBest are allowed now.
  absl::Status CheckSaveAs(absl::string_view name) const;

  // Saves a file by name, now or, in a step, at its end.
  absl::Status SaveAs(CheckpointTarget target);

  Session& session;
  const Job job;
  PluginRegistry& registry;
  const SessionOptions options;
  // Declared before the ranks, which log to it.
  const std::shared_ptr<internal_base::Notifier> notifier;
  Ranks ranks;
  std::vector<std::unique_ptr<Gradients>> gradients;
  std::vector<ShardWatch> watches;  // of exact gradients, one for each
  std::optional<Reports> reports;
  LoaderTable loaders;
  std::optional<Checkpoint> checkpoint;  // destroyed before the loaders

  Phases phases;

  // ---- Facts that hold beside the phase.

  int64_t steps = 0;            // that have ended, also before a restart
  int64_t began_at = 0;         // the steps that had ended at the start
  int64_t saved_steps = -1;     // of the last checkpoint
  bool save_requested = false;  // in this step
  std::vector<CheckpointTarget>
      named_saves;                 // that were asked for in this step
  bool left_update = false;        // the step that was left may have an update
  bool has_begun = false;          // a step has begun
  bool has_looped = false;         // Epochs or Steps was called
  bool had_empty_epoch = false;    // an epoch had no step
  bool has_averaged = false;       // Average was called
  bool logged_no_average = false;  // the log says that it was not called
  bool stopping = false;           // all ranks stop, as was agreed
  bool finish_requested = false;   // on this rank
  bool finishing = false;          // all ranks finish, as was agreed
  absl::Status failure;            // the first failure
  std::string why_no_steps;        // why the last loop had no steps
  absl::Status restored;           // the last result of Restore
  bool logged_no_path = false;     // the log says that nothing is saved
  // Those of which it is not decided when they travel.
  std::vector<const Gradients*> undecided;

 private:
  absl::Status CheckExact() const;
  void Agree(int64_t stops, int64_t finishes);

  std::vector<double> elements_;  // what AddUp adds up

  // The time of the first RequestStop, which any thread or a signal handler
  // sets. It publishes no other memory, so its order does not matter.
  static constexpr SteadyTime::rep kNever =
      std::numeric_limits<SteadyTime::rep>::min();
  std::atomic<SteadyTime::rep> stop_requested_at_{kNever};
};

// Reads one epoch of the loader, and returns the means over all ranks (see
// Session::Evaluate).
absl::StatusOr<Evaluation> Evaluate(
    Training& training, Loader& loader,
    const std::function<absl::Status(const Batch& batch, Sums& sums)>&
        evaluate);

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_TRAINING_H_
