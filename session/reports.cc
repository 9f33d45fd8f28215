#include "lockstep/session/reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation_log.h"
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
namespace {

// The prefix of the trainer's own metrics, which keeps them apart from the
// others.
constexpr absl::string_view kTrainer = "trainer";

// Returns the number of steps in the step's epoch that this loop has, or 0 if
// it is not known.
int64_t StepsInEpoch(const StepReport& step, const Loader& loader) {
  // Batches that come as they are ready have no numbers from which to compute
  // it.
  if (loader.options().delivery == Delivery::kAsReady) return 0;
  const absl::StatusOr<int64_t> left = loader.StepsLeft();
  return left.ok() ? step.number + 1 + std::min(*left, step.most_left) : 0;
}

}  // namespace

Reports::Reports(const Job& job, const World* world, Communicator& group,
                 Communicator& host_group, Log log, Log bar)
    : job_(job),
      world_(world),
      group_(group),
      host_group_(host_group),
      log_(std::move(log)),
      bar_(std::move(bar)) {
  Watch(group);
  if (&host_group != &group) Watch(host_group);
}

absl::Status Reports::Begin(PluginRegistry& registry,
                            const PluginContext& context) {
  if (group_.rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sinks,
                              job_.MakeMetricsSinks(registry, context));
    AddSinks(job_.metrics, /*is_of_rank=*/false, std::move(sinks));
    if (job_.progress.every > absl::ZeroDuration()) {
      progress_.emplace(job_.progress.every, job_.progress.weight, log_, bar_);
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto sinks,
                            job_.MakeRankMetricsSinks(registry, context));
  AddSinks(job_.rank_metrics, /*is_of_rank=*/true, std::move(sinks));
  if (job_.rank_metrics.empty()) return absl::OkStatus();
  return BeginRecords();
}

// Compares the clocks of the ranks, which all of them do, and begins to keep
// records, if a sink of this rank wants them.
absl::Status Reports::BeginRecords() {
  std::optional<ClockOffset> steady;
  clock_.began = absl::GetCurrentTimeNanos();
  if (group_.size() > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(clock_, MeasureClockOffset(host_group_));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const ClockOffset measured,
        MeasureClockOffset(host_group_, [] { return SteadyNanoseconds(); }));
    if (group_.rank() > 0) steady = measured;
  }
  RunRecord run;
  run.run = clock_.began / 1000;
  run.job = job_.text;
  run.host = ThisProcess(group_.rank()).host;
  run.clock = NameOfSteadyClock();
  bool keeps_any = false;
  bool keeps_all = false;
  for (Sink& sink : sinks_) {
    if (!sink.is_of_rank) continue;
    Call(sink, [&] {
      RecordsSink* const records = sink.sink->records();
      if (records == nullptr) return absl::OkStatus();
      const StepsWithEvents which = records->which();
      if (which == StepsWithEvents::kNone) return absl::OkStatus();
      sink.records = records;
      sink.wants_all_events = which == StepsWithEvents::kAll;
      return records->BeginRun(run);
    });
    keeps_any = keeps_any || sink.records != nullptr;
    keeps_all = keeps_all || sink.wants_all_events;
  }
  if (keeps_any) records_.emplace(world_, steady, keeps_all);
  return absl::OkStatus();
}

void Reports::KeepEventsOf(Loader& loader) const {
  if (records_.has_value()) loader.KeepEvents(Records::kLoaderEvents);
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
  if (have_begun_) return;
  have_begun_ = true;
  for (Sink& sink : sinks_) {
    Call(sink, [&] { return sink.sink->Begin(steps); });
  }
  for (const Row& row : held_) WriteToAll(steps, row);
  held_.clear();
}

// ---- Steps.

void Reports::BeginSteps(SteadyTime now) {
  GoOnAfter(0);
  in_steps_ = true;
  if (progress_.has_value()) progress_->BeginSteps(now);
}

void Reports::Watch(const Communicator& group) {
  const bool is_known = std::any_of(
      watched_.begin(), watched_.end(),
      [&group](const Watched& each) { return each.group == &group; });
  if (!is_known) watched_.push_back({&group, 0});
}

void Reports::BeginStep() {
  if (!on()) return;
  for (Watched& watched : watched_) {
    watched.issued = watched.group->issued_operations();
  }
  of_trainer_.clear();
}

void Reports::AddToStep(absl::Span<const Metric> metrics) {
  if (sinks_.empty()) return;
  of_trainer_.insert(of_trainer_.end(), metrics.begin(), metrics.end());
}

void Reports::EndStep(StepReport& step, const Loader& loader) {
  const Collectives collectives = CollectivesOfStep();
  step.collective_seconds = collectives.seconds;
  if (progress_.has_value()) {
    progress_->AddStep(step, [&] { return StepsInEpoch(step, loader); });
  }
  if (sinks_.empty()) return;
  FillRows(step, collectives, loader);
  for (Sink& sink : sinks_) {
    const Row& row = sink.is_of_rank ? of_rank_ : of_all_;
    WriteTo(sink, step.steps, row.metrics());
  }
  if (records_.has_value()) AddToRecords(step, loader);
}

void Reports::AddToRecords(const StepReport& step, const Loader& loader) {
  of_groups_.clear();
  for (const Watched& watched : watched_) {
    of_groups_.push_back({watched.group, watched.operations, watched.missing});
  }
  last_step_ = step.steps;
  loader_ = &loader;
  loader_name_ = step.loader;
  ++recorded_;
  if (const StepEvents* events = records_->AddStep(step, of_groups_, loader)) {
    for (Sink& sink : sinks_) WriteEvents(*events, sink);
  }
  // A process that is killed loses the times since then.
  constexpr int64_t kEvery = 1000;
  if (recorded_ == kEvery / 100 || recorded_ == kEvery / 10 ||
      recorded_ % kEvery == 0) {
    WriteTimes();
  }
}

void Reports::WriteEvents(const StepEvents& events, Sink& sink) {
  if (sink.records == nullptr) return;
  if (!sink.wants_all_events) {
    if (events.why == StepEvents::Why::kAll) return;
    Call(sink, [&] { return sink.records->WriteEvents(events); });
    return;
  }
  StepEvents whole = events;
  whole.dropped_steps = 0;
  Call(sink, [&] { return sink.records->WriteEvents(whole); });
}

void Reports::WriteTimes() {
  if (!records_.has_value() || last_step_ == 0) return;
  if (loader_ != nullptr) records_->LookAt(loader_name_, *loader_);
  const auto times = records_->TakeTimes();
  const auto slowest = records_->TakeSlowest();
  for (Sink& sink : sinks_) {
    if (sink.records == nullptr) continue;
    for (const OperationTimes* const each : times) {
      Call(sink, [&] { return sink.records->WriteTimes(last_step_, *each); });
    }
    for (const auto& [loader, samples] : slowest) {
      Call(sink, [&, name = absl::string_view(loader),
                  list = absl::MakeConstSpan(samples)] {
        return sink.records->WriteSlowest(last_step_, name, list);
      });
    }
  }
}

void Reports::FillRows(const StepReport& step, const Collectives& collectives,
                       const Loader& loader) {
  const auto epoch = static_cast<double>(step.epoch);
  const double whole = step.between_seconds() + step.seconds();
  of_all_.Begin();
  for (size_t i = 0; i < step.means.size(); ++i) {
    // Without rows there are no means.
    if (step.mean_weights[i] == 0) continue;
    of_all_.Put(step.loader, step.means[i].name, step.means[i].value);
  }
  of_all_.Put("epoch", epoch);
  of_all_.Put("seconds", step.seconds());
  of_all_.Put("data_seconds", step.data_seconds);
  of_all_.Put("average_seconds", step.average_seconds);
  of_all_.Put("blocked_seconds", step.blocked_seconds);
  of_all_.Put("collective_seconds", step.collective_seconds);
  of_all_.Put("between_seconds", step.between_seconds());
  of_all_.Put("weight_per_second",
              static_cast<double>(step.total_weight) / std::max(whole, 1e-9));
  PutOrder(step, loader);
  for (const Metric& metric : of_trainer_) {
    of_all_.Put(kTrainer, metric.name, metric.value);
  }
  if (!has_rank_sinks_) return;
  of_rank_.Begin();
  of_rank_.Put("epoch", epoch);
  of_rank_.Put("position", static_cast<double>(step.position));
  of_rank_.Put("rows", static_cast<double>(step.rows));
  of_rank_.Put("seconds", step.seconds());
  of_rank_.Put("data_seconds", step.data_seconds);
  of_rank_.Put("average_seconds", step.average_seconds);
  of_rank_.Put("blocked_seconds", step.blocked_seconds);
  of_rank_.Put("collective_seconds", step.collective_seconds);
  of_rank_.Put("between_seconds", step.between_seconds());
  of_rank_.Put("collectives", static_cast<double>(collectives.count));
  of_rank_.Put("slowest_collective_seconds", collectives.slowest);
  of_rank_.Put("ready_batches", static_cast<double>(loader.ReadyBatches()));
  of_rank_.Put("clock_offset_seconds", clock_.seconds);
  of_rank_.Put("clock_error_seconds", clock_.error);
}

// Puts what came of each part of a mixture, and how well rows are packed.
void Reports::PutOrder(const StepReport& step, const Loader& loader) {
  if (loader.order().packing().has_value()) {
    const LoaderMetrics metrics = loader.Metrics();
    of_all_.Put(
        step.loader, "empty_share",
        static_cast<double>(metrics.empty_elements) /
            static_cast<double>(std::max<int64_t>(metrics.packed_elements, 1)));
  }
  const auto parts = loader.order().PartsAt(step.epoch, step.position);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = absl::StrCat("part", i);
    of_all_.Put(step.loader, part + "_share", parts[i].share);
    if (parts[i].size == 0) continue;
    of_all_.Put(step.loader, part + "_passes",
                static_cast<double>(parts[i].drawn) /
                    static_cast<double>(parts[i].size));
  }
}

void Reports::Row::Put(absl::string_view group, absl::string_view name,
                       double value) {
  if (used_ == metrics_.size()) metrics_.emplace_back();
  Metric& metric = metrics_[used_++];
  metric.value = value;
  absl::string_view rest = metric.name;
  const bool is_same = (group.empty() || (absl::ConsumePrefix(&rest, group) &&
                                          absl::ConsumePrefix(&rest, "/"))) &&
                       rest == name;
  if (is_same) return;
  metric.name = absl::StrCat(group, group.empty() ? "" : "/", name);
}

Reports::Collectives Reports::CollectivesOfStep() {
  Collectives all;
  std::vector<OperationRecord> records;
  for (Watched& watched : watched_) {
    const int64_t count = watched.group->issued_operations() - watched.issued;
    all.count += count;
    watched.missing = 0;
    watched.operations.clear();
    if (count == 0) continue;
    watched.operations = watched.group->RecentOperations(count);
    watched.missing = count - static_cast<int64_t>(watched.operations.size());
    records.insert(records.end(), watched.operations.begin(),
                   watched.operations.end());
  }
  absl::Duration slowest;
  for (const OperationRecord& record : records) {
    if (!record.pending()) {
      slowest = std::max(slowest, record.ended - record.issued);
    }
  }
  all.slowest = absl::ToDoubleSeconds(slowest);
  all.seconds = absl::ToDoubleSeconds(TimeIn(std::move(records)));
  return all;
}

void Reports::EndSteps() {
  if (!in_steps_) return;
  in_steps_ = false;
  if (progress_.has_value()) progress_->EndSteps();
  Flush();
  if (loader_ != nullptr) records_->LookAt(loader_name_, *loader_);
  loader_ = nullptr;
}

void Reports::EndEvaluation(const std::string& loader, int64_t steps,
                            int64_t samples, absl::Span<const Metric> means,
                            absl::Span<const double> weights) {
  std::vector<Metric> shown;
  for (size_t i = 0; i < means.size(); ++i) {
    if (weights[i] > 0) shown.push_back(means[i]);
  }
  if (progress_.has_value()) {
    progress_->AddEvaluation(loader, steps, samples, shown);
  }
  Row row;
  for (const Metric& mean : shown) row.Put(loader, mean.name, mean.value);
  WriteToAll(steps, std::move(row));
}

void Reports::Write(int64_t steps, absl::Span<const Metric> metrics) {
  Row row;
  for (const Metric& metric : metrics) {
    row.Put(kTrainer, metric.name, metric.value);
  }
  WriteToAll(steps, std::move(row));
}

// ---- Sinks.

void Reports::WriteToAll(int64_t steps, Row row) {
  if (row.metrics().empty() || sinks_.empty()) return;
  // Without checkpoints, every training begins at 0.
  if (job_.checkpoint.path.empty()) GoOnAfter(0);
  if (!have_begun_) {
    held_.push_back(std::move(row));
    return;
  }
  for (Sink& sink : sinks_) {
    if (!sink.is_of_rank) WriteTo(sink, steps, row.metrics());
  }
}

void Reports::WriteTo(Sink& sink, int64_t steps,
                      absl::Span<const Metric> metrics) {
  Call(sink, [&] { return sink.sink->Write(steps, metrics); });
}

void Reports::Flush() {
  for (Sink& sink : sinks_) {
    Call(sink, [&] { return sink.sink->Flush(); });
  }
}

// A failure of a sink does not end the training. It is logged, at failures 1,
// 2, 4, 8 and so on.
void Reports::Call(Sink& sink, const std::function<absl::Status()>& call) {
  const absl::Status status = CatchAll("it", call);
  ++sink.calls;
  if (status.ok()) return;
  const int64_t failures = ++sink.failures;
  const bool is_power_of_two = (failures & (failures - 1)) == 0;
  if (!is_power_of_two) return;
  log_(absl::StrCat(
      sink.name, ": ", status.message(),
      failures == 1 ? "" : absl::StrCat(" (", failures, " times so far)"),
      "; the training goes on without these metrics"));
}

void Reports::End() {
  if (progress_.has_value()) progress_->End();
  WriteTimes();
  Flush();
  for (const Sink& sink : sinks_) {
    if (sink.failures == 0) continue;
    log_(absl::StrCat(sink.name, ": ", sink.failures, " of ", sink.calls,
                      " calls have failed, and their metrics are lost"));
  }
}

}  // namespace lockstep::internal_session
