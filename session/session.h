// A Session is a training by several ranks: it finds them, checks that they
// mean the same job, makes the job's loaders, averages gradients over all
// samples, evaluates, keeps checkpoints, tells how the training goes, stops all
// ranks after the same step, and ends all of them when one fails. The trainer
// is a function of it:
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
// A host that has a main of its own does what Main does:
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

struct SessionOptions {
  // The ranks of a host that has joined them itself, and their group. Without
  // them, the session joins the ranks that the launcher started, and makes the
  // group that the job's text describes. They outlive the session. A host that
  // gives a group need not give the world.
  World* world = nullptr;
  Communicator* group = nullptr;

  // Where `group` moves memory of devices alone, as nccl does: a group of the
  // same ranks that moves the host's memory.
  Communicator* host_group = nullptr;

  // The hooks are called in this order. They outlive the session.
  std::vector<SessionHooks*> hooks;

  // Log lines go here, from any thread: how the training goes on (on rank 0),
  // why it stops, and in a world that the session has made ranks that are late
  // and operations that are slow. Without it, they go to the standard error
  // and, where that is a terminal, a bar shows the progress there.
  std::function<void(absl::string_view)> log;
};

struct VerifyOptions {
  // The steps before the restart, and those after it.
  int64_t steps = 5;

  // Changes the job for the part behind the restart: the number of workers, for
  // instance, which changes no result. On all ranks alike.
  std::function<void(Job& job)> change;
};

// The result of an evaluation, over the samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  std::vector<Metric> means;

  // Returns NaN where there is no mean of that name.
  double mean(absl::string_view name) const { return ValueOf(means, name); }
};

// A step of a training: the batches of this rank, and what they add up to over
// all ranks. A step that failed has no batches, and Average says why.
// Thread-safety: thread-compatible.
class Step {
 public:
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // OK, or why this step has failed, which is the last one then. Average
  // returns it, too; a trainer that does not call Average asks here.
  const absl::Status& status() const { return status_; }

  int64_t epoch() const { return epoch_; }
  int64_t number() const { return number_; }  // in the epoch, from 0

  // The batches of this rank: one. A batch without data has no valid rows, and
  // is treated as any other. Hooks see them as the trainer leaves them.
  Batch* begin() { return batch_; }
  Batch* end() { return status_.ok() ? batch_ + 1 : batch_; }
  const Batch* begin() const { return batch_; }
  const Batch* end() const { return status_.ok() ? batch_ + 1 : batch_; }

  // Adds to a sum of this step over the rows of all ranks, such as the loss of
  // a batch's valid rows. It becomes a mean over all rows. Ranks add up with
  // the precision of a float. Call it before Average, and for each batch, also
  // for one without valid rows: all ranks must add the same names.
  void Add(absl::string_view name, double sum);

  // Sets what this rank's gradients and sums are of, in place of the valid rows
  // of its batches: how many tokens, for instance. From 0 on; before Average.
  void set_weight(int64_t weight);
  int64_t weight() const { return weight_; }

  // Adds up the gradients of all ranks and divides them by the weight of all:
  // the gradients that the trainer has added are sums over rows, and become
  // their mean. Where no rank has a row, they are 0. One collective, which also
  // moves the sums; with gradients on a device, these have one of their own. A
  // trainer with several models calls it once for each.
  absl::Status Average(Gradients& gradients);

  // After Average, and in hooks: over all ranks. The session tells the means in
  // the log and to the job's metrics sinks.
  int64_t total_weight() const { return total_weight_; }
  absl::Span<const Metric> means() const { return means_; }
  // Returns NaN where nothing of that name was added.
  double mean(absl::string_view name) const { return ValueOf(means_, name); }

 private:
  friend class Session;
  friend class StepRange;

  Step() = default;

  // Fails the step for a call that comes too late.
  void RefuseAfterAverage(absl::string_view call);

  Session* session_ = nullptr;
  absl::Status status_;
  int64_t epoch_ = 0;
  int64_t number_ = 0;
  Batch* batch_ = nullptr;
  int64_t weight_ = 0;
  Sums sums_;
  bool is_weight_rows_ = true;
  // The numbers of the batch, which the trainer may have released.
  int64_t batch_epoch_ = 0;
  int64_t rows_ = 0;
  bool is_added_up_ = false;  // the weight, the sums and requests to stop
  int64_t total_weight_ = 0;
  std::vector<Metric> means_;
  // The times when the step before it ended, when its batch was asked for, and
  // when that was there.
  SteadyTime before_, asked_, begun_;
};

// The epochs that Session::Epochs tells.
class EpochNumbers {
 public:
  // Stands at an epoch. `!=` requires the end of the range on its right.
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

  // Returns whether no step is left, whatever the epoch.
  bool over() const;

  const Session& session_;
  const Loader& loader_;
  const int64_t begin_;
  const int64_t end_;
};

// Thread-safety: RequestStop and Log may be called on any thread; anything else
// on one.
class Session {
 public:
  // Joins the ranks, makes the groups, and compares the job's text. The
  // registry has all parts that the job names, and outlives the session.
  //   FAILED_PRECONDITION  the ranks have different jobs, which it shows
  //   and what World::FromEnvironment and Job::MakeGroup return
  static absl::StatusOr<std::unique_ptr<Session>> Create(
      Job job, PluginRegistry& registry, const SessionOptions& options = {});

  // Parts from the other ranks, who fail where they still need this one.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Calls the trainer, once, and returns how the training has ended on all
  // ranks. What one rank returns or throws ends it on the others, and they say
  // so: a rank that returns early, too. OK where all went through, or stopped
  // as they were asked, which stopping() tells.
  absl::Status Run(const std::function<absl::Status(Session&)>& train);

  // Finds out whether the training goes on exactly where a checkpoint was
  // saved, and is for a trainer's tests, in place of Run. Calls the trainer
  // three times: for 2 * steps steps; for `steps`; and to go on from there for
  // as many again, with the same ranks. Rank 0 keeps the checkpoints in a
  // folder for temporary files.
  //   FAILED_PRECONDITION  the two do not end alike; names the first section of
  //                        the checkpoint that differs
  //   INVALID_ARGUMENT     the training has fewer steps
  //   and what Run returns
  absl::Status Verify(const std::function<absl::Status(Session&)>& train,
                      const VerifyOptions& options = {});

  const Job& job() const { return job_; }
  PluginRegistry& registry() const { return registry_; }

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  // The ranks; nullptr where a host has given its group alone.
  World* world() const { return world_; }

  // The group of the job, and the one that moves the host's memory: the same,
  // but with nccl. For collectives of the trainer's own, in the same order on
  // all ranks.
  Communicator& group() const { return *group_; }
  Communicator& host_group() const { return *host_group_; }

  // Makes the loader of the job's table [loader.NAME] for this rank, and keeps
  // it. `context` may give it a dataset and LoaderOptions with callbacks.
  //   NOT_FOUND       there is no such table, and those that there are
  //   ALREADY_EXISTS  it was made before
  absl::StatusOr<Loader*> MakeLoader(absl::string_view name,
                                     PluginContext context = {});

  // Makes memory for the gradients of these parameters, and keeps it. All ranks
  // get the parameters of rank 0. Requires that the parameters and the spans of
  // their gradients stay where they are until Train returns.
  //   INVALID_ARGUMENT     two parameters have one name
  //   FAILED_PRECONDITION  the ranks have different ones, which it shows
  //   UNIMPLEMENTED        they are on a device, and the group is of hosts
  absl::StatusOr<Gradients*> MakeGradients(std::vector<Parameter> parameters,
                                           const GradientOptions& options = {});

  // Adds to the job's checkpoints what the trainer goes on from beside the
  // parameters of its gradients, the places of its loaders and steps(): the
  // state of an optimizer, or of random numbers. Before Restore, with what
  // Checkpoint::Add says of names and memory.
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

  // The same for memory of which each rank has a part (Checkpoint::AddPart).
  absl::Status AddPart(absl::string_view name, Buffer part) {
    return checkpoint_->AddPart(name, part);
  }

  // Goes on from the newest checkpoint, if there is one. Call it when all is
  // made and added, and before Epochs: a job that has a path for checkpoints
  // needs it before the first step. Returns what Checkpoint::Restore does.
  absl::Status Restore();

  // Saves a checkpoint, on all ranks; within a step, when that has ended. The
  // session does so itself after every_steps steps, at the end of an epoch, and
  // where the training stops. Where the job has no path for checkpoints, it
  // does nothing.
  absl::Status Save();

  // Waits, on all ranks, until the disk has what was saved last.
  absl::Status AwaitSaved() { return checkpoint_->Wait(); }

  // The number of steps that have ended, those before a restart included.
  int64_t steps() const { return steps_; }

  // The epochs from the one in which the loader is up to `epochs`, for a
  // range-based for loop over the steps of the same loader. It ends early where
  // the training stops or has failed, and where the loader has come to its
  // max_steps. A loader with advance_epochs has them all in one range of steps,
  // and gets one number. A training that goes on from the end of an epoch
  // begins with that one, of which no step is left: so it does again what comes
  // behind the steps.
  EpochNumbers Epochs(const Loader& loader, int64_t epochs);

  // The steps of an epoch, or those that are left of it in a loader that was
  // restored, for a range-based for loop. A step is over when the loop comes to
  // the next one: a `break` leaves it without an end, and it does not count.
  // The last one is that after which all ranks stop, or the first that failed.
  // The loader's Drain is not for a trainer of a session.
  StepRange Steps(Loader& loader, int64_t epoch);

  // Calls `evaluate` with each batch of epoch 0 of the loader, adds up over all
  // ranks, and returns the means over samples. Each sample counts once: those
  // that only pad a batch are behind its valid rows, which `evaluate` alone
  // looks at. (A loader whose tail is "drop" leaves samples out.)
  //   CANCELLED         the training stops; Train returns this, and it is no
  //                     failure
  //   INVALID_ARGUMENT  the loader has advance_epochs or max_steps
  absl::StatusOr<Evaluation> Evaluate(
      Loader& loader,
      const std::function<absl::Status(const Batch& batch, Sums& sums)>&
          evaluate);

  // Makes all ranks stop after the next step that they end together. A call on
  // one rank is enough, also in a signal handler. A training that is stopped is
  // to go on later; a trainer that is done early returns from Train, on all
  // ranks.
  void RequestStop() { stop_requested_ = true; }

  // Returns whether the training has come to its first step.
  bool has_begun() const { return has_begun_; }

  // Returns whether the training stops because that was asked for.
  bool stopping() const { return stopping_; }

  // Writes a line to the log.
  void Log(absl::string_view text) const;

  // Tells metrics of this step or, outside of one, of the last one to the sinks
  // of the job's tables [metrics], on rank 0: a learning rate, for instance.
  // Means of steps and evaluations go there without it.
  //
  //   session.WriteMetrics({{"learning_rate", rate}});
  //
  // becomes trainer/learning_rate there.
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

  // Issues a collective on gradients. On the host it is done when this returns;
  // on a device, it is queued on their stream.
  absl::Status Do(const Gradients& gradients, CallOptions options,
                  const std::function<absl::StatusOr<Work>(
                      Communicator&, const CallOptions&)>& issue);

  // Adds up over ranks what a step or an evaluation has, by way of memory in
  // which `count` values are added up with it.
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
  // Says behind an error in which loader it was.
  absl::Status InLoader(const Loader& loader, const absl::Status& error) const;
  // Returns its name in the job, or nullptr.
  const std::string* FindName(const Loader& loader) const;
  // Returns its name in the job, or "loader".
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

  // The gradients outlive the session's groups, which may still use those on a
  // device after a failure.
  std::vector<std::unique_ptr<Gradients>> gradients_;

  const Job job_;
  PluginRegistry& registry_;
  const std::vector<SessionHooks*> hooks_;
  const std::shared_ptr<internal_session::Console> console_;  // without a log
  const std::function<void(absl::string_view)> log_;

  std::unique_ptr<World> own_world_;
  std::unique_ptr<Communicator> own_group_;
  std::unique_ptr<Communicator> own_host_group_;
  World* world_ = nullptr;
  Communicator* group_ = nullptr;
  Communicator* host_group_ = nullptr;

  Work on_device_;  // what was issued last on gradients on a device

  std::map<std::string, std::unique_ptr<Loader>> loaders_;
  std::map<const Loader*, int64_t> ended_;  // the last epoch that was

  std::unique_ptr<internal_session::Reports> reports_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::set<const Loader*> saved_loaders_;    // those that are in checkpoints
  std::set<const Loader*> stepped_loaders_;  // those that Steps reads
  // The epochs in which loaders go on that Steps has not read since.
  std::map<const Loader*, int64_t> restored_epochs_;
  int64_t steps_ = 0;
  int64_t last_step_ = -1;    // the training stops there, if it is not negative
  int64_t saved_steps_ = -1;  // those of the last checkpoint
  bool is_in_step_ = false;
  bool left_step_ = false;       // the trainer left the last one without an end
  bool save_requested_ = false;  // in this step

  std::atomic<bool> stop_requested_{false};
  bool stopping_ = false;
  bool has_begun_ = false;
  bool is_averaging_ = false;
  bool ran_ = false;
  absl::Status failure_;  // the first one of a step
};

// What Session::Steps returns; for a range-based for loop, once.
class StepRange {
 public:
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
  // Makes the step of the batch at which batches_ stands.
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
