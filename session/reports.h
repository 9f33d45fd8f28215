// Reports tell how a training goes: its progress in the log, and its numbers in
// metrics sinks. They cost nothing on a rank that has nothing to tell.
// Internal.
//
//   Reports reports(job, group, host_group, log, console);
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
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/session/console.h"
#include "lockstep/session/progress.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {

// Thread-safety: thread-compatible.
class Reports {
 public:
  using Log = std::function<void(absl::string_view text)>;

  // `console`, which may be null, has a bar. The job and the groups outlive
  // this.
  Reports(const Job& job, Communicator& group, Communicator& host_group,
          Log log, std::shared_ptr<Console> console);

  // Makes the sinks. Where the job has rank_metrics, all ranks compare their
  // clocks here.
  absl::Status Begin(PluginRegistry& registry, const PluginContext& context);

  // Returns whether anything is told of steps on this rank.
  bool on() const { return progress_.has_value() || !sinks_.empty(); }

  // Says after how many steps the training goes on. Sinks are told nothing
  // before that is known, since it could take back what earlier runs have told.
  void GoOnAfter(int64_t steps);

  void BeginSteps(SteadyTime now);
  void BeginStep();
  // Adds metrics of the trainer to those of this step.
  void AddToStep(absl::Span<const Metric> metrics);
  void EndStep(StepReport& step, const Loader& loader);
  // The epoch is over, or the trainer has left the loop.
  void EndSteps();
  void EndEvaluation(const std::string& loader, int64_t steps, int64_t samples,
                     absl::Span<const Metric> means);

  // Tells metrics of the trainer, outside of a step.
  void Write(int64_t steps, absl::Span<const Metric> metrics);

  void Flush();

  // Tells what is left to tell. No other call comes after it.
  void End();

 private:
  struct Sink {
    std::string name;  // "metrics.text"
    bool is_of_rank = false;
    std::unique_ptr<MetricsSink> sink;
    int64_t calls = 0;
    int64_t failures = 0;
  };
  struct Collectives {
    int64_t count = 0;
    double seconds = 0;
    double slowest = 0;
  };

  // The metrics of one step after the other, whose names stay as they are.
  class Row {
   public:
    void Begin() { used_ = 0; }
    void Put(absl::string_view name, double value) { Put("", name, value); }
    // The name is "GROUP/NAME" where there is a group.
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
  void WriteToAll(int64_t steps, Row row);
  // Returns what was issued since BeginStep.
  Collectives CollectivesOfStep() const;
  void Call(Sink& sink, const std::function<absl::Status()>& call);

  const Job& job_;
  Communicator& group_;
  Communicator& host_group_;
  const Log log_;
  const std::shared_ptr<Console> console_;

  std::optional<Progress> progress_;
  std::vector<Sink> sinks_;
  bool has_rank_sinks_ = false;
  bool have_begun_ = false;  // the sinks
  bool in_steps_ = false;
  std::vector<Row> held_;  // the metrics that were told before
  ClockOffset clock_;
  Row of_all_;                      // of a step, for the sinks of all ranks
  Row of_rank_;                     // of a step, for those of this one
  std::vector<Metric> of_trainer_;  // of this step
  // The numbers of operations before this step.
  int64_t issued_ = 0;
  int64_t host_issued_ = 0;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_REPORTS_H_
