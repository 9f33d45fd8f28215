// This suite checks what every metrics sink must do. Use it in the tests of
// your own sinks:
//
//   TEST(MySink, Conforms) {
//     ExpectConforms([] { return MakeMySink(path); });
//   }
#ifndef LOCKSTEP_METRICS_METRICS_SINK_CONFORMANCE_H_
#define LOCKSTEP_METRICS_METRICS_SINK_CONFORMANCE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep {

// A function that makes a sink. Each sink writes to the same place. The
// function is called again only after the previous sink was destroyed.
using MakeMetricsSink =
    std::function<absl::StatusOr<std::unique_ptr<MetricsSink>>()>;

// Fails the running test unless the sink accepts, without an error,
// * a training of a thousand steps, and one that continues from an earlier
//   step;
// * a step that comes several times, and a step without metrics;
// * values that are infinite or NaN, and names with any bytes, but never empty;
// * a Flush at any time, and an end without one;
// * metrics without a Begin, as a program without a session writes them.
void ExpectConforms(const MakeMetricsSink& make);

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_METRICS_SINK_CONFORMANCE_H_
