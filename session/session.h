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
//         session.MakeGradients(
//             {{"weights", absl::MakeSpan(model.weights), &model.gradient}}));
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
//   return session->Run(
//       [&](Session& session) { return Train(session, options); });
#ifndef LOCKSTEP_SESSION_SESSION_H_
#define LOCKSTEP_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/gradients.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/sums.h"

namespace lockstep {

class Session;
class StepRange;

namespace internal_session {
class Console;
class Reports;
struct Tally;
}  // namespace internal_session

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

  // Receives the lines of the log, on any thread, also on several at once. One
  // of them keeps the rank in touch with the others, so this must not block, as
  // GroupOptions::on_slow says. The lines tell the progress of the training
  // (on rank 0), why the training stops, and, in a world that the session has
  // made, ranks that are late and operations that are slow. Without it, the
  // lines go to the standard error. Where that is a terminal, a bar also shows
  // the progress.
  std::function<void(absl::string_view)> log;
};

// The settings of Session::Verify.
struct VerifyOptions {
  // The number of steps before the restart, and also of those after it.
  int64_t steps = 5;

  // Changes the job for the part after the restart. It must change nothing that
  // affects the result; the number of workers is an example of what it may
  // change. It must do the same on all ranks.
  std::function<void(Job& job)> change;
};

// The result of an evaluation, over the samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  std::vector<Metric> means;

  // Returns the mean of that name, or NaN if there is none.
  double mean(absl::string_view name) const { return ValueOf(means, name); }
};

// A step of a training: the batch of this rank, and the sums over all ranks. A
// step that failed has no batch, and Average returns why it failed.
// Thread-safety: thread-compatible.
class Step {
 public:
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Returns OK, or why this step has failed; a step that failed is the last
  // one. Average returns the same status. A trainer that does not call Average
  // checks the status here.
  const absl::Status& status() const { return status_; }

  int64_t epoch() const { return epoch_; }
  int64_t number() const { return number_; }  // in the epoch, from 0

  // The range of this rank's batches, which has one batch. A batch without data
  // has no valid rows and needs no special treatment. Hooks see the batch as
  // the trainer leaves it.
  Batch* begin() { return batch_; }
  Batch* end() { return status_.ok() ? batch_ + 1 : batch_; }
  const Batch* begin() const { return batch_; }
  const Batch* end() const { return status_.ok() ? batch_ + 1 : batch_; }

  // Adds to a sum of this step, such as the loss of a batch's valid rows. The
  // session adds the sums of all ranks, with the precision of a float, and
  // divides them by the total weight, which makes a mean over all rows. Call it
  // before Average, and for each batch, including one without valid rows,
  // because all ranks must add the same names.
  void Add(absl::string_view name, double sum);

  // Sets the weight of this rank's gradients and sums: for instance, the number
  // of tokens. By default it is the number of valid rows of the batch. It must
  // be 0 or more. Call it before Average.
  void set_weight(int64_t weight);
  int64_t weight() const { return weight_; }

  // Adds up the gradients of all ranks and divides them by the weight of all
  // ranks. So the gradients that the trainer has added, which are sums over
  // rows, become means. They are 0 if no rank has a row. On the host, this is
  // one collective, which also adds up the sums. For gradients on a device, the
  // sums have a collective of their own. A trainer with several models calls
  // Average once for each.
  absl::Status Average(Gradients& gradients);

  // The total over all ranks, valid after Average and in hooks. The session
  // writes the means to the log and to the job's metrics sinks.
  int64_t total_weight() const { return total_weight_; }
  absl::Span<const Metric> means() const { return means_; }
  // Returns the mean of that name, or NaN if nothing of that name was added.
  double mean(absl::string_view name) const { return ValueOf(means_, name); }

 private:
  friend class Session;
  friend class StepRange;

  Step() = default;

  // Fails the step because `call` came after Average.
  void RefuseAfterAverage(absl::string_view call);

  Session* session_ = nullptr;
  absl::Status status_;
  int64_t epoch_ = 0;
  int64_t number_ = 0;
  Batch* batch_ = nullptr;
  int64_t weight_ = 0;
  Sums sums_;
  bool is_weight_rows_ = true;
  // The numbers of the batch are kept here, since the trainer may have released
  // it.
  int64_t batch_epoch_ = 0;
  int64_t rows_ = 0;
  bool is_added_up_ = false;  // the weight, sums and stop requests
  int64_t total_weight_ = 0;
  std::vector<Metric> means_;
  // The times when the step before this one ended, when the session asked for
  // this step's batch, and when the batch had come.
  SteadyTime before_, asked_, begun_;
};

// The epochs that Session::Epochs returns. The session and the loader must
// outlive it.
// Thread-safety: thread-compatible.
class EpochNumbers {
 public:
  // An iterator at one epoch. `!=` requires the end of the range on its right.
  class Iterator {
   public:
    int64_t operator*() const { return epoch_; }
    Iterator& operator++() {
      ++epoch_;
      return *this;
    }
    bool operator!=(const Iterator& end) const;

   private:
    friend class EpochNumbers;
    Iterator(const EpochNumbers* range, int64_t epoch)
        : range_(range), epoch_(epoch) {}

    const EpochNumbers* range_;
    int64_t epoch_;
  };

  Iterator begin() const { return {this, begin_}; }
  Iterator end() const { return {this, end_}; }

 private:
  friend class Session;
  EpochNumbers(const Session& session, const Loader& loader, int64_t begin,
               int64_t end)
      : session_(session), loader_(loader), begin_(begin), end_(end) {}

  // Returns true if no step is left in any epoch.
  bool over() const;

  const Session& session_;
  const Loader& loader_;
  const int64_t begin_;
  const int64_t end_;
};

// One training by several ranks.
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
  //   and the errors of World::FromEnvironment and Job::MakeGroup
  static absl::StatusOr<std::unique_ptr<Session>> Create(
      Job job, PluginRegistry& registry, const SessionOptions& options = {});

  // Leaves the other ranks. Operations of other ranks that still need this rank
  // fail.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Calls the trainer once, and returns how the training has ended on all
  // ranks. A failure or an exception of one rank's trainer ends the training on
  // the others, which return it, too. This includes a rank that returns early.
  // Returns OK if all ranks finished, or if they stopped on request; then
  // stopping() is true.
  absl::Status Run(const std::function<absl::Status(Session&)>& train);

  // Checks that the training continues from a checkpoint exactly. It is for a
  // trainer's tests, in place of Run. It calls the trainer three times: for
  // 2 * steps steps; for `steps` steps; and then for `steps` more, from the
  // checkpoint and with the same ranks. Rank 0 keeps the checkpoints in a
  // temporary folder.
  //   FAILED_PRECONDITION  the results differ; names the first section of the
  //                        checkpoint that differs
  //   INVALID_ARGUMENT     the training has fewer steps
  //   and the errors of Run
  absl::Status Verify(const std::function<absl::Status(Session&)>& train,
                      const VerifyOptions& options = {});

  const Job& job() const { return job_; }
  PluginRegistry& registry() const { return registry_; }

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  // The ranks. It is nullptr if a host has given only its group.
  World* world() const { return world_; }

  // The job's group, and the group that moves the host's memory. They are the
  // same except with nccl. The trainer may issue its own collectives on them,
  // in the same order on all ranks.
  Communicator& group() const { return *group_; }
  Communicator& host_group() const { return *host_group_; }

  // Makes the loader of the job's table [loader.NAME] for this rank, and owns
  // it. `context` may contain a dataset, and LoaderOptions with callbacks.
  //   NOT_FOUND       there is no such table; the message lists the tables
  //   ALREADY_EXISTS  this loader was made before
  absl::StatusOr<Loader*> MakeLoader(absl::string_view name,
                                     PluginContext context = {});

  // Allocates memory for the gradients of these parameters, and owns it. All
  // ranks get the parameters of rank 0. Requires that the parameters and the
  // spans of their gradients stay in their place until Train returns.
  //   INVALID_ARGUMENT     for instance, two parameters have the same name
  //   FAILED_PRECONDITION  the ranks have different ones, which it shows
  //   UNIMPLEMENTED        they are on a device, and the group moves only
  //                        the host's memory
  absl::StatusOr<Gradients*> MakeGradients(std::vector<Parameter> parameters,
                                           const GradientOptions& options = {});

  // Adds a state of the trainer to the job's checkpoints, such as the state of
  // an optimizer or of a random number generator. The parameters of
  // MakeGradients, the positions of the loaders, and steps() are saved without
  // it. Call it before Restore. Checkpoint::Add says which names and memory it
  // accepts.
  //
  //   session.AddState("momentum", BufferOf(momentum))
  absl::Status AddState(absl::string_view name, Buffer values) {
    return checkpoint_->Add(name, values);
  }
  absl::Status AddState(absl::string_view name, CheckpointMemory values) {
    return checkpoint_->Add(name, std::move(values));
  }
  absl::Status AddState(absl::string_view name, CheckpointState state) {
    return checkpoint_->Add(name, std::move(state));
  }

  // The same for memory of which each rank has one part (see
  // Checkpoint::AddPart).
  absl::Status AddPart(absl::string_view name, Buffer part) {
    return checkpoint_->AddPart(name, part);
  }

  // Restores the newest checkpoint, if there is one. Call it after everything
  // is made and added, and before Epochs. A job that has a path for checkpoints
  // must call it before the first step. Returns the errors of
  // Checkpoint::Restore.
  absl::Status Restore();

  // Saves a checkpoint. All ranks must call it. A call within a step saves when
  // that step has ended. The session itself saves after every `every_steps`
  // steps, at the end of an epoch, and when the training stops. Does nothing if
  // the job has no path for checkpoints.
  absl::Status Save();

  // Waits until the last checkpoint is on the disk. All ranks must call it.
  absl::Status AwaitSaved() { return checkpoint_->Wait(); }

  // The number of steps that have ended, including those before a restart.
  int64_t steps() const { return steps_; }

  // Returns the epochs from the loader's current one up to `epochs`, for a
  // range-based for loop around the steps of the same loader. The range ends
  // early if the training stops or has failed, or if the loader has reached its
  // max_steps. A loader with advance_epochs goes through all epochs in one
  // range of steps, so this range has one number. A training that continues
  // from the end of an epoch begins with that epoch, although no step of it is
  // left. So it repeats the code that follows the steps.
  EpochNumbers Epochs(const Loader& loader, int64_t epochs);

  // Returns the steps of an epoch, for a range-based for loop. If the loader
  // was restored, these are the remaining steps. A step ends when the loop asks
  // for the next one. A `break` leaves its step unfinished, and that step does
  // not count. The last step is the one after which all ranks stop, or the
  // first that failed. A trainer with a session must not call the loader's
  // Drain.
  StepRange Steps(Loader& loader, int64_t epoch);

  // Calls `evaluate` with each batch of the loader's epoch 0, adds up the sums
  // of all ranks, and returns the means over all samples. Each sample counts
  // once, since padding comes after a batch's valid rows and `evaluate` must
  // use only the valid rows. (A loader whose tail is "drop" leaves samples
  // out.)
  //   CANCELLED         the training stops; Train returns this status, which is
  //                     not a failure, unless data did not come in time
  //   INVALID_ARGUMENT  the loader has advance_epochs or max_steps
  absl::StatusOr<Evaluation> Evaluate(
      Loader& loader,
      const std::function<absl::Status(const Batch& batch, Sums& sums)>&
          evaluate);

  // Makes all ranks stop after the next step that they end together. A call on
  // one rank is enough, and it may come from a signal handler. A stopped
  // training is meant to continue later. A trainer that has finished early
  // should instead return from Train, on all ranks.
  //
  // If this rank waits for data in a loader of MakeLoader, it waits for as long
  // as the job's stop.patience after the first call, or since the wait began if
  // that was later, so that the step can end and be saved. Then the training
  // fails with CANCELLED, and the message says which checkpoint is the last
  // one. (With num_workers=0, Next reads on this thread, so the patience has no
  // effect.) Ranks on which this was not called wait as always.
  void RequestStop();

  // Returns true if the training has reached its first step.
  bool has_begun() const { return has_begun_; }

  // Returns true if the training stops on request.
  bool stopping() const { return stopping_; }

  // Writes a line to the log.
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
  friend class EpochNumbers;
  friend class Step;
  friend class StepRange;

  Session(Job job, PluginRegistry& registry, const SessionOptions& options);

  absl::Status Join(const SessionOptions& options);
  absl::StatusOr<std::unique_ptr<Communicator>> MakeHostGroup();
  PluginContext InThisSession(PluginContext context) const;
  absl::Status Share(Gradients& gradients);
  absl::Status BeginStep(Step& step);
  absl::Status EndStep(Step& step, const Loader& loader);
  absl::Status Average(Step& step, Gradients& gradients);
  absl::Status AverageOnHost(Step& step, Gradients& gradients);
  absl::Status AverageOnDevice(Step& step, Gradients& gradients);

  // Issues a collective on gradients. On the host, the collective has ended
  // when this returns. On a device, it is queued on the gradients' stream.
  absl::Status Do(const Gradients& gradients, CallOptions options,
                  const std::function<absl::StatusOr<Work>(
                      Communicator&, const CallOptions&)>& issue);

  // Adds up the weight, the sums and the stop requests of a step or an
  // evaluation over all ranks. They follow `count` values in the memory at
  // `values`, and the same collective adds up both.
  absl::Status AddUp(Step& step, absl::string_view what);
  template <typename Float>
  absl::Status AddUp(Step& step, Float* values, int64_t count,
                     absl::string_view what);
  template <typename Float>
  absl::Status AddUp(internal_session::Tally& tally, const Sums& sums,
                     Float* values, int64_t count, absl::string_view what,
                     std::vector<Metric>& means);
  absl::Status CheckGoesOn() const;
  absl::Status BeginEpoch(const Loader& loader, int64_t epoch);
  absl::Status EndEpoch(const Loader& loader, int64_t epoch);
  void NoteFirstStep();
  void NoteEndOfEpoch(const Loader& loader, int64_t epoch);

  absl::Status AddToCheckpoint(const Gradients& gradients);
  absl::Status AddToCheckpoint(absl::string_view name, Loader& loader);
  absl::Status CheckIsSaved(const Loader& loader) const;
  absl::Status CheckGoesOnIn(const Loader& loader, int64_t epoch);
  // Adds the name of the loader to an error of its Next.
  absl::Status InLoader(const Loader& loader, const absl::Status& error) const;
  // Returns true if the patience after RequestStop is over for a wait that has
  // taken so long.
  bool IsStopOver(absl::Duration waited) const;
  // Returns the loader's name in the job, or nullptr.
  const std::string* FindName(const Loader& loader) const;
  // Returns the loader's name in the job, or "loader".
  std::string NameOf(const Loader& loader) const;
  void Report(const Step& step, const Loader& loader, SteadyTime ended);
  static std::string NameOf(const Step& step, const Gradients* gradients);
  absl::Status TrainUntil(int64_t steps, const std::string& path,
                          const std::function<absl::Status(Session&)>& train,
                          const std::function<void(Job& job)>& change);
  absl::Status VerifyAt(const std::string& path,
                        const std::function<absl::Status(Session&)>& train,
                        const VerifyOptions& options);
  absl::Status CallTrainer(const std::function<absl::Status(Session&)>& train);
  void Fail(const absl::Status& why);
  absl::Status CallHooks(
      const char* event,
      const std::function<absl::Status(SessionHooks&)>& call);

  // The gradients are declared first, so that they outlive the groups. After a
  // failure, a group may still use gradients on a device.
  std::vector<std::unique_ptr<Gradients>> gradients_;

  const Job job_;
  PluginRegistry& registry_;
  const std::vector<SessionHooks*> hooks_;
  const std::shared_ptr<internal_session::Console> console_;  // null with a log
  const std::function<void(absl::string_view)> log_;

  std::unique_ptr<World> own_world_;
  std::unique_ptr<Communicator> own_group_;
  std::unique_ptr<Communicator> own_host_group_;
  World* world_ = nullptr;
  Communicator* group_ = nullptr;
  Communicator* host_group_ = nullptr;

  Work on_device_;  // the last operation on a device

  std::map<std::string, std::unique_ptr<Loader>> loaders_;
  std::map<const Loader*, int64_t> ended_;  // the last epoch that ended

  std::unique_ptr<internal_session::Reports> reports_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::set<const Loader*> saved_loaders_;    // in the checkpoints
  std::set<const Loader*> stepped_loaders_;  // read by Steps
  // The epoch in which a restored loader continues, until Steps reads that
  // loader.
  std::map<const Loader*, int64_t> restored_epochs_;
  int64_t steps_ = 0;
  int64_t last_step_ = -1;    // the training stops after it; negative: none
  int64_t saved_steps_ = -1;  // of the last checkpoint
  bool is_in_step_ = false;
  bool left_step_ = false;       // the trainer left the last step unfinished
  bool save_requested_ = false;  // in this step

  // Returns true if RequestStop was called.
  bool stop_requested() const { return stop_requested_at_ != kNever; }

  // The time of the first RequestStop, which any thread or a signal handler
  // sets. It publishes no other memory, so its order does not matter.
  static constexpr SteadyTime::rep kNever =
      std::numeric_limits<SteadyTime::rep>::min();
  std::atomic<SteadyTime::rep> stop_requested_at_{kNever};
  bool stopping_ = false;
  bool has_begun_ = false;
  bool is_averaging_ = false;
  bool ran_ = false;
  absl::Status failure_;  // the first failure
};

// The steps that Session::Steps returns, for one range-based for loop.
// Requires: the session and the loader outlive it.
// Thread-safety: thread-compatible.
class StepRange {
 public:
  // An iterator at the range's current step. All iterators share that step.
  class Iterator {
   public:
    Step& operator*() const { return range_->step_; }
    Iterator& operator++() {
      range_->Advance();
      return *this;
    }
    bool operator!=(const Iterator& other) const {
      return done() != other.done();
    }

   private:
    friend class StepRange;
    explicit Iterator(StepRange* range) : range_(range) {}
    bool done() const { return range_ == nullptr || range_->done_; }

    StepRange* range_;
  };

  ~StepRange();

  StepRange(const StepRange&) = delete;
  StepRange& operator=(const StepRange&) = delete;

  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(nullptr); }

 private:
  friend class Session;
  StepRange(Session& session, Loader& loader, int64_t epoch);

  void Advance();
  // Makes the step of the current batch, or ends the epoch if no batch is left.
  void Take();
  void Fail(const absl::Status& why);

  Session& session_;
  Loader& loader_;
  const int64_t epoch_;
  std::optional<EpochRange> batches_;
  std::optional<EpochRange::Iterator> at_;
  Step step_;
  bool done_ = false;
};

inline bool EpochNumbers::Iterator::operator!=(const Iterator& end) const {
  return epoch_ < end.epoch_ && !range_->over();
}

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_SESSION_H_
