#include "lockstep/session/reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/clock_offset.h"
#include "lockstep/session/console.h"
#include "lockstep/session/progress.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {
namespace {

// Returns how many steps the epoch of a step has, and 0 where nobody knows.
int64_t StepsInEpoch(const StepReport& step, const Loader& loader) {
  // The number of a step says how many came before it.
  if (loader.options().delivery == Delivery::kAsReady) return 0;
  const absl::StatusOr<int64_t> left = loader.StepsLeft();
  return left.ok() ? step.number + 1 + *left : 0;
}

void AddMeans(const std::string& loader, absl::Span<const Metric> means,
              std::vector<Metric>& metrics) {
  for (const Metric& mean : means) {
    metrics.push_back({absl::StrCat(loader, "/", mean.name), mean.value});
  }
}

}  // namespace

Reports::Reports(const Job& job, Communicator& group, Communicator& host_group,
                 Log log, std::shared_ptr<Console> console)
    : job_(job),
      group_(group),
      host_group_(host_group),
      log_(std::move(log)),
      console_(std::move(console)) {}

absl::Status Reports::Begin(PluginRegistry& registry,
                            const PluginContext& context) {
  if (group_.rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sinks,
                              job_.MakeMetricsSinks(registry, context));
    AddSinks(job_.metrics, /*is_of_rank=*/false, std::move(sinks));
    if (job_.progress.every > absl::ZeroDuration()) {
      Progress::Output bar;
      if (console_ != nullptr && console_->has_bar()) {
        bar = [this](absl::string_view text) { console_->ShowBar(text); };
      }
      progress_.emplace(job_.progress.every, log_, std::move(bar));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto sinks,
                            job_.MakeRankMetricsSinks(registry, context));
  AddSinks(job_.rank_metrics, /*is_of_rank=*/true, std::move(sinks));
  if (job_.rank_metrics.empty() || group_.size() == 1) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(clock_, MeasureClockOffset(host_group_));
  return absl::OkStatus();
}

void Reports::AddSinks(const std::map<std::string, Config>& tables,
                       bool is_of_rank,
                       std::vector<std::unique_ptr<MetricsSink>> sinks) {
  size_t at = 0;
  for (const auto& [name, table] : tables) {
    Sink sink;
    sink.name = absl::StrCat(is_of_rank ? "rank_metrics." : "metrics.", name);
    sink.is_of_rank = is_of_rank;
    sink.sink = std::move(sinks[at++]);
    sinks_.push_back(std::move(sink));
    has_rank_sinks_ = has_rank_sinks_ || is_of_rank;
  }
}

void Reports::GoOnAfter(int64_t steps) {
  steps_before_ = steps;
  for (Sink& sink : sinks_) sink.has_begun = false;
}

// ---- Steps.

void Reports::BeginSteps(SteadyTime now) {
  if (progress_.has_value()) progress_->BeginSteps(now);
}

void Reports::BeginStep() {
  if (sinks_.empty()) return;
  issued_ = group_.issued_operations();
  host_issued_ = host_group_.issued_operations();
}

void Reports::EndStep(const StepReport& step, const Loader& loader) {
  if (progress_.has_value()) {
    progress_->AddStep(step, [&] { return StepsInEpoch(step, loader); });
  }
  if (!sinks_.empty()) WriteStep(step, loader);
}

void Reports::WriteStep(const StepReport& step, const Loader& loader) {
  const Collectives collectives = CollectivesOfStep();
  std::vector<Metric> metrics, of_rank;
  AddMeans(step.loader, step.means, metrics);
  const double seconds = std::max(step.seconds(), 1e-9);
  const std::vector<Metric> times = {
      {"seconds", seconds},
      {"data_seconds", step.data_seconds()},
      {"collective_seconds", collectives.seconds}};
  metrics.insert(metrics.end(), times.begin(), times.end());
  metrics.push_back(
      {"weight_per_second", static_cast<double>(step.total_weight) / seconds});
  if (has_rank_sinks_) {
    of_rank = {{"epoch", static_cast<double>(step.epoch)},
               {"position", static_cast<double>(step.position)},
               {"rows", static_cast<double>(step.rows)}};
    of_rank.insert(of_rank.end(), times.begin(), times.end());
    const std::vector<Metric> more = {
        {"collectives", static_cast<double>(collectives.count)},
        {"slowest_collective_seconds", collectives.slowest},
        {"ready_batches", static_cast<double>(loader.ReadyBatches())},
        {"clock_offset_seconds", clock_.seconds},
        {"clock_error_seconds", clock_.error}};
    of_rank.insert(of_rank.end(), more.begin(), more.end());
  }
  for (Sink& sink : sinks_) {
    WriteTo(sink, step.steps, sink.is_of_rank ? of_rank : metrics);
  }
}

Reports::Collectives Reports::CollectivesOfStep() const {
  Collectives all;
  const auto add = [&](const Communicator& group, int64_t before) {
    for (const OperationRecord& record :
         group.RecentOperations(group.issued_operations() - before)) {
      if (record.pending()) continue;
      const double seconds =
          absl::ToDoubleSeconds(record.ended - record.issued);
      ++all.count;
      all.seconds += seconds;
      all.slowest = std::max(all.slowest, seconds);
    }
  };
  add(group_, issued_);
  if (&host_group_ != &group_) add(host_group_, host_issued_);
  return all;
}

void Reports::EndSteps() {
  if (progress_.has_value()) progress_->EndSteps();
  Flush();
}

void Reports::EndEvaluation(const std::string& loader, int64_t steps,
                            int64_t samples, absl::Span<const Metric> means) {
  if (progress_.has_value()) {
    progress_->AddEvaluation(loader, steps, samples, means);
  }
  if (sinks_.empty()) return;
  std::vector<Metric> metrics;
  AddMeans(loader, means, metrics);
  Write(steps, metrics);
}

void Reports::Write(int64_t steps, absl::Span<const Metric> metrics) {
  for (Sink& sink : sinks_) {
    if (!sink.is_of_rank) WriteTo(sink, steps, metrics);
  }
}

// ---- Sinks.

void Reports::WriteTo(Sink& sink, int64_t steps,
                      absl::Span<const Metric> metrics) {
  Call(sink, sink.failed_writes, [&]() -> absl::Status {
    if (!sink.has_begun) {
      LOCKSTEP_RETURN_IF_ERROR(sink.sink->Begin(steps_before_));
      sink.has_begun = true;
    }
    return sink.sink->Write(steps, metrics);
  });
}

void Reports::Flush() {
  for (Sink& sink : sinks_) {
    Call(sink, sink.failed_flushes, [&] { return sink.sink->Flush(); });
  }
}

// A training does not end for its metrics: what went wrong is logged, once.
void Reports::Call(const Sink& sink, int64_t& failures,
                   const std::function<absl::Status()>& call) {
  const absl::Status status = CatchAll("it", call);
  if (!status.ok()) {
    if (++failures > 1) return;
    log_(absl::StrCat(sink.name, ": ", status.message(),
                      "; the training goes on without these metrics, and tries "
                      "again at the next ones"));
  } else if (failures > 0) {
    log_(absl::StrCat(sink.name, ": it goes well again, after ", failures,
                      " failure", failures == 1 ? "" : "s"));
    failures = 0;
  }
}

void Reports::End() {
  if (progress_.has_value()) progress_->End();
  Flush();
}

}  // namespace lockstep::internal_session
