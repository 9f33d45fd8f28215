// A MetricsSink receives the numbers of a training, such as its loss, its
// accuracy, and the time that it waits for data. A Session (session/session.h)
// makes the sinks of the job's tables [metrics] on rank 0, and writes metrics
// of all ranks to them. It makes the sinks of [rank_metrics] on each rank, and
// writes metrics of that rank to them.
//
//   class Logger : public MetricsSink {
//    public:
//     absl::Status Write(int64_t step,
//                        absl::Span<const Metric> metrics) override {
//       for (const Metric& metric : metrics) Log(metric.name, metric.value);
//       return absl::OkStatus();
//     }
//   };
//
// A program without a session may call Begin before the first Write, which some
// sinks need to know where a restarted training goes on, and calls Flush at the
// end.
#ifndef LOCKSTEP_METRICS_METRICS_SINK_H_
#define LOCKSTEP_METRICS_METRICS_SINK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

class RecordsSink;

// A number with a name.
struct Metric {
  std::string name;
  double value = 0;
};

// Guarantees: a session writes to a sink from one thread, and an error of a
// sink does not end the training.
// Thread-safety: thread-compatible.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // Is called when the training begins, or continues after `steps` steps.
  // Metrics that an earlier run wrote for later steps are void, since these
  // steps are repeated. A session calls it before the first Write.
  virtual absl::Status Begin(int64_t /*steps*/) { return absl::OkStatus(); }

  // Receives metrics of a step. Steps come in order, and a step may come more
  // than once with different metrics. A session calls it on the thread that
  // trains, which waits for it. It logs an error or an exception, and
  // continues.
  virtual absl::Status Write(int64_t step,
                             absl::Span<const Metric> metrics) = 0;

  // Returns the receiver of records (records.h), which lives as long as this,
  // or null if this sink wants none.
  virtual RecordsSink* records() { return nullptr; }

  // Writes buffered data to its destination. A session calls it before a
  // checkpoint, at the end of an epoch, and at the end of the training, even if
  // that failed.
  virtual absl::Status Flush() { return absl::OkStatus(); }
};

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_METRICS_SINK_H_
