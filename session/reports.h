// Reports publish how a training goes: the progress in the log, and the metrics
// in metrics sinks. A rank that publishes nothing pays nothing for them.
// Internal.
//
//   Reports reports(job, world, group, host_group, log, bar);
//   LOCKSTEP_RETURN_IF_ERROR(reports.Begin(registry, context));
//   reports.GoOnAfter(restored_steps);
//   reports.BeginSteps(SteadyNow());
//   reports.BeginStep();
//   reports.EndStep(report, loader);
//   reports.EndSteps();
//   reports.End();
#ifndef LOCKSTEP_SESSION_REPORTS_H_
#define LOCKSTEP_SESSION_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/records.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/session/progress.h"
#include "lockstep/session/records.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {

// Requires: the job and the groups outlive it.
// Guarantees: a sink that fails does not end the training.
// Thread-safety: thread-compatible.
class Reports {
 public:
  using Log = std::function<void(absl::string_view text)>;

  // `bar` gets the text of the progress bar; it may be null.
  // `world` is null if the host gave only a group.
  Reports(const Job& job, const World* world, Communicator& group,
          Communicator& host_group, Log log, Log bar);

  // Makes the sinks. If the job has rank_metrics, all ranks compare their
  // clocks here.
  absl::Status Begin(PluginRegistry& registry, const PluginContext& context);

  // Counts the collectives of this group, too, such as one of gradients. A
  // group that comes in a step was made in it. The group must live while steps
  // are reported.
  void Watch(const Communicator& group);

  // Keeps the events of a loader, if a sink wants them. Call it before the
  // loader reads.
  void KeepEventsOf(Loader& loader) const;

  // Returns true if this rank reports steps.
  bool on() const { return progress_.has_value() || !sinks_.empty(); }

  // Sets the number of steps after which the training continues. Sinks get no
  // metrics before this call, because a sink may have to discard what earlier
  // runs wrote after that step.
  void GoOnAfter(int64_t steps);

  void BeginSteps(SteadyTime now);
  void BeginStep();
  // Adds the trainer's metrics to this step.
  void AddToStep(absl::Span<const Metric> metrics);
  void EndStep(StepReport& step, const Loader& loader);
  // Ends the steps, since the epoch has ended or the trainer has left the loop.
  void EndSteps();
  // `weights` are the numbers by which the means were divided. A mean over
  // nothing is left out.
  void EndEvaluation(const std::string& loader, int64_t steps, int64_t samples,
                     absl::Span<const Metric> means,
                     absl::Span<const double> weights);

  // Writes the trainer's metrics outside of a step.
  void Write(int64_t steps, absl::Span<const Metric> metrics);

  void Flush();

  // Writes everything that is left. It must be the last call.
  void End();

 private:
  struct Sink {
    std::string name;  // "metrics.text"
    bool is_of_rank = false;
    std::unique_ptr<MetricsSink> sink;
    RecordsSink* records = nullptr;  // null: it wants none
    bool wants_all_events = false;
    int64_t calls = 0;
    int64_t failures = 0;
  };
  struct Watched {
    const Communicator* group;
    int64_t issued;  // the operations before this step
    // The operations of the step that has ended, and how many are missing.
    std::vector<OperationRecord> operations = {};
    int64_t missing = 0;
  };
  struct Collectives {
    int64_t count = 0;
    double seconds = 0;  // those of operations at the same time count once
    double slowest = 0;
  };

  // The metrics of a step. A row is reused for each step, so that names which
  // stay the same are not allocated again.
  // Thread-safety: thread-compatible.
  class Row {
   public:
    void Begin() { used_ = 0; }
    void Put(absl::string_view name, double value) { Put("", name, value); }
    // Appends a metric. Its name is "GROUP/NAME" if there is a group.
    void Put(absl::string_view group, absl::string_view name, double value);
    absl::Span<const Metric> metrics() const {
      return absl::MakeConstSpan(metrics_).first(used_);
    }

   private:
    std::vector<Metric> metrics_;
    size_t used_ = 0;
  };

  void AddSinks(const std::map<std::string, Config>& tables, bool is_of_rank,
                std::vector<std::unique_ptr<MetricsSink>> sinks);
  void WriteTo(Sink& sink, int64_t steps, absl::Span<const Metric> metrics);
  void FillRows(const StepReport& step, const Collectives& collectives,
                const Loader& loader);
  void PutOrder(const StepReport& step, const Loader& loader);
  void WriteToAll(int64_t steps, Row row);
  // Returns the collectives that were issued since BeginStep.
  Collectives CollectivesOfStep();
  absl::Status BeginRecords();
  void AddToRecords(const StepReport& step, const Loader& loader);
  void WriteEvents(const StepEvents& events, Sink& sink);
  // Writes the times of operations and the slowest samples.
  void WriteTimes();
  void Call(Sink& sink, const std::function<absl::Status()>& call);

  const Job& job_;
  const World* const world_;
  Communicator& group_;
  Communicator& host_group_;
  const Log log_;
  const Log bar_;

  std::optional<Progress> progress_;
  std::vector<Sink> sinks_;
  bool has_rank_sinks_ = false;
  bool have_begun_ = false;  // MetricsSink::Begin was called
  bool in_steps_ = false;
  std::vector<Row> held_;  // rows for after GoOnAfter
  ClockOffset clock_;
  Row of_all_;                      // of a step, for the job's sinks
  Row of_rank_;                     // of a step, for this rank's sinks
  std::vector<Metric> of_trainer_;  // of this step
  std::vector<Watched> watched_;
  std::vector<Records::OfGroup> of_groups_;  // of the step that has ended
  std::optional<Records> records_;           // if a sink wants them
  // The last step that has ended in the present loop, and its loader; null
  // outside of loops.
  int64_t last_step_ = 0;
  int64_t recorded_ = 0;  // steps of this process
  const Loader* loader_ = nullptr;
  std::string loader_name_;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_REPORTS_H_
