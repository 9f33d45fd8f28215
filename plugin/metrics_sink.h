// A metrics sink takes the numbers of a training: its loss, its accuracy, the
// time that it waits for data. A Session (session/session.h) makes those of the
// job's tables [metrics] on rank 0, and tells them of all ranks; it makes those
// of [rank_metrics] on each rank, and tells them of that one.
//
//   class Logger : public MetricsSink {
//    public:
//     absl::Status Write(int64_t step,
//                        absl::Span<const Metric> metrics) override {
//       for (const Metric& metric : metrics) Log(metric.name, metric.value);
//       return absl::OkStatus();
//     }
//   };
#ifndef LOCKSTEP_PLUGIN_METRICS_SINK_H_
#define LOCKSTEP_PLUGIN_METRICS_SINK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

struct Metric {
  std::string name;
  double value = 0;
};

// Thread-safety: thread-compatible.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // The training begins, or goes on after so many steps: what an earlier run
  // has told of later ones does not count, since they come again. A session
  // calls it before the first Write.
  virtual absl::Status Begin(int64_t /*steps*/) { return absl::OkStatus(); }

  // Takes metrics of a step. Steps come in their order, and one may come more
  // than once, with other metrics. A session calls it on the thread that
  // trains, which waits for it, and logs an error or an exception and goes on.
  virtual absl::Status Write(int64_t step,
                             absl::Span<const Metric> metrics) = 0;

  // Brings what was written to where it is kept. A session calls it before a
  // checkpoint, at the end of an epoch, and at the end, well or not.
  virtual absl::Status Flush() { return absl::OkStatus(); }
};

}  // namespace lockstep

#endif  // LOCKSTEP_PLUGIN_METRICS_SINK_H_
