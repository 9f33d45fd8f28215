// This suite checks what every metrics sink must do. It is for the tests of
// those who write one:
//
//   TEST(MySink, Conforms) {
//     ExpectConforms([] { return MakeMySink(path); });
//   }
#ifndef LOCKSTEP_PLUGIN_METRICS_SINK_CONFORMANCE_H_
#define LOCKSTEP_PLUGIN_METRICS_SINK_CONFORMANCE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep {

// Makes a sink that writes to the same place each time. It is called again only
// when the sink before is gone.
using MakeMetricsSink =
    std::function<absl::StatusOr<std::unique_ptr<MetricsSink>>()>;

// Fails the running test unless the sink takes without an error
// * a training of a thousand steps, and one that goes on from an earlier step;
// * a step that comes several times, and one without metrics;
// * values that are infinite or no numbers, and names of any bytes, one at
// least;
// * a Flush at any time, and an end without one;
// * metrics without a Begin, as a program without a session writes them.
void ExpectConforms(const MakeMetricsSink& make);

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_METRICS_SINK_CONFORMANCE_H_
