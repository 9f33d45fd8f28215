// What a session tells of a training: its progress in the log, and its numbers
// in metrics sinks. Where there is nothing to tell, it costs nothing. Internal.
//
//   Reports reports(job, rank, log, console);
//   LOCKSTEP_RETURN_IF_ERROR(reports.Begin(registry, context, host_group));
//   reports.BeginSteps(SteadyNow());
//   reports.BeginStep();
//   reports.EndStep(report, loader);
//   reports.End();
#ifndef LOCKSTEP_SESSION_REPORTS_H_
#define LOCKSTEP_SESSION_REPORTS_H_

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

  // Makes the sinks, and measures what rank_metrics tell of clocks, with the
  // other ranks.
  absl::Status Begin(PluginRegistry& registry, const PluginContext& context);

  // Returns whether anything is told of steps on this rank.
  bool on() const { return progress_.has_value() || !sinks_.empty(); }

  // The training goes on after so many steps.
  void GoOnAfter(int64_t steps);

  void BeginSteps(SteadyTime now);
  void BeginStep();
  void EndStep(const StepReport& step, const Loader& loader);
  void EndSteps();
  void EndEvaluation(const std::string& loader, int64_t steps, int64_t samples,
                     absl::Span<const Metric> means);

  // Writes to the sinks for metrics of all ranks.
  void Write(int64_t steps, absl::Span<const Metric> metrics);

  void Flush();

  // Nothing more comes.
  void End();

 private:
  struct Sink {
    std::string name;  // "metrics.text"
    bool is_of_rank = false;
    std::unique_ptr<MetricsSink> sink;
    bool has_begun = false;
    // How often these have failed since they last went well.
    int64_t failed_writes = 0;
    int64_t failed_flushes = 0;
  };
  struct Collectives {
    int64_t count = 0;
    double seconds = 0;
    double slowest = 0;
  };

  void AddSinks(const std::map<std::string, Config>& tables, bool is_of_rank,
                std::vector<std::unique_ptr<MetricsSink>> sinks);
  void WriteTo(Sink& sink, int64_t steps, absl::Span<const Metric> metrics);
  void WriteStep(const StepReport& step, const Loader& loader);
  // Returns what was issued since BeginStep.
  Collectives CollectivesOfStep() const;
  void Call(const Sink& sink, int64_t& failures,
            const std::function<absl::Status()>& call);

  const Job& job_;
  Communicator& group_;
  Communicator& host_group_;
  const Log log_;
  const std::shared_ptr<Console> console_;

  std::optional<Progress> progress_;
  std::vector<Sink> sinks_;
  bool has_rank_sinks_ = false;
  int64_t steps_before_ = 0;  // those of earlier runs
  ClockOffset clock_;
  // The operations before this step.
  int64_t issued_ = 0;
  int64_t host_issued_ = 0;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_REPORTS_H_
