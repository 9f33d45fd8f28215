// These functions return the records of TensorBoard's event files as bytes.
// They are TFRecords, each of which contains one Event. Internal.
//
//   std::string bytes = EventFileBegin(now);   // once, at the file's begin
//   bytes += RestartEvent(now, 120);           // what came after it is void
//   bytes += MetricsEvent(now, 120, metrics);
#ifndef LOCKSTEP_METRICS_TENSORBOARD_EVENTS_H_
#define LOCKSTEP_METRICS_TENSORBOARD_EVENTS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep::internal_metrics {

// Times are in seconds since 1970. This record is the first one of a file.
std::string EventFileBegin(double time);

// Makes TensorBoard discard what it has read of this step and of later ones, in
// all files of the folder, since the training repeats these steps.
std::string RestartEvent(double time, int64_t step);

// The values are converted to float, the type that TensorBoard uses.
std::string MetricsEvent(double time, int64_t step,
                         absl::Span<const Metric> metrics);

}  // namespace lockstep::internal_metrics

#endif  // LOCKSTEP_METRICS_TENSORBOARD_EVENTS_H_
