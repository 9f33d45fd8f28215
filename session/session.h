// A Session is one training by several ranks. It joins the ranks, checks that
// they have the same job, makes the job's loaders, averages gradients over all
// samples, evaluates, saves checkpoints, and reports how the training goes. It
// stops all ranks after the same step, and ends all of them when one fails. The
// trainer is a function that takes the session:
//
//   absl::Status Train(Session& session, const TrainerOptions& options) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const auto train, session.MakeLoader("train"));
//     LOCKSTEP_ASSIGN_OR_RETURN(const auto test, session.MakeLoader("test"));
//     Model model;
//     LOCKSTEP_ASSIGN_OR_RETURN(
//         const auto gradients,
//         session.MakeGradients({{"weights", BufferOf(model.weights)}}));
//     LOCKSTEP_ASSIGN_OR_RETURN(model.gradient,
//                               gradients->Of<float>("weights"));
//     LOCKSTEP_RETURN_IF_ERROR(session.Restore());
//     for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
//       for (Step& step : session.Steps(*train, epoch)) {
//         for (const Batch& batch : step) {
//           LOCKSTEP_ASSIGN_OR_RETURN(const double loss,
//                                     model.AddGradients(batch));
//           step.Add("loss", loss);
//         }
//         LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
//         model.Update(options.learning_rate);
//       }
//       LOCKSTEP_ASSIGN_OR_RETURN(
//           const Evaluation tested,
//           session.Evaluate(*test, [&](const Batch& batch, Sums& sums) {
//             return model.AddLoss(batch, sums);
//           }));
//     }
//     return absl::OkStatus();
//   }
//
// main.h runs it as a program:
//
//   int main(int argc, char** argv) {
//     return lockstep::Main(argc, argv, Train);
//   }
//
// A host that has its own main function does the same as Main:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::unique_ptr<Session> session,
//       Session::Create(job, registry, SessionOptions()));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto finished, session->FindFinished());
//   if (finished.has_value()) return absl::OkStatus();  // nothing is left
//   return session->Run(
//       [&](Session& session) { return Train(session, options); });
#ifndef LOCKSTEP_SESSION_SESSION_H_
#define LOCKSTEP_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"  // IWYU pragma: export
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session_options.h"  // IWYU pragma: export
#include "lockstep/session/step.h"             // IWYU pragma: export
#include "lockstep/session/sums.h"             // IWYU pragma: export

namespace lockstep {

namespace internal_session {
struct Training;
}  // namespace internal_session

// One training by several ranks.
//
// A training is always in one phase, which this table shows in rows. A cell
// tells what a call does in that phase:
//
//   yes    it is allowed
//   PHASE  it is allowed, and the training is then in this phase
//   end    it is allowed, and takes effect when the step has ended
//   -      it is refused with FAILED_PRECONDITION, and the message says what to
//          do instead
//
// A refused call that returns a Status changes nothing. The calls that return
// no Status (Epochs, Steps, Step::Add and Step::AddWeight) fail the training
// when they are refused, since otherwise nobody would notice.
//
//   phase            loader make restore steps add average  eval save as  await
//   created          yes    yes  -       -     -   -        -    -    -   -
//   making           yes    yes  between -     -   -        yes  -    -   yes
//   between          yes    -    -       step  -   -        yes  yes  yes yes
//   step             yes    -    -       -     yes averaged yes  end  end yes
//   averaged         yes    -    -       -     -   yes      yes  end  end yes
//   left             yes    -    -       step  -   -        yes  -    -   yes
//   returned         -      -    -       -     -   -        -    -    -   -
//   evaluating       -      -    -       -     -   -        -    -    -   -
//   OnStart          yes    yes  -       -     -   -        -    -    -   -
//   OnEpochBegin     yes    -    -       -     -   -        yes  yes  yes yes
//   OnBatch          -      -    -       -     -   -        -    -    -   -
//   OnStep           yes    -    -       -     -   -        yes  end  end yes
//   OnEpochEnd       yes    -    -       -     -   -        yes  -    yes yes
//   OnEvaluation     yes    -    -       -     -   -        -    end  end yes
//   OnCheckpointSave -      -    -       -     -   -        -    -    -   -
//   OnCheckpointLoad -      -    -       -     -   -        -    -    -   -
//   OnFailure        -      -    -       -     -   -        -    -    -   -
//   OnShutdown       -      -    -       -     -   -        -    -    -   -
//
// The phases:
//
//   created     before Run
//   making      Run has called the trainer. If the job has no path for
//               checkpoints, Epochs and Steps are allowed, and end this phase.
//   between     outside of steps; a loop over steps ends in it
//   step        in a step, before the first Average; the next step begins in it
//   averaged    in a step, after Average: the ranks have added up
//   left        after `break`, `return` or an exception in a step
//   returned    Train has returned
//   evaluating  in the function that Evaluate calls
//   OnStart...  in that hook; in OnEvaluation outside of steps, `save` is
//               refused, and `as` saves at once or, before Restore, is refused
//
// The calls: `loader` is MakeLoader; `make` is MakeGradients, AddState, AddPart
// and RestoreFrom; `steps` is Epochs, and the beginning of a loop over Steps;
// `add` is Step::Add and Step::AddWeight; `average` is Step::Average; `eval`
// is Evaluate; `as` is SaveAs and SaveIfBest; `await` is AwaitSaved.
// FindFinished and Run are allowed in `created`, and Run once. All other
// functions may be called in each phase.
//
// Three facts hold beside the phase. After a failure, every call that returns a
// Status returns the failure, and loops have at most one more step, which has
// failed. When a stop is agreed, loops end after the step, and Evaluate, Save,
// SaveAs and SaveIfBest return CANCELLED, except in a step and in hooks. When
// all ranks agree to finish (FinishAfterThisStep), loops end after the step.
//
// Requires: the registry, the hooks, and a world or groups of the host outlive
// it.
// Guarantees: a failure of one rank ends Run on all ranks.
// Thread-safety: RequestStop and Log may be called on any thread. All other
// functions must be called on one thread.
class Session {
 public:
  // Joins the ranks, makes the groups, and compares the job's text over all
  // ranks. The registry must have all parts that the job names.
  //   FAILED_PRECONDITION  the ranks have different jobs, which it shows
  //   INVALID_ARGUMENT     the job's gradients are exact, and there are more
  //                        ranks than shards
  //   and the errors of World::FromEnvironment and Job::MakeGroup
  // If Create fails on one rank after it has joined the others, they learn of
  // it at once. If the host has given the world, they learn of it only when
  // this rank leaves.
  static absl::StatusOr<std::unique_ptr<Session>> Create(
      Job job, PluginRegistry& registry, const SessionOptions& options = {});

  // Leaves the other ranks. Operations of other ranks that still need this rank
  // fail.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns the number of steps after which this job has finished in an earlier
  // start, with the same settings, or nullopt. If there is a number, nothing is
  // left to do, and the log says so. Main then returns without a call of Run.
  // All ranks must call it, before Run. After an error, Run can't be called.
  //
  // A training with a path for checkpoints has finished when Run has returned
  // OK after a loop over steps or epochs, was not stopped, and has found steps
  // in each epoch. Rank 0 then writes the file PATH.finished beside the
  // checkpoints. If the job's settings have changed, such as the number of
  // epochs in its table [trainer], the job goes on, and its next checkpoint
  // removes the file. If something that is not in the job's text has changed,
  // remove the file yourself.
  absl::StatusOr<std::optional<int64_t>> FindFinished();

  // Calls the trainer once, and returns how the training has ended on all
  // ranks. A failure or an exception of one rank's trainer ends the training on
  // the others, which return it, too. This includes a rank that returns early.
  // Returns OK if all ranks finished, or if they stopped on request; then
  // stopping() is true. BlameOf says which rank's error came first; if the
  // session has no world, a rank's own error has no blame.
  //
  // If the job has a path for checkpoints, it is FAILED_PRECONDITION to return
  // OK from the middle of a loop over steps and to leave steps unsaved: end
  // such a training by FinishAfterThisStep.
  absl::Status Run(const std::function<absl::Status(Session&)>& train);

  const Job& job() const;
  PluginRegistry& registry() const;
  const SessionOptions& options() const;

  int rank() const { return group().rank(); }
  int size() const { return group().size(); }

  // The ranks. It is nullptr if a host has given only its group.
  World* world() const;

  // The job's group, and the group that moves the host's memory. They are the
  // same except with nccl. The trainer may issue its own collectives on them,
  // in the same order on all ranks.
  Communicator& group() const;
  Communicator& host_group() const;

  // Makes the loader of the job's table [loader.NAME] for this rank, and owns
  // it. `context` may contain a dataset, and LoaderHooks. A
  // loader that is made before Restore is in checkpoints as soon as Steps or
  // the trainer itself has read it. A loader that the trainer reads itself
  // continues after a restart where it was: leave out StartEpoch if there are
  // steps left. Restore, or else the first step, compares the data of the
  // loaders that were made before it over the ranks (Dataset::AddTo), and is
  // FAILED_PRECONDITION if they differ.
  //   NOT_FOUND       there is no such table; the message lists the tables
  //   ALREADY_EXISTS  this loader was made before
  absl::StatusOr<Loader*> MakeLoader(absl::string_view name,
                                     PluginContext context = {});

  // Makes the Gradients of these parameters on the job's group, and owns them.
  // The parameters, and a loss scale, are in checkpoints. The session begins
  // the steps, and Step::Average averages. A trainer of several models calls it
  // once for each. If the job's gradients are exact, they have its shards, and
  // GradientsOptions::shards is left out. Requires that the parameters stay in
  // their place until Train returns. Returns the errors of Gradients::Create,
  // and
  //   INVALID_ARGUMENT  GradientsOptions::shards is set, and the job has
  //   another
  //                     number of shards
  //   UNIMPLEMENTED     they are on a device, and the group moves only the
  //                     host's memory
  absl::StatusOr<Gradients*> MakeGradients(std::vector<Parameter> parameters,
                                           GradientsOptions options = {});

  // Adds a state of the trainer to the job's checkpoints, such as the state of
  // an optimizer or of a random number generator. The parameters of
  // MakeGradients, the positions of the loaders, and steps() are saved without
  // it. Checkpoint::Add says which names and memory it accepts. When Restore
  // finds no checkpoint, all ranks get rank 0's values, but not the bytes of a
  // CheckpointState. In a job without a path for checkpoints, Epochs and Steps
  // do the same if Restore was not called.
  //
  //   std::vector<float> momentum(weights.size());
  //   session.AddState("momentum", &momentum)
  template <typename T>
  absl::Status AddState(absl::string_view name, std::vector<T>* values) {
    LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddState"));
    return checkpoint().Add(name, values);
  }
  absl::Status AddState(absl::string_view name, Buffer values);
  absl::Status AddState(absl::string_view name, CheckpointMemory values);
  absl::Status AddState(absl::string_view name, CheckpointState state);

  // The same for memory of which each rank has one part (see
  // Checkpoint::AddPart).
  template <typename T>
  absl::Status AddPart(absl::string_view name, std::vector<T>* part) {
    LOCKSTEP_RETURN_IF_ERROR(CheckMake("AddPart"));
    return checkpoint().AddPart(name, part);
  }
  absl::Status AddPart(absl::string_view name, Buffer part);

  // Begins with sections of a checkpoint file of any job, such as the
  // parameters of a trained model. It takes nothing if there is a checkpoint
  // from which Restore continues. The log says whether the file is used. Call
  // it before Restore, when everything that it shall fill is made and added.
  // Checkpoint::RestoreFrom says more. The places of loaders, the number of
  // steps and the best values of the file are never taken.
  //
  //   LOCKSTEP_RETURN_IF_ERROR(
  //       session.RestoreFrom("/data/pretrained.final").status());
  absl::StatusOr<WarmStart> RestoreFrom(const std::string& path,
                                        const WarmStartOptions& options = {});

  // Restores the newest checkpoint, if there is one. A job that has a path for
  // checkpoints must call it, when everything is made and added, and before
  // Epochs and Steps. Returns the errors of Checkpoint::Restore.
  absl::Status Restore();

  // Saves a checkpoint. All ranks must call it. A call within a step saves when
  // that step has ended. The session itself saves after every `every_steps`
  // steps, at the end of an epoch, and when the training stops or finishes.
  // Writes nothing if the job has no path for checkpoints; all other rules
  // hold.
  //
  // A call of the trainer outside of steps says that the code that follows the
  // steps of this epoch is done: a training that continues from this checkpoint
  // begins with the next epoch. So call it last in the body of a loop over
  // epochs: steps or evaluations that follow in the same body are refused. When
  // the training stops, this call returns CANCELLED, because the checkpoint was
  // saved at the end of the last step. When the training finishes in the middle
  // of an epoch, this call saves nothing, for the same reason, and the log says
  // so.
  absl::Status Save();

  // Saves a checkpoint to the file PATH.NAME, such as /data/model.final, which
  // replaces an earlier one of this name. All ranks must call it. A call within
  // a step saves when that step has ended. Restore never continues from such a
  // file, `keep` never removes it, and the call says nothing about the code of
  // an epoch, unlike Save. It writes nothing if the job has no path for
  // checkpoints. Another job may take it by RestoreFrom, and exchange.h exports
  // it. Checkpoint::SaveAs says which names are accepted.
  absl::Status SaveAs(absl::string_view name);

  // Does the same if `value` is better than that of the earlier file of this
  // name, or if there is none. The file contains the value, so a restart does
  // not lose the best one. Of equal values, the earlier file is kept.
  //
  // Returns true if `value` is better than all earlier values of this training.
  // Checkpoints contain these, so steps that are repeated after a restart get
  // the same answer again.
  //
  //   session.SaveIfBest("best", tested.mean("loss"), Best::kLowest)
  //
  //   INVALID_ARGUMENT     the value is NaN, or the name is not accepted
  //   FAILED_PRECONDITION  ranks have different values, which the message
  //                        shows; or the file has the other kind of best
  absl::StatusOr<bool> SaveIfBest(absl::string_view name, double value,
                                  Best best);

  // Waits until the last checkpoint is on the disk. All ranks must call it.
  absl::Status AwaitSaved();

  // The number of steps that have ended, including those before a restart. In
  // a step it does not contain this step, and in OnStep it does.
  int64_t steps() const;

  // Returns the epochs from the loader's current one up to `epochs`, for a
  // range-based for loop around the steps of the same loader. The range ends
  // early if the training stops, finishes or has failed, or if the loader has
  // reached its max_steps. A loader with advance_epochs goes through all epochs
  // in one range of steps, so this range has one number, the present epoch,
  // whatever `epochs` is. End such a training by max_steps or by
  // FinishAfterThisStep.
  //
  // A checkpoint that the session saves at the end of an epoch knows nothing of
  // the code that follows the steps, so a training that continues from there
  // begins with that epoch and repeats this code, although no step of it is
  // left. The code is not repeated if a later checkpoint contains its effect:
  // one that was saved after this loop went on to the next epoch, or by a call
  // of Save in the body, or in a later loop over another loader. Code in the
  // body that comes before steps, of this loader or of another one, is repeated
  // by a training that continues within these steps, so it should change
  // nothing that checkpoints contain.
  EpochNumbers Epochs(const Loader& loader, int64_t epochs);

  // Returns the steps of an epoch, for a range-based for loop. If the loader
  // was restored, these are the remaining steps. A step ends when the loop asks
  // for the next one. A `break` leaves its step unfinished: that step does not
  // count, and the rest of its epoch can't be read any more. The last step is
  // the one after which all ranks stop or finish, or the first that failed. An
  // epoch is read once, and epochs are read in ascending order. Outside of
  // loops over Epochs, none is left out, unless Loader::StartEpoch was called
  // for it before, since a number of steps is easily passed as the epoch. (A
  // loader that was not made by MakeLoader is not watched in this way. The
  // ranks may have different numbers of its steps, unless it has
  // advance_epochs: a rank whose data has ended gets batches without rows in
  // those of the others. For Epochs, it should be in the same epoch on all
  // ranks.) A trainer with a session must not call the loader's Drain.
  StepRange Steps(Loader& loader, int64_t epoch);

  // Returns the steps of all epochs that are left, for a training that counts
  // steps. It does what a loop over Epochs around Steps would do: hooks are
  // called for each epoch, and a checkpoint is saved at its end. The loop ends
  // when the loader has done options.max_steps steps. If this is in the middle
  // of an epoch, the loop saves a checkpoint and does not call OnEpochEnd. A
  // later loop over the same loader continues there, also in a job that is
  // started again with more steps.
  //
  //   StepsOptions steps;
  //   steps.max_steps = options.steps;
  //   for (Step& step : session.Steps(*train, steps)) {
  //
  // Code that follows the loop is repeated by a job that is started again with
  // more steps. So what depends on the number of steps, such as a learning
  // rate, should be computed from step.global_number() in the loop. A loop over
  // Epochs of the same loader around this one fails the training.
  StepRange Steps(Loader& loader, const StepsOptions& options);

  // This overload is deleted, since Steps(loader, {5000}) would be epoch 5000.
  template <typename T>
  StepRange Steps(Loader& loader, std::initializer_list<T> options) = delete;

  // Ends the training after the current step: the session saves a checkpoint
  // when the step has ended, the loops over steps and epochs end, and Run
  // returns OK. It is for early stopping. In a step, before Average, a call on
  // one rank is enough. After Average, all ranks must call it at the same
  // place; ranks that differ get an error. Outside of steps, it saves nothing,
  // and no further step begins. The code that follows the loop over steps also
  // runs if the training finishes in the middle of an epoch; finishing() tells.
  // A job that is started again with the same settings does nothing, as after
  // any other end (see FindFinished); with other settings, it continues the
  // training.
  void FinishAfterThisStep();

  // Calls `evaluate` with each batch of the loader's epoch 0, adds up the sums
  // of all ranks, and returns the means over all samples, or over the weights
  // that were added with a sum. Each sample counts once, since padding comes
  // after a batch's valid rows and `evaluate` must use only the valid rows. (A
  // loader whose tail is "drop" leaves samples out.) An evaluation in a step
  // belongs to that step in logs and metrics.
  //   CANCELLED            the training stops, outside of a step; Train returns
  //                        this status, which is not a failure, unless data did
  //                        not come in time
  //   INVALID_ARGUMENT     the loader has advance_epochs or max_steps
  //   FAILED_PRECONDITION  the loader is read for the training, or by the
  //                        trainer itself
  absl::StatusOr<Evaluation> Evaluate(
      Loader& loader,
      const std::function<absl::Status(const Batch& batch, Sums& sums)>&
          evaluate);

  // Makes all ranks stop after the next step that they end together. A call on
  // one rank is enough, and it may come from a signal handler. A stopped
  // training is meant to continue later. A training that has finished early
  // ends by FinishAfterThisStep instead.
  //
  // If this rank waits for data in a loader of MakeLoader, it waits for as long
  // as the job's stop.patience after the first call, or since the wait began if
  // that was later, so that the step can end and be saved. Then the training
  // fails with CANCELLED, and the message says which checkpoint is the last
  // one. (With num_workers=0, Next reads on this thread, so the patience has no
  // effect.) Ranks on which this was not called wait as always.
  void RequestStop();

  // Returns true if RequestStop was called on this rank.
  bool stop_requested() const;

  // Returns true if the training has reached its first step.
  bool has_begun() const;

  // Returns true if the training stops on request.
  bool stopping() const;

  // Returns true if all ranks finish because of FinishAfterThisStep.
  bool finishing() const;

  // Writes a line to the log, on each rank that calls it.
  void Log(absl::string_view text) const;

  // Writes metrics, such as a learning rate, to the sinks of the job's tables
  // [metrics], on rank 0. They belong to the current step or, outside of a
  // step, to the last one. The means of steps and evaluations go there without
  // this call.
  //
  //   session.WriteMetrics({{"learning_rate", rate}});
  //
  // The sinks get this one as trainer/learning_rate.
  void WriteMetrics(absl::Span<const Metric> metrics);

 private:
  Session();

  absl::Status Join();
  absl::Status RunOnce(const std::function<absl::Status(Session&)>& train);
  absl::Status CallTrainer(const std::function<absl::Status(Session&)>& train);
  absl::Status CheckAllIsSaved() const;
  void Finish();
  absl::Status LeaveRanks(absl::Status status);
  void TellLastOperations() const;
  absl::Status CheckMake(absl::string_view name) const;
  Checkpoint& checkpoint();
  absl::Status AddToCheckpoint(int64_t number, Gradients& gradients);

  std::unique_ptr<internal_session::Training> training_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SESSION_H_
