// The records of TensorBoard's event files, as bytes: TFRecords, each of which
// holds an Event. Internal.
//
//   std::string bytes = EventFileBegin(now);   // once, at the file's begin
//   bytes += RestartEvent(now, 120);           // what came after it is void
//   bytes += MetricsEvent(now, 120, metrics);
#ifndef LOCKSTEP_PLUGIN_TENSORBOARD_EVENTS_H_
#define LOCKSTEP_PLUGIN_TENSORBOARD_EVENTS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep::internal_plugin {

// Times are in seconds since 1970.
std::string EventFileBegin(double time);

// Makes TensorBoard forget what it has read of this step and of later ones, in
// this file and in others of the folder: the training goes on from before them.
std::string RestartEvent(double time, int64_t step);

// The values become floats, as TensorBoard has them.
std::string MetricsEvent(double time, int64_t step,
                         absl::Span<const Metric> metrics);

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_TENSORBOARD_EVENTS_H_
