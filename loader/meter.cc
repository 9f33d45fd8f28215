#include "lockstep/loader/meter.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/loader/recorder.h"

namespace lockstep::internal_loader {
namespace {

// Adds to a counter that only this thread writes. Returns the sum.
int64_t Add(std::atomic<int64_t>& counter, int64_t more) {
  const int64_t sum = counter.load(std::memory_order_relaxed) + more;
  counter.store(sum, std::memory_order_relaxed);
  return sum;
}

int64_t Get(const std::atomic<int64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

void Meter::GoTo(int64_t steps_taken) {
  last_.steps = steps_taken;
  if (Get(began_) == 0) Add(began_, Now());
}

void Meter::AddReady(int64_t ready) {
  Add(looks_, 1);
  Add(seen_ready_, ready);
}

void Meter::AddWait(int64_t nanoseconds) {
  Add(waited_, nanoseconds);
  Add(waits_, 1);
}

int64_t Meter::AddFailures(int64_t failed, int64_t substituted) {
  return Add(failed_, failed) + Add(substituted_, substituted);
}

void Meter::AddBatch(int64_t samples, int64_t bytes) {
  Add(batches_, 1);
  Add(samples_, samples);
  Add(bytes_, bytes);
}

void Meter::AddPacked(int64_t elements, int64_t empty) {
  Add(packed_elements_, elements);
  Add(empty_elements_, empty);
}

void Meter::Report(const SamplerProgress& progress, int64_t steps_in_epoch) {
  const Reported now = {Now(), Get(samples_), Get(bytes_),
                        progress.steps_taken};
  if (last_.time == 0) {
    last_ = now;
    return;
  }
  const int64_t spent = now.time - last_.time;
  if (spent < absl::ToInt64Nanoseconds(options_.progress_interval)) return;
  const double seconds = std::max<int64_t>(spent, 1) * 1e-9;
  LoaderProgress report;
  report.epoch = progress.epoch;
  report.steps = progress.steps_taken;
  report.steps_in_epoch = std::max(steps_in_epoch, report.steps);
  report.samples = now.samples;
  report.bytes = now.bytes;
  report.samples_per_second = (now.samples - last_.samples) / seconds;
  report.bytes_per_second = (now.bytes - last_.bytes) / seconds;
  const double steps_per_second =
      std::max<int64_t>(now.steps - last_.steps, 1) / seconds;
  report.seconds_left =
      (report.steps_in_epoch - report.steps) / steps_per_second;
  last_ = now;
  CatchAll("progress", [&] {
    options_.progress(report);
    return absl::OkStatus();
  }).IgnoreError();
}

LoaderMetrics Meter::Metrics(int64_t busy_nanoseconds) const {
  LoaderMetrics metrics;
  metrics.batches = Get(batches_);
  metrics.samples = Get(samples_);
  metrics.bytes = Get(bytes_);
  metrics.packed_elements = Get(packed_elements_);
  metrics.empty_elements = Get(empty_elements_);
  metrics.failed_samples = Get(failed_);
  metrics.substituted_samples = Get(substituted_);
  const int64_t began = Get(began_);
  metrics.elapsed_seconds = began == 0 ? 0 : (Now() - began) * 1e-9;
  metrics.requested_workers = *options_.num_workers;
  const bool inline_reading = metrics.requested_workers == 0;
  metrics.wait_seconds =
      (inline_reading ? busy_nanoseconds : Get(waited_)) * 1e-9;
  const double asked = std::max<int64_t>(metrics.batches, 1);
  metrics.readiness = metrics.batches == 0 || inline_reading
                          ? 0
                          : std::max(0.0, 1 - Get(waits_) / asked);
  metrics.ready_batches = Get(seen_ready_) / std::max(1.0, 1.0 * Get(looks_));
  const double available =
      metrics.elapsed_seconds * std::max(1, metrics.requested_workers);
  metrics.busy = available > 0 ? busy_nanoseconds * 1e-9 / available : 0;
  return metrics;
}

}  // namespace lockstep::internal_loader
